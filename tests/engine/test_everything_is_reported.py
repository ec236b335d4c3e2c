"""Honest: whatever in a landing zone is passed over, `status` names it with its reason."""

from __future__ import annotations

import json

import pytest
from shop import Shop, name, row

from mirror_engine.landing_zone.layout import OLDER_ZONE, ZONE

PARQUET = {"keyColumns": ["id"]}
COLUMN = {"Name": "id", "DataType": "Int32", "IsNullable": False}
TEXT = {"keyColumns": ["id"], "FileFormat": "CSV", "FileExtension": "csv"}
DECLARED = {**PARQUET, "SchemaDefinition": {"Columns": [COLUMN]}}
PARTITIONED = {**PARQUET, "isPartitionEnabled": True}
BY_TIME = {**PARQUET, "fileDetectionStrategy": "LastUpdateTimeFileDetection"}

# what is there, by path from ROOT or from the zone's top, and what must be said of which path
PASSED_OVER = {
    "both layouts": ({f"/{OLDER_ZONE}/T/x": b""}, ["ME001 LandingZone"]),
    "file next to the tables": ({"readme.txt": b""}, ["ME002 readme.txt"]),
    "change file next to the tables": ({name(1): b""}, [f"ME002 {name(1)}"]),
    "metadata next to the tables": ({"_metadata.json": b"{}"}, ["ME002 _metadata.json"]),
    "hidden file": ({"_x": b"", ".DS_Store": b""}, ["ME082 _x", "ME082 .DS_Store"]),
    "hidden folder": ({"_Temp/x": b"", ".git/x": b""}, ["ME082 _Temp", "ME082 .git"]),
    "hidden table": ({"_Stores/_metadata.json": b"{}"}, ["ME005 _Stores"]),
    "hidden schema": ({f"_S.schema/T/{name(1)}": b"", ".schema/T/x": b""}, ["ME005 _S.schema", "ME082 .schema"]),
    "staging folder": ({"_scratchPad/x": b"", "T/_scratchPad/x": b""}, ["ME082 _scratchPad", "ME082 T/_scratchPad"]),
    "file in a schema folder": ({"S.schema/x": b"", "S.schema/_x": b""}, ["ME002 S.schema/x", "ME082 S.schema/_x"]),
    "partner events out of place": ({"T/_partnerEvents.json": b"{}"}, ["ME006 T/_partnerEvents.json"]),
    "partner events in a schema folder": (
        {"S.schema/_partnerEvents.json": b"{}"},
        ["ME006 S.schema/_partnerEvents.json"],
    ),
    "hidden table in a schema folder": ({f"S.schema/_Items/{name(1)}": b""}, ["ME005 S.schema/_Items"]),
    "no or hidden partition": ({"T/=1/x": b"", "T/_k=v/x": b""}, ["ME003 T/=1", "ME082 T/_k=v"]),
    "hidden file in a partition": ({"P/_metadata.json": PARTITIONED, "P/k=v/_x": b""}, ["ME082 P/k=v/_x"]),
    "unreadable partner events": ({"_partnerEvents.json": b"{"}, ["ME006 _partnerEvents.json"]),
    "folder without metadata": ({"U/x.parquet": b""}, ["ME008 U"]),
    "empty folder": ({"Empty/": None}, ["ME008 Empty"]),
    "broken metadata": ({"U/_metadata.json": b"{"}, ["ME010 U/_metadata.json"]),
    "metadata that is a folder": ({"U/_metadata.json/x": b""}, ["ME008 U", "ME082 U/_metadata.json"]),
    "two folders of one table": ({"dbo.schema/T/_metadata.json": PARQUET}, ["ME004 T"]),
    "sub-folder": ({"T/sub/x": b"", "T/none/": None}, ["ME003 T/sub", "ME003 T/none"]),
    "hidden sub-folder": ({"T/_Temp/x": b"", "T/.x/x": b""}, ["ME082 T/_Temp", "ME082 T/.x"]),
    "hidden change file": ({f"T/_{name(1)}": b"", "T/.x": b""}, [f"ME082 T/_{name(1)}", "ME082 T/.x"]),
    "temporary name": ({f"T/{name(1)}.tmp": b""}, [f"ME021 T/{name(1)}.tmp"]),
    "foreign extension": ({"T/x.pkl": b"", "T/README": b""}, ["ME021 T/x.pkl", "ME021 T/README"]),
    "foreign extension by time": ({"L/_metadata.json": BY_TIME, "L/x.csv": b""}, ["ME021 L/x.csv"]),
    "no number": ({"T/orders.parquet": b""}, ["ME020 T/orders.parquet"]),
    "19 digits": ({f"T/{1:019}.parquet": b""}, [f"ME020 T/{1:019}.parquet"]),
    "behind a gap": ({f"T/{name(3)}": b""}, ["ME019 T"]),
    "number zero": ({f"T/{0:020}.parquet": b""}, [f"ME022 T/{0:020}.parquet"]),
    "partition without the flag": ({f"T/k=v/{name(1)}": b""}, ["ME030 T/k=v"]),
    "file next to the partitions": ({"P/_metadata.json": PARTITIONED, f"P/{name(1)}": b""}, [f"ME031 P/{name(1)}"]),
    "folder in a partition": ({"P/_metadata.json": PARTITIONED, "P/k=v/sub/x": b""}, ["ME003 P/k=v/sub"]),
    "staging in a partition": ({"P/_metadata.json": PARTITIONED, "P/k=v/_x/x": b""}, ["ME082 P/k=v/_x"]),
    "unknown property": ({"U/_metadata.json": {**PARQUET, "foo": 1}}, ["ME012 U/_metadata.json"]),
    "text options of Parquet": (
        {"U/_metadata.json": {**PARQUET, "FileFormatTypeProperties": {"Encoding": "UTF-8"}}},
        ["ME012 U/_metadata.json"],
    ),
    "a schema of Parquet": (
        {"U/_metadata.json": {**PARQUET, "FileFormat": "Parquet", "SchemaDefinition": {}}},
        ["ME015 U/_metadata.json"],
    ),
    "Parquet where types are declared": (
        {"U/_metadata.json": DECLARED, f"U/{name(1)}": b""},
        ["ME083 U/_metadata.json", f"ME021 U/{name(1)}"],
    ),
    "conditional updates": (
        {"U/_metadata.json": {**PARQUET, "ConditionalUpdateColumn": "id"}},
        ["ME014 U/_metadata.json"],
    ),
    "unknown text property": (
        {"U/_metadata.json": {**TEXT, "SchemaDefinition": {"Columns": [{**COLUMN, "Precision": 3}], "Version": 1}}},
        ["ME012 U/_metadata.json", "ME012 U/_metadata.json"],
    ),
}  # fmt: skip


