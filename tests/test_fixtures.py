"""Golden fixtures: each case (fixtures/README.md) is a landing zone with the result that protocol.md asks for."""

from __future__ import annotations

import os
import shutil
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest
from delta_protocol import needed, protocol_faults, read_history
from golden import RaisedDiagnostics, diagnostic_differences, land, run_stages, standing, table_differences
from independent_readers import read_otherwise
from marking import marking
from named_tests import missing
from quick_folder import quick_folder
from store_publisher import everything
from store_servers import ONE_BY_DAY

from mirror_engine.config import Config
from mirror_engine.landing_zone.diagnostics import CATALOG
from mirror_engine.landing_zone.layout import ENGINE, SCRATCH, TABLES, ZONE
from mirror_engine.storage.local import LocalStorage
from mirror_engine.storage.store_url import StoreUrl
from mirror_engine.tables.dry_run.memory import MemoryDeltaWriter
from mirror_engine.tables.merge.arrow import ArrowWriter
from mirror_engine.testing.cases import Stage, load, names, text_of
from mirror_engine.tools.compare.fabric_tables import StorageTables
from mirror_engine.tools.compare.zone import compare_zone
from mirror_engine.tools.validate import check_landing_zone
from mirror_engine.tools.validation_target import find_target

HOME = Path(__file__).parents[1]
NAMES = names()
IN_STORES = [name for name in NAMES if "stores" in load(name).runs_on]
ON_SPARK = [name for name in NAMES if "spark" in load(name).runs_on]
SELECTED = NAMES if os.environ.get("MIRROR_TEST_SPARK_FIXTURES") == "all" else ON_SPARK


def by_day(names, part):
    """Every second one, from `part` on; the others run at night."""
    return [pytest.param(name, marks=() if at % 2 == part else pytest.mark.nightly) for at, name in enumerate(names)]


CODES = [name for name in NAMES if name in CATALOG]
FIXED = [code for code in CODES if load(code).fixed]


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
        if type(writer) is ArrowWriter and case.is_comparable:
            shutil.rmtree(root / ENGINE)
            reader = StorageTables(ArrowWriter(root / TABLES, root / "read"))
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
    raised = RaisedDiagnostics()
    *_, (report, status) = run_stages(case.stages, root, case.options, writer, raised)
    result = report.result.value
    found = [] if result == case.result else [f"result: {result}, not {case.result}"]
    found += diagnostic_differences(case, standing(status), raised)
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
@pytest.mark.parametrize("name", by_day(NAMES, 0))
def test_fixture_on_the_arrow_writer(name):
    """Its rows, by our reader and by others; its log by the Delta protocol."""
    assert outcome(name, lambda root: ArrowWriter(root / TABLES, root / SCRATCH))[:3] == ([], [], [])


@pytest.mark.slow
@pytest.mark.parametrize("name", by_day(NAMES, 1))
def test_fixture_on_the_arrow_writer_that_marks_rows(name):
    with marking():
        rows, others, faults, *_ = outcome(name, lambda root: ArrowWriter(root / TABLES, root / SCRATCH))
    assert (rows, others, [fault for fault in faults if not fault.startswith("features")]) == ([], [], [])


@pytest.mark.slow
@pytest.mark.usefixtures("no_pauses")
@ONE_BY_DAY
@pytest.mark.parametrize("name", by_day(IN_STORES, 0))
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


@pytest.mark.parametrize("code", CATALOG)
def test_every_code_has_a_case_a_session_or_a_test(code):
    """`explain` prints it. Without files and session, it says why, and names the test that raises the code."""
    case = load(code)
    if case.stages:
        assert code in {entry.code for entry in (*case.diagnostics, *case.earlier, *case.validate)}
    elif not case.has_session or code not in text_of(code).partition("\n## Session\n")[2]:
        assert (missing(case.shown_by), case.because[:1]) == ("", case.because[:1].lower())
        assert code in (HOME / case.shown_by.partition("::")[0]).read_text(encoding="utf-8")
    else:
        assert not case.shown_by


def test_only_what_is_intended_needs_no_fixed_form():
    """A dropped or recreated folder; a Delta table that moved."""
    assert [code for code in CODES if code not in FIXED] == ["ME065", "ME066"]


@pytest.mark.slow
@pytest.mark.parametrize("code", FIXED)
def test_fixed_form_does_not_raise_the_code(code):
    case, raised = load(code), RaisedDiagnostics()
    with quick_folder() as folder:
        root, config = Path(folder), Config(**case.options)
        if len(case.stages) == 1:
            land(case.fixed_stages()[0], root)
            report = check_landing_zone(find_target(root, config)).expecting((), config.delta_default_schema)
            raised.update(found for found, _ in report.all())
    with quick_folder() as folder:
        *_, (report, _) = run_stages(case.fixed_stages(), Path(folder), case.options, MemoryDeltaWriter(), raised)
    assert (report.result.value, code in {found.code for found in raised}) == ("caught_up", False)


@pytest.mark.parametrize("code", ["ME025", "ME028", "ME029", "ME071"])
def test_sticky_diagnostic_is_reported_after_later_runs(code):
    case = load(code)
    stages = (*case.stages, Stage("nothing happens"), Stage("nothing happens"))
    with quick_folder() as folder:
        for _, status in [*run_stages(stages, Path(folder), case.options, MemoryDeltaWriter())][-2:]:
            assert code in {found.code for found in standing(status)}


@pytest.mark.parametrize("code", ["ME002", "ME003", "ME005", "ME020", "ME021", "ME022", "ME030", "ME031", "ME082"])
def test_ignored_path_is_listed_as_ignored(code):
    case = load(code)
    with quick_folder() as folder:
        *_, (report, status) = run_stages(case.stages, Path(folder), case.options, MemoryDeltaWriter())
    ignored = [found for table in status.tables for found in table.ignored]
    ignored += [*report.ignored, *(found for table in report.tables for found in table.ignored)]
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
