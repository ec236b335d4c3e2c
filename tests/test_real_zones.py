"""Landing zones that real publishers wrote end as an independent program worked out."""

from __future__ import annotations

import json
import os
import shutil
from datetime import date, datetime, timezone
from pathlib import Path

import pytest
from quick_folder import quick_folder

from mirror_engine import Mirror, RunResult
from mirror_engine.landing_zone.layout import SCRATCH, TABLES
from mirror_engine.tables.merge.deltalake import DeltalakeWriter
from mirror_engine.tables.merge.memory import MemoryDeltaWriter

REAL_ZONES = Path(os.environ.get("MIRROR_TEST_REAL_ZONES", Path(__file__).parents[2] / "shared/landing_zones"))
NAMES = ("bc2adls-replay", "ms-openmirroring-sdk", "openmirroring-faker")
# by Delta type, how a value is written in JSON and in delimited text
PARSERS = {
    "boolean": lambda value: value if isinstance(value, bool) else {"true": True, "false": False}[value.lower()],
    "date": date.fromisoformat,
    "double": float,
    "float": float,
    "integer": int,
    "long": int,
    "short": int,
    "string": str,
    "timestamp": lambda value: instant(datetime.fromisoformat(value.replace("Z", "+00:00"))),
}


def instant(value):
    return (value if value.tzinfo else value.replace(tzinfo=timezone.utc)).astimezone(timezone.utc)


def stage(zone, root):
    """Copy a zone and give its files back their times, which neither copying nor git keeps."""
    landing_zone = root / "Files/LandingZone"
    shutil.copytree(zone / "LandingZone", landing_zone)
    for table, files in json.loads((zone / "manifest.json").read_text("utf-8")).items():
        schema, dot, name = table.partition(".")
        folder = landing_zone / (f"{schema}.schema/{name}" if dot else table)
        for file in files:
            os.utime(folder / file["file"], ns=(file["mtime_ns"], file["mtime_ns"]))


def check(name, make_writer):
    zone = REAL_ZONES / name
    if not zone.is_dir():
        pytest.skip(f"{zone} is not there: set MIRROR_TEST_REAL_ZONES to the folder of real landing zones")
    with quick_folder() as folder:
        stage(zone, Path(folder))
        writer = make_writer(Path(folder))
        assert Mirror(folder, writer=writer).sync().result is RunResult.CAUGHT_UP
        expected = json.loads((zone / "expected_final.json").read_text("utf-8"))
        folders = {table: table.replace(".", "/") if "." in table else f"dbo/{table}" for table in expected}
        assert sorted(writer.tables()) == sorted(folders.values())
        for table, content in expected.items():
            types = {column.name: column.type for column in writer.snapshot(folders[table]).schema.columns}
            assert found_rows(writer.rows(folders[table])) == expected_rows(content, types), table


def expected_rows(content, types):
    assert sorted(types) == sorted(content["columns"])
    assert len(content["rows"]) == content["row_count"]
    return sorted(
        repr([None if row[name] is None else PARSERS[types[name]](row[name]) for name in sorted(types)])
        for row in content["rows"]
    )


def found_rows(rows):
    return sorted(
        repr([instant(row[name]) if isinstance(row[name], datetime) else row[name] for name in sorted(row)])
        for row in rows.to_pylist()
    )


@pytest.mark.parametrize("name", NAMES)
def test_real_zone_on_the_memory_writer(name):
    check(name, lambda _: MemoryDeltaWriter())


@pytest.mark.parametrize("name", NAMES)
def test_real_zone_on_the_deltalake_writer(name):
    check(name, lambda root: DeltalakeWriter(root / TABLES, root / SCRATCH))


@pytest.mark.spark
@pytest.mark.parametrize("name", NAMES)
def test_real_zone_on_the_spark_writer(name, mirror_writer):
    check(name, mirror_writer)
