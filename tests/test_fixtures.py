"""Golden fixtures: each file of `fixtures/` is a landing zone whose result protocol.md decides, on every writer."""

from __future__ import annotations

import os
import shutil
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest
from delta_protocol import needed, protocol_faults, read_history
from golden import diagnostic_differences, land, table_differences
from independent_readers import read_otherwise
from marking import marking
from quick_folder import quick_folder
from store_publisher import everything
from store_servers import ONE_BY_DAY

from mirror_engine.config import Config
from mirror_engine.events import DiagnosticRaised, TableDropped, TableHalted
from mirror_engine.explain.examples import examples
from mirror_engine.landing_zone.diagnostics import CATALOG, diagnose
from mirror_engine.landing_zone.layout import ENGINE, SCRATCH, TABLES, ZONE
from mirror_engine.mirror import Mirror
from mirror_engine.storage.local import LocalStorage
from mirror_engine.storage.store_url import StoreUrl
from mirror_engine.tables.dry_run.memory import MemoryDeltaWriter
from mirror_engine.tables.merge.arrow import ArrowWriter
from mirror_engine.testing.cases import Stage, load, names
from mirror_engine.tools.compare.zone import compare_zone

NAMES = names()
IN_STORES = [name for name in NAMES if "stores" in load(name).runs_on]
ON_SPARK = [name for name in NAMES if "spark" in load(name).runs_on]
SELECTED = NAMES if os.environ.get("MIRROR_TEST_SPARK_FIXTURES") == "all" else ON_SPARK
# Codes without an example, each with what it would need
NOT_LANDED = {
    "ME007": "1,000 tables",
    "ME067": "a week of waiting",
    "ME068": "two weeks of waiting",
    "ME069": "a rebuild",
    "ME070": "a storage that cannot be listed",
    "ME072": "a temporary failure",
    "ME074": "a link or a device",
    "ME076": "a ROOT that moved",
    "ME079": "validate --check-tie-order",
    "ME080": "another program's commit",
    "ME081": "a damaged Delta log",
    "ME086": "a commit that the merge engine refuses",
    "ME091": "16 MB",
    "ME093": "two landing zones",
}


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
        case, root = load(name), Path(folder)
        writer = make_writer(root)
        differences = differences_of(case, root, writer)
        there = [(root / TABLES / table, expected) for table, expected in case.tables.items()]
        written = [(path, expected) for path, expected in there if path.is_dir()]
        if isinstance(writer, ArrowWriter) and case.is_comparable:
            shutil.rmtree(root / ENGINE)
            reader = ArrowWriter(root / TABLES, root / "read")
            compared = compare_zone(LocalStorage(root), reader, Config(**case.options), root / "work")
            differences += [f"compare: {found}" for found in compared if found.verdict == "different"]
        return (
            differences,
            [fault for path, _ in written for fault in protocol_faults(path)],
            [difference for path, expected in written for difference in read_otherwise(path, expected)],
            {name for path, _ in written for name in needed(read_history(path).states[-1])},
        )


def differences_of(case, root, writer):
    """How a fixture's tables, diagnostics, result and zone differ from what they should be, in a folder or a store."""
    raised, end, config = RaisedDiagnostics(), [], Config(**case.options)
    for stage in case.stages:
        land(stage, root)
        mirror = Mirror(root, config, writer=writer, listeners=[raised])
        result = mirror.sync().result.value
        end = standing(mirror.status())
        raised.update(end)
    found = [] if result == case.result else [f"result: {result}, not {case.result}"]
    found += diagnostic_differences(case, end, raised)
    found += [f"no such table should be: {table}" for table in set(writer.tables()) - set(case.tables)]
    for name, expected in case.tables.items():
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
    return found + ([] if case.zone is None or there == case.zone else [f"zone: {there}"])


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
    case, root = load(name), store.new_root()
    case = replace(case, undecided=(*case.undecided, "ME028"))  # a store's times have whole seconds
    assert differences_of(case, root, ArrowWriter(root / TABLES, tmp_path / SCRATCH)) == []


def test_every_fixture_names_a_rule_and_is_run_where_it_says():
    for name in NAMES:
        case = load(name)
        assert any(rule.startswith("LZ-") for rule in case.rules), name
        assert set(case.runs_on) <= {"spark", "stores"}, name
        assert case.result in {"caught_up", "needs_attention"}, name


def test_every_code_that_files_can_raise_has_one_example():
    named = [code for name in NAMES for code in load(name).codes]
    assert len(named) == len(set(named))
    assert sorted([*named, *NOT_LANDED]) == sorted(CATALOG)
    for code, name in examples().items():
        case = load(name)
        assert code in {entry.code for entry in (*case.diagnostics, *case.earlier, *case.validate)}, name


@pytest.mark.parametrize("code", ["ME025", "ME028", "ME029", "ME071"])
def test_sticky_diagnostic_is_reported_after_later_runs(code):
    case, writer = load(examples()[code]), MemoryDeltaWriter()
    with quick_folder() as folder:
        for stage in (*case.stages, Stage("nothing happens"), Stage("nothing happens")):
            land(stage, Path(folder))
            mirror = Mirror(Path(folder), Config(**case.options), writer=writer)
            mirror.sync()
        assert code in {found.code for found in standing(mirror.status())}


@pytest.mark.parametrize("code", ["ME002", "ME003", "ME005", "ME020", "ME021", "ME022", "ME030", "ME031", "ME082"])
def test_ignored_path_is_listed_as_ignored(code):
    case, writer = load(examples()[code]), MemoryDeltaWriter()
    with quick_folder() as folder:
        for stage in case.stages:
            land(stage, Path(folder))
            mirror = Mirror(Path(folder), Config(**case.options), writer=writer)
            report = mirror.sync()
        ignored = [found for table in mirror.status().tables for found in table.ignored]
    ignored += [found for several in report.ignored.values() for found in several]
    assert code in {found.code for found in ignored}


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
    assert on_spark[name].result() == ([], [], [], set(load(name).features))
