"""A change batch as net changes for one commit: compared with the keys of the table and written to Parquet.

Only keys and markers of the whole batch are in memory at once; full rows pass through in record batches.
"""

from __future__ import annotations

import shutil
import uuid
from contextlib import contextmanager
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
from mirror_engine.tables.changes.net_changes import (
    NO_KEY,
    KeyCodes,
    NetChanges,
    Role,
    key_codes,
    matched_rows,
    net_changes,
)
from mirror_engine.tables.log.snapshot import scan
from mirror_engine.tables.log.statistics import bounds_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from mirror_engine.tables.base import ChangeBatch, FileRows
    from mirror_engine.tables.changes.net_changes import Integers, Markers
    from mirror_engine.tables.log.snapshot import DeltaLog

    Stage: TypeAlias = Callable[[ChangeBatch, DeltaLog, Path], "StagedChanges"]
    from collections.abc import Mapping
    from pathlib import Path
    from types import TracebackType

    from typing_extensions import Self

    from mirror_engine.tables.log.snapshot import DeltaLog

_FILE_ROWS = 2_000_000
_GROUP_BYTES = 16 * 1024 * 1024  # in memory


class PartFileWriter:
    """Files `part-00000.parquet`, `part-00001.parquet` … in a folder; complete once the context is left.

    Args:
        folder: where they come to lie.
        schema: of every file.
        options: of pyarrow's ParquetWriter.
    """

    def __init__(self, folder: Path, schema: pa.Schema, options: Mapping[str, Any]) -> None:
        self._folder = folder
        self.schema = schema
        self._options = {"compression": "snappy", **options}
        self._writer: pq.ParquetWriter | None = None
        self._files = self._in_file = self._waiting_bytes = 0
        self._waiting: list[pa.RecordBatch] = []

    def add(self, rows: pa.RecordBatch) -> None:
        """Take the next rows.

        Raises:
            OSError: they cannot be written.
        """
        if not rows.num_rows:
            return
        self._waiting.append(rows)
        self._waiting_bytes += rows.nbytes
        if self._waiting_bytes >= _GROUP_BYTES:
            self._write_group()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if kind is None:
                self._write_group()
        finally:
            self._close()

    def _write_group(self) -> None:
        if not self._waiting:
            return
        if self._writer is None:
            path = self._folder / f"part-{self._files:05}.parquet"
            self._writer = pq.ParquetWriter(path, self.schema, **self._options)
            self._files += 1
        group = pa.Table.from_batches(self._waiting, self.schema)
        self._writer.write_table(group, row_group_size=group.num_rows)
        self._in_file += group.num_rows
        self._waiting, self._waiting_bytes = [], 0
        if self._in_file >= _FILE_ROWS:
            self._close()

    def _close(self) -> None:
        writer, self._writer, self._in_file = self._writer, None, 0
        if writer is not None:
            writer.close()


_CHUNK_ROWS = 1_000_000
_BATCH_ROWS = 524_288  # each batch is filtered by all keys


def prior_rows(keys: pa.Table, codes: KeyCodes, log: DeltaLog) -> Integers:
    """Per key of a batch, how many rows of it the table holds before.

    Args:
        keys: the key columns, one row per change.
        codes: of these keys.
        log: the table before the batch.
    """
    prior = np.zeros(codes.count, dtype=np.int64)
    if codes.count and set(keys.column_names) <= set(log.schema.names):
        wanted = keys.take(codes.first_position)
        for chunk in _chunks(log, wanted):
            both = key_codes(pa.concat_tables([wanted, chunk.cast(wanted.schema)])).codes
            seen = both[codes.count :]
            found = np.bincount(seen[seen >= 0], minlength=int(both.max()) + 1)
            prior += found[both[: codes.count]]
    return prior


def _chunks(log: DeltaLog, wanted: pa.Table) -> Iterator[pa.Table]:
    """The table's keys that may be among those wanted, in pieces of a bounded size."""
    first = wanted.column(0).combine_chunks()
    waiting: list[pa.RecordBatch] = []
    for batch in scan(log, wanted.column_names, bounds_of(wanted), _BATCH_ROWS):
        # a filter by equal bits would lose a NaN or a zero of the other sign
        found = batch if pa.types.is_floating(first.type) else batch.filter(pc.is_in(batch.column(0), value_set=first))
        if found.num_rows:
            waiting.append(found)
        if sum(rows.num_rows for rows in waiting) >= _CHUNK_ROWS:
            yield pa.Table.from_batches(waiting)
            waiting = []
    if waiting:
        yield pa.Table.from_batches(waiting)


