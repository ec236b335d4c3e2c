"""Somebody else writes to our Delta tables: what changes rows is named with its version, until the table is new."""

from __future__ import annotations

import json
import os
import shutil

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake
from deltalake.schema import Field, PrimitiveType
from lake import HINT, NO_ROWS, Lake
from shop import NO_STOP, TYPES, SharedMemoryWriter, Shop, row

from mirror_engine.errors import CommitConflict, StorageUnavailable, UsageError
from mirror_engine.landing_zone.detection import numbered_name
from mirror_engine.landing_zone.layout import ENGINE
from mirror_engine.tables.base import APPLICATIONS
from mirror_engine.tables.log import snapshot
from mirror_engine.tables.log.snapshot import has_transaction

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("no_pauses")]


def foreign(shop, table="Orders"):
    return [found.message for found, _ in shop.status(table).diagnostics if found.code == "ME080"]


@pytest.fixture
def shop(tmp_path):
    """One that has applied rows 1 and 2, in the Delta versions 1 and 2."""
    shop = Shop(tmp_path / "shop")
    shop.table = shop.orders()
    for number in (1, 2):
        shop.table.insert(row(number))
        shop.sync()
    return shop


@pytest.fixture
def lake(tmp_path):
    """One on real Delta tables: that of its one table has no row, at version 1."""
    return Lake(tmp_path / "lake", files=1)


def append(folder, *numbers):
    write_deltalake(str(folder), pa.table({"id": numbers, "city": ["x"] * len(numbers)}), mode="append")


def test_rows_of_another_program_are_named_with_their_version(shop):
    assert foreign(shop) == []
    shop.writer.write_as_another("dbo/Orders", [row(1)], "DELETE")
    assert foreign(shop) == ["another program changed the Delta table at version 3"]
    shop.sync()
    assert shop.said().count("ME080") == 1


def test_it_is_told_once_while_the_engine_runs_and_again_when_it_happens_again(shop):
    with shop.engine() as running:
        running.cycle(NO_STOP)
        for rows in ([], [row(9)]):
            shop.writer.write_as_another("dbo/Orders", rows)
            running.cycle(NO_STOP)
            running.cycle(NO_STOP)
    assert shop.said().count("ME080") == 2


def test_what_changes_no_row_is_no_alarm(shop):
    shop.writer.write_as_another("dbo/Orders", [row(1), row(2)], "OPTIMIZE")
    assert foreign(shop) == []


@pytest.mark.parametrize("ledger", ["kept", "lost"])
def test_later_commits_of_ours_do_not_hide_it(shop, ledger):
    shop.writer.write_as_another("dbo/Orders", [])
    for number in (3, 4):
        shop.table.insert(row(number))
        shop.sync()
    if ledger == "lost":
        shutil.rmtree(shop.root / ENGINE)
    assert foreign(shop) == ["another program changed the Delta table at version 3"]
    shop.sync()
    assert foreign(shop) == ["another program changed the Delta table at version 3"]


class Raced(SharedMemoryWriter):
    """Somebody is quicker by one commit, once."""

    conflict = False

    def apply(self, table, batch, record, check=lambda: None):
        if record.progress.batch == 3 and not self.latest_external_change(table, 2) >= 0:
            self.write_as_another(table, [])
            if self.conflict:
                raise CommitConflict("scripted")
        return super().apply(table, batch, record, check)


@pytest.mark.parametrize("conflict", [False, True])
@pytest.mark.parametrize("ledger", ["kept", "older", "lost"])
def test_one_who_came_between_the_look_and_the_commit_is_named(tmp_path, conflict, ledger):
    shop = Shop(tmp_path / "shop", Raced())
    shop.writer.conflict = conflict
    shop.table = shop.orders()
    for number in (1, 2):
        shop.table.insert(row(number))
        shop.sync()
    shutil.copytree(shop.root / ENGINE, tmp_path / "older")
    shop.table.insert(row(3))
    shop.sync()
    if ledger != "kept":
        shutil.rmtree(shop.root / ENGINE)
    if ledger == "older":
        shutil.copytree(tmp_path / "older", shop.root / ENGINE)
    assert foreign(shop) == ["another program changed the Delta table at version 3"]
    assert shop.ids() == [3]


def test_a_table_built_anew_is_ours_alone(shop):
    shop.writer.write_as_another("dbo/Orders", [])
    shop.sync()
    shop.publisher.remove("Orders")
    shop.orders().insert(row(5))
    assert foreign(shop) == []
    shop.sync()
    assert foreign(shop) == []
    assert shop.ids() == [5]


