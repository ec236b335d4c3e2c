"""Delta's per-file statistics, from Parquet footers.

Where a footer misleads, there are none: for floating point (it leaves out NaN, which Delta orders as the highest
value), of decimals that Kernel would round, and of what has no order in both.
"""

from __future__ import annotations

import json
from contextlib import suppress
from decimal import Decimal
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from mirror_engine.tables.arrow_types import FIRST_DAY, LAST_DAY, arrow_type

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pyarrow.parquet import FileMetaData

    from mirror_engine.landing_zone.schema import Column

    Bounds: TypeAlias = Mapping[str, tuple[pa.Scalar[Any], pa.Scalar[Any]]]  # lowest and highest value by column

MAX_TEXT = 32  # characters of text that statistics hold
_LIFTS = ("\ufffd", "\U0010ffff")  # one of them, put after cut text, makes it the higher one
EXACT_DIGITS = 15  # so many survive Kernel's reading of a JSON number
_DAY_MS = 86_400_000

Json = dict[str, Any]


def statistics_of(footer: FileMetaData, columns: Sequence[Column], *, is_tight: bool = True) -> str:
    """The statistics of one file, as JSON: of the table's columns that are given.

    The file's columns are flat, and in exactly the table's types. Not tight are those of a file of which rows are gone.
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
            with suppress(UnicodeDecodeError):
                if filled and all(stated.has_min_max for stated in filled):
                    low, high = _bounds(column.type, filled)
                    lowest |= {} if low is None else {column.name: low}
                    highest |= {} if high is None else {column.name: high}
    said: Json = {"numRecords": footer.num_rows, "minValues": lowest, "maxValues": highest, "nullCount": nulls}
    said |= {} if is_tight else {"tightBounds": False}
    return json.dumps(said, ensure_ascii=False, separators=(",", ":"), allow_nan=False)


def _bounds(word: str, filled: Sequence[Any]) -> tuple[Any, Any]:
    """A column's bounds over row groups as Delta writes them; None for one that would not mean what Parquet means."""
    kind = word.partition("(")[0]
    low = min(_value(stated.min_raw, kind, word) for stated in filled)
    high = max(_value(stated.max_raw, kind, word) for stated in filled)
    match kind:
        case "byte" | "short" | "integer" | "long":
            return low, high
        case "string":
            return low[:MAX_TEXT], _highest_text(high)
        case "date":
            return _day(low), _day(high)
        case "decimal":
            return _exact(low), _exact(high)
        case "timestamp" | "timestamp_ntz":
            zone = "Z" if kind == "timestamp" else ""
            return _moment(low, zone), _moment(high + 999, zone)  # rounded up, so that it bounds all
    return None, None


def _value(bound: Any, kind: str, word: str) -> Any:  # noqa: ANN401 - as the column's physical type has it
    return bound.decode() if kind == "string" else decimal_of(bound, word) if kind == "decimal" else bound


def decimal_of(stored: int | bytes, word: str) -> Decimal:
    """A decimal of a Delta type from what Parquet stores; exactly, where arithmetic rounds to 28 digits."""
    digits = int.from_bytes(stored, "big", signed=True) if isinstance(stored, bytes) else stored
    return Decimal(f"{digits}E{-arrow_type(word).scale}")


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
    return float(number) if len(number.as_tuple().digits) <= EXACT_DIGITS else None


def _moment(microseconds: int, zone: str) -> str | None:
    milliseconds = microseconds // 1000
    is_in_range = FIRST_DAY <= milliseconds // _DAY_MS <= LAST_DAY
    return f"{np.datetime64(milliseconds, 'ms')}{zone}" if is_in_range else None


def bounds_of(rows: pa.Table) -> Bounds:
    """The extremes of columns whose statistics are exact enough: of whole numbers and text.

    Text is cut off in statistics, the highest upwards: still a bound.
    """
    wanted = {
        name: column
        for name, column in zip(rows.column_names, rows.columns, strict=True)
        if pa.types.is_integer(column.type) or pa.types.is_string(column.type)
    }
    extremes = {name: pc.min_max(column) for name, column in wanted.items()}
    return {name: (found["min"], found["max"]) for name, found in extremes.items() if found["min"].is_valid}


def may_hold_rows(stated: Mapping[str, Any], bounds: Bounds) -> bool:
    """Whether a file with these statistics, which this engine wrote, may hold a row within all bounds."""
    for name, ends in bounds.items():
        low, high = (end.as_py() for end in ends)
        lowest, highest = (stated[which].get(name) for which in ("minValues", "maxValues"))
        if type(lowest) is type(highest) is type(low) and (lowest > high or highest < low):
            return False
    return True


def may_hold(actions: pa.Table, bounds: Bounds) -> pa.ChunkedArray[Any]:
    """Per `add` action, with its structs `min` and `max`, whether its file may hold a row within all bounds."""
    chosen = pa.chunked_array([pa.repeat(True, actions.num_rows)])
    for name, (low, high) in bounds.items():
        try:
            lowest, highest = (pc.struct_field(actions.column(which), name) for which in ("min", "max"))
        except (KeyError, pa.ArrowException):  # no file has statistics of it
            continue
        if lowest.type != low.type or highest.type != high.type:
            continue
        within = pc.and_(pc.less_equal(lowest, high), pc.greater_equal(highest, low))
        chosen = pc.and_(chosen, pc.fill_null(within, True))
    return chosen
