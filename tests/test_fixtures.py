"""Golden fixtures: each folder of `fixtures/` is a landing zone whose outcome protocol.md decides, on every writer."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest
from delta_protocol import needed, protocol_faults, read_history
from golden import diagnostic_differences, load, table_differences
from independent_readers import read_otherwise
from marking import marking
from quick_folder import quick_folder
from store_publisher import everything
from store_servers import ONE_BY_DAY

from mirror_engine.config import Config
from mirror_engine.events import DiagnosticRaised, TableDropped, TableHalted
from mirror_engine.landing_zone.diagnostics import diagnose
from mirror_engine.landing_zone.layout import ENGINE, SCRATCH, TABLES, ZONE
from mirror_engine.mirror import Mirror
from mirror_engine.publisher.compare import compare_zone
from mirror_engine.storage.local import LocalStorage
from mirror_engine.storage.store_url import StoreUrl
from mirror_engine.tables.dry_run.memory import MemoryDeltaWriter
from mirror_engine.tables.merge.arrow import ArrowWriter

FIXTURES = Path(__file__).parent.parent / "fixtures"
# Which fixtures need a table feature: their columns have spaces or commas in their names, or times without a zone.
FEATURES = {
    "naive-times-may-stay-naive": {"timestampNtz"},
    "odd-column-names-are-kept": {"columnMapping"},
    "odd-column-names-may-come-late": {"columnMapping"},
}
# What Spark can tell apart, beyond the writer contract: types as columns and keys, schema growth, mapped columns,
# partitions, NOT NULL. All others end above the table store; `MIRROR_TEST_SPARK_FIXTURES=all` runs them as well.
ON_SPARK = (
    "all-markers-of-one-key-in-one-file",
    "column-no-longer-sent-stays",
    "composite-key-matches-on-every-part",
    "csv-every-type",
    "deletes-need-no-not-null-column",
    "every-documented-parquet-type-is-kept",
    "float-keys-know-one-nan-and-one-zero",
    "keys-match-across-partitions",
    "naive-times-may-stay-naive",
    "new-column-comes-at-the-end",
    "new-not-null-column-on-an-empty-table-joins",
    "null-in-the-key-matches-nothing",
    "odd-column-names-are-kept",
    "odd-column-names-may-come-late",
    "partition-columns-may-have-dots-and-backticks",
    "recreated-folder-is-rebuilt",
    "the-last-change-of-a-key-is-not-all-that-counts",
    "timestamp-keys-compare-by-instant",
    "undocumented-parquet-types-are-read-with-a-warning",
    "update-that-lacks-a-column-makes-it-null",
    "untyped-columns-wait-for-the-file-with-types",
)
# By what a store can change: identities of folders and files, lists, moves, names, ranges
IN_STORES = (
    # a folder has an identity, or none
    "recreated-folder-is-rebuilt",
    "recreated-folder-ends-a-rejection",
    "recreated-folder-seen-missing-is-rebuilt",
    "folder-gone-drops-the-table",
    # numbers follow from a list
    "gap-filled-later-goes-on",
    "number-below-the-watermark-is-never-read",
    "rejected-file-deleted-and-landed-again-goes-on",
    # an applied file is moved: renamed, or copied and deleted
    "applied-files-move-away-in-each-partition",
    "applied-names-are-never-read-again",
    # an overwritten file has another ETag; metadata is read again when its ETag changes
    "overwritten-before-it-was-read-loses-a-batch",
    "rewritten-metadata-with-equal-content-is-nothing",
    "removed-metadata-restored-goes-on",
    # folders are parts of keys, and names are escaped in URLs
    "partition-values-are-decoded",
    "table-names-are-kept-as-spelled",
    # text is read as a stream, and a file of no bytes is no marker of a folder
    "csv-compressions",
    "zero-byte-parquet-halts",
)
# What decided these is no longer in the zone: earlier metadata, overwritten content, the order of arrival
NOT_COMPARED = {
    "csv-declaration-changed-halts",
    "strategy-may-change-and-change-back",
    "overwritten-after-it-was-applied-is-not-read",
    "partition-values-that-no-folder-can-have-halt",
    "number-below-the-first-one-read-comes-too-late",
}
NAMES = sorted(path.parent.parent.name for path in FIXTURES.glob("*/expected/result"))
SELECTED = NAMES if os.environ.get("MIRROR_TEST_SPARK_FIXTURES") == "all" else ON_SPARK


class RaisedDiagnostics(set):
    """A listener that keeps every diagnostic it hears."""

    def __call__(self, event):
        match event:
            case DiagnosticRaised(_, diagnostic) | TableHalted(_, diagnostic):
                self.add(diagnostic)
            case TableDropped(table, _):
                self.add(diagnose("ME065", table.folder, effect=""))


def standing(status):
    """All diagnostics of a status."""
    return [*status.diagnostics, *(diagnostic for table in status.tables for diagnostic, _ in table.diagnostics)]


def outcome(name, make_writer):
    """Run a fixture.

    Returns: differences from what it should be, and those that `compare` finds where `arrow` wrote; faults of its
    Delta tables, by the Delta protocol; what readers that are not ours read otherwise; the features that they need.
    """
    with quick_folder() as folder:
        golden, root = load(FIXTURES / name), Path(folder)
        writer = make_writer(root)
        differences = differences_of(golden, root, writer)
        there = [(root / TABLES / table, expected) for table, expected in golden.tables.items()]
        written = [(path, expected) for path, expected in there if path.is_dir()]
        if isinstance(writer, ArrowWriter) and name not in NOT_COMPARED:
            shutil.rmtree(root / ENGINE)
            reader = ArrowWriter(root / TABLES, root / "read")
            compared = compare_zone(LocalStorage(root), reader, Config(**golden.config), root / "work")
            differences += [f"compare: {found}" for found in compared if found.verdict == "different"]
        return (
            differences,
            [fault for path, _ in written for fault in protocol_faults(path)],
            [difference for path, expected in written for difference in read_otherwise(path, expected)],
            {name for path, _ in written for name in needed(read_history(path).states[-1])},
        )


def differences_of(golden, root, writer):
    """How a fixture's tables, diagnostics, result and zone differ from what they should be, in a folder or a store."""
    raised, end, config = RaisedDiagnostics(), [], Config(**golden.config)
    for stage in golden.stages:
        for landing in stage:
            landing.land(root)
        mirror = Mirror(root, config, writer=writer, listeners=[raised])
        result = mirror.sync().result.value
        end = standing(mirror.status())
        raised.update(end)
    found = [] if result == golden.result else [f"result: {result}, not {golden.result}"]
    found += diagnostic_differences(golden, end, raised)
    found += [f"no such table should be: {table}" for table in set(writer.tables()) - set(golden.tables)]
    for name, expected in golden.tables.items():
        state, rows = writer.snapshot(name), writer.rows(name)
        is_there = state is not None and rows is not None
        of_table = (
            table_differences(expected, state.schema.columns, rows.to_pylist()) if is_there else ["no such table"]
        )
        found += [f"{name}: {each}" for each in of_table]
        if state and state.record and state.record.progress.columns != state.schema.digest:
            found.append(f"{name}: the newest record has other columns than the log")
    if isinstance(root, StoreUrl):
        there = sorted(path.removeprefix(f"{ZONE}/") for path in everything(root) if path.startswith(ZONE))
    else:
        there = sorted(path.relative_to(root / ZONE).as_posix() for path in (root / ZONE).rglob("*") if path.is_file())
    return found + ([] if golden.files is None or there == sorted(golden.files) else [f"zone: {there}"])


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_fixture_on_the_memory_writer(name):
    assert outcome(name, lambda _: MemoryDeltaWriter())[0] == []


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_fixture_on_the_arrow_writer(name):
    """Its rows, by our reader and by others; its log by the Delta protocol."""
    assert outcome(name, lambda root: ArrowWriter(root / TABLES, root / SCRATCH))[:3] == ([], [], [])


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_fixture_on_the_arrow_writer_that_marks_rows(name):
    with marking():
        rows, others, faults, *_ = outcome(name, lambda root: ArrowWriter(root / TABLES, root / SCRATCH))
    assert (rows, others, [fault for fault in faults if not fault.startswith("features")]) == ([], [], [])


