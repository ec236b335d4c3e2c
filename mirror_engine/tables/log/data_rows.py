"""Rows of a version's data files, without those that deletion vectors mark."""

from __future__ import annotations

import itertools
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from mirror_engine.storage.remote import FIRST_BYTES
from mirror_engine.tables.arrow_types import arrow_schema
from mirror_engine.tables.log.table_file import reading_file
from mirror_engine.tables.log.table_path import StorePath, for_each, parquet_source, read_range
from mirror_engine.tables.log.vectors import read_vector

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from mirror_engine.tables.base import Chosen, ChosenColumns
    from mirror_engine.tables.changes.net_changes import Integers
    from mirror_engine.tables.log.snapshot import DeltaLog
    from mirror_engine.tables.log.table_file import DataFile

_BATCH_ROWS = 65_536
_BATCH_BYTES, _BUFFER_BYTES = 8 * 1024 * 1024, 1024 * 1024
_THREADED_BYTES = 1 << 20  # of a data file: a smaller one is read sooner without threads
_AHEAD_BYTES = 16 * 1024 * 1024  # of data files in a store that are read before they are asked for


def read_rows(
    log: DeltaLog, limit: int | None = None, where: Chosen | None = None, columns: ChosenColumns | None = None
) -> pa.Table:
    """Read all rows of a version, the chosen ones or the first ones; all columns or the chosen ones."""
    found, rows = [], 0
    files, schema = log.data_files(), arrow_schema(log.schema.columns)
    names = [*columns(schema.names)] if columns else schema.names
    if limit is None:
        batches = scan(log, files, names)
    else:  # no file is read that need not be, and few rows at once if they are large
        batches = itertools.chain.from_iterable(scan(log, [file], names, _rows_at_once(file)) for file in files)
    while (limit is None or rows < limit) and (batch := next(batches, None)) is not None:
        found.append(batch if where is None else batch.filter(where(batch)))
        rows += found[-1].num_rows
    return pa.Table.from_batches(found, pa.schema([schema.field(name) for name in names])).slice(0, limit)


def _rows_at_once(file: DataFile) -> int:
    """How many rows of a data file have about `_BATCH_BYTES` in it."""
    return max(1, min(_BATCH_ROWS, _BATCH_BYTES * (file.rows or 0) // max(1, file.size)))


def scan(
    log: DeltaLog, files: Iterable[DataFile], names: Sequence[str], batch_rows: int = _BATCH_ROWS
) -> Iterator[pa.RecordBatch]:
    """The named columns of every row of data files that is not gone, file by file."""
    files = list(files)
    gone_rows = for_each(log.folder, partial(marks, log), files)
    for file, gone in zip(whole_files(log, files, names), gone_rows, strict=True):
        for first, rows in scan_file(log, file, names, batch_rows):
            yield rows if gone is None else rows.filter(rows_left(gone, first, rows.num_rows))


def whole_files(log: DeltaLog, files: Iterable[DataFile], names: Sequence[str]) -> Iterator[DataFile]:
    """Data files, in order, of which the named columns of all rows will be read.

    In a store small files are read before they are asked for: each whole by one request, several at once, and at most
    `_AHEAD_BYTES`. Larger ones are left to `scan_file`, which reads them by row groups.
    """
    largest = _AHEAD_BYTES if set(names) >= set(log.schema.names) else FIRST_BYTES

    def weight(file: DataFile) -> int:
        return file.size if 0 < file.size <= largest else 0

    def read(file: DataFile) -> DataFile:
        if not (isinstance(file.path, StorePath) and weight(file)):
            return file
        with reading_file(file.path):
            return replace(file, content=pa.py_buffer(read_range(file.path, 0, file.size)))

    return for_each(log.folder, read, files, weight, _AHEAD_BYTES)


def marks(log: DeltaLog, file: DataFile) -> Integers | None:
    """The numbers of a data file's rows that are gone, ascending; None where all are there."""
    with reading_file(file.path):
        return None if file.vector is None else read_vector(log.folder, file.vector)


def rows_left(gone: Integers, first: int, count: int) -> pa.BooleanArray:
    """Mark which of `count` rows from number `first` on are not deleted."""
    low, high = np.searchsorted(gone, (first, first + count))
    left = np.ones(count, dtype=np.bool_)
    left[gone[low:high] - first] = False
    return pa.array(left)


def scan_file(
    log: DeltaLog,
    file: DataFile,
    names: Sequence[str],
    batch_rows: int = _BATCH_ROWS,
    only: Integers | None = None,
) -> Iterator[tuple[int, pa.RecordBatch]]:
    """All rows of a data file, also those that are gone: the named columns that the table has.

    Each batch comes with its first row's number. Row groups without any of the rows `only` are passed over.
    """
    columns = {column.name: column for column in log.schema.columns}
    schema = arrow_schema(tuple(columns[name] for name in names if name in columns))
    known = log.physical_names
    physical = [known[name] for name in schema.names]
    is_remote = isinstance(file.path, StorePath) and file.content is None
    is_large = file.size >= _THREADED_BYTES
    buffer_size = 0 if batch_rows == _BATCH_ROWS else _BUFFER_BYTES  # else a row group's column is read whole
    with (
        reading_file(file.path),
        parquet_source(file.path) if file.content is None else pa.BufferReader(file.content) as source,
        pq.ParquetFile(
            source, buffer_size=buffer_size, coerce_int96_timestamp_unit="us", pre_buffer=is_remote
        ) as parquet,
    ):
        present = [name for name in physical if name in parquet.schema_arrow.names]
        for first, groups in _row_groups(parquet.metadata, only, one_by_one=is_remote):
            at = first
            for batch in parquet.iter_batches(batch_rows, groups, present, use_threads=is_large):
                arrays = [_values(batch, name, file, field) for name, field in zip(physical, schema, strict=True)]
                yield at, pa.RecordBatch.from_arrays(arrays, schema=schema) if arrays else batch
                at += batch.num_rows


def _row_groups(
    footer: pq.FileMetaData, only: Integers | None, *, one_by_one: bool
) -> Iterator[tuple[int, list[int] | None]]:
    """Row groups to read together, each time with the number of their first row; None for all.

    `one_by_one`: Arrow reads them ahead (`pre_buffer`), and holds in memory whatever it is asked for together.
    """
    if only is None and not one_by_one:
        yield 0, None
        return
    first = 0
    for group in range(footer.num_row_groups):
        end = first + footer.row_group(group).num_rows
        low = 0 if only is None else np.searchsorted(only, first)
        if only is None or (low < len(only) and only[low] < end):
            yield first, [group]
        first = end


def _values(batch: pa.RecordBatch, name: str, file: DataFile, field: pa.Field[Any]) -> pa.Array[Any]:
    if field.name in file.partition:
        return pa.repeat(pa.scalar(file.partition[field.name], pa.string()), batch.num_rows).cast(field.type)
    place = batch.schema.get_field_index(name)
    return pa.nulls(batch.num_rows, field.type) if place < 0 else batch.column(place).cast(field.type)
