"""`trace --file` and `--plan`: what a file did, and what comes next."""

from __future__ import annotations

import pytest
from shop import Shop, name

from mirror_engine.errors import UsageError
from mirror_engine.publisher.trace.file import trace_file
from mirror_engine.publisher.trace.plan_report import trace_plan
from mirror_engine.tables.merge.keys_only import ChangeEffects

pytestmark = pytest.mark.slow  # whole programs: no part of the quick look


def story(shop, named, table="Orders"):
    with shop.scene(table) as scene:
        return trace_file(scene, named)


def plan(shop, table="Orders"):
    with shop.scene(table) as scene:
        return trace_plan(scene)


def row(number, city="Linz"):
    return {"id": number, "city": city}


def two_files(shop):
    table = shop.orders()
    table.initial_load(row(1), row(2))
    table.apply_changes((0, row(2)), (1, row(2)), (1, row(3)), (2, {"id": 4}), (2, {"id": 1}))
    return table


EFFECTS = ChangeEffects(repeated=1, spread=1, absent_updates=1, absent_deletes=1, inserted=2, updated=2, deleted=1)


@pytest.mark.parametrize("named", ["2", name(2), f"Orders/{name(2)}"])
def test_a_file_is_told_by_what_its_rows_met_and_did(shop, named) -> None:
    two_files(shop)
    found = story(shop, named)
    assert (found.path, found.state, found.why) == (name(2), "pending", "ready for the next cycle")
    assert (found.rows, found.markers, found.has_marker) == (5, {0: 1, 1: 2, 2: 2}, True)
    assert found.effects == EFFECTS
    assert found.step.files == (name(1), name(2))
    assert [said.code for said in found.diagnostics] == ["ME039", "ME043"]


def test_an_applied_file_is_told_with_its_version_and_batch(shop) -> None:
    two_files(shop)
    shop.sync()
    found = story(shop, "1")
    assert (found.state, found.why, found.version, found.batch) == ("applied", "", 1, (name(1), name(2)))
    assert (found.has_marker, found.markers, found.step) == (False, {0: 2}, None)
    assert found.effects == ChangeEffects(inserted=2)
    assert [said.code for said in story(shop, "2").diagnostics] == ["ME039", "ME043"]


def test_a_file_behind_those_that_are_gone_is_told_by_what_it_met_in_the_delta_table(shop) -> None:
    table = shop.orders()
    table.initial_load(row(1), row(2))
    shop.sync()
    table.apply_changes((1, row(1)), (2, {"id": 2}), (2, {"id": 3}))
    shop.sync()
    table.upsert(row(1))
    shop.sync()
    shop.lose(1)
    assert story(shop, "2").effects == ChangeEffects(absent_deletes=1, updated=1, deleted=1)
    gone = story(shop, "1")
    assert (gone.state, gone.why, gone.effects) == ("applied", "it is gone: what it held is not known", None)


def test_a_file_along_with_one_that_is_gone_is_told_as_unknown(shop) -> None:
    two_files(shop)
    shop.sync()
    shop.lose(1)
    found = story(shop, "2")
    assert found.why == "it was applied along with or before a file that is gone: what it met is not known"
    assert found.effects is None


def test_a_keyless_table_only_grows(shop) -> None:
    shop.publisher.table("Log").insert({"text": "a"}, {"text": "a"})
    assert story(shop, "1", "Log").effects == ChangeEffects(inserted=2)


def test_an_ignored_file_says_why(shop) -> None:
    two_files(shop).insert(row(9), name="7.parquet")
    found = story(shop, "7.parquet")
    assert (found.state, found.why) == ("ignored", "ignored: 1 digit, expected 20 [ME020]")


def test_a_number_that_several_partitions_have_is_asked_about(shop) -> None:
    table = shop.publisher.table("Days", keys=["id"], partitioned=True)
    for day in ("a", "b"):
        table.insert({"id": 1}, partition=f"day={day}")
    with pytest.raises(UsageError, match=f"1: may be day=a/{name(1)} or day=b/{name(1)}"):
        story(shop, "1", "Days")
    assert story(shop, f"day=b/{name(1)}", "Days").rows == 1


def test_a_file_that_never_was_is_told(shop) -> None:
    two_files(shop)
    with pytest.raises(UsageError, match="3: Orders has no such change file"):
        story(shop, "3")


def test_a_plan_says_in_how_many_commits_and_what_is_left(tmp_path) -> None:
    shop = Shop(tmp_path, max_batch_files=2)
    table = shop.orders()
    for number in range(5):
        table.insert(row(number))
    table.skip_numbers()
    table.insert(row(6))
    found = plan(shop)
    assert [step.step for step in found.steps] == ["begin_generation", "remember", "apply_batch"]
    apply = found.steps[-1]
    assert (apply.commits, apply.text) == (3, f"apply 5 files in 3 commits: {name(1)} … {name(5)}")
    assert [(file.path, file.reason) for file in found.left] == [(name(7), f"{name(6)} is missing")]
    assert found.next_expected == {"": name(6)}


def test_a_level_table_has_nothing_to_do(shop) -> None:
    two_files(shop)
    shop.sync()
    found = plan(shop)
    assert (found.state, found.steps, found.left, found.advice) == ("caught_up", (), (), "")


def test_a_recreated_folder_begins_anew(shop) -> None:
    table = two_files(shop)
    shop.sync()
    table.drop()
    table.write_metadata(keys=["id"])
    table.insert(row(5))
    found = plan(shop)
    assert [step.step for step in found.steps] == ["drop_table", "begin_generation", "remember", "apply_batch"]
    assert found.steps[0].text.endswith("[ME066]")
    assert story(shop, "1").effects == ChangeEffects(inserted=1)


def test_a_refused_file_is_remembered_with_its_reason(shop) -> None:
    two_files(shop).land(b"")
    shop.sync()
    assert plan(shop).steps == ()
    found = story(shop, "3")
    assert (found.state, found.why, found.step) == ("rejected", "file is empty (0 bytes)", None)


def test_large_files_make_more_commits(tmp_path) -> None:
    shop = Shop(tmp_path, max_batch_size=1)
    two_files(shop)
    assert plan(shop).steps[-1].commits == 2


def test_files_behind_one_that_the_replay_refuses_are_not_planned(shop) -> None:
    table = two_files(shop)
    table.land(b"")
    table.upsert(row(5))
    refused, behind = story(shop, "3"), story(shop, "4")
    assert (refused.state, refused.step, refused.has_marker) == ("rejected", None, None)
    assert (behind.state, behind.why, behind.step) == ("pending", f"the table is halted at Orders/{name(3)}", None)
    assert (behind.markers, behind.has_marker, behind.effects) == ({4: 1}, True, None)


def test_a_file_behind_a_gap_tells_what_it_holds(shop) -> None:
    table = two_files(shop)
    table.skip_numbers()
    table.delete(row(1))
    found = story(shop, "4")
    assert (found.why, found.markers, found.effects) == (f"{name(3)} is missing", {2: 1}, None)
