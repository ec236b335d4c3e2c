"""A change batch reduced to net changes, once it is known where its table holds the keys that it changes.

Only keys and markers of the whole batch are in memory at once, and the place of each row that has one of the keys.
"""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import chain
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from mirror_engine.landing_zone.change import MARKER_COLUMN, RowMarker
from mirror_engine.tables.arrow_types import arrow_schema, arrow_type
from mirror_engine.tables.base import MatchCounts
from mirror_engine.tables.changes.net_changes import (
    NO_KEY,
    NetChanges,
    Role,
    exact_numbers,
    key_codes,
    matched_rows,
    net_changes,
)
from mirror_engine.tables.log.data_files import FILE_ROWS
from mirror_engine.tables.log.data_rows import marks, scan_file, whole_files
from mirror_engine.tables.log.statistics import bounds_of
from mirror_engine.tables.log.table_path import StorePath, for_each

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from mirror_engine.landing_zone.schema import TableSchema
    from mirror_engine.tables.base import ChangeBatch
    from mirror_engine.tables.changes.key_index import KeyIndex
    from mirror_engine.tables.changes.net_changes import Integers, KeyCodes, Markers
    from mirror_engine.tables.log.snapshot import DeltaLog
    from mirror_engine.tables.log.table_file import DataFile

T = TypeVar("T")
# threads for good: new ones for each batch would each hold on to memory
_COUNTING, _SCANNING = ThreadPoolExecutor(1, "match-counts"), ThreadPoolExecutor(min(4, os.cpu_count() or 1), "scan")
_GROUP_BYTES = 16 * 1024 * 1024  # in memory
_BATCH_ROWS = 524_288  # of the table's keys; each batch is filtered by all keys of the changes
_MANY_ROWS = 200_000  # of a table or a batch: for fewer no thread is started
_ROWS_AT_ONCE = FILE_ROWS  # of data files in a store: one large one, or many small ones
_DENSE = 1 << 23  # whole numbers between the lowest and the highest: 32 MiB of codes
_SPAN_PER_KEY = 64  # with fewer keys, a hash of them takes less than a table
_NOTHING = np.empty(0, dtype=np.int64)


@dataclass(frozen=True)
class HeldRows:
    """The rows of a table that have a key of a batch; columns of one length, each file's rows in order."""

    files: Sequence[DataFile]
    code: Integers  # of the row's key
    file: Integers  # its place in `files`
    position: Integers  # the row's number in its file
    gone: Mapping[
        str, Integers
    ]  # rows of marked files that are gone, by the path that the log has: of those looked into


@dataclass(frozen=True)
class CountedChanges:
    """What a batch does to a table."""

    keys: pa.Table  # of each change
    codes: Integers  # of each change's key
    net: NetChanges  # only keys that the table holds match: by the roles DELETE and SET_ONLY
    held: HeldRows
    prior: Integers  # per code, how many rows the table holds
    counting: Callable[[], tuple[MatchCounts, ...]]  # of many changes while rows are written, which do not need it

    @cached_property
    def match_counts(self) -> tuple[MatchCounts, ...]:
        """Per file of the batch; waits for them."""
        return self.counting()

    @cached_property
    def fate(self) -> Markers:
        """Per code, the role that removes the table's rows; INSERT if they stay."""
        fate = np.full(len(self.prior), Role.INSERT, dtype=np.int8)
        goes = self.net.role != Role.INSERT
        fate[self.codes[self.net.position[goes]]] = self.net.role[goes]
        return fate

    @property
    def roles(self) -> frozenset[Role]:
        """The roles that occur; every copy counts as INSERT."""
        copied = {Role.INSERT} if np.any(self.net.copies) else set()
        return frozenset({*map(Role, np.unique(self.net.role[self.net.role != Role.INSERT]).tolist()), *copied})


