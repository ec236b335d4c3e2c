"""One column type by Delta's word, which is Spark's in DDL, too, and by the Arrow type of its values (LZ-5.8)."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pyarrow as pa

if TYPE_CHECKING:
    from mirror_engine.landing_zone.schema import Column

_PLAIN: dict[str, pa.DataType] = {
    "string": pa.string(),
    "binary": pa.binary(),
    "byte": pa.int8(),
    "short": pa.int16(),
    "integer": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "boolean": pa.bool_(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", "UTC"),
    "timestamp_ntz": pa.timestamp("us"),
}
_WORDS = {arrow: word for word, arrow in _PLAIN.items()}
# pyarrow raises these for bytes that it cannot parse
PARSE_ERRORS = (pa.ArrowException, OSError, MemoryError, OverflowError, ValueError, TypeError, NotImplementedError)
FIRST_DAY, LAST_DAY = -719_162, 2_932_896  # 0001-01-01 and 9999-12-31, in days since 1970
_DECIMAL = re.compile(r"decimal\((\d+),\s*(\d+)\)")


def arrow_type(delta_type: str) -> pa.DataType:
    """The Arrow type in which the engine carries values of a Delta type, such as `integer` or `decimal(10,2)`.

    Raises ValueError for a type that no mirrored table knows.
    """
    if delta_type in _PLAIN:
        return _PLAIN[delta_type]
    if (decimal := _DECIMAL.fullmatch(delta_type)) is not None:
        return pa.decimal128(int(decimal[1]), int(decimal[2]))
    raise ValueError(f"no mirrored column has the type {delta_type}")


def delta_type(arrow: pa.DataType) -> str | None:
    """The Delta word for exactly this Arrow type; None for every type that a file would have to be converted from."""
    if pa.types.is_decimal128(arrow):
        return f"decimal({arrow.precision},{arrow.scale})" if arrow.scale >= 0 else None
    return _WORDS.get(arrow)


def quoted(name: str) -> str:
    """Quote a name for Spark SQL."""
    return "`" + name.replace("`", "``") + "`"


def arrow_schema(columns: tuple[Column, ...]) -> pa.Schema:
    """The Arrow schema of a table's rows."""
    return pa.schema([pa.field(column.name, arrow_type(column.type), column.nullable) for column in columns])
