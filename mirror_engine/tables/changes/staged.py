"""Net changes of a batch in Parquet, as Spark's MERGE reads them; full rows pass through in record batches."""

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
from mirror_engine.tables.arrow_types import arrow_type
from mirror_engine.tables.changes.counted import tables_of, taken_rows
from mirror_engine.tables.changes.net_changes import Role
from mirror_engine.tables.log.table_path import StorePath, remove_folder
from mirror_engine.tables.reading.spill import scratch_errors

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path

    from mirror_engine.tables.base import ChangeBatch, MatchCounts
    from mirror_engine.tables.changes.counted import CountedChanges
    from mirror_engine.tables.changes.net_changes import NetChanges
    from mirror_engine.tables.log.table_path import TablePath

    Stage: TypeAlias = Callable[[Any], "StagedChanges"]  # in a folder that it makes, of this machine or shared

ROLE = "role"  # the last column of the staged Parquet: a `net_changes.Role`
_FILE_ROWS = 2_000_000
_WHOLE_NUMBERS = {"byte", "short", "integer", "long"}
_MAX_BOUND = 512  # characters of text; Delta's statistics know the first 32


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

    @property
    def matches(self) -> bool:
        """Whether any row may match a row of the table."""
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
def staged(scratch: TablePath, stage: Stage) -> Iterator[StagedChanges]:
    """Stage the net changes of a batch in a new folder; removed on leaving the context.

    Raises:
        RejectedFile: a file of the batch cannot be read after all.
        StorageUnavailable: neither can the table, or the scratch folder not be written.
    """
    folder = scratch / f"batch-{uuid.uuid4().hex}"
    try:
        with scratch_errors():
            changes = stage(folder)
        yield changes
    finally:
        if isinstance(folder, StorePath):
            with suppress(StorageUnavailable):
                remove_folder(folder)
        else:
            shutil.rmtree(folder, ignore_errors=True)


def stage_here(batch: ChangeBatch, changes: CountedChanges, folder: Path) -> StagedChanges:
    """Stage a batch in this process, as it was counted against its table."""
    net = changes.net
    folder.mkdir(parents=True)
    rows = _write_parts(_staged_rows(batch, net), folder)
    matching = pa.array(net.position[net.role != Role.INSERT])
    extremes = (pc.min_max(column.take(matching)) for column in changes.keys.columns)
    bounds = tuple((found["min"], found["max"]) for found in extremes)
    return StagedChanges(folder, rows, changes.roles, bounds, changes.match_counts)


def _staged_rows(batch: ChangeBatch, net: NetChanges) -> Iterator[pa.RecordBatch]:
    """The rows that count: of each net change one where it matches, then its copies."""
    fields = [(f"c{place}", arrow_type(column.type)) for place, column in enumerate(batch.schema.columns)]
    schema = pa.schema([*fields, (ROLE, pa.int8())])
    matching = (net.role != Role.INSERT).astype(np.int64)
    times = net.copies + matching
    roles = np.repeat(np.full(len(net.role), Role.INSERT, dtype=np.int8), times)
    roles[(np.cumsum(times) - times)[matching > 0]] = net.role[matching > 0]
    for rows, part in taken_rows(batch, np.repeat(net.position, times)):
        yield pa.RecordBatch.from_arrays([*rows.columns, pa.array(roles[part])], schema=schema)


def _write_parts(batches: Iterable[pa.RecordBatch], folder: Path) -> int:
    """Write `part-00000.parquet`, `part-00001.parquet` … with a row group for each table; returns how many rows."""
    tables, written = tables_of(batches), 0
    options = {"compression": "snappy", "use_dictionary": False, "write_statistics": False}
    for part, first in enumerate(tables):
        with pq.ParquetWriter(folder / f"part-{part:05}.parquet", first.schema, **options) as writer:
            end = written + _FILE_ROWS
            for group in itertools.chain([first], tables):
                writer.write_table(group, row_group_size=group.num_rows)
                written += group.num_rows
                if written >= end:
                    break
    return written
