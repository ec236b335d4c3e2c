"""A change batch as net changes for one commit: compared with the keys of the table and written to Parquet.

Only keys and markers of the whole batch are in memory at once; full rows pass through in record batches.
"""

from __future__ import annotations

import itertools
import shutil
import uuid
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from mirror_engine.errors import StorageUnavailable
from mirror_engine.landing_zone.change import MARKER_COLUMN, RowMarker
from mirror_engine.tables.arrow_types import arrow_type
from mirror_engine.tables.base import MatchCounts
from mirror_engine.tables.changes.net_changes import KeyCodes, NetChanges, Role, key_codes, matched_rows, net_changes
from mirror_engine.tables.log.snapshot import scan
from mirror_engine.tables.log.statistics import bounds_of
from mirror_engine.tables.log.table_path import StorePath, remove_folder
from mirror_engine.tables.reading.spill import scratch_errors

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path

    from mirror_engine.tables.base import ChangeBatch
    from mirror_engine.tables.changes.net_changes import Integers, Markers
    from mirror_engine.tables.log.snapshot import DeltaLog
    from mirror_engine.tables.log.table_path import TablePath

    # stages a batch in a folder that it makes, of this machine or shared
    Stage: TypeAlias = Callable[[ChangeBatch, DeltaLog, Any], "StagedChanges"]

ROLE = "role"  # the last column of the staged Parquet: a `net_changes.Role`
_FILE_ROWS = 2_000_000
_GROUP_BYTES = 16 * 1024 * 1024  # in memory
_WHOLE_NUMBERS = {"byte", "short", "integer", "long"}
_MAX_BOUND = 512  # characters of text; Delta's statistics know the first 32
_BATCH_ROWS = 524_288  # of the table's keys; each batch is filtered by all keys of the changes


@dataclass(frozen=True)
class StagedChanges:
    """A batch as one commit takes it."""

    # Of the Parquet files: columns `c0`, `c1` … in the order of the table's schema, then `ROLE`; rows of the role
    # INSERT match nothing, of all others at most one has a key
    folder: TablePath
    rows: int  # how many rows lie there
    roles: frozenset[Role]  # which roles occur
    # Of each key column the lowest and highest value among the rows that match something
    bounds: tuple[tuple[Any, Any], ...]
    match_counts: tuple[MatchCounts, ...]  # per file of the batch
    is_data: bool = False  # whether the files are data files instead: the table's columns, under its names

    @property
    def matches(self) -> bool:
        """Whether any row may meet a row of the table."""
        return bool(self.roles - {Role.INSERT})

    def key_bounds(self, batch: ChangeBatch) -> dict[str, tuple[Any, Any]]:
        """Bounds of key columns whose literals an engine compares exactly: whole numbers, and text that can be shown.

        About the target alone, they let a MERGE pass over files.
        """
        types = {column.name: column.type for column in batch.schema.columns}
        found = {
            name: (low.as_py(), high.as_py()) for name, (low, high) in zip(batch.key_columns, self.bounds, strict=True)
        }
        return {name: ends for name, ends in found.items() if all(_is_exact(end, types[name]) for end in ends)}


def _is_exact(value: object, word: str) -> bool:
    if isinstance(value, str):
        return len(value) <= _MAX_BOUND and value.isprintable()
    return isinstance(value, int) and word in _WHOLE_NUMBERS


@contextmanager
def staged(batch: ChangeBatch, log: DeltaLog, scratch: TablePath, stage: Stage) -> Iterator[StagedChanges]:
    """Stage the net changes of a batch, made against a snapshot, in a new folder; removed on leaving the context.

    Raises:
        RejectedFile: a file of the batch cannot be read after all.
        StorageUnavailable: neither can the table, or the scratch folder not be written.
    """
    folder = scratch / f"batch-{uuid.uuid4().hex}"
    try:
        with scratch_errors():
            changes = stage(batch, log, folder)
        yield changes
    finally:
        if isinstance(folder, StorePath):
            with suppress(StorageUnavailable):
                remove_folder(folder)
        else:
            shutil.rmtree(folder, ignore_errors=True)


def stage_here(batch: ChangeBatch, log: DeltaLog, folder: Path) -> StagedChanges:
    """Stage a batch in this process."""
    keys, markers, counts = _keys_and_markers(batch)
    codes = key_codes(keys)
    prior = prior_rows(keys, codes, log)
    matched = matched_rows(codes.codes, markers, prior)
    net = without_absent_keys(net_changes(codes.codes, markers), codes.codes, prior)
    matching = net.position[net.role != Role.INSERT]
    # every copy is a row of the role INSERT, whatever it is a copy of
    copied = {Role.INSERT} if np.any(net.copies) else set()
    roles = frozenset({*map(Role, np.unique(net.role[net.role != Role.INSERT]).tolist()), *copied})
    is_data = roles == {Role.INSERT} and log.can_add_files(batch.schema)
    plain = {"use_dictionary": False, "write_statistics": False}
    schema, options = _data_files(batch) if is_data else (merge_schema(batch), plain)
    folder.mkdir(parents=True)
    rows = _write_parts(_staged_rows(batch, net, schema), folder, schema, options)
    bounds = tuple(_bounds(column, matching) for column in keys.columns)
    return StagedChanges(folder, rows, roles, bounds, _match_counts(markers, matched, counts), is_data)


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


