"""Golden fixtures: each folder of `fixtures/` is a landing zone whose outcome protocol.md decides, on both writers."""

from __future__ import annotations

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from delta_history import read_history
from delta_protocol import needed, protocol_faults
from golden import (
    ExpectedTable,
    Golden,
    diagnostic_differences,
    load,
    table_differences,
)
from independent_readers import read_otherwise
from quick_folder import quick_folder

from mirror_engine.config import Config
from mirror_engine.events import DiagnosticRaised, TableDropped, TableHalted
from mirror_engine.landing_zone.diagnostics import diagnose
from mirror_engine.landing_zone.layout import SCRATCH, TABLES
from mirror_engine.mirror import Mirror
from mirror_engine.tables.merge.deltalake import DeltalakeWriter
from mirror_engine.tables.merge.memory import MemoryDeltaWriter

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from concurrent.futures import Future

    from mirror_engine.events import Event
    from mirror_engine.landing_zone.diagnostics import Diagnostic
    from mirror_engine.tables.base import DeltaWriter

FIXTURES = Path(__file__).parent.parent / "fixtures"
# Which fixtures need a table feature: their columns have spaces or commas in their names, or times without a zone.
FEATURES = {
    "naive-times-may-stay-naive": {"timestampNtz"},
    "odd-column-names-are-kept": {"columnMapping"},
    "odd-column-names-may-come-late": {"columnMapping"},
}
# What Spark can tell apart: each marker and state of a key, each type as column and key, schema growth, mapped columns,
# partitions, NOT NULL. All others end above the table store; `MIRROR_TEST_SPARK_FIXTURES=all` runs them as well.
ON_SPARK = (
    "all-markers-of-one-key-in-one-file",
    "column-no-longer-sent-stays",
    "composite-key-matches-on-every-part",
    "csv-every-type",
    "delete-of-an-absent-key-does-nothing",
    "delete-removes-every-copy",
    "deletes-need-no-not-null-column",
    "every-documented-parquet-type-is-kept",
    "float-keys-know-one-nan-and-one-zero",
    "insert-of-an-existing-key-is-kept",
    "keyless-table-takes-inserts",
    "keys-match-across-partitions",
    "marker-3-rejects-the-file",
    "naive-times-may-stay-naive",
    "new-column-comes-at-the-end",
    "new-not-null-column-on-an-empty-table-joins",
    "null-in-the-key-matches-nothing",
    "odd-column-names-are-kept",
    "odd-column-names-may-come-late",
    "partitions-number-for-themselves",
    "recreated-folder-is-rebuilt",
    "text-keys-compare-by-code-point",
    "the-last-change-of-a-key-is-not-all-that-counts",
    "timestamp-keys-compare-by-instant",
    "undocumented-parquet-types-are-read-with-a-warning",
    "update-of-an-absent-key-inserts",
    "update-reaches-every-copy",
    "update-that-lacks-a-column-makes-it-null",
    "upsert-replaces-or-inserts",
)
NAMES = sorted(path.parent.parent.name for path in FIXTURES.glob("*/expected/result"))
SELECTED = NAMES if os.environ.get("MIRROR_TEST_SPARK_FIXTURES") == "all" else ON_SPARK


class RaisedDiagnostics:
    """A listener that keeps every diagnostic it hears."""

    def __init__(self) -> None:
        self.diagnostics: set[Diagnostic] = set()

    def __call__(self, event: Event) -> None:
        match event:
            case DiagnosticRaised(_, diagnostic) | TableHalted(_, diagnostic):
                self.diagnostics.add(diagnostic)
            case TableDropped(table, _):
                self.diagnostics.add(diagnose("ME065", table.folder))


@dataclass(frozen=True)
class Outcome:
    """What came out of a fixture.

    Attributes:
        differences: from what it should be.
        faults: of its Delta tables, by the Delta protocol.
        otherwise: what readers that are not ours read otherwise.
        features: the table features that its tables need.
    """

    differences: Sequence[str]
    faults: Sequence[str]
    otherwise: Sequence[str]
    features: frozenset[str]


def outcome(name: str, make_writer: Callable[[Path], DeltaWriter]) -> Outcome:
    """Run a fixture and check the files on disk."""
    with quick_folder() as folder:
        golden, root = load(FIXTURES / name), Path(folder)
        differences = differences_of(golden, root, make_writer(root))
        there = [(root / TABLES / table, expected) for table, expected in golden.tables.items()]
        written = [(path, expected) for path, expected in there if path.is_dir()]
        return Outcome(
            differences,
            [fault for path, _ in written for fault in protocol_faults(path)],
            [difference for path, expected in written for difference in read_otherwise(path, expected)],
            frozenset(name for path, _ in written for name in needed(read_history(path).states[-1])),
        )