def count_changes(batch: ChangeBatch, log: DeltaLog, index: KeyIndex | None = None) -> CountedChanges:
    """Reduce a batch against a snapshot of its table; an index finds a few keys in large files."""
    keys, markers, counts = _keys_and_markers(batch)
    codes = key_codes(keys)
    held = held_rows(keys, codes, log, index)
    prior = np.bincount(held.code, minlength=len(codes.first_position))
    net = without_absent_keys(net_changes(codes.codes, markers), codes.codes, prior)
    counting: Callable[[], tuple[MatchCounts, ...]] = partial(_match_counts, codes.codes, markers, prior, counts)
    if len(markers) >= _MANY_ROWS:
        counting = _COUNTING.submit(counting).result
    return CountedChanges(keys, codes.codes, net, held, prior, counting)


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
        return HeldRows((), _NOTHING, _NOTHING, _NOTHING, {})
    files = log.data_files(bounds_of(wanted))
    numbers = exact_numbers(wanted.column(0)) if wanted.num_columns == 1 else None
    gone: dict[str, Integers] = {}
    if numbers is None:
        parts = list(_by_value(log, files, wanted, gone))
    else:
        find = partial(_by_number, log, index, _Lookup(wanted.column_names[0], numbers), gone)
        found = in_threads(log, find, files)
        parts = [(codes, np.full(len(codes), place), rows) for place, (codes, rows) in enumerate(found)]
    columns = zip(*parts, strict=True) if parts else ([], [], [])
    code, file, position = (np.concatenate([_NOTHING, *column]) for column in columns)
    return HeldRows(files, code, file, position, gone)


def in_threads(log: DeltaLog, call: Callable[[DataFile], T], files: Sequence[DataFile]) -> Iterator[T]:
    """Call for each data file and yield the results in order: on all cores where there is much to read.

    In a store so many at once as requests may be, but no more rows than `_ROWS_AT_ONCE`: each call holds a row group.
    """
    if isinstance(log.folder, StorePath):
        return for_each(
            log.folder, call, files, lambda file: file.size if file.rows is None else file.rows, _ROWS_AT_ONCE
        )
    if len(files) < 2 or sum(file.rows or 0 for file in files) < _MANY_ROWS:  # noqa: PLR2004 - one needs no threads
        return map(call, files)
    return iter(list(_SCANNING.map(call, files)))


def _by_number(
    log: DeltaLog, index: KeyIndex | None, lookup: _Lookup, gone: dict[str, Integers], file: DataFile
) -> tuple[Integers, Integers]:
    """Find wanted keys in a data file: their codes and row numbers. Notes which of its rows are gone."""
    found = index.find(log, file, lookup.column, lookup.ascending) if index else None
    codes, rows = (lookup.order[found[0]], found[1]) if found else _scanned(log, lookup, file)
    marked = marks(log, file) if len(rows) else None
    if marked is not None:
        gone[file.spelled] = marked
        left = ~np.isin(rows, marked)
        codes, rows = codes[left], rows[left]
    return codes, rows


def _scanned(log: DeltaLog, lookup: _Lookup, file: DataFile) -> tuple[Integers, Integers]:
    parts = [(_NOTHING, _NOTHING)]
    for first, batch in scan_file(log, file, [lookup.column], _BATCH_ROWS):
        codes, rows = lookup.find(batch.column(0))
        parts.append((codes, rows + first))
    codes, rows = map(np.concatenate, zip(*parts, strict=True))
    return codes, rows


class _Lookup:
    """Finds whole numbers in a column; the n-th has the code n: by a table where they are dense, else by a hash."""

    def __init__(self, column: str, numbers: Integers) -> None:
        self.column, self.numbers = column, numbers
        self._lowest, self._span = int(numbers.min()), int(numbers.max()) - int(numbers.min()) + 1
        self._is_dense = self._span <= min(_DENSE, _SPAN_PER_KEY * len(numbers))
        self._values = pa.array(numbers)

    @cached_property
    def order(self) -> Integers:
        """Codes in the order of their numbers."""
        return np.argsort(self.numbers)

    @cached_property
    def ascending(self) -> Integers:
        """The numbers in order."""
        return self.numbers[self.order]

    @cached_property
    def _codes(self) -> NDArray[np.int32]:
        """The code of each number from the lowest on."""
        codes = np.full(self._span, NO_KEY, dtype=np.int32)
        codes[self.numbers - self._lowest] = np.arange(len(self.numbers))
        return codes

    def find(self, column: pa.Array[Any]) -> tuple[Integers, Integers]:
        """Codes and row numbers of a column's values that are among the numbers."""
        there = None
        if column.null_count:
            there = np.flatnonzero(column.is_valid().to_numpy(zero_copy_only=False))
            column = column.drop_null()
        numbers = exact_numbers(column)
        if numbers is None:
            raise TypeError(column.type)
        if self._is_dense:
            offsets = numbers - self._lowest  # beyond 63 bits it wraps, and is no place either
            rows = np.flatnonzero(offsets.view(np.uint64) < self._span)
            codes = self._codes[offsets[rows]]
            rows, codes = rows[codes != NO_KEY], codes[codes != NO_KEY].astype(np.int64)
        else:
            places = pc.index_in(pa.array(numbers), value_set=self._values)
            rows = np.flatnonzero(places.is_valid().to_numpy(zero_copy_only=False))
            codes = places.drop_null().to_numpy().astype(np.int64)
        return codes, rows if there is None else there[rows]