def test_commits_that_change_rows_or_columns_are_told_from_those_that_do_not(lake):
    table = lambda: DeltaTable(str(lake.folder))  # noqa: E731 - the newest version, each time
    assert foreign(lake) == []
    table().alter.set_table_properties({"delta.logRetentionDuration": "interval 60 days"})
    assert foreign(lake) == []
    append(lake.folder, 1)
    append(lake.folder, 2)
    assert foreign(lake) == ["another program changed the Delta table at version 4"]
    table().optimize.compact()
    table().vacuum(retention_hours=0, dry_run=False, enforce_retention_duration=False)
    table().create_checkpoint()
    assert foreign(lake) == ["another program changed the Delta table at version 4"]
    table().delete("id = 1")
    version = table().version()
    assert foreign(lake) == [f"another program changed the Delta table at version {version}"]
    table().alter.add_columns(Field("note", PrimitiveType("string")))
    assert foreign(lake) == [f"another program changed the Delta table at version {version + 1}"]


def test_the_engine_goes_on_over_what_others_did(lake):
    append(lake.folder, 7)
    lake.land()
    lake.sync()
    assert foreign(lake) == ["another program changed the Delta table at version 2"]
    assert lake.status().watermarks == {"": 2}
    assert lake.ids() == [7]


def test_our_own_commits_are_no_others(lake):
    """Also one that adds columns."""
    lake.table.land_parquet(pa.schema([*TYPES.items(), ("note", pa.string())]).empty_table())
    lake.sync()
    assert [entry.operation for entry in lake.writer.history("dbo/Orders")][:2] == ["WRITE", "WRITE"]
    assert lake.writer.latest_external_change("dbo/Orders", -1) == -1


def test_a_table_somebody_made_anew_at_the_same_place_is_looked_at_anew(lake):
    append(lake.folder, 1)
    assert lake.writer.latest_external_change("dbo/Orders", -1) == 2
    lake.publisher.remove("Orders")
    lake.orders().land_parquet(NO_ROWS)
    lake.sync()
    lake.sync()
    assert lake.writer.latest_external_change("dbo/Orders", -1) == -1


# --- log cleanup by another program


def clean_up(lake, *, keeps=0):
    """Another program changes a property, writes a checkpoint and deletes what came before it."""
    table = DeltaTable(str(lake.folder))
    table.alter.set_table_properties({"delta.checkpointInterval": "7"})
    table.create_checkpoint()
    for version in range(table.version() - keeps):
        lake.commit(version).unlink(missing_ok=True)


def alone(lake):
    """What the table has of its mirror is its transaction alone."""
    return not any(b"mirror_engine" in file.read_bytes() for file in lake.log.glob("*.json"))


def in_the_gap(lake, change):
    """What the engine sees of a change before whose commit the log was cleaned up."""
    change(DeltaTable(str(lake.folder)).alter)
    return cleaned_up(lake)


def cleaned_up(lake):
    table = DeltaTable(str(lake.folder))
    table.create_checkpoint()
    for version in range(table.version()):
        lake.commit(version).unlink(missing_ok=True)
    snapshot._changes.cache_clear()  # as another process would see it
    return foreign(lake)


def describe(lake, operation, change):
    """Another program commits what the table is from now on, as Spark's ALTER TABLE does; returns the version."""
    table = DeltaTable(str(lake.folder))
    known, version = table.metadata(), table.version() + 1
    fields = change(json.loads(table.schema().to_json())["fields"])
    described = {
        "id": known.id,
        "format": {"provider": "parquet", "options": {}},
        "schemaString": json.dumps({"type": "struct", "fields": fields}),
        "partitionColumns": known.partition_columns,
        "configuration": known.configuration,
    }
    engine = "Apache-Spark/4.0.1 Delta-Lake/4.0.0"
    actions = [{"commitInfo": {"operation": operation, "engineInfo": engine}}, {"metaData": described}]
    lake.commit(version).write_text("".join(f"{json.dumps(action)}\n" for action in actions), encoding="utf-8")
    return version


def commented(fields):
    return [{**fields[0], "metadata": {"comment": "a number"}}, *fields[1:]]


def turned(fields):
    return fields[::-1]


def added(fields):
    return [*fields, {"name": "note", "type": "string", "nullable": True, "metadata": {}}]


def renamed(fields):
    return [{**fields[0], "name": "number"}, *fields[1:]]