def differences_of(golden: Golden, root: Path, writer: DeltaWriter) -> list[str]:
    raised, end = RaisedDiagnostics(), []
    for stage in golden.stages:
        for landing in stage:
            landing.land(root)
        report = Mirror(root, Config(**golden.config), writer=writer, listeners=[raised]).sync()
        end = standing(root, golden, writer)
        raised.diagnostics.update(end)
    found = [] if report.result.value == golden.result else [f"result: {report.result.value}, not {golden.result}"]
    found += diagnostic_differences(golden, end, raised.diagnostics)
    found += [f"no such table should be: {table}" for table in set(writer.tables()) - set(golden.tables)]
    for name, expected in golden.tables.items():
        found += [f"{name}: {each}" for each in differences_of_table(expected, writer, name)]
    return found + zone_differences(golden, root)


def differences_of_table(expected: ExpectedTable, writer: DeltaWriter, name: str) -> list[str]:
    state, rows = writer.snapshot(name), writer.rows(name)
    if state is None or rows is None:
        return ["no such table"]
    return table_differences(expected, state.schema.columns, rows.to_pylist())


def standing(root: Path, golden: Golden, writer: DeltaWriter) -> list[Diagnostic]:
    """All diagnostics in the end."""
    status = Mirror(root, Config(**golden.config), writer=writer).status()
    return [*status.diagnostics, *(diagnostic for table in status.tables for diagnostic, _ in table.diagnostics)]


def zone_differences(golden: Golden, root: Path) -> list[str]:
    if golden.files is None:
        return []
    zone = root / "Files/LandingZone"
    there = sorted(path.relative_to(zone).as_posix() for path in zone.rglob("*") if path.is_file())
    return [] if there == sorted(golden.files) else [f"zone: {there}"]


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_fixture_on_the_memory_writer(name: str) -> None:
    assert outcome(name, lambda _: MemoryDeltaWriter()).differences == []


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_fixture_on_the_deltalake_writer(name: str) -> None:
    """Its rows, by our reader and by others; its log by the Delta protocol."""
    found = outcome(name, lambda root: DeltalakeWriter(root / TABLES, root / SCRATCH))
    assert (found.differences, found.faults, found.otherwise) == ([], [], [])


def test_every_fixture_says_in_one_line_what_it_shows_and_by_which_rule() -> None:
    for name in NAMES:
        lines = (FIXTURES / name / "README.md").read_text("utf-8").splitlines()
        assert len(lines) == 1, name
        assert "LZ-" in lines[0], name


@pytest.mark.slow
def test_fixtures_are_what_their_recipes_make(tmp_path: Path) -> None:
    subprocess.run([sys.executable, FIXTURES / "make.py", "--into", tmp_path], check=True)
    assert sorted(path.name for path in tmp_path.iterdir()) == NAMES
    for made in filter(Path.is_file, tmp_path.rglob("*")):
        kept = FIXTURES / made.relative_to(tmp_path)
        assert kept.is_file(), kept
        compressed = made.suffix.lower() == ".parquet" or "csv-compressions" in made.parts
        if not compressed:  # the bytes of compressed files are those of a library's version
            assert kept.read_bytes() == made.read_bytes(), kept


@pytest.fixture(scope="session")
def on_spark(
    request: pytest.FixtureRequest, mirror_writer: Callable[[Path], DeltaWriter]
) -> Iterator[Mapping[str, Future[Outcome]]]:
    """The selected fixtures, run in parallel: a tiny commit in Spark mostly waits."""
    items = [item for item in request.session.items if "on_spark" in getattr(item, "fixturenames", ())]
    selected = dict.fromkeys(item.callspec.params["name"] for item in items)
    with ThreadPoolExecutor(4) as pool:
        yield {name: pool.submit(outcome, name, mirror_writer) for name in selected}
        pool.shutdown(cancel_futures=True)


@pytest.mark.spark
@pytest.mark.parametrize("name", SELECTED)
def test_fixture_on_the_spark_writer(name: str, on_spark: Mapping[str, Future[Outcome]]) -> None:
    """Its rows, by our reader and by others; its log by the Delta protocol; and no table feature without need."""
    assert on_spark[name].result() == Outcome([], [], [], FEATURES.get(name, frozenset()))
