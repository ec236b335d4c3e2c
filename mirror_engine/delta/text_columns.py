"""Cells of one declared column become one Arrow array: fast where Arrow's reading is the protocol's, else cell by cell.

Every fast reading takes only forms of which it is certain; whatever else there is goes through
`landing_zone.text_cells`, which also finds the row that is wrong.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from mirror_engine.delta.arrow_types import arrow_type
from mirror_engine.landing_zone.text_cells import CellFault, parser

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

TIME = "time"  # of an `ITime` column, a string to Delta
_INTEGER = r"^-?[0-9]{1,19}$"
_NUMBER = r"^[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?$"
_DATE = r"^[0-9]{4}-[0-9]{2}-[0-9]{2}$"
_TIMESTAMP = r"^[0-9]{4}-[0-9]{2}-[0-9]{2}[T ][0-9]{2}:[0-9]{2}:[0-9]{2}(?:\.[0-9]+)?(?:Z|\+00:00)?$"
_TIME = r"^(?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](?:\.[0-9]{1,9})?$"
_TO_MICROSECONDS = 26  # characters of a timestamp up to its sixth decimal


class ColumnFault(Exception):
    """A cell that is no value of its type.

    Attributes:
        position: of the cell, from 0.
        fault: as `CellFault` tells it.
    """

    def __init__(self, position: int, fault: str) -> None:
        super().__init__(fault)
        self.position = position
        self.fault = fault


def array_type(kind: str) -> pa.DataType:
    """The Arrow type of a declared type."""
    return arrow_type("string" if kind == TIME else kind)


def column_array(cells: Sequence[str | None], kind: str) -> pa.Array:
    """The values of a column (LZ-6.8, LZ-6.9).

    Args:
        cells: in row order; `None` is NULL, and so is a quoted empty field but in a String.
        kind: a declared type in Delta's words, or `TIME`.

    Raises:
        ColumnFault: the first cell that is no value of the type.
    """
    if kind == "string":
        return pa.array(cells, pa.string())
    if "" in cells:
        cells = [cell or None for cell in cells]
    fast = _FAST.get(kind)
    if fast is not None:
        try:
            found = fast(pa.array(cells, pa.string()), array_type(kind))
        except pa.ArrowInvalid:
            found = None
        if found is not None:
            return found
    return _exact(cells, kind)


def _exact(cells: Sequence[str | None], kind: str) -> pa.Array:
    parse = parser(kind)
    values: list[object] = []
    try:
        # not a comprehension: how far it came says which cell is wrong
        for cell in cells:
            values.append(None if cell is None else parse(cell))  # noqa: PERF401 - see above
    except CellFault as fault:
        raise ColumnFault(len(values), fault.fault) from fault
    return pa.array(values, array_type(kind))


def _all_match(texts: pa.Array, pattern: str) -> bool:
    return bool(pc.all(pc.match_substring_regex(texts, pattern), min_count=0).as_py())


def _integers(texts: pa.Array, wanted: pa.DataType) -> pa.Array | None:
    return texts.cast(wanted) if _all_match(texts, _INTEGER) else None


def _numbers(texts: pa.Array, wanted: pa.DataType) -> pa.Array | None:
    if not _all_match(texts, _NUMBER):
        return None
    numbers = texts.cast(pa.float64()).cast(wanted)
    return None if pc.any(pc.is_inf(numbers)).as_py() else numbers


def _booleans(texts: pa.Array, _wanted: pa.DataType) -> pa.Array | None:
    words = pc.ascii_lower(texts)
    known = pc.all(pc.is_in(words, value_set=pa.array(["true", "false", None])), min_count=0).as_py()
    return pc.equal(words, "true") if known else None


def _dates(texts: pa.Array, wanted: pa.DataType) -> pa.Array | None:
    return texts.cast(wanted) if _all_match(texts, _DATE) and not _in_year_zero(texts) else None


def _timestamps(texts: pa.Array, wanted: pa.DataType) -> pa.Array | None:
    if not _all_match(texts, _TIMESTAMP) or _in_year_zero(texts):
        return None
    utc = pc.replace_substring(texts, "+00:00", "Z")
    cut = pc.ascii_rtrim(pc.utf8_slice_codeunits(utc, 0, _TO_MICROSECONDS), "Z")
    return cut.cast(pa.timestamp("us")).cast(wanted)


def _in_year_zero(texts: pa.Array) -> bool:
    return bool(pc.any(pc.starts_with(texts, "0000")).as_py())


def _times(texts: pa.Array, _wanted: pa.DataType) -> pa.Array | None:
    return texts if _all_match(texts, _TIME) else None


_FAST: dict[str, Callable[[pa.Array, pa.DataType], pa.Array | None]] = {
    "short": _integers,
    "integer": _integers,
    "long": _integers,
    "float": _numbers,
    "double": _numbers,
    "boolean": _booleans,
    "date": _dates,
    "timestamp": _timestamps,
    TIME: _times,
}