def retyped(fields):
    return [{**fields[0], "type": "double"}, *fields[1:]]


def not_null(fields):
    return [{**fields[0], "nullable": False}, *fields[1:]]


def unchanged(fields):
    return fields


@pytest.mark.parametrize(
    "change",
    [
        lambda alter: alter.set_table_description("orders of the shop"),
        lambda alter: alter.set_table_name("orders"),
        lambda alter: alter.set_column_metadata("id", {"comment": "a number"}),
        lambda alter: alter.set_table_properties({"delta.checkpointInterval": "7"}),
        lambda alter: alter.add_constraint({"positive": "id > 0"}),
    ],
    ids=["description", "name", "comment", "property", "constraint"],
)
def test_words_about_a_table_are_no_change_of_it_after_a_cleanup(lake, change):
    assert in_the_gap(lake, change) == []


def test_dropped_constraint_is_no_change_of_the_table_after_a_cleanup(lake):
    DeltaTable(str(lake.folder)).alter.add_constraint({"positive": "id > 0"})
    assert in_the_gap(lake, lambda alter: alter.drop_constraint("positive")) == []


def test_added_column_is_still_a_change_after_a_cleanup(lake):
    added = [Field("note", PrimitiveType("string"))]
    assert in_the_gap(lake, lambda alter: alter.add_columns(added)) == [
        "another program changed the Delta table at version 2"
    ]


@pytest.mark.parametrize("ledger", ["kept", "lost"])
@pytest.mark.parametrize("operation", ["CHANGE COLUMN", "ALTER TABLE", "SET TBLPROPERTIES", "tidy up"])
@pytest.mark.parametrize("change", [commented, turned, unchanged])
def test_change_of_no_column_is_no_alarm_whatever_its_operation_is_called(lake, operation, change, ledger):
    describe(lake, operation, change)
    assert foreign(lake) == []
    if ledger == "lost":
        shutil.rmtree(lake.root / ENGINE)
        lake.sync()
        assert foreign(lake) == []
    assert cleaned_up(lake) == []


@pytest.mark.parametrize("operation", ["CHANGE COLUMN", "SET TBLPROPERTIES", "UPDATE TABLE METADATA", "ADD FEATURE"])
@pytest.mark.parametrize("change", [added, renamed, retyped, not_null])
def test_change_of_a_column_is_named_whatever_its_operation_is_called(lake, operation, change):
    version = describe(lake, operation, change)
    said = [f"another program changed the Delta table at version {version}"]
    assert foreign(lake) == said
    assert cleaned_up(lake) == said


def test_change_of_a_column_in_a_commit_that_is_gone_is_named_by_the_next_one(lake):
    describe(lake, "CHANGE COLUMN", added)
    describe(lake, "CHANGE COLUMN", commented)
    assert cleaned_up(lake) == ["another program changed the Delta table at version 3"]


def test_columns_are_known_at_the_last_commit_that_says_the_record_again(lake):
    """A change of columns that was reported is not reported again of a later commit that changes none."""
    describe(lake, "ADD COLUMNS", added)
    assert cleaned_up(lake) == ["another program changed the Delta table at version 2"]
    lake.sync()
    describe(lake, "CHANGE COLUMN", commented)
    assert cleaned_up(lake) == ["another program changed the Delta table at version 2"]


def test_columns_of_our_own_commit_are_those_of_the_log(lake):
    """Also of one that adds a column."""
    wider = {**TYPES, "note": pa.string(), "__rowMarker__": pa.int32()}
    more = lambda: lake.table.land_rows([{**row(3), "note": "x", "__rowMarker__": 0}], types=wider)  # noqa: E731
    for land in (lake.land, more):
        land()
        lake.sync()
        with lake.engine() as running:
            (progress,) = running.context.ledger.tables().values()
            found = lake.writer.snapshot("dbo/Orders")
            assert progress.columns == found.record.progress.columns == found.schema.digest


@pytest.mark.parametrize("keeps", [0, 1])
def test_log_cleanup_by_another_program_does_not_halt_an_idle_table(lake, keeps):
    clean_up(lake, keeps=keeps)
    assert alone(lake) == (keeps == 0)
    assert lake.status().state.code == "caught_up"
    lake.land()
    lake.sync()
    status = lake.status()
    assert (status.state.code, status.watermarks) == ("caught_up", {"": 2})
    assert foreign(lake) == []


