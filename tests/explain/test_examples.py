"""The examples of the pages are true: the example raises the code, and the fixed form does not."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from mirror_engine.explain.pages import explanation
from mirror_engine.landing_zone.diagnostics import CATALOG, Trait
from mirror_engine.mirror import Mirror
from mirror_engine.tables.dry_run.memory import MemoryDeltaWriter
from mirror_engine.testing.landing_zone_writer import LandingZoneWriter

if TYPE_CHECKING:
    from pathlib import Path

    from mirror_engine.explain.pages import Snippet

pytestmark = pytest.mark.slow  # whole programs: no part of the quick look

# what the table holds before the example lands, where that matters
BEFORE = {
    "ME018": "Id,Name\n1,Pin\n",
    "ME039": "Id,Name\n7,Nut\n",
    "ME041": "Id,Name,Price\n7,Bolt,1\n",
    "ME042": "pa.table({'Id': [1], 'Name': ['Pin'], '__rowMarker__': [0]})",
    "ME054": "Id,Name\n1,Pin\n",
    "ME090": "Id,Name\n1,Pin\n",
}
KEYS = {"ME040": ["Id", "Region"]}
TYPES = {"Price": "Double", "SoldOn": "IDate"}
BY_VALIDATE_ALONE = {code for code, each in CATALOG.items() if Trait.VALIDATE in each.traits}


EXAMPLES = {code: explanation(code).example for code in CATALOG}
TEXTS = [code for code, it in EXAMPLES.items() if it.language == "csv" and code not in BY_VALIDATE_ALONE]
PARQUETS = [code for code, it in EXAMPLES.items() if it.text.startswith("pa.table(") and "\n" not in it.text]


def raised(root: Path) -> set[str]:
    with Mirror(root, writer=MemoryDeltaWriter()) as mirror:
        mirror.sync()
        return {found.code for table in mirror.status().tables for found, _ in table.diagnostics}


def declared(*texts: str) -> list[dict[str, object]]:
    """Every column of the headers once, in its first spelling."""
    names = {name.lower(): name for text in reversed(texts) for name in reversed(text.split("\n")[0].split(","))}
    names.pop("__rowmarker__", None)
    return [{"Name": name, "DataType": TYPES.get(name, "String"), "IsNullable": True} for name in names.values()]


def land_text(root: Path, code: str, snippet: Snippet) -> None:
    before = BEFORE.get(code, "Id")
    in_partition = "/" in snippet.title
    items = LandingZoneWriter(root).folder("Items", extension="csv")
    metadata = {
        "keyColumns": KEYS.get(code, ["Id"]),
        "FileFormat": "CSV",
        "isPartitionEnabled": in_partition,
        "SchemaDefinition": {"Columns": declared(before, snippet.text)},
        "FileFormatTypeProperties": {"RowSeparator": "\n"},
    }
    items.land_metadata(json.dumps(metadata).encode())
    if code in BEFORE:
        items.land_csv(before)
    content = f"{snippet.text}\n"
    if in_partition:
        items.put(snippet.title, content.encode())
    else:
        items.land_csv(content)


def land_parquet(root: Path, code: str, snippet: Snippet) -> None:
    items = LandingZoneWriter(root).table("Items", keys=["Id"])
    for text in (*([BEFORE[code]] if code in BEFORE else ()), snippet.text):
        items.land_parquet(eval(text, {"pa": pa, "json": json}))  # noqa: S307 - an example of our own


@pytest.mark.parametrize("code", [*TEXTS, *PARQUETS])
@pytest.mark.parametrize("is_fixed", [False, True], ids=["example", "fixed"])
def test_an_example_raises_its_code_and_the_fixed_one_does_not(tmp_path, code, is_fixed) -> None:
    page = explanation(code)
    land = land_text if code in TEXTS else land_parquet
    land(tmp_path, code, page.fixed if is_fixed else page.example)
    assert (code in raised(tmp_path)) != is_fixed


def test_examples_of_both_formats_are_landed() -> None:
    assert TEXTS
    assert PARQUETS
