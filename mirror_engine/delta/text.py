"""Opens a delimited-text change file: its header matched to the declared columns, its rows typed (chapter 6)."""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, BinaryIO

import pyarrow as pa

from mirror_engine.delta import markers
from mirror_engine.delta.compression import text_bytes
from mirror_engine.delta.text_columns import TIME, ColumnFault, column_array
from mirror_engine.delta.unfolding import check_total
from mirror_engine.errors import PublisherError
from mirror_engine.landing_zone.change import MARKER_COLUMN
from mirror_engine.landing_zone.column_types import Column, folded
from mirror_engine.landing_zone.delimited_text import RecordLimits, RecordReader
from mirror_engine.landing_zone.diagnostics import Diagnostic, diagnose, without_errors
from mirror_engine.landing_zone.text_encoding import decoded

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Sequence

    from mirror_engine.config import Config
    from mirror_engine.landing_zone.delimited_text import Record
    from mirror_engine.landing_zone.metadata import Metadata


def open_text(handle: BinaryIO, path: str, metadata: Metadata, config: Config) -> TextChangeFile:
    """Open a delimited-text change file and read its header.

    Args:
        handle: its bytes, seekable; stays open, and is the caller's to close after the last batch.
        path: for messages, from the landing zone's top.
        metadata: of a text folder: its dialect and declared columns count here.
        config: `strict`, `row_bytes` and `batch_bytes` count here.

    Raises:
        PublisherError: ME023, ME024, ME036, ME053, ME061, ME075; under `strict` also ME034 and ME052.
        StorageUnavailable: the bytes could not be read.
    """
    return TextChangeFile(handle, path, metadata, config)


@dataclass(frozen=True)
class _Field:
    """A declared column that the header names, and where."""

    at: int
    column: Column
    kind: str


