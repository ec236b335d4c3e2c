from __future__ import annotations

from typing import Any

from hypothesis import example, given, settings
from hypothesis import strategies as st

from mirror_engine.tables.reading import text as text_columns
from mirror_engine.tables.reading.text import CellFault, column_array

KINDS = ["short", "integer", "long", "float", "double", "boolean", "timestamp", "date", "time", "binary"]
CELLS = st.lists(
    st.none()
    | st.text("0123456789+-.eE:TZ xafINtrulns", max_size=12)
    | st.integers(-(2**70), 2**70).map(str)
    | st.floats().map(repr)
    | st.datetimes().map(lambda moment: moment.isoformat())
    | st.dates().map(str)
    | st.sampled_from(["true", "FALSE", "0000-01-01", "0x1F", "1e400", "1e39", "2024-02-29T08:00:00.1234567+00:00"]),
    max_size=4,
)


@settings(max_examples=150)
@given(st.sampled_from(KINDS), CELLS)
@example("long", ["0x1F"])
@example("date", ["0000-01-01"])
@example("float", ["1e39"])
@example("float", ["16777217", "0.1"])
@example("timestamp", ["2024-02-29T08:00:00.5Z", "2024-02-29 08:00:00+00:00"])
@example("timestamp", ["0001-01-01T00:00:00Z", "9999-12-31T23:59:59.9999999", None])
def test_the_fast_reading_equals_the_exact_one(kind: str, cells: list[str | None]) -> None:
    def outcome(read: Any) -> object:
        try:
            values = read(cells, kind)
        except CellFault as cell:
            return (cell.position, cell.fault)
        return str(values.type), repr(values.to_pylist())

    exact = outcome(lambda cells, kind: text_columns._cell_by_cell([cell or None for cell in cells], kind))
    assert outcome(column_array) == exact
