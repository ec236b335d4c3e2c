"""`DeltaWriter`s that put work off: the libraries of one are imported at need, the other opens each log once.

What they do not answer themselves, their writer does. A caught-up `sync` without Arrow saves 0.2 s.
"""

from __future__ import annotations

import threading
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mirror_engine.errors import TransientError
from mirror_engine.tables.log.durability import make_durable
from mirror_engine.tables.log.tables_folder import TablesFolder, commits_from

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from mirror_engine.storage.store_url import Place
    from mirror_engine.tables.base import DeltaWriter, HistoryEntry, TableSnapshot


class DeferredWriter:
    """Answers from file names and sizes what these can answer; everything else goes to the real writer.

    Args:
        tables: `ROOT/Tables`.
        make: imports and makes the real writer.
    """

    def __init__(self, tables: Place, make: Callable[[], DeltaWriter]) -> None:
        self._tables = TablesFolder(tables, Path())
        self._make = make
        self._made: DeltaWriter | None = None
        self._lock = threading.Lock()

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - every other method of `DeltaWriter`
        return getattr(self._writer, name)

    @property
    def _writer(self) -> DeltaWriter:
        with self._lock:
            self._made = self._made or self._make()
            return self._made

    def tables(self) -> Sequence[str]:
        return self._tables.tables()

    def log_stamp(self, table: str, since: int) -> str:
        return self._tables.log_stamp(table, since)

    def latest_external_change(self, table: str, since: int) -> int:
        with suppress(OSError):  # the real writer raises the error that names the table
            if not any(commits_from(self._tables.path(table), since + 1)):
                return -1
        return self._writer.latest_external_change(table, since)

    def close(self) -> None:
        if self._made:
            self._made.close()


class TablesReadOnce:
    """Tables as they are at one moment, for reading: remembers them, and why one could not be read."""

    def __init__(self, writer: DeltaWriter) -> None:
        self._writer = writer
        self._snapshots: dict[str, TableSnapshot | TransientError | None] = {}
        self._lock = threading.Lock()

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - every other method of `DeltaWriter`
        return getattr(self._writer, name)

    @cached_property
    def _folders(self) -> Sequence[str]:
        return self._writer.tables()

    def tables(self) -> Sequence[str]:
        return self._folders

    def snapshot(self, table: str) -> TableSnapshot | None:
        with self._lock:
            if table not in self._snapshots:
                try:
                    self._snapshots[table] = self._writer.snapshot(table)
                except TransientError as error:
                    self._snapshots[table] = error
            found = self._snapshots[table]
        if isinstance(found, TransientError):
            raise found
        return found

    def _log(self, table: str) -> Any:  # noqa: ANN401 - a `DeltaLog`; None for a writer without one, too
        found = self.snapshot(table)
        return found and found.log

    def make_durable(self, table: str, since: int) -> None:
        if log := self._log(table):
            make_durable(log.folder, since, log.version)
        else:
            self._writer.make_durable(table, since)

    def latest_external_change(self, table: str, since: int) -> int:
        from mirror_engine.tables.log.snapshot import latest_external_change  # noqa: PLC0415 - imports Arrow

        if log := self._log(table):
            return latest_external_change(log.folder, since, log.version)
        return self._writer.latest_external_change(table, since)

    def history(self, table: str, *, limit: int | None = None) -> Sequence[HistoryEntry]:
        if log := self._log(table):
            commits: Sequence[HistoryEntry] = log.history(limit)
            return commits
        return self._writer.history(table, limit=limit)
