"""The protocol's rules for rows: markers, NULLs, partition folders; and the bytes that rows count for."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from mirror_engine.landing_zone.change import MARKER_COLUMN, RowMarker
from mirror_engine.landing_zone.diagnostics import RejectedFile, diagnose
from mirror_engine.landing_zone.schema import folded
from mirror_engine.tables.arrow_types import arrow_type

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from mirror_engine.landing_zone.schema import Incoming, Merged
    from mirror_engine.tables.reading.open_file import OpenFile
    from mirror_engine.tables.reading.spill import ReadMode

_MARKERS = tuple(marker.value for marker in RowMarker)
_SHORT_INTEGER = re.compile(r"[+-]?[0-9]{1,2}")
_MARKER_WORDS = {
    RowMarker.INSERT: ("i", "insert", "inserted", "c", "create", "created"),
    RowMarker.UPDATE: ("u", "update", "updated"),
    RowMarker.DELETE: ("d", "delete", "deleted"),
    RowMarker.UPSERT: ("upsert", "merge"),
}
_BY_WORD = {word: marker.value for marker, words in _MARKER_WORDS.items() for word in words}
_TIMESTAMP_BYTES = 16
MAX_ENDPOINT_BYTES = 16_000_000  # of a value that Fabric's SQL analytics endpoint shows whole (LZ-5.14)
# in UTF-8: from here on bytes are not ASCII; every byte but those within a character, as a signed number, is at least
# this; the first byte of a character beyond the 16-bit plane
_CONTINUED, _FIRST_LEAD, _LEAD_OF_FOUR = 0x80, -0x40, 0xF0


@dataclass(frozen=True)
class FileContract:
    """The rules for the rows of one file."""

    incoming: Incoming  # the file's schema, and how to speak of it
    merged: Merged  # how it fits into the table's
    key_columns: tuple[str, ...]  # in the table's spelling; empty in a keyless table
    partition: Mapping[str, str | None]  # the values of the file's Hive folder, by its columns' names (LZ-3.7)
    default_marker: RowMarker  # of rows of a marker-free file (LZ-4.13)
    deletes_are_full: bool  # whether NULL is rejected in delete rows, too, as in text (LZ-6.8)


class IngestedRows:
    """All rows of one file of `size` bytes, each checked and stored.

    Attributes:
        rows: typed, under the table's spelling, then the folder's columns, then `MARKER_COLUMN`.
        markers: how many rows of each effective marker.
        byte_count: of the file's data columns (LZ-9.3).
        null_keys: how many rows have NULL in each key column that has any (LZ-4.8).
        long_values: columns with a value of more than `MAX_ENDPOINT_BYTES`; a set in order.

    Raises:
        RejectedFile: what `OpenFile.batches` raises, ME032, ME037, ME038, ME048.
        StorageUnavailable: the file or the scratch folder failed.
    """

    def __init__(self, file: OpenFile, contract: FileContract, mode: ReadMode) -> None:
        self.markers: Counter[int] = Counter()
        self.null_keys: Counter[str] = Counter()
        self.long_values: dict[str, None] = {}
        self.byte_count = 0
        self._contract = contract
        self._has_marker = file.marker is not None
        self._count = 0

        known, spelling = contract.merged.schema, contract.merged.spelling
        types = {column.name: arrow_type(column.type) for column in known.columns}
        self._kept = {column.name: types[spelling[column.name]] for column in file.columns if column.name in spelling}
        in_folder = {folded(name): value for name, value in contract.partition.items()}
        self._also_in_folder = {c.name: in_folder[folded(c.name)] for c in file.columns if folded(c.name) in in_folder}
        self._folder = {column.name: in_folder[key] for key in in_folder if (column := known.find(key))}
        names = [*(spelling[name] for name in self._kept), *self._folder]
        self._filled = [column.name for column in known.columns if not column.nullable and column.name in names]
        self._schema = pa.schema([*((name, types[name]) for name in names), (MARKER_COLUMN, pa.int8())])

        self.rows = mode.store(self._schema, contract.key_columns)
        try:
            for batch in file.batches():
                self.rows.add(self._checked(batch))
            self.rows.finish()
        except BaseException:
            self.rows.close()
            raise

    def _checked(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The next rows, in the columns and types of the table."""
        markers = self._effective_markers(batch)
        for name, value in self._also_in_folder.items():  # it may repeat the folder's value, no other (LZ-3.8)
            at = _first_unlike(batch.column(name), value)
            if at >= 0:
                raise self._rejected("ME032", at, column=name)
        cells = [_fitted(batch.column(name), kind) for name, kind in self._kept.items()]
        self.byte_count += byte_count(cells)
        long = (name for name, column in zip(self._kept, cells, strict=True) if _has_long_value(column))
        self.long_values.update(dict.fromkeys(long))
        cells += [pa.repeat(pa.scalar(value, pa.string()), batch.num_rows) for value in self._folder.values()]
        rows = pa.RecordBatch.from_arrays([*cells, markers], schema=self._schema)
        self._check_nulls(rows, markers)
        self._count += rows.num_rows
        values = markers.to_numpy().tobytes()
        self.markers.update({marker: count for marker in _MARKERS if (count := values.count(marker))})
        self.null_keys.update({key: n for key in self._contract.key_columns if (n := rows.column(key).null_count)})
        return rows

    def _effective_markers(self, batch: pa.RecordBatch) -> pa.Array:
        """The rows' markers, or the default in their place (LZ-4.13, LZ-4.14)."""
        if self._has_marker:
            markers = batch.column(MARKER_COLUMN)
        else:
            markers = pa.repeat(pa.scalar(self._contract.default_marker.value, pa.int8()), batch.num_rows)
        if not self._contract.key_columns:
            at = pc.index(pc.not_equal(markers, RowMarker.INSERT.value), True).as_py()
            if at >= 0:
                raise self._rejected("ME038", at, value=markers[at])
        return markers

    def _check_nulls(self, rows: pa.RecordBatch, markers: pa.Array) -> None:
        """Reject NULL in NOT NULL columns; delete rows of Parquet may hold it (LZ-5.6, LZ-6.8)."""
        for name in self._filled:
            cells = rows.column(name)
            if not cells.null_count:
                continue
            missing = pc.is_null(cells)
            if not self._contract.deletes_are_full:
                missing = pc.and_(missing, pc.not_equal(markers, RowMarker.DELETE.value))
            at = pc.index(missing, True).as_py()
            if at >= 0:
                contract = self._contract
                help = help_for_null(name, contract.key_columns, is_text=contract.deletes_are_full)
                raise self._rejected("ME048", at, column=name, help=help)

    def _rejected(self, code: str, at: int, **details: object) -> RejectedFile:
        return RejectedFile(self._contract.incoming.say(code, self._count + at + 1, **details))