def _by_value(
    log: DeltaLog, files: Sequence[DataFile], wanted: pa.Table, gone: dict[str, Integers]
) -> Iterator[tuple[Integers, Integers, Integers]]:
    """Find wanted keys in data files: codes (code n is row n of `wanted`), places of files and row numbers.

    Notes which rows of the files are gone.
    """
    count, names = wanted.num_rows, wanted.column_names
    for chunk in tables_of(_possible_rows(log, files, wanted, gone)):
        keys = chunk.select(range(len(names))).rename_columns(names).cast(wanted.schema)
        both = key_codes(pa.concat_tables([wanted, keys])).codes
        code_of = np.full(int(both.max()) + 2, NO_KEY, dtype=np.int64)  # its last place is that of no key
        code_of[both[:count]] = np.arange(count)
        codes = code_of[both[count:]]
        file, position = (chunk[at].to_numpy()[codes != NO_KEY] for at in (-2, -1))
        yield codes[codes != NO_KEY], file, position


def _possible_rows(
    log: DeltaLog, files: Sequence[DataFile], wanted: pa.Table, gone: dict[str, Integers]
) -> Iterator[pa.RecordBatch]:
    """The table's rows whose keys may be among those wanted: their keys, their file's place and their number in it."""
    # a filter by equal bits would lose a NaN or a zero of the other sign
    exact = (place for place, field in enumerate(wanted.schema) if not pa.types.is_floating(field.type))
    values = {place: wanted.column(place).unique() for place in exact}
    chosen = max(values, key=lambda place: len(values[place]), default=None)
    places = {file.spelled: place for place, file in enumerate(files)}

    def possible(file: DataFile) -> Iterator[pa.RecordBatch]:
        marked = marks(log, file)
        if marked is not None:
            gone[file.spelled] = marked
        for first, rows in scan_file(log, file, wanted.column_names, _BATCH_ROWS):
            numbers = np.arange(rows.num_rows)
            if chosen is not None:
                numbers = np.flatnonzero(pc.is_in(rows.column(chosen), value_set=values[chosen]))
            if marked is not None:
                numbers = np.setdiff1d(numbers + first, marked, assume_unique=True) - first
            if len(numbers):
                keys = rows if len(numbers) == rows.num_rows else rows.take(pa.array(numbers))
                place = pa.repeat(np.int64(places[file.spelled]), len(numbers))
                cells = [*keys.columns, place, pa.array(numbers + first)]
                yield pa.RecordBatch.from_arrays(cells, names=list(map(str, range(len(cells)))))

    if chosen is None:  # all rows are possible: one batch at a time
        return chain.from_iterable(map(possible, whole_files(log, files, wanted.column_names)))
    return chain.from_iterable(in_threads(log, lambda file: list(possible(file)), files))


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
    """Specialize net changes to the keys that the table holds: only these match, and none of them inserts.

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
    """Return rows with all columns of a table; missing columns are NULL."""
    fields = arrow_schema(schema.columns)
    present = set(rows.schema.names)
    cells = [
        rows.column(field.name) if field.name in present else pa.nulls(rows.num_rows, field.type) for field in fields
    ]
    return pa.RecordBatch.from_arrays(cells, names=fields.names)


def _match_counts(codes: Integers, markers: Markers, prior: Integers, counts: Integers) -> tuple[MatchCounts, ...]:
    """Per file, of so many changes each, which of them matched unexpected rows."""
    matched, inserts = matched_rows(codes, markers, prior), markers == RowMarker.INSERT
    ends = np.cumsum(counts)
    spans = [slice(end - count, end) for end, count in zip(ends, counts, strict=True)]
    return tuple(
        MatchCounts(
            int(np.count_nonzero(inserts[span] & (matched[span] > 0))),
            int(np.count_nonzero(~inserts[span] & (matched[span] > 1))),
        )
        for span in spans
    )
