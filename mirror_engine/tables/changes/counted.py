"""A change batch reduced to net changes, once it is known where its table holds the keys that it changes.

Only keys and markers of the whole batch are in memory at once, and the place of each row that has one of the keys.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from mirror_engine.landing_zone.change import MARKER_COLUMN, RowMarker
from mirror_engine.tables.arrow_types import arrow_schema, arrow_type
from mirror_engine.tables.base import MatchCounts
from mirror_engine.tables.changes.key_index import exact_numbers
from mirror_engine.tables.changes.net_changes import NetChanges, Role, key_codes, matched_rows, net_changes
from mirror_engine.tables.log.snapshot import gone_rows, marks, scan_file
from mirror_engine.tables.log.statistics import bounds_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from mirror_engine.landing_zone.schema import TableSchema
    from mirror_engine.tables.base import ChangeBatch
    from mirror_engine.tables.changes.key_index import KeyIndex
    from mirror_engine.tables.changes.net_changes import Flags, Integers, KeyCodes, Markers
    from mirror_engine.tables.log.snapshot import DataFile, DeltaLog

_GROUP_BYTES = 16 * 1024 * 1024  # in memory
_BATCH_ROWS = 524_288  # of the table's keys; each batch is filtered by all keys of the changes


@dataclass(frozen=True)
class HeldRows:
    """The rows of a table that have a key of a batch; columns of one length, each file's rows in order."""

    files: Sequence[DataFile]
    code: Integers  # of the row's key
    file: Integers  # its place in `files`
    position: Integers  # the row's number in its file

    def chosen(self, which: Flags) -> HeldRows:
        """Some of the rows."""
        return HeldRows(self.files, self.code[which], self.file[which], self.position[which])


@dataclass(frozen=True)
class CountedChanges:
    """What a batch does to a table."""

    keys: pa.Table  # of each change
    codes: Integers  # of each change's key
    net: NetChanges  # only keys that the table holds match: by the roles DELETE and SET_ONLY
    held: HeldRows
    prior: Integers  # per code, how many rows the table holds
    match_counts: tuple[MatchCounts, ...]  # per file of the batch

    @cached_property
    def fate(self) -> Markers:
        """Per code, the role by which the table's rows go; INSERT where they stay."""
        fate = np.full(len(self.prior), Role.INSERT, dtype=np.int8)
        goes = self.net.role != Role.INSERT
        fate[self.codes[self.net.position[goes]]] = self.net.role[goes]
        return fate

    @property
    def roles(self) -> frozenset[Role]:
        """Which roles occur; every copy is a row of the role INSERT, whatever it is a copy of."""
        copied = {Role.INSERT} if np.any(self.net.copies) else set()
        return frozenset({*map(Role, np.unique(self.net.role[self.net.role != Role.INSERT]).tolist()), *copied})


def count_changes(batch: ChangeBatch, log: DeltaLog, index: KeyIndex | None = None) -> CountedChanges:
    """Reduce a batch against a snapshot of its table; an index finds a few keys in large files."""
    keys, markers, counts = _keys_and_markers(batch)
    codes = key_codes(keys)
    held = held_rows(keys, codes, log, index)
    prior = np.bincount(held.code, minlength=len(codes.first_position))
    matched = matched_rows(codes.codes, markers, prior)
    net = without_absent_keys(net_changes(codes.codes, markers), codes.codes, prior)
    return CountedChanges(keys, codes.codes, net, held, prior, _match_counts(markers, matched, counts))


def _keys_and_markers(batch: ChangeBatch) -> tuple[pa.Table, Markers, Integers]:
    """Key columns and markers of every change, and how many rows each file has; without any, it may lack a key."""
    types = {column.name: arrow_type(column.type) for column in batch.schema.columns}
    schema = pa.schema([*((name, types[name]) for name in batch.key_columns), (MARKER_COLUMN, pa.int8())])
    tables = [
        pa.Table.from_batches([rows.select(schema.names) for rows in file.rows.batches(schema.names)], schema)
        if file.row_count
        else schema.empty_table()
        for file in batch.files
    ]
    whole = pa.concat_tables([schema.empty_table(), *tables])
    counts = np.array([table.num_rows for table in tables], dtype=np.int64)
    return whole.select(list(batch.key_columns)), whole[MARKER_COLUMN].to_numpy(), counts


def held_rows(keys: pa.Table, codes: KeyCodes, log: DeltaLog, index: KeyIndex | None = None) -> HeldRows:
    """Find the rows of a table that have a key of a batch; `keys` has one row per change."""
    wanted = keys.take(codes.first_position)
    if not wanted.num_rows or not set(keys.column_names) <= set(log.schema.names):
        return HeldRows((), *[np.empty(0, dtype=np.int64)] * 3)
    files = log.data_files(bounds_of(wanted))
    found: list[tuple[Integers, Integers, Integers]] = []
    scanned = list(enumerate(files))
    if index and wanted.num_columns == 1 and (numbers := exact_numbers(wanted.column(0))) is not None:
        known = [(place, file, index.find(log, file, wanted.column_names[0], numbers)) for place, file in scanned]
        scanned = [(place, file) for place, file, rows in known if rows is None]
        found += [_left(log, file, place, *rows) for place, file, rows in known if rows is not None]
    for chunk in tables_of(_possible_rows(log, scanned, wanted)):
        rows = chunk.select(range(wanted.num_columns)).rename_columns(wanted.column_names).cast(wanted.schema)
        both = key_codes(pa.concat_tables([wanted, rows])).codes
        code_of = np.full(int(both.max()) + 2, -1, dtype=np.int64)  # its last place is that of no key
        code_of[both[: wanted.num_rows]] = np.arange(wanted.num_rows)
        codes_found = code_of[both[wanted.num_rows :]]
        is_wanted = codes_found >= 0
        file, position = (chunk[at].to_numpy()[is_wanted] for at in (-2, -1))
        found.append((codes_found[is_wanted], file, position))
    parts = zip(*found, strict=True) if found else ([], [], [])
    return HeldRows(files, *(np.concatenate([np.empty(0, dtype=np.int64), *part]) for part in parts))


