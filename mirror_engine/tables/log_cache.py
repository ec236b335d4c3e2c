"""Remembers what Delta logs said: one that lies as it lay is not read again, and nothing is imported to read it."""

from __future__ import annotations

import hashlib
import json
import os
import threading
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from mirror_engine.errors import TransientError
from mirror_engine.landing_zone.schema import Column, TableSchema
from mirror_engine.tables.base import DeltaState
from mirror_engine.tables.log.record import ENGINE_INFO, commit_file, from_metadata, to_metadata
from mirror_engine.tables.log.tables_folder import LOG_FOLDER, TablesFolder

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path
    from typing import BinaryIO

    import pyarrow as pa

    from mirror_engine.tables.base import (
        BatchRecord,
        ChangeBatch,
        Chosen,
        DeltaWriter,
        HistoryEntry,
        MatchCounts,
        Outcome,
    )

_NO_MEMORY = (KeyError, TypeError, ValueError, RecursionError)


@dataclass(frozen=True)
class _Known:
    """What a table's log said, and how it lay."""

    stamp: str
    state: DeltaState
    rows: int | None


class CachingDeltaWriter:
    """`DeltaWriter` that tells what it knows of logs that lie as they lay; all else, another one does.

    Args:
        tables: `ROOT/Tables`.
        memory: the file that remembers; disposable. Written by `remember` alone.
        make: the other writer, wanted only once something must be read or done.
    """

    def __init__(self, tables: Path, memory: Path, make: Callable[[], DeltaWriter]) -> None:
        self._tables = TablesFolder(tables, trash=memory.with_name("trash"))
        self._memory = memory
        self._make = make
        self._made: DeltaWriter | None = None
        self._lock = threading.Lock()
        self._remembered: Mapping[str, _Known] | None = None

    def remember(self) -> None:
        """Note what all logs say now, for the next process; only by one that holds ROOT. Raises nothing."""
        with suppress(OSError, TransientError):
            known = {table: found for table in self.tables() if (found := self._known(table) or self._told(table))}
            if known != self._all_known:
                self._remembered = known
                _write(self._memory, known)

    def tables(self) -> Sequence[str]:
        """See `DeltaWriter`."""
        return self._tables.tables()

    def state(self, table: str) -> DeltaState | None:
        """See `DeltaWriter`."""
        known = None if self._made else self._known(table)
        return known.state if known else self._other.state(table)

    def row_count(self, table: str) -> int | None:
        """See `DeltaWriter`."""
        known = None if self._made else self._known(table)
        return known.rows if known else self._other.row_count(table)

    def changed_by_others(self, table: str, since: int) -> int:
        """See `DeltaWriter`."""
        if self._made is None:
            try:
                commit_file(self._tables.path(table), since + 1).stat()
            except FileNotFoundError:
                return -1
            except OSError:
                pass  # the other one has a word for it
        return self._other.changed_by_others(table, since)

    def create(self, table: str, schema: TableSchema, record: BatchRecord) -> Outcome:
        """See `DeltaWriter`."""
        return self._other.create(table, schema, record)

    def prepare(self) -> None:
        """See `DeltaWriter`."""
        self._other.prepare()

    def apply(self, table: str, batch: ChangeBatch, record: BatchRecord) -> Outcome:
        """See `DeltaWriter`."""
        return self._other.apply(table, batch, record)

    def data_file(self, table: str, name: str) -> BinaryIO | None:
        """See `DeltaWriter`."""
        return self._other.data_file(table, name)

    def met(self, table: str, batch: ChangeBatch, version: int) -> Sequence[MatchCounts]:
        """See `DeltaWriter`."""
        return self._other.met(table, batch, version)

    def make_durable(self, table: str, since: int) -> None:
        """See `DeltaWriter`."""
        self._other.make_durable(table, since)

    def drop(self, table: str) -> None:
        """See `DeltaWriter`."""
        self._other.drop(table)

    def rows(
        self, table: str, *, version: int | None = None, limit: int | None = None, where: Chosen | None = None
    ) -> pa.Table | None:
        """See `DeltaWriter`."""
        return self._other.rows(table, version=version, limit=limit, where=where)

    def history(self, table: str, *, limit: int | None = None) -> Sequence[HistoryEntry]:
        """See `DeltaWriter`."""
        return self._other.history(table, limit=limit)

    def maintain(
        self, table: str, retention_hours: float, is_wanted: Callable[[], bool] = lambda: False
    ) -> Mapping[str, Any]:
        """See `DeltaWriter`."""
        return self._other.maintain(table, retention_hours, is_wanted)

    def close(self) -> None:
        """See `DeltaWriter`."""
        if self._made:
            self._made.close()

    @property
    def _other(self) -> DeltaWriter:
        with self._lock:
            self._made = self._made or self._make()
            return self._made

    @property
    def _all_known(self) -> Mapping[str, _Known]:
        if self._remembered is None:
            self._remembered = _read(self._memory)
        return self._remembered

    def _known(self, table: str) -> _Known | None:
        known = self._all_known.get(table)
        return known if known and known.stamp == _stamp(self._tables.path(table)) else None

    def _told(self, table: str) -> _Known | None:
        """What a log says; None where it cannot be told, or lies otherwise from one moment to the next."""
        stamp = _stamp(self._tables.path(table))
        with suppress(TransientError):
            state, rows = self._other.state(table), self._other.row_count(table)
            if stamp and state:
                return _Known(stamp, state, rows)
        return None


