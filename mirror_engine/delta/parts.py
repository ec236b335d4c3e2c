"""Writes rows as Parquet files of bounded size, in row groups that are neither tiny nor large."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path
    from types import TracebackType

    from typing_extensions import Self

_FILE_ROWS = 2_000_000
_GROUP_BYTES = 16 * 1024 * 1024  # in memory


class Parts:
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
