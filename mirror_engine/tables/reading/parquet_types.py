"""Parquet's physical and logical types, as the Delta types they are read as (LZ-5.8)."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Literal

import pyarrow as pa
import pyarrow.compute as pc

from mirror_engine.landing_zone.schema import VOID

if TYPE_CHECKING:
    from collections.abc import Callable

# pyarrow raises these for bytes that it cannot parse
PARSE_ERRORS = (pa.ArrowException, OSError, MemoryError, OverflowError, ValueError, TypeError, NotImplementedError)
FIRST_DAY, LAST_DAY = -719_162, 2_932_896  # 0001-01-01 and 9999-12-31, in days since 1970

_SIGNED = {8: "byte", 16: "short", 32: "integer", 64: "long"}
_UNSIGNED = {8: "short", 16: "integer", 32: "long", 64: "decimal(20,0)"}
_WIDEST_DECIMAL = 38
_DAY = 24 * 60 * 60 * 1_000_000
_ANY_BITS = frozenset(
    kind.id for kind in (pa.bool_(), pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.float32(), pa.float64())
)


@dataclass(frozen=True)
class ParquetType:
    """The type of a Parquet column, and the Delta type it is read as.

    Attributes:
        spelling: the type in Parquet's words.
        word: the type in Delta's words; None where the protocol has none (ME049).
        taken_as: what it is taken as, where it is not read exactly as it is (ME050).
        zone: whether times carry one; `unsaid` for all else, and for INT96.
    """

    spelling: str
    word: str | None
    taken_as: str | None = None
    zone: Literal["naive", "utc", "unsaid"] = "unsaid"


_ANNOTATED = {
    "String": ParquetType("STRING", "string"),
    "Enum": ParquetType("ENUM", "string"),
    "JSON": ParquetType("JSON", "string"),
    "Date": ParquetType("DATE", "date"),
    "Null": ParquetType("NULL", VOID),
    "UUID": ParquetType("UUID", "binary", taken_as="binary"),
}
_BARE = {
    "BOOLEAN": ParquetType("BOOLEAN", "boolean"),
    "INT32": ParquetType("INT32", "integer"),
    "INT64": ParquetType("INT64", "long"),
    "INT96": ParquetType("INT96", "timestamp", taken_as="timestamp in microseconds"),
    "FLOAT": ParquetType("FLOAT", "float"),
    "DOUBLE": ParquetType("DOUBLE", "double"),
    "BYTE_ARRAY": ParquetType("BYTE_ARRAY", "binary"),
}


def parquet_type(leaf: Any) -> ParquetType:  # noqa: ANN401 - pyarrow's ColumnSchema is no public type
    """The type of one column of the Parquet schema that is neither nested nor repeated (LZ-5.8)."""
    return _typed(leaf.logical_type.to_json(), leaf.physical_type, leaf.length)


@lru_cache(maxsize=1_000)
def _typed(annotation: str, physical: str, length: int) -> ParquetType:
    logical = json.loads(annotation)
    kind = logical["Type"]
    foreign = "binary" if physical == "BYTE_ARRAY" else None  # BSON, geometry and geography are bytes (LZ-5.11)
    found = _ANNOTATED.get(kind, ParquetType(kind.upper(), foreign, taken_as=foreign))
    match logical:
        case {"Type": "None"}:
            fixed = ParquetType(f"FIXED_LEN_BYTE_ARRAY({length})", "binary", taken_as="binary")
            found = _BARE.get(physical, fixed)
        case {"Type": "Int", "bitWidth": bits, "isSigned": True}:
            found = ParquetType(f"INT{bits}", _SIGNED[bits])
        case {"Type": "Int", "bitWidth": bits}:
            found = ParquetType(f"UINT{bits}", _UNSIGNED[bits], taken_as=_UNSIGNED[bits])
        case {"Type": "Decimal", "precision": precision, "scale": scale}:
            fits = 0 < precision <= _WIDEST_DECIMAL and 0 <= scale <= precision
            found = ParquetType(f"DECIMAL({precision},{scale})", f"decimal({precision},{scale})" if fits else None)
        case {"Type": "Timestamp", "timeUnit": unit, "isAdjustedToUTC": is_utc}:
            taken_as = "timestamp in microseconds" if unit == "nanoseconds" else None
            found = ParquetType(f"TIMESTAMP in {unit}", "timestamp", taken_as, "utc" if is_utc else "naive")
    return found


class OutOfRange(ValueError):
    """A cell outside its own type: its position in the array (-1: unknown), and what was expected."""

    def __init__(self, expected: str, position: int = -1) -> None:
        super().__init__(expected)
        self.expected = expected
        self.position = position


def converted(cells: pa.Array, target: pa.DataType) -> pa.Array:
    """Convert a column's cells from Parquet's type to the Arrow type that the engine uses.

    Times are cut to microseconds towards the past, also before 1970.

    Raises:
        OutOfRange: text that is not UTF-8, a date or time outside the years 1 to 9999, too wide a decimal.
    """
    if isinstance(cells, pa.ExtensionArray):
        cells = cells.storage
    if target.id in _ANY_BITS and cells.type == target:
        return cells
    if pa.types.is_timestamp(target):
        expected = "a time in the years 1 to 9999"
        naive = cells.view(pa.timestamp(cells.type.unit))
        if cells.type.unit == "ns":
            naive = pc.floor_temporal(naive, unit="microsecond")
        values = _read(naive, lambda some: some.cast(pa.timestamp("us")), expected)
        _check_years(values.view(pa.int64()), FIRST_DAY * _DAY, (LAST_DAY + 1) * _DAY - 1, expected)
        return values.view(target)
    expected = "text in UTF-8" if pa.types.is_string(target) else str(target)
    values = _read(cells, lambda some: _cast(some, target), expected)
    if pa.types.is_date32(target):
        _check_years(values.view(pa.int32()), FIRST_DAY, LAST_DAY, "a date in the years 1 to 9999")
    return values


def _cast(cells: pa.Array, target: pa.DataType) -> pa.Array:
    values = cells.cast(target)
    values.validate(full=True)
    return values


def _read(cells: pa.Array, reading: Callable[[pa.Array], pa.Array], expected: str) -> pa.Array:
    """Convert all cells at once; one by one where that fails, to find the position."""
    try:
        return reading(cells)
    except pa.ArrowInvalid as error:
        position = -1
        try:
            for position in range(len(cells)):
                reading(cells.slice(position, 1))
        except pa.ArrowInvalid:
            raise OutOfRange(expected, position) from error
        raise OutOfRange(expected) from error


def _check_years(counts: pa.Array, first: int, last: int, expected: str) -> None:
    outside = pc.index(pc.or_(pc.less(counts, first), pc.greater(counts, last)), True).as_py()
    if outside >= 0:
        raise OutOfRange(expected, outside)
