"""`trace file` and `plan`: what a file did, and the next steps."""

from __future__ import annotations

from itertools import count

import pytest
from scripted_faults import Fault, Script, faulty
from shop import Shop, name

from mirror_engine import Config
from mirror_engine.errors import StorageUnavailable, UsageError
from mirror_engine.storage.local import LocalStorage
from mirror_engine.tools.trace.context import open_trace
from mirror_engine.tools.trace.file import planned_steps, trace_file
from mirror_engine.tools.trace.results import FileEffects

pytestmark = pytest.mark.slow  # whole programs: no part of the quick look


def report_on(shop, file, table="Orders"):
    with shop.trace(table) as trace:
        return trace_file(trace, file)


def steps_of(shop, table="Orders"):
    with shop.trace(table) as trace:
        return planned_steps(trace.plan, trace.context.config)


def effects(**numbers):
    return FileEffects(**{**dict.fromkeys(FileEffects.__struct_fields__, 0), **numbers})


def row(number, city="Linz"):
    return {"id": number, "city": city}


def two_files(shop):
    table = shop.orders()
    table.initial_load(row(1), row(2))
    table.apply_changes((0, row(2)), (1, row(2)), (1, row(3)), (2, {"id": 4}), (2, {"id": 1}))
    return table


EFFECTS = effects(
    duplicate_inserts=1, multi_row_changes=1, unmatched_updates=1, unmatched_deletes=1, inserted=2, updated=2, deleted=1
)


@pytest.mark.parametrize("file", ["2", name(2), f"Orders/{name(2)}"])
def test_a_file_is_reported_with_the_effects_of_its_rows(shop, file):
    two_files(shop)
    report = report_on(shop, file)
    assert (report.path, report.state, report.reason) == (name(2), "pending", "ready for the next cycle")
    assert (report.rows, report.markers, report.has_marker) == (5, {"0": 1, "1": 2, "2": 2}, True)
    assert report.effects == EFFECTS
    assert report.step.files == (name(1), name(2))
    assert [it.code for it in report.diagnostics] == ["ME039", "ME043"]


@pytest.mark.usefixtures("one_attempt")
def test_whatever_call_fails_the_report_is_right_or_there_is_none(shop):
    """The folder of this table or of another may be unlisted in one of the scans."""
    table = two_files(shop)
    shop.orders("Others").insert(row(1))
    shop.sync()
    table.upsert(row(1))
    expected, script = report_on(shop, "3"), Script()
    for number in count():
        try:
            with shop.mirror(storage=faulty(LocalStorage(shop.root), script)) as mirror, mirror._snapshot() as look:
                assert trace_file(open_trace(look, "Orders"), "3") == expected
        except StorageUnavailable:
            assert number
        if number > len(script.calls):
            return
        script = Script({number + 1: Fault.REFUSED})


def test_a_file_after_a_deleted_one_is_replayed_over_the_delta_table(shop):
    table = shop.orders()
    table.initial_load(row(1), row(2))
    shop.sync()
    table.apply_changes((1, row(1)), (2, {"id": 2}), (2, {"id": 3}))
    shop.sync()
    table.upsert(row(1))
    shop.sync()
    shop.lose(1)
    assert report_on(shop, "2").effects == effects(unmatched_deletes=1, updated=1, deleted=1)
    gone = report_on(shop, "1")
    assert (gone.state, gone.reason, gone.effects) == ("applied", "it was deleted: its rows are not known", None)


def test_a_keyless_table_only_grows(shop):
    shop.publisher.table("Log").insert({"text": "a"}, {"text": "a"})
    assert report_on(shop, "1", "Log").effects == effects(inserted=2)


def test_a_plan_has_the_number_of_commits(tmp_path):
    shop = Shop(tmp_path, max_batch_files=2)
    table = shop.orders()
    for number in range(5):
        table.insert(row(number))
    steps = steps_of(shop)
    assert [step.step for step in steps] == ["start_generation", "record_folder_state", "apply_batch"]
    assert (steps[-1].commits, steps[-1].message) == (3, f"apply 5 files in 3 commits: {name(1)} … {name(5)}")
    shop.config = Config(max_batch_size=1)
    assert steps_of(shop)[-1].commits == 5


def test_a_recreated_folder_starts_a_new_generation(shop):
    table = two_files(shop)
    shop.sync()
    table.drop()
    table.write_metadata(keys=["id"])
    table.insert(row(5))
    steps = steps_of(shop)
    kinds = ["drop_table", "start_generation", "record_folder_state", "apply_batch"]
    assert [step.step for step in steps] == kinds
    assert steps[0].message.endswith("[ME066]")
    assert report_on(shop, "1").effects == effects(inserted=1)


def test_an_applied_file_is_reported_with_its_version_and_commit(shop):
    two_files(shop)
    shop.sync()
    report, commit = report_on(shop, "1"), (name(1), name(2))
    assert (report.state, report.reason, report.delta_version, report.files_of_commit) == ("applied", None, 1, commit)
    assert (report.has_marker, report.markers, report.step) == (False, {"0": 2}, None)
    assert report.effects == effects(inserted=2)
    assert [it.code for it in report_on(shop, "2").diagnostics] == ["ME039", "ME043"]
    assert steps_of(shop) == ()
    shop.lose(1)
    report = report_on(shop, "2")
    assert report.reason == "it was applied along with or before a deleted file: the rows it matched are not known"
    assert report.effects is None


def test_a_file_is_named_so_that_it_is_one(shop):
    table = shop.publisher.table("Days", keys=["id"], partitioned=True)
    for day in ("a", "b"):
        table.insert({"id": 1}, partition=f"day={day}")
    with pytest.raises(UsageError, match=f"1: may be day=a/{name(1)} or day=b/{name(1)}"):
        report_on(shop, "1", "Days")
    assert report_on(shop, f"day=b/{name(1)}", "Days").rows == 1
    with pytest.raises(UsageError, match="3: Days has no such change file"):
        report_on(shop, "3", "Days")


def test_files_that_are_not_applied_say_why(shop):
    table = two_files(shop)
    table.land(b"")
    table.upsert(row(5))
    table.insert(row(9), name="7.parquet")
    for _ in range(2):  # at first only the replay has read the file
        rejected, behind, ignored = report_on(shop, "3"), report_on(shop, "4"), report_on(shop, "7.parquet")
        assert (rejected.state, rejected.reason, rejected.step) == ("rejected", "file is empty (0 bytes)", None)
        assert (behind.state, behind.reason) == ("pending", f"the table is halted at Orders/{name(3)}")
        assert (behind.step, behind.markers, behind.has_marker, behind.effects) == (None, {"4": 1}, True, None)
        assert (ignored.state, ignored.reason) == (
            "ignored",
            "ignored: 1 digit, expected 20 digits before `.parquet` [ME020]",
        )
        shop.sync()
    assert steps_of(shop) == ()


def test_a_file_behind_a_gap_is_reported_with_its_markers(shop):
    table = two_files(shop)
    table.skip_numbers()
    table.delete(row(1))
    report = report_on(shop, "4")
    assert (report.reason, report.markers, report.effects) == (f"{name(3)} is missing", {"2": 1}, None)