class TextChangeFile:
    """An `OpenFile` over delimited text. Timestamps are UTC by rule, so that no column is naive."""

    naive_columns: frozenset[str] = frozenset()
    utc_columns: frozenset[str] = frozenset()
    promised_rows: int | None = None

    def __init__(self, handle: BinaryIO, path: str, metadata: Metadata, config: Config) -> None:
        self._handle = handle
        self._size = handle.seek(0, os.SEEK_END)
        self._path = path
        self._metadata = metadata
        self._config = config
        self.diagnostics: list[Diagnostic] = []
        self._told: set[Diagnostic] = set()
        self.marker: str | None = None
        self._marker_at: int | None = None
        self._fields: list[_Field] = []
        self._match(self._header())
        self.columns: Sequence[Column] = tuple(field.column for field in self._fields)
        without_errors(self.diagnostics)

    def batches(self, columns: Collection[str] | None = None) -> Iterator[pa.RecordBatch]:  # noqa: ARG002 - all are read
        """Rows in file order; see `OpenFile`. Markers and nullability are checked already.

        Raises:
            PublisherError: ME024, ME037, ME048, ME060, ME061, ME075, at the first row that is wrong.
            StorageUnavailable: the bytes could not be read.
        """
        reader = self._reader()
        first_row, skip = 1, 1  # the header comes with the first records
        unfolded = 0
        for records in self._records(reader):
            rows, skip = records[skip:], 0
            if rows:
                batch = self._batch(rows, first_row)
                first_row += len(rows)
                unfolded += batch.nbytes
                check_total(unfolded, first_row - 1, self._size, self._path, self._config)
                yield batch
        if reader.other_line_ends:
            self._say("ME062")
        if first_row == 1:
            self._say("ME058")

    def _reader(self) -> RecordReader:
        limits = RecordLimits(self._path, self._config.row_bytes, self._config.strict)
        return RecordReader(self._metadata.dialect, limits)

    def _records(self, reader: RecordReader) -> Iterator[list[Record]]:
        content = text_bytes(self._handle, self._path, self._config)
        return reader.records(decoded(content, self._metadata.dialect.encoding))

    def _header(self) -> list[str]:
        if next(text_bytes(self._handle, self._path, self._config), None) is None:
            raise self._refused("ME023")
        first = next(self._records(self._reader()), None)
        if first is None:
            raise self._refused("ME061", reason="there is no header")
        return [name or "" for name in first[0]]

    def _match(self, header: list[str]) -> None:
        """Find the marker and the declared columns (LZ-4.10, LZ-6.5)."""
        declared = {folded(column.name): column for column in self._metadata.declared_columns}
        seen: dict[str, str] = {}
        for at, name in enumerate(header):
            key = folded(name)
            if key in seen and name:
                self._refuse_twice(seen[key], name)
            seen[key] = name
            if key == folded(MARKER_COLUMN):
                self.marker, self._marker_at = name, at
                self._note_case(name, MARKER_COLUMN)
            elif (column := declared.get(key)) is not None:
                kind = TIME if column.name in self._metadata.time_columns else column.type
                self._fields.append(_Field(at, column, kind))
                self._note_case(name, column.name)
            elif "\r" in name or "\n" in name:
                # nobody names a column so: the header runs into the rows
                raise self._refused("ME061", reason="header: it does not end in RowSeparator")
            else:
                self._say("ME057", column=name)
        if self._marker_at is not None and self._marker_at != len(header) - 1:
            self._say("ME034", position=self._marker_at + 1, count=len(header))

    def _refuse_twice(self, first: str, second: str) -> None:
        if folded(first) == folded(MARKER_COLUMN):
            raise self._refused("ME036", found="text")
        raise self._refused("ME053", column=first, other=second)

    def _note_case(self, name: str, other: str) -> None:
        if name != other:
            self._say("ME052", column=name, other=other)

    def _batch(self, rows: list[Record], first_row: int) -> pa.RecordBatch:
        """Typed rows.

        Raises:
            PublisherError: at the first row that is wrong, in its first column that is.
        """
        by_column = list(zip(*rows, strict=True))
        makers = [partial(self._array, field, by_column[field.at], first_row) for field in self._fields]
        if self._marker_at is not None:
            makers.append(partial(self._markers, by_column[self._marker_at], first_row))
        faults: list[PublisherError] = []
        arrays = [_made(maker, faults) for maker in makers]
        if faults:
            raise min(faults, key=_row)
        names = [column.name for column in self.columns] + [MARKER_COLUMN] * (self._marker_at is not None)
        return pa.RecordBatch.from_arrays(arrays, names) if arrays else _bare(len(rows))

    def _array(self, field: _Field, cells: Sequence[str | None], first_row: int) -> pa.Array:
        name = field.column.name
        try:
            made = column_array(cells, field.kind)
        except ColumnFault as fault:
            row = first_row + fault.position
            details = {"column": name, "type": field.kind, "fault": fault.fault}
            raise PublisherError(
                diagnose("ME060", self._path, row=row, strict=self._config.strict, **details)
            ) from None
        if made.null_count and not field.column.nullable:
            row = first_row + made.is_valid().index(pa.scalar(False)).as_py()
            raise PublisherError(diagnose("ME048", self._path, row=row, strict=self._config.strict, column=name))
        return made

    def _markers(self, cells: Sequence[str | None], first_row: int) -> pa.Array:
        return markers.effective(pa.array(cells, pa.string()), self._path, first_row)

    def _say(self, code: str, **details: object) -> None:
        diagnostic = diagnose(code, self._path, row=None, strict=self._config.strict, **details)
        if diagnostic not in self._told:  # rows are read more than once, and a header may name many columns
            self._told.add(diagnostic)
            self.diagnostics.append(diagnostic)

    def _refused(self, code: str, **details: object) -> PublisherError:
        return PublisherError(
            diagnose(code, self._path, row=None, strict=self._config.strict, **details), self.diagnostics
        )


def _made(maker: Callable[[], pa.Array], faults: list[PublisherError]) -> pa.Array | None:
    """The array, or None and one more fault: which row is the first wrong one, all columns together know."""
    try:
        return maker()
    except PublisherError as fault:
        faults.append(fault)
        return None


def _row(fault: PublisherError) -> int:
    return fault.diagnostic.row or 0


def _bare(rows: int) -> pa.RecordBatch:
    """Rows of a file whose header names no declared column."""
    return pa.RecordBatch.from_struct_array(pa.array([{}] * rows, pa.struct([])))
