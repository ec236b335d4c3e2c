"""Delta's per-file statistics, from Parquet footers.

Where a footer misleads, there are none: for floating point (it leaves out NaN, which Delta orders as the highest
value), of decimals that Kernel would round, and of what has no order in both.
"""

from __future__ import annotations

import json
from decimal import Decimal
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from mirror_engine.tables.arrow_types import arrow_type
from mirror_engine.tables.reading.parquet_types import FIRST_DAY, LAST_DAY

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from mirror_engine.landing_zone.schema import Column

    Bounds: TypeAlias = Mapping[str, tuple[pa.Scalar[Any], pa.Scalar[Any]]]  # lowest and highest value by column

MAX_TEXT = 32  # characters of text that statistics hold
_LIFTS = ("\ufffd", "\U0010ffff")  # one of them, put after cut text, makes it the higher one
_EXACT_DIGITS = 15  # so many survive Kernel's reading of a JSON number
_DAY_MS = 86_400_000
_WHOLE = frozenset({"byte", "short", "integer", "long"})

Json = dict[str, Any]


def statistics_of(footer: Any, columns: Sequence[Column]) -> str:  # noqa: ANN401 - pyarrow's FileMetaData
    """The statistics of one file, as JSON.

    Args:
        footer: of the file; its columns are flat, and in exactly the table's types.
        columns: those of the table that statistics are wanted of.
    """
    groups = [footer.row_group(at) for at in range(footer.num_row_groups)]
    places = {footer.schema.column(at).name: at for at in range(footer.num_columns)}
    lowest: Json = {}
    highest: Json = {}
    nulls: Json = {}
    for column in columns:
        if (at := places.get(column.name)) is None:
            continue
        chunks = [(group.num_rows, group.column(at).statistics) for group in groups if group.num_rows]
        if all(stated is not None and stated.has_null_count for _, stated in chunks):
            nulls[column.name] = sum(stated.null_count for _, stated in chunks)
            filled = [stated for rows, stated in chunks if stated.null_count < rows]
            _note_bounds(column, filled, lowest, highest)
    said: Json = {"numRecords": footer.num_rows, "minValues": lowest, "maxValues": highest, "nullCount": nulls}
    return json.dumps(said, ensure_ascii=False, separators=(",", ":"), allow_nan=False)


def _note_bounds(column: Column, filled: Sequence[Any], lowest: Json, highest: Json) -> None:
    """Note a column's bounds where every row group with values has them, and they mean in Delta what Parquet means."""
    ways = _WAYS.get(column.type.partition("(")[0])
    if ways is None or not filled or not all(stated.has_min_max for stated in filled):
        return
    lows, highs = [stated.min_raw for stated in filled], [stated.max_raw for stated in filled]
    try:
        bounds = (min(_value(low, column.type) for low in lows), max(_value(high, column.type) for high in highs))
    except UnicodeDecodeError:
        return
    for noted, way, bound in zip((lowest, highest), ways, bounds, strict=True):
        if (value := way(bound)) is not None:
            noted[column.name] = value


def _value(bound: Any, word: str) -> Any:  # noqa: ANN401 - as the column's physical type has it
    if word == "string":
        return bound.decode()
    return decimal_of(bound, word) if word.startswith("decimal") else bound


def decimal_of(stored: int | bytes, word: str) -> Decimal:
    """A decimal of a Delta type from what Parquet stores; exactly, where arithmetic rounds to 28 digits."""
    digits = int.from_bytes(stored, "big", signed=True) if isinstance(stored, bytes) else stored
    return Decimal(f"{digits}E{-arrow_type(word).scale}")


def _lowest_text(text: str) -> str:
    return text[:MAX_TEXT]


def _highest_text(text: str) -> str:
    """Text, or a longer text's beginning lifted so that it is no lower by code points."""
    for cut in range(MAX_TEXT, len(text)):
        for lift in _LIFTS:
            if text[cut] < lift:
                return text[:cut] + lift
    return text


def _day(days: int) -> str | None:
    return str(np.datetime64(days, "D")) if FIRST_DAY <= days <= LAST_DAY else None


def _exact(number: Decimal) -> float | None:
    return float(number) if len(number.as_tuple().digits) <= _EXACT_DIGITS else None


def _moment(zone: str, rounding: int) -> Callable[[int], str | None]:
    """A time in microseconds as text in milliseconds: the highest rounded up, so that it bounds all."""

    def text(microseconds: int) -> str | None:
        milliseconds = (microseconds + rounding) // 1000
        is_in_range = FIRST_DAY <= milliseconds // _DAY_MS <= LAST_DAY
        return f"{np.datetime64(milliseconds, 'ms')}{zone}" if is_in_range else None

    return text


def _same(value: int) -> int:
    return value


_WAYS: Mapping[str, tuple[Callable[[Any], Any], Callable[[Any], Any]]] = {
    **dict.fromkeys(_WHOLE, (_same, _same)),
    "string": (_lowest_text, _highest_text),
    "date": (_day, _day),
    "decimal": (_exact, _exact),
    "timestamp": (_moment("Z", 0), _moment("Z", 999)),
    "timestamp_ntz": (_moment("", 0), _moment("", 999)),
}


def is_bounded(kind: pa.DataType) -> bool:
    """Whether statistics of a column are exact enough: of whole numbers and text.

    Text is cut off in statistics, the highest upwards: still a bound.
    """
    return bool(pa.types.is_integer(kind) or pa.types.is_string(kind))


def bounds_of(rows: pa.Table) -> Bounds:
    """The extremes of columns that statistics bound."""
    found = {}
    for name in rows.column_names:
        column = rows.column(name)
        if is_bounded(column.type):
            extremes = pc.min_max(column)
            if extremes["min"].is_valid:
                found[name] = (extremes["min"], extremes["max"])
    return found


def may_hold(actions: pa.Table, bounds: Bounds) -> pa.ChunkedArray[Any]:
    """Per file whether it may hold a row within all bounds; one without statistics may.

    Args:
        actions: of the log's files, with the structs `min` and `max`.
        bounds: by column.
    """
    chosen = pa.chunked_array([pa.repeat(True, actions.num_rows)])
    for name, (low, high) in bounds.items():
        lowest, highest = _extreme(actions, "min", name), _extreme(actions, "max", name)
        if lowest is None or highest is None or lowest.type != low.type or highest.type != high.type:
            continue
        within = pc.and_(pc.less_equal(lowest, high), pc.greater_equal(highest, low))
        chosen = pc.and_(chosen, pc.fill_null(within, True))
    return chosen


def _extreme(actions: pa.Table, which: str, name: str) -> pa.ChunkedArray[Any] | None:
    if which not in actions.column_names:
        return None
    column = actions.column(which)
    known = pa.types.is_struct(column.type) and column.type.get_field_index(name) >= 0
    return pc.struct_field(column, name) if known else None
