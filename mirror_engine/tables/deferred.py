"""Tables without what it costs to read them: a writer that is made at need, and a reader that opens each log once."""

from __future__ import annotations

import functools
import threading
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar, Unpack

from mirror_engine.errors import TransientError
from mirror_engine.tables.base import DeltaReader, DeltaWriter, TableSnapshot
from mirror_engine.tables.log.durability import make_durable
from mirror_engine.tables.log.record import commits_from
from mirror_engine.tables.log.tables_folder import TablesFolder

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import pyarrow as pa

    from mirror_engine.landing_zone.progress import Applied, Progress
    from mirror_engine.storage.store_url import Place
    from mirror_engine.tables.base import HistoryEntry, RowChoice

P = ParamSpec("P")
R = TypeVar("R")


def _real(method: Callable[[DeltaWriter], Callable[P, R]]) -> Callable[Concatenate[DeferredWriter, P], R]:
    """A method that the real writer has."""

    def answer(self: DeferredWriter, /, *args: P.args, **kwargs: P.kwargs) -> R:
        return method(self.real)(*args, **kwargs)

    return answer


class DeferredWriter(TablesFolder, DeltaWriter):
    """A `DeltaWriter` that answers from file names and sizes where it can, and makes the real writer otherwise.

    The real one is imported and made at need: a caught-up `sync` without Arrow takes 0.2 s less.
    """

    def __init__(self, tables: Place, make: Callable[[], DeltaWriter]) -> None:
        super().__init__(tables, Path())
        self._make = make
        self._made: DeltaWriter | None = None

    @property
    def real(self) -> DeltaWriter:
        """The real writer, made now where there was none."""
        with self._lock:
            self._made = self._made or self._make()
            return self._made

    snapshot = _real(lambda real: real.snapshot)
    is_mirrored = _real(lambda real: real.is_mirrored)
    count_rows = _real(lambda real: real.count_rows)
    rows = _real(lambda real: real.rows)
    history = _real(lambda real: real.history)
    applied_since = _real(lambda real: real.applied_since)
    make_durable = _real(lambda real: real.make_durable)
    apply = _real(lambda real: real.apply)
    write_segment = _real(lambda real: real.write_segment)
    say_again = _real(lambda real: real.say_again)
    drop = _real(lambda real: real.drop)
    maintain = _real(lambda real: real.maintain)

    def latest_external_change(self, table: str, since: int, columns: str = "") -> int:
        if self._made is None:
            with suppress(OSError):  # the real writer raises the error that names the table
                if not any(commits_from(self.path(table), since + 1)):
                    return -1
        return self.real.latest_external_change(table, since, columns)

    def close(self) -> None:
        if self._made:
            self._made.close()


class TablesReadOnce(DeltaReader):
    """A `DeltaReader` that opens each log once: tables as they are at one moment. Errors are cached, too."""

    def __init__(self, reader: DeltaReader) -> None:
        self._reader = reader
        self._tables, self._stamp = functools.cache(reader.tables), functools.cache(reader.needed_stamp)
        self._snapshots: dict[str, TableSnapshot | TransientError | None] = {}
        self._locks: dict[str, threading.Lock] = {}  # by table: several are read at once

    def tables(self) -> Sequence[str]:
        return self._tables()

    def folder_identity(self, folder: str) -> tuple[str, bool]:
        return self._reader.folder_identity(folder)

    def is_mirrored(self, table: str) -> bool:
        return self._reader.is_mirrored(table)

    def log_stamp(self, table: str, since: int) -> str:
        return self._reader.log_stamp(table, since)

    def needed_stamp(self, table: str) -> str:
        return self._stamp(table)

    def rows(self, table: str, **choice: Unpack[RowChoice]) -> pa.Table | None:
        return self._reader.rows(table, **choice)

    def applied_since(self, table: str, snapshot: TableSnapshot, known: Progress | None) -> Applied:
        return self._reader.applied_since(table, snapshot, known)

    def snapshot(self, table: str) -> TableSnapshot | None:
        with self._locks.setdefault(table, threading.Lock()):
            if table not in self._snapshots:
                try:
                    self._snapshots[table] = self._reader.snapshot(table)
                except TransientError as error:
                    self._snapshots[table] = error
            found = self._snapshots[table]
        if isinstance(found, TransientError):
            raise found
        return found

    def _log(self, table: str) -> Any:  # noqa: ANN401 - a `DeltaLog`; None for a writer without one, too
        found = self.snapshot(table)
        return found and found.log

    def latest_external_change(self, table: str, since: int, columns: str = "") -> int:
        found = self._snapshots.get(table)
        if isinstance(found, TableSnapshot) and found.log:
            return int(found.log.latest_external_change(since, columns))
        return self._reader.latest_external_change(table, since, columns)  # not opened: a look for a commit

    def history(self, table: str, *, limit: int | None = None, until: int | None = None) -> Sequence[HistoryEntry]:
        if log := self._log(table):
            until = log.version if until is None else min(until, log.version)
        return self._reader.history(table, limit=limit, until=until)

    def make_durable(self, table: str, since: int) -> None:
        if log := self._log(table):
            make_durable(log.folder, since, log.version)
