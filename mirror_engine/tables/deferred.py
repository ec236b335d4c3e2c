"""Tables without what it costs to read them: a writer that is made at need, and a reader that opens each log once."""

from __future__ import annotations

import functools
import threading
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar

from mirror_engine.errors import TransientError
from mirror_engine.tables.base import DeltaReader, DeltaWriter, TableSnapshot
from mirror_engine.tables.log.durability import make_durable
from mirror_engine.tables.log.record import commits_from
from mirror_engine.tables.log.tables_folder import TablesFolder

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from mirror_engine.storage.store_url import Place
    from mirror_engine.tables.base import HistoryEntry

P = ParamSpec("P")
R = TypeVar("R")


def _real(method: Callable[Concatenate[Any, P], R]) -> Callable[Concatenate[Any, P], R]:
    """The method of a port, answered by the object in `real`."""

    @functools.wraps(method)
    def answer(self: Any, /, *args: P.args, **kwargs: P.kwargs) -> R:  # noqa: ANN401 - of both classes
        result: R = getattr(self.real, method.__name__)(*args, **kwargs)
        return result

    return answer


class DeferredWriter(TablesFolder, DeltaWriter):
    """A `DeltaWriter` that answers from file names and sizes what these can answer; its real writer does all else.

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

    snapshot = _real(DeltaWriter.snapshot)
    is_mirrored = _real(DeltaWriter.is_mirrored)
    count_rows = _real(DeltaWriter.count_rows)
    rows = _real(DeltaWriter.rows)
    history = _real(DeltaWriter.history)
    applied_since = _real(DeltaWriter.applied_since)
    make_durable = _real(DeltaWriter.make_durable)
    apply = _real(DeltaWriter.apply)
    write_segment = _real(DeltaWriter.write_segment)
    say_again = _real(DeltaWriter.say_again)
    drop = _real(DeltaWriter.drop)
    maintain = _real(DeltaWriter.maintain)

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
    """A `DeltaReader` that opens each log once: tables as they are at one moment. Errors are kept, too."""

    def __init__(self, reader: DeltaReader) -> None:
        self.real = reader
        self._tables, self._stamp = functools.cache(reader.tables), functools.cache(reader.needed_stamp)
        self._snapshots: dict[str, TableSnapshot | TransientError | None] = {}
        self._locks: dict[str, threading.Lock] = {}  # by table: several are read at once

    folder_identity = _real(DeltaReader.folder_identity)
    is_mirrored = _real(DeltaReader.is_mirrored)
    log_stamp = _real(DeltaReader.log_stamp)
    rows = _real(DeltaReader.rows)
    applied_since = _real(DeltaReader.applied_since)

    def tables(self) -> Sequence[str]:
        return self._tables()

    def needed_stamp(self, table: str) -> str:
        return self._stamp(table)

    def snapshot(self, table: str) -> TableSnapshot | None:
        with self._locks.setdefault(table, threading.Lock()):
            if table not in self._snapshots:
                try:
                    self._snapshots[table] = self.real.snapshot(table)
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
        return self.real.latest_external_change(
            table, since, columns
        )  # of a log that was not opened: a look for a commit

    def history(self, table: str, *, limit: int | None = None, until: int | None = None) -> Sequence[HistoryEntry]:
        if log := self._log(table):
            until = log.version if until is None else min(until, log.version)
        return self.real.history(table, limit=limit, until=until)

    def make_durable(self, table: str, since: int) -> None:
        if log := self._log(table):
            make_durable(log.folder, since, log.version)