def test_record_is_said_again_at_the_next_start_and_survives_the_ledger(lake):
    clean_up(lake)
    lake.sync()
    assert not alone(lake)
    commits = len([*lake.log.glob("*.json")])
    lake.sync()
    assert len([*lake.log.glob("*.json")]) == commits  # once
    shutil.rmtree(lake.root / ENGINE)
    lake.land()
    lake.sync()
    assert lake.status().watermarks == {"": 2}
    assert [path for entry in lake.writer.history("dbo/Orders") for path in entry.files] == [numbered_name(2)]


@pytest.mark.parametrize("is_committed", [False, True], ids=["refused", "lost answer"])
def test_record_that_could_not_be_said_again_is_said_at_the_next_start(lake, monkeypatch, is_committed):
    clean_up(lake)
    say_again = type(lake.writer).say_again

    def fail(writer, *given):
        if is_committed:
            say_again(writer, *given)
        raise StorageUnavailable("once")

    with monkeypatch.context() as patch:
        patch.setattr(type(lake.writer), "say_again", fail)
        lake.sync()
    lake.land()
    lake.sync()
    assert not alone(lake)
    assert (lake.status().state.code, lake.status().watermarks) == ("caught_up", {"": 2})
    assert foreign(lake) == []


def test_record_is_said_again_before_cleanup_can_take_it(lake):
    """A checkpoint of another program came after it."""
    table = DeltaTable(str(lake.folder))
    table.alter.set_table_properties({"delta.checkpointInterval": "7"})
    table.create_checkpoint()
    lake.sync()
    newest = DeltaTable(str(lake.folder))
    newest.create_checkpoint()
    for version in range(newest.version()):
        lake.commit(version).unlink()
    shutil.rmtree(lake.root / ENGINE)
    lake.land()
    lake.sync()
    assert (lake.status().state.code, lake.status().watermarks) == ("caught_up", {"": 2})


def test_status_of_a_cleaned_log_commits_nothing(lake):
    clean_up(lake)
    before = sorted(lake.log.iterdir())
    assert lake.status().state.code == "caught_up"
    assert sorted(lake.log.iterdir()) == before


@pytest.mark.parametrize("ledger", ["lost", "older"])
def test_lost_record_halts_with_the_help_to_rebuild(lake, tmp_path, ledger):
    shutil.copytree(lake.root / ENGINE, tmp_path / "older")
    lake.land()
    lake.sync()
    clean_up(lake)
    shutil.rmtree(lake.root / ENGINE)
    if ledger == "older":
        shutil.copytree(tmp_path / "older", lake.root / ENGINE)
    lake.land()
    lake.sync()
    state = lake.status().state
    assert (state.code, state.diagnostic.code) == ("halted", "ME081")
    assert "mirror-engine rebuild" in state.diagnostic.help
    assert alone(lake)
    lake.begin()
    with lake.mirror() as mirror:
        with pytest.raises(UsageError, match="not known which files"):
            mirror.rebuild(replay=True)
        assert [name.table for name in mirror.rebuild(replay=True, lose_rows=True)] == ["Orders"]
    lake.sync()
    assert (lake.status().state.code, lake.status().watermarks) == ("caught_up", {"": 3})


def test_table_of_another_program_is_still_foreign(lake):
    """Also one in whose place the ledger knows a table, and one of another mirror's generation."""
    shutil.rmtree(lake.folder)
    write_deltalake(str(lake.folder), pa.table({"id": [1], "city": ["x"]}))
    lake.land()
    lake.sync()
    assert lake.status().state.diagnostic.code == "ME004"


def test_log_cleanup_by_another_program_while_the_engine_runs(lake):
    lake.begin()
    with lake.engine() as running:
        running.cycle(NO_STOP)
        clean_up(lake)
        lake.land()
        running.cycle(NO_STOP)
        clean_up(lake)
    assert lake.status().watermarks == {"": 2}
    lake.sync()
    assert not alone(lake)


def test_change_of_rows_before_a_cleanup_stays_reported_after_our_next_commit(lake):
    """The engine's look before its commit meets the gap that log cleanup left."""
    with lake.engine() as running:
        running.cycle(NO_STOP)
        for number in range(5):
            append(lake.folder, number)
        table = DeltaTable(str(lake.folder))
        table.create_checkpoint()
        for version in range(table.version() - 1):
            lake.commit(version).unlink()
        lake.land()
        running.cycle(NO_STOP)
        running.cycle(NO_STOP)
    assert lake.status().watermarks == {"": 2}
    assert len(foreign(lake)) == 1


