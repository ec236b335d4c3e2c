"""Rows on their way to a table that Spark is to read: a Parquet file for each change file, in the scratch folder.

Columns carry a prefix, so that none is called as what Spark itself adds to a file's columns; the marker has none. The
file's name begins with the change file's place in its batch, by which its rows are told from those of the others.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq

from mirror_engine.delta.reading import WholeFiles
from mirror_engine.delta.rows import scratch_trouble
from mirror_engine.landing_zone.change import MARKER_COLUMN

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence
    from pathlib import Path

    from mirror_engine.delta.base import RowSource

MARKER = "marker"
PLACE = "CAST(substring(_metadata.file_name, 6, 8) AS BIGINT)"  # of a row's change file in the batch, in Spark's SQL


def scratch_name(name: str) -> str:
    """How a table's column, or the marker's, is called in such a file."""
    return MARKER if name == MARKER_COLUMN else f"_{name}"


def file_name(place: int, token: str) -> str:
    """A name for the rows of the change file at `place` of its batch; the token tells it from other batches' files."""
    return f"rows-{place:08}-{token}.parquet"


def write_rows(rows: RowSource, path: Path) -> None:
    """Lay rows down in a file, record batch by record batch.

    Raises:
        OSError: the file cannot be written.
    """
    schema = scratch_schema(rows.schema)
    with parquet_writer(path, schema) as writer:
        for batch in rows.batches():
            writer.write_batch(pa.RecordBatch.from_arrays(batch.columns, schema=schema))


def scratch_schema(schema: pa.Schema) -> pa.Schema:
    """The same columns as such a file names them."""
    return pa.schema(list(zip(map(scratch_name, schema.names), schema.types, strict=True)))


def parquet_writer(path: Path, schema: pa.Schema) -> pq.ParquetWriter:
    """A writer of passing rows: quick, and without what only helps those who look for some of them."""
    return pq.ParquetWriter(path, schema, compression="snappy", use_dictionary=False, write_statistics=False)


@dataclass(frozen=True)
class ParquetRows:
    """Typed rows in file order, a `RowSource` that lies where every node sees it.

    Attributes:
        path: of the file.
        place: of the change file in its batch, as the file's name says it.
        schema: of its rows.
    """

    path: Path
    place: int
    schema: pa.Schema

    def batches(self, columns: Sequence[str] | None = None) -> Iterator[pa.RecordBatch]:
        """The rows in order, all columns or those named."""
        names = self.schema.names if columns is None else list(columns)
        fields = pa.schema([self.schema.field(name) for name in names])
        with scratch_trouble():
            file = pq.ParquetFile(self.path)
        with file:
            for batch in file.iter_batches(columns=[scratch_name(name) for name in names]):
                cells = [batch.column(scratch_name(name)) for name in names]
                yield pa.RecordBatch.from_arrays(cells, schema=fields)

    def close(self) -> None:
        """Remove the file. Repeatable."""
        self.path.unlink(missing_ok=True)


class ParquetSpool:
    """Collects record batches of one schema into `ParquetRows`.

    Raises:
        StorageUnavailable: the scratch folder takes no more.
    """

    def __init__(self, schema: pa.Schema, path: Path, place: int) -> None:
        self._rows = ParquetRows(path, place, schema)
        self._written = scratch_schema(schema)
        with scratch_trouble():
            self._writer = parquet_writer(path, self._written)

    def add(self, batch: pa.RecordBatch) -> None:
        """Take the next rows."""
        with scratch_trouble():
            self._writer.write_batch(pa.RecordBatch.from_arrays(batch.columns, schema=self._written))

    def finish(self) -> ParquetRows:
        """All rows taken so far."""
        with scratch_trouble():
            self._writer.close()
        return self._rows

    def discard(self) -> None:
        """Forget the rows; they turned out to be no good."""
        with scratch_trouble():
            self._writer.close()
            self._rows.close()


class RowsAsParquet(WholeFiles):
    """A `Reading` that keeps all rows of one change file where every node sees them."""

    def __init__(self, scratch: Path, place: int, token: str) -> None:
        self._path = scratch / file_name(place, token)
        self._place = place

    def spool(self, schema: pa.Schema, key_columns: Collection[str]) -> ParquetSpool:  # noqa: ARG002 - keys are nothing special
        """See `Reading`."""
        return ParquetSpool(schema, self._path, self._place)
