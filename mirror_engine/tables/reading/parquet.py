"""Opens a Parquet change file: its columns as Parquet itself types them, and its rows in bounded batches."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq

from mirror_engine.errors import RejectedFile
from mirror_engine.landing_zone.change import MARKER_COLUMN
from mirror_engine.landing_zone.diagnostics import Diagnostic, diagnose, without_errors
from mirror_engine.landing_zone.schema import VOID, Column
from mirror_engine.tables.arrow_types import arrow_type
from mirror_engine.tables.reading import row_rules as markers
from mirror_engine.tables.reading.opening import guarded
from mirror_engine.tables.reading.parquet_footer import PARSE_FAULTS, broken, check_layout, opened, plain, read_footer
from mirror_engine.tables.reading.parquet_pace import BUFFER_BYTES, check_lengths, is_small, pace_of
from mirror_engine.tables.reading.parquet_pages import Chunk, Layout, Unfolded, check_pages, layout_of
from mirror_engine.tables.reading.parquet_shape import Field, Shape, shape_of
from mirror_engine.tables.reading.parquet_types import OutOfRange, converted
from mirror_engine.tables.reading.unfolding import check_total

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Sequence

    from mirror_engine.config import Config

_DOCUMENTED_CODECS = frozenset({"UNCOMPRESSED", "SNAPPY", "GZIP", "ZSTD"})
_MARKER_TYPES = frozenset({"byte", "short", "integer", "long", "string", VOID})
_UNSIGNED = frozenset({"UINT8", "UINT16", "UINT32", "UINT64"})


def open_parquet(handle: BinaryIO, path: str, config: Config, *, threads: bool = True) -> ParquetChangeFile:
    """Open a Parquet change file (LZ-3.10, LZ-5.1, LZ-5.8).

    Args:
        handle: its bytes, seekable; stays open, and is the caller's to close after the last batch.
        path: for messages, from the landing zone's top.
        config: `strict`, `naive_timestamps` and `max_row_size` count here.
        threads: whether columns may be read side by side.

    Raises:
        RejectedFile: ME023, ME024, ME036, ME049, ME075; under `strict` also ME034, ME035, ME045 (the marker),
            ME050, ME052.
        StorageUnavailable: the bytes could not be read.
    """
    source = guarded(handle, path)
    bare = plain(source, read_footer(source, path, config))
    layout = layout_of(bare.footer, path)
    file = opened(
        bare,
        path,
        pre_buffer=False,
        buffer_size=BUFFER_BYTES,
        coerce_int96_timestamp_unit="us",
        page_checksum_verification=True,
    )
    check_layout(file, layout.groups, path)
    try:
        shape = shape_of(file, layout.schema, bare.source.seek(0, os.SEEK_END), path, config)
    except PARSE_FAULTS as fault:
        raise broken(path, "its footer cannot be understood") from fault
    return ParquetChangeFile(bare.source, file, shape, layout, path, config, threads=threads)


class ParquetChangeFile:
    """An `OpenFile` over Parquet."""

    def __init__(  # noqa: PLR0913, PLR0917 - made by `open_parquet` alone
        self,
        source: BinaryIO,
        file: pq.ParquetFile,
        shape: Shape,
        layout: Layout,
        path: str,
        config: Config,
        *,
        threads: bool,
    ) -> None:
        self._source = source
        self._file = file
        self._fields = fields = shape.fields
        self._data = shape.data_columns(ntz=config.naive_timestamps == "ntz")
        self._row_width = shape.row_width
        self._groups = layout.groups
        self._size = source.seek(0, os.SEEK_END)
        self._path = path
        self._config = config
        self._threads = threads
        self._marker_at = _marker_position(shape, path)
        self.marker: str | None = None if self._marker_at is None else fields[self._marker_at].name
        self.columns: Sequence[Column] = self._data.columns
        self.naive_columns, self.utc_columns = self._data.naive, self._data.utc
        self.promised_rows = int(file.metadata.num_rows)
        self.diagnostics: list[Diagnostic] = [*self._about_marker(), *self._about_types()]
        without_errors(self.diagnostics)

    @property
    def parquet(self) -> pq.ParquetFile:
        """The file as Arrow has opened it; nothing of a row group is to be asked for before a row of it was read."""
        return self._file

    @property
    def chunks(self) -> Sequence[Sequence[Chunk]]:
        """Where the pages of each row group's columns lie."""
        return self._groups

    def batches(self, columns: Collection[str] | None = None) -> Iterator[pa.RecordBatch]:
        """Rows in file order; see `OpenFile`. The marker is checked already (ME037).

        Raises:
            RejectedFile: ME024, ME037, ME060, ME075; under `strict` also ME055.
            StorageUnavailable: the bytes could not be read.
        """
        rows = unfolded = 0
        read = [at for at, field in enumerate(self._fields) if self._is_read(at, field, columns)] or [0]
        for raw in self._raw_batches(read, None if columns is None else [self._fields[at].name for at in read]):
            unfolded += check_lengths(raw, self._path, rows + 1, self._config)
            yield self._carried(raw, read, rows + 1)
            rows += raw.num_rows
            check_total(unfolded, rows, self._size, self._path, self._config)
        if rows != self._file.metadata.num_rows:
            raise broken(self._path, "it holds fewer rows than its footer says")

    def _is_read(self, at: int, field: Field, columns: Collection[str] | None) -> bool:
        return columns is None or field.name in columns or at == self._marker_at

    def _raw_batches(self, places: Sequence[int], names: Sequence[str] | None) -> Iterator[pa.RecordBatch]:
        for group in range(self._file.num_row_groups):
            chunks = [self._groups[group][at] for at in places]
            pages = check_pages(self._source, self._size, chunks, self._path, self._config)
            yield from self._at_once(group, chunks, pages.total, names) or self._paced(group, names, pages)

    def _at_once(
        self, group: int, chunks: Sequence[Chunk], unfolded: int, names: Sequence[str] | None
    ) -> Sequence[pa.RecordBatch]:
        """A row group that is small however far it unfolds; nothing where it is not, or where there is more to say."""
        rows = self._file.metadata.row_group(group).num_rows
        if not is_small(rows, self._row_width, chunks, unfolded):
            return ()
        claimed = rows * self._row_width + sum(max(chunk.unfolded, 0) for chunk in chunks)
        try:
            check_total(claimed, self._file.metadata.num_rows, self._size, self._path, self._config)
            found = self._file.iter_batches(batch_size=rows, row_groups=[group], columns=names, use_threads=False)
            return list(found)
        except (RejectedFile, *PARSE_FAULTS):
            return ()

    def _paced(self, group: int, names: Sequence[str] | None, pages: Unfolded) -> Iterator[pa.RecordBatch]:
        """A row group in batches that fit into memory whatever it holds."""
        try:
            pace = pace_of(self._file, self._source, group, names, pages)
        except PARSE_FAULTS as fault:
            raise self._unreadable(group, fault) from fault
        check_total(pace.unfolded_bytes, self._file.metadata.num_rows, self._size, self._path, self._config)
        self._note_codecs(pace.codecs)
        found = self._file.iter_batches(
            batch_size=pace.rows_per_batch,
            row_groups=[group],
            columns=names,
            use_threads=self._threads and pace.unfolded_bytes > BUFFER_BYTES,
        )
        while (batch := self._next(found, group)) is not None:
            yield batch

    def _next(self, batches: Iterator[pa.RecordBatch], group: int) -> pa.RecordBatch | None:
        try:
            return next(batches, None)
        except PARSE_FAULTS as fault:
            raise self._unreadable(group, fault) from fault

    def _unreadable(self, group: int, fault: BaseException) -> RejectedFile:
        """Say in plain words what a parser says of bytes."""
        encrypted = "crypt" in str(fault)
        return broken(
            self._path, "it is encrypted" if encrypted else f"the pages of row group {group + 1} cannot be read"
        )

    def _carried(self, raw: pa.RecordBatch, read: Sequence[int], first_row: int) -> pa.RecordBatch:
        """The file's columns at the places read, then the marker."""
        is_whole = raw.num_columns == len(self._fields)
        cells = {at: raw.column(at if is_whole else self._fields[at].name) for at in read}
        marker = None if self._marker_at is None else cells.pop(self._marker_at)
        names, made = [], []
        for at, found in cells.items():
            column = self._data.by_place[at]
            names.append(column.name)
            made.append(self._column(column, found, first_row))
        if marker is not None:
            names.append(MARKER_COLUMN)
            made.append(self._markers(marker, first_row))
        return pa.RecordBatch.from_arrays(made, names)

    def _column(self, column: Column, cells: pa.Array, first_row: int) -> pa.Array:
        if column.type == VOID:
            return pa.nulls(len(cells))
        try:
            return converted(cells, arrow_type(column.type))
        except OutOfRange as fault:
            row = first_row + fault.position if fault.position >= 0 else None
            raise RejectedFile(diagnose("ME060", self._path, row=row, column=column.name, type=fault.wanted)) from fault

    def _markers(self, cells: pa.Array, first_row: int) -> pa.Array:
        plain = cells.storage if isinstance(cells, pa.ExtensionArray) else cells
        return markers.effective(plain, self._path, first_row)

    def _say(self, code: str, **details: object) -> Diagnostic:
        return diagnose(code, self._path, row=None, strict=self._config.strict, **details)

    def _about_marker(self) -> Iterator[Diagnostic]:
        if self._marker_at is None:
            return
        marker = self._fields[self._marker_at]
        if self._marker_at != len(self._fields) - 1:
            yield self._say("ME034", position=self._marker_at + 1, count=len(self._fields))
        if marker.name != MARKER_COLUMN:
            yield self._say("ME052", column=marker.name, other=MARKER_COLUMN)
        if marker.type.word == "string":
            yield self._say("ME035")
        elif marker.type.word == VOID:
            yield self._say("ME045", column=marker.name)

    def _about_types(self) -> Iterator[Diagnostic]:
        for at, field in enumerate(self._fields):
            taken_as = field.type.taken_as
            if taken_as:
                taken_as = "integer" if at == self._marker_at else taken_as
                yield self._say("ME050", column=field.name, found=field.type.spelling, taken_as=taken_as)

    def _note_codecs(self, codecs: Iterable[str]) -> None:
        said = (self._say("ME055", found=codec) for codec in sorted(set(codecs) - _DOCUMENTED_CODECS))
        self.diagnostics += without_errors(diagnostic for diagnostic in said if diagnostic not in self.diagnostics)


def _marker_position(shape: Shape, path: str) -> int | None:
    """Where the marker stands (LZ-4.10); two of them, or one of another type, are refused (LZ-4.11)."""
    fields, found = shape.fields, shape.markers
    if not found:
        return None
    kinds = " and ".join(fields[at].type.spelling for at in found)
    first = fields[found[0]].type
    if len(found) > 1 or not (first.word in _MARKER_TYPES or first.spelling in _UNSIGNED):
        raise RejectedFile(diagnose("ME036", path, column=MARKER_COLUMN, found=kinds))
    return found[0]