def _fitted(cells: pa.Array, target: pa.DataType) -> pa.Array:
    """Convert cells to the table's type: only times with and without a zone, and columns of NULL, differ."""
    if cells.type == target:
        return cells
    return pa.nulls(len(cells), target) if pa.types.is_null(cells.type) else cells.view(target)


def _has_long_value(cells: pa.Array) -> bool:
    if cells.nbytes <= MAX_ENDPOINT_BYTES or not (pa.types.is_string(cells.type) or pa.types.is_binary(cells.type)):
        return False
    return bool((pc.max(pc.binary_length(cells)).as_py() or 0) > MAX_ENDPOINT_BYTES)


def help_for_null(column: str, key_columns: Sequence[str], *, is_text: bool) -> str:
    """The help for NULL in a NOT NULL column (ME048). A key column always needs a value."""
    if folded(column) in map(folded, key_columns):
        return "delete the file and land it with the key in every row, also in deletes"
    nullable = "set `IsNullable` to true" if is_text else "write the column as nullable"
    values = "a value in every row, also in deletes" if is_text else "a value in every row"
    return f"land the file with {values}; or {nullable}, delete the folder and reload the table"


def _first_unlike(cells: pa.Array, value: str | None) -> int:
    """Position of the first cell whose text differs from a folder's value; -1 for none."""
    if value is None:
        return int(pc.index(pc.is_valid(cells), True).as_py())
    try:
        texts = cells.cast(pa.string())
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        return 0
    return int(pc.index(pc.fill_null(pc.not_equal(texts, value), True), True).as_py())


def effective_markers(markers: pa.Array, path: str, first_row: int, *, is_text: bool = False) -> pa.Array:
    """The markers as int8 (LZ-4.11): integers of any width, decimals without fraction, text, or all NULL.

    `first_row` is the first one's row within the file, from 1; `is_text`, whether it is text, which has no types.

    Raises:
        RejectedFile: ME037, a marker is NULL or anything but 0, 1, 2, 4 (LZ-4.12).
    """
    invalid = 0 if len(markers) else -1
    if markers.null_count < len(markers):
        invalid = pc.index(pc.is_in(markers, value_set=_known_markers(markers.type)), False).as_py()
    if invalid >= 0:
        found = markers[invalid].as_py()
        # a marker is shown if it is a short integer or a known word, so that no other column's value ever is
        number = _BY_WORD.get(str(found).strip().casefold())
        is_shown = number is not None or _SHORT_INTEGER.fullmatch(str(found))
        value = "NULL" if found is None else found if is_shown else "no short integer"
        may_be_new = " (4 if the row may be new)" if number == RowMarker.UPDATE else ""
        in_type = "" if is_text or not pa.types.is_string(markers.type) else ", in an int32 column"
        meant = "" if number is None else f"write {number} for `{found}`{may_be_new}{in_type}: "
        raise RejectedFile(diagnose("ME037", path, row=first_row + invalid, value=value, meant=meant))
    return markers.cast(pa.int8())


@lru_cache(maxsize=100)
def _known_markers(kind: pa.DataType) -> pa.Array:
    values = [str(value) for value in _MARKERS] if pa.types.is_string(kind) else _MARKERS
    return pa.array(values).cast(kind)


def byte_count(columns: Iterable[pa.Array]) -> int:
    """Processed bytes of data columns in the Arrow types of `arrow_types` (LZ-9.3)."""
    total = 0
    for cells in columns:
        if cells.null_count == len(cells):
            continue
        if pa.types.is_string(cells.type):
            total += 2 * _utf16_units(cells)
        elif pa.types.is_binary(cells.type):
            total += int(pc.sum(pc.binary_length(cells)).as_py())
        else:
            width = _TIMESTAMP_BYTES if pa.types.is_timestamp(cells.type) else (cells.type.bit_width + 7) // 8
            total += (len(cells) - cells.null_count) * width
    return total


def _utf16_units(texts: pa.Array) -> int:
    """Number of UTF-16 code units: characters beyond the 16-bit plane count twice."""
    texts = texts.drop_null()  # the bytes under a NULL are anything
    offsets = np.frombuffer(texts.buffers()[1], dtype=np.int32)[texts.offset : texts.offset + len(texts) + 1]
    content = np.frombuffer(texts.buffers()[2] or b"", dtype=np.uint8)[offsets[0] : offsets[-1]]
    if not len(content) or content.max() < _CONTINUED:
        return len(content)
    leads = np.count_nonzero(content.view(np.int8) >= _FIRST_LEAD)
    return int(leads + np.count_nonzero(content >= _LEAD_OF_FOUR))