def prior_rows(keys: pa.Table, codes: KeyCodes, log: DeltaLog) -> Integers:
    """Per key of a batch, how many rows of it the table holds before; `keys` has one row per change."""
    count = len(codes.first_position)
    prior = np.zeros(count, dtype=np.int64)
    if count and set(keys.column_names) <= set(log.schema.names):
        wanted = keys.take(codes.first_position)
        for chunk in _tables(_possible_keys(log, wanted)):
            both = key_codes(pa.concat_tables([wanted, chunk.cast(wanted.schema)])).codes
            seen = both[count:]
            found = np.bincount(seen[seen >= 0], minlength=int(both.max()) + 1)
            prior += found[both[:count]]
    return prior


def _possible_keys(log: DeltaLog, wanted: pa.Table) -> Iterator[pa.RecordBatch]:
    """The table's keys that may be among those wanted."""
    # a filter by equal bits would lose a NaN or a zero of the other sign
    values = {place: column.unique() for place, column in enumerate(wanted.columns) if not _is_floating(column)}
    chosen = max(values, key=lambda place: len(values[place]), default=None)
    for batch in scan(log, wanted.column_names, bounds_of(wanted), _BATCH_ROWS):
        yield batch if chosen is None else batch.filter(pc.is_in(batch.column(chosen), value_set=values[chosen]))


def _is_floating(column: pa.ChunkedArray[Any]) -> bool:
    return bool(pa.types.is_floating(column.type))


def _tables(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
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


def _data_files(batch: ChangeBatch) -> tuple[pa.Schema, dict[str, Any]]:
    """Schema and writer's options of data files of the table."""
    schema = pa.schema([(column.name, arrow_type(column.type)) for column in batch.schema.columns])
    # Spark skips row groups by bounds, which leave NaN out, and by dictionaries, where -0.0 is not 0.0
    plain = [field.name for field in schema if not pa.types.is_floating(field.type)]
    return schema, {"store_schema": False, "write_statistics": plain, "use_dictionary": plain}


def merge_schema(batch: ChangeBatch) -> pa.Schema:
    """The schema of staged rows that are the source of a MERGE."""
    fields = [(f"c{place}", arrow_type(column.type)) for place, column in enumerate(batch.schema.columns)]
    return pa.schema([*fields, (ROLE, pa.int8())])


def _staged_rows(batch: ChangeBatch, net: NetChanges, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """The rows that count: of each net change one where it matches, then its copies."""
    first = 0
    for rows in (rows for file in batch.files for rows in file.rows.batches()):
        low, high = np.searchsorted(net.position, (first, first + rows.num_rows))
        position, role, copies = net.position[low:high] - first, net.role[low:high], net.copies[low:high]
        matching = role != Role.INSERT
        copied = np.repeat(position, copies)
        taken = rows.take(pa.array(np.concatenate([position[matching], copied])))
        cells = [_column(taken, column.name, arrow_type(column.type)) for column in batch.schema.columns]
        roles = pa.array(np.concatenate([role[matching], np.full(len(copied), Role.INSERT, dtype=np.int8)]))
        yield pa.RecordBatch.from_arrays([*cells, roles][: len(schema)], schema=schema)
        first += rows.num_rows


def _column(rows: pa.RecordBatch, name: str, kind: pa.DataType) -> pa.Array[Any]:
    place = rows.schema.get_field_index(name)
    return pa.nulls(rows.num_rows, kind) if place < 0 else rows.column(place)


def _write_parts(batches: Iterable[pa.RecordBatch], folder: Path, schema: pa.Schema, options: dict[str, Any]) -> int:
    """Write `part-00000.parquet`, `part-00001.parquet` … with a row group for each table; returns how many rows."""
    tables, written = _tables(batches), 0
    for part, first in enumerate(tables):
        with pq.ParquetWriter(folder / f"part-{part:05}.parquet", schema, compression="snappy", **options) as writer:
            end = written + _FILE_ROWS
            for group in itertools.chain([first], tables):
                writer.write_table(group, row_group_size=group.num_rows)
                written += group.num_rows
                if written >= end:
                    break
    return written


def _bounds(column: pa.ChunkedArray[Any], matching: Integers) -> tuple[Any, Any]:
    found = pc.min_max(column.take(pa.array(matching)))
    return found["min"], found["max"]


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
