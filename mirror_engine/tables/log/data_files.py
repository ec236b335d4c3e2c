"""Data files of one commit: one or more for each partition, under the table's names.

They are written in a scratch folder; a small one in memory, from where one write brings it to its table.
"""

from __future__ import annotations

import shutil
import uuid
from collections import defaultdict
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias
from urllib.parse import quote

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from mirror_engine.landing_zone.partitions import folder_name
from mirror_engine.tables.arrow_types import arrow_type
from mirror_engine.tables.log.snapshot import physical_name
from mirror_engine.tables.log.table_path import StorePath

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from mirror_engine.tables.log.table_path import TablePath

    Json: TypeAlias = dict[str, Any]
    Partition: TypeAlias = tuple[str | None, ...]  # values of the partition columns

CHANGE_TYPE = "_change_type"  # of a row of change data
_CHANGE_FOLDER = "_change_data/"
FILE_ROWS = 2_000_000
_GROUP_BYTES = 16 * 1024 * 1024  # of a row group, in memory
_WAITING_BYTES = 4 * _GROUP_BYTES  # of all partitions together
_MOST_OPEN = 64  # files that are written at once
_SAMPLED_ROWS = 10_000
_SMALL_BYTES = 4 * 1024 * 1024  # of rows; Arrow writes each of a file's pages by a call, three times as slow on a disk


@dataclass(frozen=True)
class WrittenFile:
    """A data file in the scratch folder, or in memory."""

    source: Path | pa.Buffer
    name: str  # its path from the table's folder
    partition: Mapping[str, str | None]  # partition values by physical names
    footer: pq.FileMetaData
    size: int  # in bytes

    @property
    def action(self) -> Json:
        """What every action that names it says of it."""
        return {"path": quote(self.name, safe="/="), "partitionValues": self.partition, "size": self.size}

    def put(self, folder: TablePath) -> None:
        """Bring it into its table's folder; on a disk not durably."""
        target = folder / self.name
        if isinstance(target, StorePath):
            target.upload(self.source)
            return
        target.parent.mkdir(parents=True, exist_ok=True)
        if isinstance(self.source, Path):
            shutil.move(self.source, target)
        else:
            target.write_bytes(self.source)


def written_file(source: Path, name: str) -> WrittenFile:
    """A Parquet file as it is in the scratch folder, of no partition."""
    return WrittenFile(source, name, {}, pq.read_metadata(source), source.stat().st_size)


@dataclass
class _Open:
    name: str
    sink: Path | pa.BufferOutputStream
    footers: list[pq.FileMetaData]  # of the file, once it is closed
    writer: pq.ParquetWriter
    rows: int = 0