ROLE = "role"  # the last column of the staged Parquet: a `net_changes.Role`


@dataclass(frozen=True)
class StagedChanges:
    """A batch as one commit takes it.

    Attributes:
        folder: of the Parquet files: columns `c0`, `c1` … in the order of the table's schema, then `ROLE`; rows of
            the role INSERT match nothing, of all others at most one has a key.
        rows: how many rows lie there.
        roles: which roles occur.
        bounds: of each key column the lowest and highest value among the rows that match something.
        match_counts: per file of the batch.
        is_data: whether the files are data files instead: the table's columns, under its names.
    """

    folder: Path
    rows: int
    roles: frozenset[Role]
    bounds: tuple[tuple[Any, Any], ...]
    match_counts: tuple[MatchCounts, ...]
    is_data: bool = False

    @property
    def matches(self) -> bool:
        """Whether any row may meet a row of the table."""
        return bool(self.roles - {Role.INSERT})


@dataclass(frozen=True)
class _Keys:
    """The keys and markers of a batch, and how many rows each file has."""

    columns: pa.Table
    markers: Markers
    counts: Integers


@contextmanager
def staged(batch: ChangeBatch, log: DeltaLog, scratch: Path, stage: Stage | None = None) -> Iterator[StagedChanges]:
    """Stage the net changes of a batch as Parquet; removed on leaving the context.

    Args:
        batch: the change files.
        log: the table before the batch.
        scratch: where passing files lie.
        stage: writes the batch's net changes to a folder that it makes; by default in this process.

    Raises:
        RejectedFile: a file of the batch cannot be read after all.
        StorageUnavailable: neither can the table, or the scratch folder not be written.
    """
    folder = scratch / f"batch-{uuid.uuid4().hex}"
    try:
        try:
            changes = (stage or stage_here)(batch, log, folder)
        except OSError as error:
            raise StorageUnavailable(f"{folder}: {error.strerror or error}", "Is the disk full?") from error
        yield changes
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def stage_here(batch: ChangeBatch, log: DeltaLog, folder: Path) -> StagedChanges:
    """Make net changes of a batch in this process, and write them to Parquet."""
    keys = _keys(batch)
    codes = key_codes(keys.columns) if batch.key_columns else _no_keys(len(keys.markers))
    prior = prior_rows(keys.columns, codes, log)
    matched = matched_rows(codes.codes, keys.markers, prior)
    net = without_absent_keys(net_changes(codes.codes, keys.markers), codes.codes, prior)
    folder.mkdir(parents=True)
    roles = _roles(net)
    is_data = roles == {Role.INSERT} and log.can_add_files(batch.schema)
    with _parts(batch, folder, is_data=is_data) as parts:
        rows = _write_rows(batch, net, parts)
    matching = net.position[net.role != Role.INSERT]
    bounds = tuple(_bounds(column, matching) for column in keys.columns.columns)
    return StagedChanges(folder, rows, roles, bounds, _match_counts(keys, matched), is_data)


def _roles(net: NetChanges) -> frozenset[Role]:
    """The roles of the staged rows: every copy is a row of the role INSERT, whatever it is a copy of."""
    matching = frozenset(map(Role, np.unique(net.role[net.role != Role.INSERT]).tolist()))
    return matching | {Role.INSERT} if np.any(net.copies) else matching


def without_absent_keys(net: NetChanges, codes: Integers, prior: Integers) -> NetChanges:
    """The same net changes, now that it is known which keys the table holds: only those match, and none inserts.

    Of a key it lacks a delete does nothing, `SET` inserts, `SET_ONLY` leaves its copies; of one it holds `SET` is
    `SET_ONLY`. So a batch whose keys are all new is an append, and one of held keys only needs no insert clause.

    Args:
        net: of the batch.
        codes: per change of the batch its key's code.
        prior: per code how many rows of the key the table holds.
    """
    matching = np.flatnonzero(net.role != Role.INSERT)
    held = np.zeros(len(net.role), dtype=np.bool_)
    held[matching] = prior[codes[net.position[matching]]] > 0
    copies = net.copies + ((net.role == Role.SET) & ~held)
    role = np.where(held, np.where(net.role == Role.DELETE, Role.DELETE, Role.SET_ONLY), Role.INSERT)
    left = held | (copies > 0)
    return NetChanges(net.position[left], role[left].astype(np.int8), copies[left])


