"""Landing zones that real publishers wrote end as an independent program worked out."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest
from golden import table_differences
from quick_folder import quick_folder

from mirror_engine import Mirror, RunResult
from mirror_engine.landing_zone.layout import SCRATCH, TABLES
from mirror_engine.tables.dry_run.memory import MemoryDeltaWriter
from mirror_engine.tables.merge.arrow import ArrowWriter
from mirror_engine.testing.cases import ExpectedTable

pytestmark = pytest.mark.slow
REAL_ZONES = Path(os.environ.get("MIRROR_TEST_REAL_ZONES", Path(__file__).parents[2] / "shared/landing_zones"))
NAMES = ("bc2adls-replay", "ms-openmirroring-sdk", "openmirroring-faker")
# by Delta type, how a value that text may write is read; `golden` reads all others
PARSERS = {**dict.fromkeys(("integer", "long", "short"), int), "boolean": lambda value: str(value).lower() == "true"}


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
            columns = writer.snapshot(folders[table]).schema.columns
            assert sorted(column.name for column in columns) == sorted(content["columns"])
            assert len(content["rows"]) == content["row_count"]
            rows = [
                {column.name: parsed(row[column.name], column.type) for column in columns} for row in content["rows"]
            ]
            found = writer.rows(folders[table]).to_pylist()
            assert table_differences(ExpectedTable(columns, rows), columns, found) == [], table


def parsed(value, kind):
    return value if value is None or kind not in PARSERS else PARSERS[kind](value)


@pytest.mark.parametrize("kind", ["memory", "arrow", pytest.param("spark", marks=pytest.mark.spark)])
@pytest.mark.parametrize("name", NAMES)
def test_a_real_zone_ends_as_an_independent_program_worked_out(name, kind, request):
    writers = {
        "memory": lambda _: MemoryDeltaWriter(),
        "arrow": lambda root: ArrowWriter(root / TABLES, root / SCRATCH),
    }
    check(name, writers.get(kind) or request.getfixturevalue("mirror_writer"))
