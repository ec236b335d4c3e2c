"""Which data files may hold rows within some bounds: their statistics tell (Delta protocol, "Per-file Statistics")."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

if TYPE_CHECKING:
    from collections.abc import Mapping

    Bounds: TypeAlias = Mapping[str, tuple[pa.Scalar[Any], pa.Scalar[Any]]]  # lowest and highest value by column


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
    """Per file whether it may hold a row that lies within all bounds; one without statistics may.

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
