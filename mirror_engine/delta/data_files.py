"""A Delta table's rows, read without a JVM: any version, mapped columns, partitions, deletion vectors.

`deltalake` reads the log rightly, but the rows of a table with mapped columns as NULLs; so the files are read here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

from mirror_engine.delta.arrow_types import arrow_schema
from mirror_engine.errors import StorageUnavailable, TableDamaged

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from mirror_engine.delta.base import Chosen
    from mirror_engine.delta.file_bounds import Bounds
    from mirror_engine.delta.log import DataFile, DeltaLog
    from mirror_engine.landing_zone.column_types import Column

_BATCH_ROWS = 65_536


def read_rows(log: DeltaLog, limit: int | None = None, where: Chosen | None = None) -> pa.Table:
    """All rows of a version, or those chosen; all of them, or the first that come."""
    schema = arrow_schema(log.schema.columns)
    batches, wanted = [], limit
    for batch in scan(log, log.schema.names):
        if wanted is not None and wanted <= 0:
            break
        found = batch if where is None else batch.filter(where(batch))
        batches.append(found.slice(0, wanted))
        wanted = None if wanted is None else wanted - found.num_rows
    return pa.Table.from_batches(batches, schema)


def count_rows(log: DeltaLog) -> int:
    """How many rows a version holds, from statistics, else from the files' footers."""
    return sum(_count(file) for file in log.data_files())


def scan(
    log: DeltaLog, names: Sequence[str], bounds: Bounds | None = None, batch_rows: int = _BATCH_ROWS
) -> Iterator[pa.RecordBatch]:
    """The named columns of every row, or of the files that may hold rows within bounds, in no order.

    Raises:
        TableDamaged: a data file is missing or unreadable.
        StorageUnavailable: it could not be read.
    """
    columns = [column for name in names for column in log.schema.columns if column.name == name]
    physical = log.physical_names
    for file in log.data_files(bounds):
        yield from _rows_of(file, columns, [physical[column.name] for column in columns], batch_rows)


def _rows_of(
    file: DataFile, columns: Sequence[Column], physical: Sequence[str], batch_rows: int
) -> Iterator[pa.RecordBatch]:
    schema = arrow_schema(tuple(columns))
    first = 0
    for batch in _read(file, physical, batch_rows):
        arrays = [_values(batch, name, file, field) for name, field in zip(physical, schema, strict=True)]
        rows = pa.RecordBatch.from_arrays(arrays, schema=schema) if arrays else batch
        yield rows if file.kept is None else rows.filter(_selected(file.kept, first, batch.num_rows))
        first += batch.num_rows


def _read(file: DataFile, physical: Sequence[str], batch_rows: int) -> Iterator[pa.RecordBatch]:
    try:
        with pq.ParquetFile(file.path, coerce_int96_timestamp_unit="us") as parquet:
            present = set(parquet.schema_arrow.names)
            wanted = [name for name in physical if name in present]
            yield from parquet.iter_batches(batch_rows, columns=wanted)
    except FileNotFoundError:
        raise TableDamaged(file.path, "the Delta log names this file, and it is not there") from None
    except pa.ArrowInvalid as error:
        raise TableDamaged(file.path, f"no Parquet file: {str(error).splitlines()[0]}") from None
    except OSError as error:
        raise StorageUnavailable(f"{file.path}: cannot be read: {error.strerror or error}") from error


def _values(batch: pa.RecordBatch, name: str, file: DataFile, field: pa.Field[Any]) -> pa.Array[Any]:
    if field.name in file.partition:
        return pa.repeat(pa.scalar(file.partition[field.name], pa.string()), batch.num_rows).cast(field.type)
    place = batch.schema.get_field_index(name)
    return pa.nulls(batch.num_rows, field.type) if place < 0 else batch.column(place).cast(field.type)


def _selected(kept: pa.BooleanArray, first: int, count: int) -> pa.BooleanArray:
    known = kept.slice(first, count)
    return pa.concat_arrays([known, pa.repeat(True, count - len(known))])


def _count(file: DataFile) -> int:
    gone = 0 if file.kept is None else len(file.kept) - file.kept.true_count
    if file.rows is not None:
        return file.rows - gone
    try:
        return int(pq.read_metadata(file.path).num_rows) - gone
    except (OSError, pa.ArrowInvalid) as error:
        raise TableDamaged(file.path, f"cannot be counted: {type(error).__name__}") from error
