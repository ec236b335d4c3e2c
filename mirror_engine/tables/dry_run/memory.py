"""The reference writer: tables in memory, changes applied row by row."""

from __future__ import annotations

import itertools
import threading
from abc import abstractmethod
from collections import defaultdict
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Unpack

import pyarrow as pa
from msgspec.structs import replace as entry_with

from mirror_engine.errors import TableDamaged, UsageError
from mirror_engine.landing_zone.change import MARKER_COLUMN, Change, RowMarker, same_key
from mirror_engine.tables.arrow_types import arrow_schema
from mirror_engine.tables.base import CommitResult, DeltaWriter, MatchCounts, TableSnapshot, with_applied_by
from mirror_engine.tables.log.record import (
    creation_record,
    from_metadata,
    head_of,
    history_entry,
    now_ms,
    refuse_another,
    refuse_repeated,
    to_metadata,
)
from mirror_engine.tables.log.segments import applied_since

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from mirror_engine.landing_zone.progress import Applied, Progress, Segment
    from mirror_engine.landing_zone.schema import TableSchema
    from mirror_engine.tables.base import BatchRecord, ChangeBatch, FileRows, HistoryEntry, RowChoice

Row = dict[str, Any]


@dataclass(frozen=True)
class _Commit:
    schema: TableSchema
    rows: tuple[Row, ...]
    metadata: str
    operation: str
    timestamp_ms: int
    transactions: Mapping[str, int]


class InProcessWriter(DeltaWriter):
    """What every `DeltaWriter` answers alike whose tables are gone with the process."""

    def __init__(self) -> None:
        self._tables: dict[str, Any] = {}
        self._segments: dict[tuple[str, str], Applied] = {}
        self._lock = threading.RLock()

    def tables(self) -> Sequence[str]:
        return sorted(self._tables)

    def drop(self, table: str, check: Callable[[], None] = lambda: None) -> None:
        check()
        with self._lock:
            self._tables.pop(table, None)

    def latest_external_change(self, *_: object, **__: object) -> int:
        """There is no other writer."""
        return -1

    def write_segment(self, table: str, segment: Segment, applied: Applied) -> None:
        for earlier in applied.segments:
            if (table, earlier.name) not in self._segments:
                raise TableDamaged(table, f"{earlier.name} is missing")
        self._segments[table, segment.name] = applied

    def say_again(self, table: str, record: BatchRecord) -> int:  # noqa: ARG002 - its commits stay
        snapshot = self.snapshot(table)
        return snapshot.version if snapshot else -1

    def applied_since(self, table: str, snapshot: TableSnapshot, known: Progress | None) -> Applied:
        return applied_since(
            snapshot, known, lambda segment: self._segments[table, segment.name], partial(self.records, table)
        )

    @abstractmethod
    def records(self, table: str, versions: range) -> Iterable[BatchRecord | None]:
        """The records of commits, as far as they are kept."""

    def make_durable(self, *_: object, **__: object) -> None:
        """Nothing is kept."""