def test_deltalake_s_own_cleanup_of_old_commits_is_survived(lake):
    table = DeltaTable(str(lake.folder))
    table.alter.set_table_properties({"delta.logRetentionDuration": "interval 1 days"})
    for file in lake.log.glob("*.json"):
        os.utime(file, (0, 0))
    table.create_checkpoint()
    table.cleanup_metadata()
    assert alone(lake)
    lake.land()
    lake.sync()
    assert (lake.status().state.code, lake.status().watermarks) == ("caught_up", {"": 2})


@pytest.mark.parametrize("hint", ["absent", "stale", "parts"])
@pytest.mark.parametrize("ledger", ["kept", "lost"])
def test_cleaned_log_with_another_checkpoint_or_hint(lake, hint, ledger):
    stale = (lake.log / HINT).read_bytes() if (lake.log / HINT).exists() else b'{"version": 1, "size": 1}'
    clean_up(lake)
    if hint == "absent":
        (lake.log / HINT).unlink()
    elif hint == "stale":
        (lake.log / HINT).write_bytes(stale)
    else:
        whole = next(lake.log.glob("*.checkpoint.parquet"))
        actions = pq.read_table(whole)
        for part, rows in enumerate((actions.slice(0, 1), actions.slice(1)), 1):
            pq.write_table(rows, lake.log / f"{whole.name[:20]}.checkpoint.{part:010}.{2:010}.parquet")
        whole.unlink()
        said = {"version": int(whole.name[:20]), "size": actions.num_rows, "parts": 2}
        (lake.log / HINT).write_text(json.dumps(said), encoding="utf-8")
    if ledger == "lost":
        shutil.rmtree(lake.root / ENGINE)
    lake.land()
    lake.sync()
    status = lake.status()
    if ledger == "kept":
        assert (status.state.code, status.watermarks) == ("caught_up", {"": 2})
    else:
        assert status.state.diagnostic.code == "ME081"


def test_copy_of_a_table_without_its_record_is_not_taken_over(lake):
    clean_up(lake)
    lake.orders("Copies").land_parquet(NO_ROWS)
    shutil.copytree(lake.folder, lake.folder.with_name("Copies"))
    lake.sync()
    assert lake.status("Copies").state.diagnostic.code == "ME081"
    assert lake.status().state.code == "caught_up"


def test_restore_by_another_program_keeps_the_record(lake):
    append(lake.folder, 1)
    DeltaTable(str(lake.folder)).restore(1)
    clean_up(lake, keeps=1)
    lake.land()
    lake.sync()
    assert (lake.status().state.code, lake.status().watermarks, lake.ids()) == ("caught_up", {"": 2}, [])


@pytest.mark.parametrize("application", ["mirror_engine:a:b", "another"])
def test_transaction_of_a_mirror_is_found_in_a_checkpoint_of_version_2(tmp_path, application):
    log = tmp_path / "_delta_log"
    log.mkdir()
    actions = [{"checkpointMetadata": {"version": 7}}, {"txn": {"appId": application, "version": 3}}]
    lines = "".join(f"{json.dumps(action)}\n" for action in actions)
    (log / f"{7:020}.checkpoint.3a0d65cd-4056-49b8-937b-95f9e3ee90e5.json").write_text(lines, encoding="utf-8")
    assert has_transaction(tmp_path, APPLICATIONS) == (application != "another")


def test_data_files_added_are_counted_by_what_a_commit_did(tmp_path):
    """Whatever its operation is called, and whatever its metrics say: maintenance is due by them."""
    folder = tmp_path / "T"
    for number in range(3):
        append(folder, number)
    DeltaTable(str(folder)).optimize.compact()
    DeltaTable(str(folder)).delete("id = 1")
    DeltaTable(str(folder)).alter.set_table_properties({"delta.checkpointInterval": "7"})
    log = folder / "_delta_log"
    for commit in log.glob("*.json"):
        lines = [json.loads(line) for line in commit.read_text(encoding="utf-8").splitlines()]
        for line in lines:
            if "commitInfo" in line:
                line["commitInfo"] = {"operation": "tidy up"}
        commit.write_text("".join(f"{json.dumps(line)}\n" for line in lines), encoding="utf-8")
    found = {entry.version: entry.files_added for entry in snapshot.history(folder, None)}
    assert found == {0: 1, 1: 1, 2: 1, 3: 0, 4: 1, 5: 0}