class DataFiles:
    """Writes data files, or files of change data, and keeps what it wrote.

    Args:
        folder: a scratch folder; made when it is needed.
        fields: the table's columns, as its log has them.
        partition_columns: those of its columns that no file holds.
        of_changes: whether rows have `CHANGE_TYPE` as their last column.
    """

    def __init__(
        self,
        folder: Path,
        fields: Sequence[Mapping[str, Any]],
        partition_columns: Sequence[str],
        *,
        of_changes: bool = False,
    ) -> None:
        self.written: list[WrittenFile] = []
        self._folder, self._of_changes = folder, of_changes
        names = {field["name"]: physical_name(field) for field in fields}
        self._partition_columns = {name: names[name] for name in partition_columns}
        self._has_folders = all(logical == physical for logical, physical in self._partition_columns.items())
        kept = [_field(field) for field in fields if field["name"] not in partition_columns]
        self._names = [field["name"] for field in fields if field["name"] not in partition_columns]
        if of_changes:
            kept, self._names = [*kept, pa.field(CHANGE_TYPE, pa.string())], [*self._names, CHANGE_TYPE]
        self._schema = pa.schema(kept)
        # Spark skips row groups by bounds, which leave NaN out, and by dictionaries, where -0.0 is not 0.0
        self._exact = [field.name for field in self._schema if not pa.types.is_floating(field.type)]
        self._waiting: dict[Partition, list[pa.RecordBatch]] = defaultdict(list)
        self._bytes: dict[Partition, int] = defaultdict(int)
        self._open: dict[Partition, _Open] = {}
        self._is_finished = False

    def add(self, rows: pa.RecordBatch) -> None:
        """Take rows of the table: all its columns under its own names."""
        if not rows.num_rows:
            return
        for partition, part in self._by_partition(rows):
            self._waiting[partition].append(part.select(self._names))
            self._bytes[partition] += part.nbytes
            if self._bytes[partition] >= _GROUP_BYTES:
                self._write(partition)
        if sum(self._bytes.values()) >= _WAITING_BYTES:
            self._write_all()

    def finish(self) -> Sequence[WrittenFile]:
        """Write what waits; the finished files."""
        self._is_finished = True
        self._write_all()
        for partition in list(self._open):
            self._close(partition)
        return self.written

    def close(self) -> None:
        """Close files that were not finished, and are no longer wanted."""
        for each in self._open.values():
            with suppress(OSError, RuntimeError):  # what could not be written has no end, either
                each.writer.close()

    def _by_partition(self, rows: pa.RecordBatch) -> Sequence[tuple[Partition, pa.RecordBatch]]:
        if not self._partition_columns:
            return [((), rows)]
        values = [rows.column(name).dictionary_encode("encode") for name in self._partition_columns]
        codes = pa.table([column.indices for column in values], names=[str(at) for at in range(len(values))])
        places = codes.append_column("row", pa.array(np.arange(rows.num_rows))).group_by(
            codes.column_names, use_threads=False
        )
        found = places.aggregate([("row", "list")]).to_pylist()
        if len(found) == 1:
            return [(_values(values, found[0]), rows)]
        return [(_values(values, group), rows.take(pa.array(group["row_list"]))) for group in found]

    def _write_all(self) -> None:
        for partition in [partition for partition, waiting in self._waiting.items() if waiting]:
            self._write(partition)

    def _write(self, partition: Partition) -> None:
        """Write the waiting rows of a partition as one row group."""
        group = pa.Table.from_batches(self._waiting.pop(partition)).rename_columns(self._schema.names)
        group = group.cast(self._schema)
        into = self._open.get(partition) or self._opened(partition, self._repeated(group))
        into.writer.write_table(group, row_group_size=group.num_rows)
        into.rows += group.num_rows
        self._bytes[partition] = 0
        if into.rows >= FILE_ROWS:
            self._close(partition)

    def _repeated(self, group: pa.Table) -> Sequence[str]:
        """The columns that are worth a dictionary, by a file's first rows: all others take half the time without."""
        if group.num_rows < _SAMPLED_ROWS:
            return self._exact
        sample = group.slice(0, _SAMPLED_ROWS)
        return [name for name in self._exact if len(sample.column(name).unique()) <= _SAMPLED_ROWS // 2]

    def _opened(self, partition: Partition, with_dictionary: Sequence[str]) -> _Open:
        while len(self._open) >= _MOST_OPEN:
            self._close(next(iter(self._open)))
        name = f"{'cdc' if self._of_changes else 'part'}-00000-{uuid.uuid4()}.c000.snappy.parquet"
        sink: Path | pa.BufferOutputStream = self._folder / name
        if self._is_finished and self._bytes[partition] < _SMALL_BYTES:  # nothing more comes
            sink = pa.BufferOutputStream()
        else:
            self._folder.mkdir(parents=True, exist_ok=True)
        footers: list[pq.FileMetaData] = []
        writer = pq.ParquetWriter(
            sink,
            self._schema,
            compression="snappy",
            store_schema=False,
            write_statistics=self._exact,
            use_dictionary=list(with_dictionary),
            metadata_collector=footers,
        )
        self._open[partition] = _Open(name, sink, footers, writer)
        return self._open[partition]

    def _hive_folder(self, partition: Partition) -> str:
        """The folder of a partition; Polars takes values from its name, and not from the log."""
        pairs = zip(self._partition_columns, partition, strict=True) if self._has_folders else ()
        return "".join(f"{folder_name(name, value)}/" for name, value in pairs)

    def _close(self, partition: Partition) -> None:
        closed = self._open.pop(partition)
        closed.writer.close()
        above = (_CHANGE_FOLDER if self._of_changes else "") + self._hive_folder(partition)
        values = dict(zip(self._partition_columns.values(), partition, strict=True))
        source = closed.sink if isinstance(closed.sink, Path) else closed.sink.getvalue()
        size = source.stat().st_size if isinstance(source, Path) else source.size
        self.written.append(WrittenFile(source, above + closed.name, values, closed.footers[0], size))


def _field(field: Mapping[str, Any]) -> pa.Field[Any]:
    identity = field["metadata"].get("delta.columnMapping.id")
    metadata = None if identity is None else {b"PARQUET:field_id": str(identity).encode()}
    return pa.field(physical_name(field), arrow_type(field["type"]), metadata=metadata)


def _values(columns: Sequence[Any], codes: Mapping[str, Any]) -> Partition:
    return tuple(column.dictionary[codes[str(at)]].as_py() or None for at, column in enumerate(columns))