class MemoryDeltaWriter(InProcessWriter):
    """`DeltaWriter` without files or Spark: for tests, tracing, and as the reference of the others.

    Each commit keeps its rows, so memory grows with the number of commits: not for large tables.
    """

    _tables: dict[str, list[_Commit]]

    def snapshot(self, table: str) -> TableSnapshot | None:
        commits = self._tables.get(table)
        if commits is None:
            return None
        newest, last = len(commits) - 1, commits[-1]
        record = head_of(last.metadata)
        return TableSnapshot(newest, last.schema, record, newest, count_rows=lambda: len(last.rows))

    def apply(
        self,
        table: str,
        batch: ChangeBatch,
        record: BatchRecord,
        check: Callable[[], None] = lambda: None,  # noqa: ARG002 - nothing follows a commit
    ) -> CommitResult:
        with self._lock:
            commits = self._tables.get(table, [])
            if not commits and not batch.passthrough:
                begun = creation_record(record)
                transactions = {begun.application: begun.progress.batch}
                commits = [_Commit(batch.schema, (), to_metadata(begun), "CREATE TABLE", now_ms(), transactions)]
            last = commits[-1] if commits else _Commit(batch.schema, (), "", "", 0, {})
            if commits and batch.snapshot:
                refuse_repeated(table, record, last.transactions.get(record.application))
            elif commits:
                refuse_another(table, record, head_of(last.metadata))
            rows, matches = _replayed(last.rows, batch)
            marked = {marker for file in batch.files for marker, count in file.markers.items() if count}
            applied_by = "passthrough" if batch.passthrough else "merge" if marked - {0} else "append" if marked else ""
            transactions = {**last.transactions, record.application: record.progress.batch}
            self._tables[table] = [
                *commits,
                _Commit(
                    batch.schema,
                    rows,
                    to_metadata(with_applied_by(record, applied_by)),
                    "MERGE" if applied_by == "merge" else "WRITE" if commits else "CREATE TABLE",
                    now_ms(),
                    transactions,
                ),
            ]
            return CommitResult(len(commits), matches, applied_by)

    def rows(self, table: str, **choice: Unpack[RowChoice]) -> pa.Table | None:
        version, limit = choice.get("version"), choice.get("limit")
        where, columns = choice.get("where"), choice.get("columns")
        commits = self._tables.get(table)
        if commits is None:
            return None
        if version is not None and not 0 <= version < len(commits):
            raise UsageError(f"{table}: no version {version}", f"It has the versions 0 to {len(commits) - 1}.")
        commit = commits[-1 if version is None else version]
        schema = arrow_schema(commit.schema.columns)
        names = set(columns(schema.names) if columns else schema.names)
        schema = pa.schema([field for field in schema if field.name in names])
        if where is None:
            return pa.Table.from_pylist(commit.rows[:limit], schema)
        batches = pa.Table.from_pylist(commit.rows, schema).to_batches()
        return pa.Table.from_batches([batch.filter(where(batch)) for batch in batches], schema).slice(0, limit)

    def history(self, table: str, *, limit: int | None = None, until: int | None = None) -> Sequence[HistoryEntry]:
        entries = [
            history_entry(
                version,
                {
                    "timestamp": commit.timestamp_ms,
                    "operation": commit.operation,
                    "userMetadata": commit.metadata,
                    "engineInfo": "mirror_engine",
                },
            )
            for version, commit in enumerate(self._tables.get(table, ()))
        ]
        entries = [entry_with(entry, files_added=int(bool(entry.files))) for entry in entries]  # one for each commit
        return entries[::-1][:limit] if until is None else entries[until::-1][:limit]

    def records(self, table: str, versions: range) -> Iterable[BatchRecord | None]:
        return (from_metadata(self._tables[table][version].metadata) for version in versions)

    def maintain(self, table: str, *_: object, **__: object) -> Mapping[str, Any]:
        """There is nothing to tidy up."""
        return {"files_added": 0, "files_removed": 0, "files_deleted": 0} if table in self._tables else {}


def _replayed(rows: Iterable[Row], batch: ChangeBatch) -> tuple[tuple[Row, ...], tuple[MatchCounts, ...]]:
    """Rows after a batch, and what each of its files matched; means what `landing_zone.change.replay` means."""
    by_key: defaultdict[Any, list[Row]] = defaultdict(list)
    for row in rows:
        whole = {name: row.get(name) for name in batch.schema.names}
        by_key[same_key(tuple(whole[name] for name in batch.key_columns))].append(whole)
    matches = []
    for file in batch.files:
        duplicates = copies = 0
        for change in _changes(file, batch):
            key = same_key(change.key)
            own = by_key[key]
            matched = len(own) if key is not None else 0  # without a key it matches nothing
            is_insert, is_delete = change.marker is RowMarker.INSERT, change.marker is RowMarker.DELETE
            if is_insert or not (is_delete or matched):
                own.append(change.row)
            elif matched:
                own[:] = () if is_delete else [change.row] * matched
            duplicates += is_insert and matched > 0
            copies += not is_insert and matched > 1
        matches.append(MatchCounts(duplicates, copies))
    return tuple(itertools.chain.from_iterable(by_key.values())), tuple(matches)


def _changes(file: FileRows, batch: ChangeBatch) -> Iterator[Change]:
    for rows in file.rows.batches():
        markers = rows.column(rows.schema.get_field_index(MARKER_COLUMN)).to_pylist()
        for marker, row in zip(markers, rows.to_pylist(), strict=True):
            whole = {name: row.get(name) for name in batch.schema.names}
            yield Change(RowMarker(marker), tuple(whole[name] for name in batch.key_columns), whole)