def put(shop, path, content):
    place = shop.root / path[1:] if path.startswith("/") else shop.publisher.path / path
    if content is None:
        place.mkdir(parents=True)
    else:
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(content if isinstance(content, bytes) else json.dumps(content).encode())


def said(shop):
    return [f"{found.code} {found.path}" for found in shop.standing()]


def waiting(shop):
    with shop.mirror() as mirror:
        return {f"{table.name.folder}/{file.path}" for table in mirror._status().tables for file in table.files}


@pytest.fixture
def shop_in_memory(ram):
    shop = Shop(ram)
    shop.publisher.table("T", keys=["id"])
    return shop


@pytest.mark.parametrize("case", list(PASSED_OVER))
@pytest.mark.slow
def test_whatever_is_passed_over_is_named_with_its_reason(shop_in_memory, case):
    present, expected = PASSED_OVER[case]
    before = set(said(shop_in_memory))
    for path, content in present.items():
        put(shop_in_memory, path, content)
    found = said(shop_in_memory)
    assert sorted(each for each in found if each in expected) == sorted(expected)
    # nor is anything else hidden: each path is named itself, or by a folder it is in
    named = {each.partition(" ")[2] for each in found if each not in before} | waiting(shop_in_memory)
    for path in (path.strip("/") for path in present if not path.endswith("_metadata.json")):
        assert any(f"{path}/".startswith(f"{place}/") or place.startswith(f"{path}/") for place in named), path


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["file", "link"])
def test_what_is_in_the_zones_place_is_named(shop_in_memory, kind):
    zone = shop_in_memory.root / ZONE
    zone.rename(shop_in_memory.root / "away")
    if kind == "file":
        zone.write_bytes(b"")
    else:
        zone.symlink_to(shop_in_memory.root / "away")
    assert said(shop_in_memory) == [f"{'ME002' if kind == 'file' else 'ME074'} {ZONE}"]
    assert {found.place for found in shop_in_memory.standing()} == {ZONE}  # from ROOT


@pytest.mark.slow
def test_files_replaced_after_they_were_applied_are_named(shop_in_memory):
    table = shop_in_memory.publisher.table("Items", keys=["id"])
    table.insert(row(1))
    shop_in_memory.sync()
    table.insert(row(2), name=name(1))
    assert f"ME026 Items/{name(1)}" in said(shop_in_memory)