def _stamp(folder: Path) -> str:
    """Tells whether a table's log, and its deletion vectors, lie as they lay; `""` where they cannot be looked at."""
    try:
        files = sorted([*_below(os.fspath(folder / LOG_FOLDER)), *map(os.fspath, folder.glob("deletion_vector*"))])
        lying = [(file, os.stat(file)) for file in files]  # noqa: PTH116 - 1,000 tables are looked at so
    except OSError:
        return ""
    told = [(file, at.st_ino, at.st_size, at.st_mtime_ns, at.st_ctime_ns) for file, at in lying]
    return _digest(json.dumps(told))


def _below(folder: str) -> Iterator[str]:
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.is_dir():
                yield from _below(entry.path)
            else:
                yield entry.path


def _digest(text: str) -> str:
    return hashlib.blake2b(f"{ENGINE_INFO}\n{text}".encode("utf-8", "surrogateescape"), digest_size=16).hexdigest()


def _write(memory: Path, known: Mapping[str, _Known]) -> None:
    """One line that vouches for the second, by the same version of this program."""
    told = json.dumps({table: _to_json(each) for table, each in known.items()})
    fresh = memory.with_name(f"{memory.name}.new")
    fresh.write_text(f"{_digest(told)}\n{told}", encoding="ascii")
    fresh.replace(memory)


def _read(memory: Path) -> Mapping[str, _Known]:
    try:
        vouched, _, told = memory.read_text(encoding="ascii").partition("\n")
        return {table: _from_json(each) for table, each in json.loads(told).items()} if vouched == _digest(told) else {}
    except (OSError, *_NO_MEMORY):
        return {}


def _to_json(known: _Known) -> dict[str, Any]:
    state = known.state
    return {
        "stamp": known.stamp,
        "rows": known.rows,
        "version": state.version,
        "columns": [asdict(column) for column in state.schema.columns],
        "partition_columns": state.schema.partition_columns,
        "record": to_metadata(state.record) if state.record else None,
        "record_version": state.record_version,
        "takes_files": state.takes_files,
    }


def _from_json(told: Mapping[str, Any]) -> _Known:
    columns = tuple(Column(**column) for column in told["columns"])
    schema = TableSchema(columns, tuple(told["partition_columns"]))
    state = DeltaState(
        told["version"], schema, from_metadata(told["record"]), told["record_version"], told["takes_files"]
    )
    return _Known(told["stamp"], state, told["rows"])
