"""The protocol's rules for rows: markers, NULLs, partition folders; and the bytes that rows count for."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from mirror_engine.landing_zone.change import MARKER_COLUMN, RowMarker
from mirror_engine.landing_zone.diagnostics import RejectedFile, diagnose
from mirror_engine.landing_zone.schema import TableSchema, folded
from mirror_engine.tables.arrow_types import arrow_type

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from mirror_engine.landing_zone.schema import Incoming, Merged
    from mirror_engine.tables.base import RowSource
    from mirror_engine.tables.reading.opening import OpenFile
    from mirror_engine.tables.reading.spill import ReadMode

_MARKERS = tuple(marker.value for marker in RowMarker)
_MARKER_BYTES = bytes(_MARKERS)
_SHORT_INTEGER = re.compile(r"[+-]?[0-9]{1,6}")
_TIMESTAMP_BYTES = 16
_DECIMAL_BYTES = 16
_LEAD_OF_FOUR = 0xF0  # the first byte of a character beyond the 16-bit plane, in UTF-8


@dataclass(frozen=True)
class FileContract:
    """The rules for the rows of one file.

    Attributes:
        incoming: the file's schema, and how to speak of it.
        merged: how it fits into the table's.
        key_columns: in the table's spelling; empty in a keyless table.
        partition: the values of the file's Hive folder, by its columns' names (LZ-3.7).
        default_marker: of rows of a marker-free file (LZ-4.13).
        deletes_are_full: whether NULL is rejected in delete rows, too, as in text (LZ-6.8).
    """

    incoming: Incoming
    merged: Merged
    key_columns: tuple[str, ...]
    partition: Mapping[str, str | None]
    default_marker: RowMarker
    deletes_are_full: bool


@dataclass(frozen=True)
class IngestedRows:
    """All rows of one file.

    Attributes:
        rows: typed, under the table's spelling, then the folder's columns, then `MARKER_COLUMN`.
        markers: how many rows of each effective marker.
        byte_count: of the file's data columns (LZ-9.3).
        null_keys: how many rows have NULL in each key column that has any (LZ-4.8).
    """

    rows: RowSource
    markers: Counter[int]
    byte_count: int
    null_keys: Counter[str]


def ingest(file: OpenFile, contract: FileContract, size: int, mode: ReadMode) -> IngestedRows:
    """Read every row once, check it, and store it.

    Args:
        file: as opened.
        contract: see `file_contract`.
        size: of the file, in bytes.
        mode: how thoroughly, and where the rows go.

    Raises:
        RejectedFile: what `OpenFile.batches` raises, ME032, ME037, ME038, ME048.
        StorageUnavailable: the file or the scratch folder failed.
    """
    columns = None if size <= mode.max_whole_file else _checked_columns(file, contract)
    checks = _RowChecks(file, contract, columns, counts_bytes=mode.counts_bytes)
    rows = mode.store(checks.schema, contract.key_columns)
    try:
        for batch in file.batches(columns):
            rows.add(checks.accepted(batch))
        rows.finish()
    except BaseException:
        rows.close()
        raise
    return IngestedRows(rows, checks.markers, checks.byte_count, checks.null_keys)


def _checked_columns(file: OpenFile, contract: FileContract) -> frozenset[str]:
    """Columns whose cells the protocol has rules for: keys, NOT NULL columns, those of a Hive folder."""
    compared = {folded(name) for name in (*contract.key_columns, *contract.partition)}
    filled = {folded(column.name) for column in contract.merged.schema.columns if not column.nullable}
    return frozenset(
        column.name
        for column in file.columns
        if folded(column.name) in compared or (column.nullable and folded(column.name) in filled)
    )


@dataclass
class _RowChecks:
    file: OpenFile
    contract: FileContract
    columns: Collection[str] | None
    counts_bytes: bool
    markers: Counter[int] = field(default_factory=Counter)
    null_keys: Counter[str] = field(default_factory=Counter)
    byte_count: int = 0
    rows: int = 0

    def __post_init__(self) -> None:
        spelling = self.contract.merged.spelling
        read = [c.name for c in self.file.columns if self.columns is None or c.name in self.columns]
        kept = [name for name in read if name in spelling]
        in_folder = {folded(name): value for name, value in self.contract.partition.items()}
        named = (column.name for column in self.file.columns)
        self._also_in_folder = {name: in_folder[folded(name)] for name in named if folded(name) in in_folder}
        known = self.contract.merged.schema
        self._folder_columns = {_spelled(known, name): value for name, value in self.contract.partition.items()}
        names = [*(spelling[name] for name in kept), *self._folder_columns]
        types = {column.name: arrow_type(column.type) for column in known.columns}
        self._kept = [(name, types[spelling[name]]) for name in kept]
        self.schema = pa.schema([*((name, types[name]) for name in names), (MARKER_COLUMN, pa.int8())])
        self._filled = [c.name for c in known.columns if not c.nullable and c.name in names]

    def accepted(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The next rows, checked, in the columns and types of the table."""
        markers = self._effective_markers(batch)
        self._check_folder(batch)
        cells = [_fitted(batch.column(name), kind) for name, kind in self._kept]
        if self.counts_bytes:
            self.byte_count += byte_count(cells)
        cells += [_constant(value, batch.num_rows) for value in self._folder_columns.values()]
        rows = pa.RecordBatch.from_arrays([*cells, markers], schema=self.schema)
        self._check_nulls(rows, markers)
        self._count(rows, markers)
        return rows

    def _effective_markers(self, batch: pa.RecordBatch) -> pa.Array:
        """The rows' markers, or the default in their place (LZ-4.13, LZ-4.14)."""
        if self.file.marker is None:
            markers = pa.repeat(pa.scalar(self.contract.default_marker.value, pa.int8()), batch.num_rows)
        else:
            markers = batch.column(MARKER_COLUMN)
        if not self.contract.key_columns:
            at = pc.index(pc.not_equal(markers, RowMarker.INSERT.value), True).as_py()
            if at >= 0:
                raise self._rejected("ME038", at, value=markers[at])
        return markers

    def _check_folder(self, batch: pa.RecordBatch) -> None:
        """Compare columns that the file has, too, with their values in the folder's name (LZ-3.8)."""
        for name, value in self._also_in_folder.items():
            at = _first_unlike(batch.column(name), value)
            if at >= 0:
                raise self._rejected("ME032", at, column=name)

    def _check_nulls(self, rows: pa.RecordBatch, markers: pa.Array) -> None:
        """Reject NULL in NOT NULL columns; delete rows of Parquet may hold it (LZ-5.6, LZ-6.8)."""
        for name in self._filled:
            cells = rows.column(name)
            if not cells.null_count:
                continue
            missing = pc.is_null(cells)
            if not self.contract.deletes_are_full:
                missing = pc.and_(missing, pc.not_equal(markers, RowMarker.DELETE.value))
            at = pc.index(missing, True).as_py()
            if at >= 0:
                raise self._rejected("ME048", at, column=name)

    def _count(self, rows: pa.RecordBatch, markers: pa.Array) -> None:
        self.rows += rows.num_rows
        if self.file.marker is None:
            self.markers[self.contract.default_marker.value] += rows.num_rows
        else:
            values = markers.to_numpy().tobytes()
            self.markers.update({marker: count for marker in _MARKERS if (count := values.count(marker))})
        for key in self.contract.key_columns:
            if missing := rows.column(key).null_count:
                self.null_keys[key] += missing

    def _rejected(self, code: str, at: int, **details: object) -> RejectedFile:
        return RejectedFile(self.contract.incoming.say(code, self.rows + at + 1, **details))


