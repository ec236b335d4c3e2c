"""Scripted faults: a door whose n-th call fails, before it did anything or after it did everything."""

from __future__ import annotations

import io
import threading
from enum import Enum
from typing import TYPE_CHECKING, Any, BinaryIO, TypeVar

from mirror_engine.errors import StorageUnavailable

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import pyarrow as pa

    from mirror_engine.delta.base import BatchRecord, ChangeBatch, DeltaState, DeltaWriter, HistoryEntry, Outcome
    from mirror_engine.landing_zone.column_types import TableSchema
    from mirror_engine.storage.base import Entry, Storage

_Answer = TypeVar("_Answer")


class Fault(str, Enum):
    """The two ways in which a call fails."""

    REFUSED = "refused"  # nothing happened
    LOST_ANSWER = "lost answer"  # it was done, but the caller sees a failure


class Script:
    """Which call of a door fails, and how.

    Args:
        faults: by the number of the call, counted from 1 over all methods.

    Attributes:
        calls: what was called so far, as `move Orders/….parquet`; its length is the number of the last call.
    """

    def __init__(self, faults: Mapping[int, Fault]) -> None:
        self.calls: list[str] = []
        self._faults = faults
        self._lock = threading.Lock()

    def play(self, name: str, call: Callable[[], _Answer]) -> _Answer:
        """Make the call, or fail in its place.

        Raises:
            StorageUnavailable: the script says so.
        """
        with self._lock:
            self.calls.append(name)
            fault = self._faults.get(len(self.calls))
        if fault is Fault.REFUSED:
            raise StorageUnavailable(f"{name}: refused by script")
        answer = call()
        if fault is Fault.LOST_ANSWER:
            if isinstance(answer, io.IOBase):
                answer.close()
            raise StorageUnavailable(f"{name}: answer lost by script")
        return answer


class FaultyStorage:
    """A `Storage` around another whose calls fail as a script says.

    Args:
        storage: what does the work.
        script: the fault by the number of the call, counted from 1 over all methods.
    """

    def __init__(self, storage: Storage, script: Mapping[int, Fault]) -> None:
        self._storage = storage
        self._script = Script(script)

    @property
    def calls(self) -> Sequence[str]:
        """What was called so far."""
        return self._script.calls

    def list(self, folder: str) -> Sequence[Entry] | None:
        """See `Storage.list`."""
        return self._script.play(f"list {folder}", lambda: self._storage.list(folder))

    def stat(self, path: str) -> Entry | None:
        """See `Storage.stat`."""
        return self._script.play(f"stat {path}", lambda: self._storage.stat(path))

    def open(self, path: str) -> BinaryIO:
        """See `Storage.open`."""
        return self._script.play(f"open {path}", lambda: self._storage.open(path))

    def write(self, path: str, content: bytes) -> None:
        """See `Storage.write`."""
        self._script.play(f"write {path}", lambda: self._storage.write(path, content))

    def move(self, source: str, target: str) -> None:
        """See `Storage.move`."""
        self._script.play(f"move {source}", lambda: self._storage.move(source, target))

    def delete(self, path: str) -> None:
        """See `Storage.delete`."""
        self._script.play(f"delete {path}", lambda: self._storage.delete(path))


class FaultyDeltaWriter:
    """A `DeltaWriter` around another whose calls fail as a script says.

    Args:
        writer: what does the work.
        script: the fault by the number of the call, counted from 1 over all methods.
    """

    def __init__(self, writer: DeltaWriter, script: Mapping[int, Fault]) -> None:
        self._writer = writer
        self._script = Script(script)

    @property
    def calls(self) -> Sequence[str]:
        """What was called so far."""
        return self._script.calls

    def tables(self) -> Sequence[str]:
        """See `DeltaWriter.tables`."""
        return self._script.play("tables", self._writer.tables)

    def state(self, table: str) -> DeltaState | None:
        """See `DeltaWriter.state`."""
        return self._script.play(f"state {table}", lambda: self._writer.state(table))

    def create(self, table: str, schema: TableSchema, record: BatchRecord) -> Outcome:
        """See `DeltaWriter.create`."""
        return self._script.play(f"create {table}", lambda: self._writer.create(table, schema, record))

    def apply(self, table: str, batch: ChangeBatch, record: BatchRecord) -> Outcome:
        """See `DeltaWriter.apply`."""
        return self._script.play(f"apply {table}", lambda: self._writer.apply(table, batch, record))

    def drop(self, table: str) -> None:
        """See `DeltaWriter.drop`."""
        self._script.play(f"drop {table}", lambda: self._writer.drop(table))

    def rows(self, table: str, *, version: int | None = None, limit: int | None = None) -> pa.Table | None:
        """See `DeltaWriter.rows`."""
        return self._script.play(f"rows {table}", lambda: self._writer.rows(table, version=version, limit=limit))

    def row_count(self, table: str) -> int | None:
        """See `DeltaWriter.row_count`."""
        return self._script.play(f"row_count {table}", lambda: self._writer.row_count(table))

    def history(self, table: str, *, limit: int | None = None) -> Sequence[HistoryEntry]:
        """See `DeltaWriter.history`."""
        return self._script.play(f"history {table}", lambda: self._writer.history(table, limit=limit))

    def maintain(self, table: str, retention_hours: float) -> Mapping[str, Any]:
        """See `DeltaWriter.maintain`."""
        return self._script.play(f"maintain {table}", lambda: self._writer.maintain(table, retention_hours))

    def close(self) -> None:
        """See `DeltaWriter.close`; never fails."""
        self._writer.close()