@pytest.mark.slow
@pytest.mark.usefixtures("no_pauses")
@ONE_BY_DAY
@pytest.mark.parametrize("name", IN_STORES)
def test_fixture_in_a_store(store, tmp_path, monkeypatch, name):
    monkeypatch.setenv("MIRROR_ENGINE_STATE", str(tmp_path))
    golden, root = load(FIXTURES / name), store.new_root()
    golden = replace(golden, not_compared=golden.not_compared | {"ME028"})  # a store's times have whole seconds
    assert differences_of(golden, root, ArrowWriter(root / TABLES, tmp_path / SCRATCH)) == []


def test_every_fixture_says_in_one_line_what_it_shows_and_by_which_rule():
    for name in NAMES:
        lines = (FIXTURES / name / "README.md").read_text("utf-8").splitlines()
        assert len(lines) == 1, name
        assert "LZ-" in lines[0], name


@pytest.mark.slow
def test_fixtures_are_what_their_recipes_make(tmp_path):
    subprocess.run([sys.executable, FIXTURES / "make.py", "--into", tmp_path], check=True)
    assert sorted(path.name for path in tmp_path.iterdir()) == NAMES
    for made in filter(Path.is_file, tmp_path.rglob("*")):
        kept = FIXTURES / made.relative_to(tmp_path)
        assert kept.is_file(), kept
        compressed = made.suffix.lower() == ".parquet" or "csv-compressions" in made.parts
        if not compressed:  # the bytes of compressed files are those of a library's version
            assert kept.read_bytes() == made.read_bytes(), kept


@pytest.fixture(scope="session")
def on_spark(request, mirror_writer):
    """The selected fixtures, run in parallel: a tiny commit in Spark mostly waits."""
    items = [item for item in request.session.items if "on_spark" in getattr(item, "fixturenames", ())]
    selected = dict.fromkeys(item.callspec.params["name"] for item in items)
    with ThreadPoolExecutor(4) as pool:
        yield {name: pool.submit(outcome, name, mirror_writer) for name in selected}
        pool.shutdown(cancel_futures=True)


@pytest.mark.spark
@pytest.mark.parametrize("name", SELECTED)
def test_fixture_on_the_spark_writer(name, on_spark):
    """Its rows, by our reader and by others; its log by the Delta protocol; and no table feature without need."""
    assert on_spark[name].result() == ([], [], [], FEATURES.get(name, set()))