def _spelled(schema: TableSchema, name: str) -> str:
    known = schema.find(name)
    return known.name if known else name


def _fitted(cells: pa.Array, target: pa.DataType) -> pa.Array:
    """Cells in the table's type; only times with and without a zone, and columns of NULL, have another."""
    if cells.type == target:
        return cells
    return pa.nulls(len(cells), target) if pa.types.is_null(cells.type) else cells.view(target)


def _constant(value: str | None, count: int) -> pa.Array:
    return pa.nulls(count, pa.string()) if value is None else pa.repeat(pa.scalar(value, pa.string()), count)


def _first_unlike(cells: pa.Array, value: str | None) -> int:
    """Position of the first cell whose text differs from a folder's value; -1 for none."""
    if value is None:
        return int(pc.index(pc.is_valid(cells), True).as_py())
    try:
        texts = cells.cast(pa.string())
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        return 0
    return int(pc.index(pc.fill_null(pc.not_equal(texts, value), True), True).as_py())


def effective_markers(markers: pa.Array, path: str, first_row: int) -> pa.Array:
    """The markers as int8 (LZ-4.11).

    Args:
        markers: integers of any width, decimals without fraction, text, or all NULL.
        path: for messages.
        first_row: the number of the first of them within the file, from 1.

    Raises:
        RejectedFile: ME037, a marker is NULL or anything but 0, 1, 2, 4 (LZ-4.12).
    """
    if pa.types.is_integer(markers.type) and not markers.null_count:
        wide = markers.to_numpy()
        narrow = wide.astype(np.int8)
        if (narrow == wide).all() and not narrow.tobytes().translate(None, _MARKER_BYTES):
            return pa.Array.from_buffers(pa.int8(), len(narrow), [None, pa.py_buffer(narrow)])
    invalid = 0 if len(markers) else -1
    if markers.null_count < len(markers):
        values = [str(value) for value in _MARKERS] if pa.types.is_string(markers.type) else _MARKERS
        invalid = pc.index(pc.is_in(markers, value_set=pa.array(values).cast(markers.type)), False).as_py()
    if invalid >= 0:
        value = _shown(markers[invalid].as_py())
        raise RejectedFile(diagnose("ME037", path, row=first_row + invalid, value=value))
    return markers.cast(pa.int8())


