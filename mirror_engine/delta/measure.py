"""How many bytes rows count for, as the service's `processedByte` counts them (LZ-9.3)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

if TYPE_CHECKING:
    from collections.abc import Iterable

_TIMESTAMP_BYTES = 16
_DECIMAL_BYTES = 16
_LEAD_OF_FOUR = 0xF0  # the first byte of a character beyond the 16-bit plane, in UTF-8


def byte_count(columns: Iterable[pa.Array]) -> int:
    """The bytes of all cells of data columns, in the Arrow types of `arrow_types` (LZ-9.3)."""
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
    """Characters, those beyond the 16-bit plane twice, as their lead bytes are the only ones from 0xF0 up."""
    characters = int(pc.sum(pc.utf8_length(texts), min_count=0).as_py())
    return characters + int(np.count_nonzero(_bytes_of(texts) >= _LEAD_OF_FOUR)) if characters else 0


def _bytes_of(texts: pa.Array) -> np.ndarray[tuple[int], np.dtype[np.uint8]]:
    filled = texts.drop_null()  # the bytes under a NULL are anything
    offsets = np.frombuffer(filled.buffers()[1], dtype=np.int32)[filled.offset : filled.offset + len(filled) + 1]
    return np.frombuffer(filled.buffers()[2], dtype=np.uint8)[offsets[0] : offsets[-1]]