def _left(
    log: DeltaLog, file: DataFile, place: int, codes: Integers, positions: Integers
) -> tuple[Integers, Integers, Integers]:
    """Found rows of one data file, but those that are gone: codes, the file's place, row numbers."""
    gone = marks(log, file) if len(positions) else None
    if gone is not None:
        left = np.array([position not in gone for position in positions.tolist()], dtype=np.bool_)
        codes, positions = codes[left], positions[left]
    return codes, np.full(len(codes), place), positions


def _possible_rows(log: DeltaLog, files: Iterable[tuple[int, DataFile]], wanted: pa.Table) -> Iterator[pa.RecordBatch]:
    """The table's rows whose keys may be among those wanted: their keys, their file's place and their number in it."""
    # a filter by equal bits would lose a NaN or a zero of the other sign
    values = {place: column.unique() for place, column in enumerate(wanted.columns) if not _is_floating(column)}
    chosen = max(values, key=lambda place: len(values[place]), default=None)
    for place, file in files:
        gone = gone_rows(log, file)
        for first, rows in scan_file(log, file, wanted.column_names, _BATCH_ROWS):
            numbers = np.arange(rows.num_rows)
            if chosen is not None:
                numbers = np.flatnonzero(pc.is_in(rows.column(chosen), value_set=values[chosen]))
            if gone is not None:
                numbers = np.setdiff1d(numbers + first, gone, assume_unique=True) - first
            if len(numbers):
                keys = rows if len(numbers) == rows.num_rows else rows.take(pa.array(numbers))
                cells = [*keys.columns, pa.repeat(np.int64(place), len(numbers)), pa.array(numbers + first)]
                yield pa.RecordBatch.from_arrays(cells, names=list(map(str, range(len(cells)))))


def _is_floating(column: pa.ChunkedArray[Any]) -> bool:
    return bool(pa.types.is_floating(column.type))


def tables_of(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
    """The rows in tables of about `_GROUP_BYTES`."""
    waiting: list[pa.RecordBatch] = []
    waiting_bytes = 0
    for batch in batches:
        if batch.num_rows:
            waiting.append(batch)
            waiting_bytes += batch.nbytes
        if waiting_bytes >= _GROUP_BYTES:
            yield pa.Table.from_batches(waiting)
            waiting, waiting_bytes = [], 0
    if waiting:
        yield pa.Table.from_batches(waiting)


def without_absent_keys(net: NetChanges, codes: Integers, prior: Integers) -> NetChanges:
    """The same net changes, now that it is known which keys the table holds: only those match, and none inserts.

    Of a key it lacks a delete does nothing, `SET` inserts, `SET_ONLY` leaves its copies; of one it holds `SET` is
    `SET_ONLY`. So a batch whose keys are all new is an append, and one of held keys only needs no insert clause.
    `codes` are those of the batch's changes, `prior` is per code how many rows of the key the table holds.
    """
    matching = np.flatnonzero(net.role != Role.INSERT)
    held = np.zeros(len(net.role), dtype=np.bool_)
    held[matching] = prior[codes[net.position[matching]]] > 0
    copies = net.copies + ((net.role == Role.SET) & ~held)
    role = np.where(held, np.where(net.role == Role.DELETE, Role.DELETE, Role.SET_ONLY), Role.INSERT)
    left = held | (copies > 0)
    return NetChanges(net.position[left], role[left].astype(np.int8), copies[left])


def taken_rows(batch: ChangeBatch, taken: Integers) -> Iterator[tuple[pa.RecordBatch, slice]]:
    """Rows of a batch by position, in the table's columns and types; `taken` ascends and may name one twice.

    Each record batch comes with the part of `taken` that it is.
    """
    first = 0
    for rows in (rows for file in batch.files for rows in file.rows.batches()):
        low, high = np.searchsorted(taken, (first, first + rows.num_rows))
        if low < high:
            chosen = rows.take(pa.array(taken[low:high] - first))
            yield in_schema(chosen, batch.schema), slice(low, high)
        first += rows.num_rows


def in_schema(rows: pa.RecordBatch, schema: TableSchema) -> pa.RecordBatch:
    """The same rows with all columns of a table; those that they lack are NULL."""
    fields = arrow_schema(schema.columns)
    present = set(rows.schema.names)
    cells = [
        rows.column(field.name) if field.name in present else pa.nulls(rows.num_rows, field.type) for field in fields
    ]
    return pa.RecordBatch.from_arrays(cells, names=fields.names)


def _match_counts(markers: Markers, matched: Integers, counts: Integers) -> tuple[MatchCounts, ...]:
    inserts = markers == RowMarker.INSERT
    ends = np.cumsum(counts)
    spans = [slice(end - count, end) for end, count in zip(ends, counts, strict=True)]
    return tuple(
        MatchCounts(
            int(np.count_nonzero(inserts[span] & (matched[span] > 0))),
            int(np.count_nonzero(~inserts[span] & (matched[span] > 1))),
        )
        for span in spans
    )