def _shown(value: object) -> str:
    """A marker for a message: a short integer, never another column's value."""
    if value is None:
        return "NULL"
    text = str(value)
    return text if _SHORT_INTEGER.fullmatch(text) else "no short integer"


def byte_count(columns: Iterable[pa.Array]) -> int:
    """Processed bytes of data columns in the Arrow types of `arrow_types` (LZ-9.3)."""
    return sum(map(_cells, columns))


def _cells(cells: pa.Array) -> int:
    kind = cells.type
    if pa.types.is_string(kind):
        return 2 * _utf16_units(cells)
    if pa.types.is_binary(kind):
        return int(pc.sum(pc.binary_length(cells), min_count=0).as_py())
    return int(len(cells) - cells.null_count) * _width(kind)


def _width(kind: pa.DataType) -> int:
    if pa.types.is_null(kind):
        return 0
    if pa.types.is_boolean(kind):
        return 1
    if pa.types.is_timestamp(kind):
        return _TIMESTAMP_BYTES
    return _DECIMAL_BYTES if pa.types.is_decimal(kind) else int(kind.bit_width // 8)


def _utf16_units(texts: pa.Array) -> int:
    """Number of UTF-16 code units: characters beyond the 16-bit plane count twice."""
    characters = int(pc.sum(pc.utf8_length(texts), min_count=0).as_py())
    return characters + int(np.count_nonzero(_bytes_of(texts) >= _LEAD_OF_FOUR)) if characters else 0


def _bytes_of(texts: pa.Array) -> np.ndarray[tuple[int], np.dtype[np.uint8]]:
    texts = texts.drop_null()  # the bytes under a NULL are anything
    offsets = np.frombuffer(texts.buffers()[1], dtype=np.int32)[texts.offset : texts.offset + len(texts) + 1]
    return np.frombuffer(texts.buffers()[2], dtype=np.uint8)[offsets[0] : offsets[-1]]
