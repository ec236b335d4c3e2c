"""Delta tables as they are at one moment: each log is opened once, however many parts of a command ask for it."""

from __future__ import annotations

import threading
from functools import cached_property
from typing import TYPE_CHECKING, Any

from mirror_engine.errors import TransientError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mirror_engine.tables.base import DeltaWriter, HistoryEntry, TableSnapshot


class TablesReadOnce:
    """A `DeltaWriter` for reading that remembers tables, and why one could not be read; the rest is its writer's."""

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
        """Every Delta table, by folder, sorted."""
        return self._folders

    def snapshot(self, table: str) -> TableSnapshot | None:
        """The table as it was when it was first asked for.

        Raises:
            TransientError: it could not be read then.
        """
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

    def make_durable(self, table: str, since: int) -> None:
        """See `DeltaWriter`.

        Raises:
            TransientError: a data file is missing, or it is not certain.
        """
        from mirror_engine.tables.log.durability import make_durable  # noqa: PLC0415 - a caught-up zone needs no Arrow

        found = self.snapshot(table)
        if found and found.log:
            make_durable(found.log.folder, since, found.version)
        else:
            self._writer.make_durable(table, since)

    def latest_external_change(self, table: str, since: int) -> int:
        """See `DeltaWriter`.

        Raises:
            TransientError: the log could not be read.
        """
        from mirror_engine.tables.log.history import external_change_in  # noqa: PLC0415 - as above

        found = self.snapshot(table)
        if found and found.log:
            return external_change_in(found.log, since)
        return self._writer.latest_external_change(table, since)

    def row_count(self, table: str) -> int | None:
        """Its rows; None without a table, or where the number is not known.

        Raises:
            TransientError: it could not be read.
        """
        found = self.snapshot(table)
        return found.count_rows() if found and found.log else self._writer.row_count(table)

    def history(self, table: str, *, limit: int | None = None) -> Sequence[HistoryEntry]:
        """Its commits, newest first.

        Raises:
            TransientError: it could not be read.
        """
        found = self.snapshot(table)
        if found and found.log:
            commits: Sequence[HistoryEntry] = found.log.history(limit)
            return commits
        return self._writer.history(table, limit=limit)