def _keys(batch: ChangeBatch) -> _Keys:
    """Reads the key columns and markers of every file."""
    fields = [(name, arrow_type(_type_of(batch, name))) for name in batch.key_columns]
    tables, markers, counts = [], [np.empty(0, dtype=np.int8)], []
    for file in batch.files:
        count = 0
        for rows in file.rows.batches([*batch.key_columns, MARKER_COLUMN]):
            columns = [_column(rows, name, kind) for name, kind in fields]
            tables.append(pa.Table.from_arrays(columns, schema=pa.schema(fields)))
            markers.append(rows.column(rows.schema.get_field_index(MARKER_COLUMN)).to_numpy(zero_copy_only=False))
            count += rows.num_rows
        counts.append(count)
    whole = pa.concat_tables(tables) if fields and tables else pa.schema(fields).empty_table()
    return _Keys(whole, np.concatenate(markers).astype(np.int8), np.array(counts, dtype=np.int64))


def _no_keys(count: int) -> KeyCodes:
    return KeyCodes(np.full(count, NO_KEY, dtype=np.int64), np.empty(0, dtype=np.int64))


def _type_of(batch: ChangeBatch, name: str) -> str:
    return next(column.type for column in batch.schema.columns if column.name == name)


def _column(rows: pa.RecordBatch, name: str, kind: pa.DataType) -> pa.Array[Any]:
    place = rows.schema.get_field_index(name)
    return pa.nulls(rows.num_rows, kind) if place < 0 else rows.column(place)


def _parts(batch: ChangeBatch, folder: Path, *, is_data: bool) -> PartFileWriter:
    """Where the rows are laid down: as data files of the table, or as the source of a commit by Spark."""
    if is_data:
        schema = pa.schema([(column.name, arrow_type(column.type)) for column in batch.schema.columns])
        # Spark skips row groups by bounds, which leave NaN out, and by dictionaries, where -0.0 is not 0.0
        plain = [field.name for field in schema if not pa.types.is_floating(field.type)]
        return PartFileWriter(
            folder, schema, {"store_schema": False, "write_statistics": plain, "use_dictionary": plain}
        )
    fields = [(f"c{place}", arrow_type(column.type)) for place, column in enumerate(batch.schema.columns)]
    return PartFileWriter(
        folder, pa.schema([*fields, (ROLE, pa.int8())]), {"use_dictionary": False, "write_statistics": False}
    )


def _write_rows(batch: ChangeBatch, net: NetChanges, parts: PartFileWriter) -> int:
    """Writes the rows that count; returns how many there are."""
    fields = [(column.name, arrow_type(column.type)) for column in batch.schema.columns]
    written = first = 0
    for rows in _rows(batch.files):
        low, high = np.searchsorted(net.position, (first, first + rows.num_rows))
        places, roles = _repeated(net, slice(low, high))
        taken = rows.take(pa.array(places - first))
        first += rows.num_rows
        columns = [_column(taken, name, kind) for name, kind in fields]
        made = [*columns, pa.array(roles)][: len(parts.schema)]
        parts.add(pa.RecordBatch.from_arrays(made, schema=parts.schema))
        written += len(places)
    return written


def _rows(files: Sequence[FileRows]) -> Iterator[pa.RecordBatch]:
    for file in files:
        yield from file.rows.batches()


def _repeated(net: NetChanges, part: slice) -> tuple[Integers, NDArray[np.int8]]:
    """The staged rows of some net changes: one where it matches, then its copies."""
    position, role, copies = net.position[part], net.role[part], net.copies[part]
    matching = role != Role.INSERT
    copied = np.repeat(position, copies)
    return (
        np.concatenate([position[matching], copied]),
        np.concatenate([role[matching], np.full(len(copied), Role.INSERT, dtype=np.int8)]),
    )


def _bounds(column: pa.ChunkedArray[Any], matching: Integers) -> tuple[Any, Any]:
    found = pc.min_max(column.take(pa.array(matching)))
    return found["min"], found["max"]


def _match_counts(keys: _Keys, matched: Integers) -> tuple[MatchCounts, ...]:
    inserts = keys.markers == RowMarker.INSERT
    ends = np.cumsum(keys.counts)
    spans = [slice(end - count, end) for end, count in zip(ends, keys.counts, strict=True)]
    return tuple(
        MatchCounts(
            int(np.count_nonzero(inserts[span] & (matched[span] > 0))),
            int(np.count_nonzero(~inserts[span] & (matched[span] > 1))),
        )
        for span in spans
    )
