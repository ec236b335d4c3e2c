"""What the page cuts, and what it says of values that Python has no words for."""

from __future__ import annotations

import pyarrow as pa
import pytest
from shop_window import SHOP, Window
from starlette.testclient import TestClient

from mirror_engine.onelake.page.pages import MAX_CHARACTERS, MAX_COLUMNS, MAX_FILES, file_names, row_texts
from mirror_engine.onelake.page.web import Web

pytestmark = pytest.mark.slow


def shown(*values: object, kind: pa.DataType) -> list[str | None]:
    return [row[0] for row in row_texts(pa.table({"c": pa.array(values, kind)}))]


def test_times_beyond_python_s_years_are_shown() -> None:
    assert shown(253_402_300_800_000_000, None, kind=pa.timestamp("us")) == ["10000-01-01 00:00:00.000000", None]


@pytest.mark.parametrize(
    ("value", "kind", "text"),
    [
        (b"\0\1", pa.binary(), "AAE="),
        (float("nan"), pa.float64(), "NaN"),
        ("a\tb", pa.string(), r"a\tb"),
        ("y" * MAX_CHARACTERS, pa.string(), "y" * MAX_CHARACTERS),
        ("y" * MAX_CHARACTERS + "z", pa.string(), "y" * MAX_CHARACTERS + "…"),
    ],
)
def test_a_value_is_one_line_of_bounded_length(value, kind, text) -> None:
    assert shown(value, kind=kind) == [text]


def test_many_columns_and_files_are_counted_instead_of_shown() -> None:
    [row] = row_texts(pa.table({f"c{at}": [at] for at in range(MAX_COLUMNS + 3)}))
    assert len(row) == MAX_COLUMNS
    assert file_names(["a", "b", "c", "d"]) == "a, b, c, d"
    assert file_names([str(at) for at in range(1500)]) == "0 … 1499 (1,500 files)"


def test_a_page_lists_the_newest_applied_files_and_counts_the_rest(tmp_path) -> None:
    window = Window(tmp_path)
    table = window.add(SHOP, "Sales", "Shop").table("Many", keys=["Id"])
    for at in range(MAX_FILES + 2):
        table.insert({"Id": at})
    window.apply()
    table.skip_numbers()
    for at in range(MAX_FILES + 5):
        table.insert({"Id": at})
    page = TestClient(Web(window.items).app).get(f"/tables/{SHOP}/Many").text
    assert page.count('<span class="state well">applied') == MAX_FILES
    assert "… and 2 applied files more." in page
    assert "… and 5 pending files more." in page
    assert f"<bdi>{MAX_FILES + 2:020d}.parquet</bdi>" in page
    assert f'class="file"><bdi>{1:020d}.parquet</bdi>' not in page
