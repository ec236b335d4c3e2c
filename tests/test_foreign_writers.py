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
def stocked_shop(tmp_path):
    """One that has applied rows 1 and 2, in the Delta versions 1 and 2."""
    shop = Shop(tmp_path / "shop")
    shop.table = shop.orders()
    for number in (1, 2):
        shop.table.insert(row(number))
        shop.sync()
    return shop


@pytest.fixture
def bare_lake(tmp_path):
    """One on real Delta tables: that of its one table has no row, at version 1."""
    return Lake(tmp_path / "lake", files=1)


def append(folder, *numbers):
    write_deltalake(str(folder), pa.table({"id": numbers, "city": ["x"] * len(numbers)}), mode="append")


def test_rows_of_another_program_are_named_with_their_version(stocked_shop):
    assert foreign(stocked_shop) == []
    stocked_shop.writer.write_as_another("dbo/Orders", [row(1)], "DELETE")
    assert foreign(stocked_shop) == ["another program changed the Delta table at version 3"]
    stocked_shop.sync()
    assert stocked_shop.said().count("ME080") == 1


def test_external_change_is_reported_once_per_occurrence(stocked_shop):
    with stocked_shop.engine() as running:
        running.cycle(NO_STOP)
        for rows in ([], [row(9)]):
            stocked_shop.writer.write_as_another("dbo/Orders", rows)
            running.cycle(NO_STOP)
            running.cycle(NO_STOP)
    assert stocked_shop.said().count("ME080") == 2


def test_commit_without_row_changes_is_not_reported(stocked_shop):
    stocked_shop.writer.write_as_another("dbo/Orders", [row(1), row(2)], "OPTIMIZE")
    assert foreign(stocked_shop) == []


@pytest.mark.parametrize("ledger", ["kept", "lost"])
def test_later_commits_of_ours_do_not_hide_it(stocked_shop, ledger):
    stocked_shop.writer.write_as_another("dbo/Orders", [])
    for number in (3, 4):
        stocked_shop.table.insert(row(number))
        stocked_shop.sync()
    if ledger == "lost":
        shutil.rmtree(stocked_shop.root / ENGINE)
    assert foreign(stocked_shop) == ["another program changed the Delta table at version 3"]
    stocked_shop.sync()
    assert foreign(stocked_shop) == ["another program changed the Delta table at version 3"]


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
def test_commit_between_snapshot_and_commit_is_reported(tmp_path, conflict, ledger):
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


def test_a_table_built_anew_is_ours_alone(stocked_shop):
    stocked_shop.writer.write_as_another("dbo/Orders", [])
    stocked_shop.sync()
    stocked_shop.publisher.remove("Orders")
    stocked_shop.orders().insert(row(5))
    assert foreign(stocked_shop) == []
    stocked_shop.sync()
    assert foreign(stocked_shop) == []
    assert stocked_shop.ids() == [5]


def test_commits_that_change_rows_or_columns_are_told_from_those_that_do_not(bare_lake):
    table = lambda: DeltaTable(str(bare_lake.folder))  # noqa: E731 - the newest version, each time
    assert foreign(bare_lake) == []
    table().alter.set_table_properties({"delta.logRetentionDuration": "interval 60 days"})
    assert foreign(bare_lake) == []
    append(bare_lake.folder, 1)
    append(bare_lake.folder, 2)
    assert foreign(bare_lake) == ["another program changed the Delta table at version 4"]
    table().optimize.compact()
    table().vacuum(retention_hours=0, dry_run=False, enforce_retention_duration=False)
    table().create_checkpoint()
    assert foreign(bare_lake) == ["another program changed the Delta table at version 4"]
    table().delete("id = 1")
    version = table().version()
    assert foreign(bare_lake) == [f"another program changed the Delta table at version {version}"]
    table().alter.add_columns(Field("note", PrimitiveType("string")))
    assert foreign(bare_lake) == [f"another program changed the Delta table at version {version + 1}"]


def test_the_engine_goes_on_over_what_others_did(bare_lake):
    append(bare_lake.folder, 7)
    bare_lake.land()
    bare_lake.sync()
    assert foreign(bare_lake) == ["another program changed the Delta table at version 2"]
    assert bare_lake.status().watermarks == {"": 2}
    assert bare_lake.ids() == [7]


def test_our_own_commits_are_no_others(bare_lake):
    """Also one that adds columns."""
    bare_lake.table.land_parquet(pa.schema([*TYPES.items(), ("note", pa.string())]).empty_table())
    bare_lake.sync()
    assert [entry.operation for entry in bare_lake.writer.history("dbo/Orders")][:2] == ["WRITE", "WRITE"]
    assert bare_lake.writer.latest_external_change("dbo/Orders", -1) == -1


def test_a_table_somebody_made_anew_at_the_same_place_is_looked_at_anew(bare_lake):
    append(bare_lake.folder, 1)
    assert bare_lake.writer.latest_external_change("dbo/Orders", -1) == 2
    bare_lake.publisher.remove("Orders")
    bare_lake.orders().land_parquet(NO_ROWS)
    bare_lake.sync()
    bare_lake.sync()
    assert bare_lake.writer.latest_external_change("dbo/Orders", -1) == -1


# --- log cleanup by another program


PROPERTY = {"delta.checkpointInterval": "7"}


def clean_up(lake, *, keeps=0):
    """Another program changes a property, and cleans the log up."""
    DeltaTable(str(lake.folder)).alter.set_table_properties(PROPERTY)
    lake.clean_up(keeps=keeps)


def goes_on(lake, watermark=2):
    lake.land()
    lake.sync()
    assert (lake.status().state.code, lake.status().watermarks) == ("caught_up", {"": watermark})


def alone(lake):
    """What the table has of its mirror is its transaction alone."""
    return not any(b"mirror_engine" in file.read_bytes() for file in lake.log.glob("*.json"))


def cleaned_up(lake):
    """What the engine sees of what was changed before the log was cleaned up."""
    lake.clean_up()
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


def first(**changed):
    """A change of the first column."""
    return lambda fields: [{**fields[0], **changed}, *fields[1:]]


def added(fields):
    return [*fields, {"name": "note", "type": "string", "nullable": True, "metadata": {}}]


COMMENTED = first(metadata={"comment": "a number"})


@pytest.mark.parametrize(
    "change",
    [
        lambda alter: alter.set_table_description("orders of the shop"),
        lambda alter: alter.set_table_name("orders"),
        lambda alter: alter.set_column_metadata("id", {"comment": "a number"}),
        lambda alter: alter.set_table_properties(PROPERTY),
        lambda alter: alter.add_constraint({"positive": "id > 0"}),
        lambda alter: (alter.add_constraint({"positive": "id > 0"}), alter.drop_constraint("positive")),
    ],
    ids=["description", "name", "comment", "property", "constraint", "dropped constraint"],
)
def test_words_about_a_table_are_no_change_of_it_after_a_cleanup(bare_lake, change):
    change(DeltaTable(str(bare_lake.folder)).alter)
    assert cleaned_up(bare_lake) == []


@pytest.mark.parametrize("ledger", ["kept", "lost"])
@pytest.mark.parametrize(
    ("operation", "change"),
    [("CHANGE COLUMN", COMMENTED), ("SET TBLPROPERTIES", lambda fields: fields[::-1]), ("tidy up", list)],
)
def test_change_of_no_column_is_no_alarm_whatever_its_operation_is_called(bare_lake, operation, change, ledger):
    describe(bare_lake, operation, change)
    assert foreign(bare_lake) == []
    if ledger == "lost":
        shutil.rmtree(bare_lake.root / ENGINE)
        bare_lake.sync()
        assert foreign(bare_lake) == []
    assert cleaned_up(bare_lake) == []


@pytest.mark.parametrize(
    ("operation", "change"),
    [
        ("CHANGE COLUMN", added),
        ("SET TBLPROPERTIES", first(name="number")),
        ("ADD FEATURE", first(type="double")),
        ("tidy up", first(nullable=False)),
    ],
)
def test_change_of_a_column_is_named_whatever_its_operation_is_called(bare_lake, operation, change):
    version = describe(bare_lake, operation, change)
    said = [f"another program changed the Delta table at version {version}"]
    assert foreign(bare_lake) == said
    assert cleaned_up(bare_lake) == said


def test_change_of_a_column_in_a_commit_that_is_gone_is_named_by_the_next_one(bare_lake):
    describe(bare_lake, "CHANGE COLUMN", added)
    describe(bare_lake, "CHANGE COLUMN", COMMENTED)
    assert cleaned_up(bare_lake) == ["another program changed the Delta table at version 3"]


def test_columns_are_known_at_the_last_commit_that_says_the_record_again(bare_lake):
    """A change of columns that was reported is not reported again of a later commit that changes none."""
    describe(bare_lake, "ADD COLUMNS", added)
    assert cleaned_up(bare_lake) == ["another program changed the Delta table at version 2"]
    bare_lake.sync()
    describe(bare_lake, "CHANGE COLUMN", COMMENTED)
    assert cleaned_up(bare_lake) == ["another program changed the Delta table at version 2"]


def test_columns_of_our_own_commit_are_those_of_the_log(bare_lake):
    """Also of one that adds a column."""
    wider = {**TYPES, "note": pa.string(), "__rowMarker__": pa.int32()}
    more = lambda: bare_lake.table.land_rows([{**row(3), "note": "x", "__rowMarker__": 0}], types=wider)  # noqa: E731
    for land in (bare_lake.land, more):
        land()
        bare_lake.sync()
        with bare_lake.engine() as running:
            (progress,) = running.context.ledger.tables().values()
            found = bare_lake.writer.snapshot("dbo/Orders")
            assert progress.columns == found.record.progress.columns == found.schema.digest


def expire(lake):
    """deltalake's own cleanup of old commits."""
    DeltaTable(str(lake.folder)).alter.set_table_properties({"delta.logRetentionDuration": "interval 1 days"})
    for file in lake.log.glob("*.json"):
        os.utime(file, (0, 0))
    table = DeltaTable(str(lake.folder))
    table.create_checkpoint()
    table.cleanup_metadata()


@pytest.mark.parametrize(
    ("clean", "is_alone"), [(clean_up, True), (lambda lake: clean_up(lake, keeps=1), False), (expire, True)]
)
def test_log_cleanup_by_another_program_does_not_halt_an_idle_table(bare_lake, clean, is_alone):
    clean(bare_lake)
    assert alone(bare_lake) == is_alone
    assert bare_lake.status().state.code == "caught_up"
    goes_on(bare_lake)
    assert foreign(bare_lake) == []


def test_record_is_said_again_at_the_next_start_and_survives_the_ledger(bare_lake):
    clean_up(bare_lake)
    bare_lake.sync()
    assert not alone(bare_lake)
    commits = len([*bare_lake.log.glob("*.json")])
    bare_lake.sync()
    assert len([*bare_lake.log.glob("*.json")]) == commits  # once
    shutil.rmtree(bare_lake.root / ENGINE)
    goes_on(bare_lake)
    assert [path for entry in bare_lake.writer.history("dbo/Orders") for path in entry.files] == [numbered_name(2)]


@pytest.mark.parametrize("is_committed", [False, True], ids=["refused", "lost answer"])
def test_record_that_could_not_be_said_again_is_said_at_the_next_start(bare_lake, monkeypatch, is_committed):
    clean_up(bare_lake)
    say_again = type(bare_lake.writer).say_again

    def fail(writer, *given):
        if is_committed:
            say_again(writer, *given)
        raise StorageUnavailable("once")

    with monkeypatch.context() as patch:
        patch.setattr(type(bare_lake.writer), "say_again", fail)
        bare_lake.sync()
    goes_on(bare_lake)
    assert not alone(bare_lake)
    assert foreign(bare_lake) == []


def test_record_is_said_again_before_cleanup_can_take_it(bare_lake):
    """A checkpoint of another program came after it."""
    table = DeltaTable(str(bare_lake.folder))
    table.alter.set_table_properties(PROPERTY)
    table.create_checkpoint()
    bare_lake.sync()
    bare_lake.clean_up()
    shutil.rmtree(bare_lake.root / ENGINE)
    goes_on(bare_lake)


def test_status_of_a_cleaned_log_commits_nothing(bare_lake):
    clean_up(bare_lake)
    before = sorted(bare_lake.log.iterdir())
    assert bare_lake.status().state.code == "caught_up"
    assert sorted(bare_lake.log.iterdir()) == before


@pytest.mark.parametrize("ledger", ["lost", "older"])
def test_lost_record_halts_with_the_help_to_rebuild(bare_lake, tmp_path, ledger):
    shutil.copytree(bare_lake.root / ENGINE, tmp_path / "older")
    bare_lake.land()
    bare_lake.sync()
    clean_up(bare_lake)
    shutil.rmtree(bare_lake.root / ENGINE)
    if ledger == "older":
        shutil.copytree(tmp_path / "older", bare_lake.root / ENGINE)
    bare_lake.land()
    bare_lake.sync()
    state = bare_lake.status().state
    assert (state.code, state.diagnostic.code) == ("halted", "ME081")
    assert "mirror-engine rebuild" in state.diagnostic.help
    assert alone(bare_lake)
    bare_lake.begin()
    with bare_lake.mirror() as mirror:
        with pytest.raises(UsageError, match="not known which files"):
            mirror.rebuild(replay=True)
        assert [each.table for each in mirror.rebuild(replay=True, lose_rows=True).dropped] == ["Orders"]
    bare_lake.sync()
    assert (bare_lake.status().state.code, bare_lake.status().watermarks) == ("caught_up", {"": 3})


def test_table_of_another_program_is_still_foreign(bare_lake):
    """Also one in whose place the ledger knows a table, and one of another mirror's generation."""
    shutil.rmtree(bare_lake.folder)
    write_deltalake(str(bare_lake.folder), pa.table({"id": [1], "city": ["x"]}))
    bare_lake.land()
    bare_lake.sync()
    assert bare_lake.status().state.diagnostic.code == "ME004"


def test_log_cleanup_by_another_program_while_the_engine_runs(bare_lake):
    bare_lake.begin()
    with bare_lake.engine() as running:
        running.cycle(NO_STOP)
        clean_up(bare_lake)
        bare_lake.land()
        running.cycle(NO_STOP)
        clean_up(bare_lake)
    assert bare_lake.status().watermarks == {"": 2}
    bare_lake.sync()
    assert not alone(bare_lake)


def test_change_of_rows_before_a_cleanup_stays_reported_after_our_next_commit(bare_lake):
    """The engine's look before its commit meets the gap that log cleanup left."""
    with bare_lake.engine() as running:
        running.cycle(NO_STOP)
        for number in range(5):
            append(bare_lake.folder, number)
        bare_lake.clean_up(keeps=1)
        bare_lake.land()
        running.cycle(NO_STOP)
        running.cycle(NO_STOP)
    assert bare_lake.status().watermarks == {"": 2}
    assert len(foreign(bare_lake)) == 1


@pytest.mark.parametrize("hint", ["absent", "stale", "parts"])
@pytest.mark.parametrize("ledger", ["kept", "lost"])
def test_cleaned_log_with_another_checkpoint_or_hint(bare_lake, hint, ledger):
    stale = (bare_lake.log / HINT).read_bytes() if (bare_lake.log / HINT).exists() else b'{"version": 1, "size": 1}'
    clean_up(bare_lake)
    if hint == "absent":
        (bare_lake.log / HINT).unlink()
    elif hint == "stale":
        (bare_lake.log / HINT).write_bytes(stale)
    else:
        whole = next(bare_lake.log.glob("*.checkpoint.parquet"))
        actions = pq.read_table(whole)
        for part, rows in enumerate((actions.slice(0, 1), actions.slice(1)), 1):
            pq.write_table(rows, bare_lake.log / f"{whole.name[:20]}.checkpoint.{part:010}.{2:010}.parquet")
        whole.unlink()
        said = {"version": int(whole.name[:20]), "size": actions.num_rows, "parts": 2}
        (bare_lake.log / HINT).write_text(json.dumps(said), encoding="utf-8")
    if ledger == "lost":
        shutil.rmtree(bare_lake.root / ENGINE)
        bare_lake.land()
        bare_lake.sync()
        assert bare_lake.status().state.diagnostic.code == "ME081"
    else:
        goes_on(bare_lake)


def test_copy_of_a_table_without_its_record_is_not_taken_over(bare_lake):
    clean_up(bare_lake)
    bare_lake.orders("Copies").land_parquet(NO_ROWS)
    shutil.copytree(bare_lake.folder, bare_lake.folder.with_name("Copies"))
    bare_lake.sync()
    assert bare_lake.status("Copies").state.diagnostic.code == "ME081"
    assert bare_lake.status().state.code == "caught_up"


def test_restore_by_another_program_keeps_the_record(bare_lake):
    append(bare_lake.folder, 1)
    DeltaTable(str(bare_lake.folder)).restore(1)
    clean_up(bare_lake, keeps=1)
    goes_on(bare_lake)
    assert bare_lake.ids() == []


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
    DeltaTable(str(folder)).alter.set_table_properties(PROPERTY)
    log = folder / "_delta_log"
    for commit in log.glob("*.json"):
        lines = [json.loads(line) for line in commit.read_text(encoding="utf-8").splitlines()]
        for line in lines:
            if "commitInfo" in line:
                line["commitInfo"] = {"operation": "tidy up"}
        commit.write_text("".join(f"{json.dumps(line)}\n" for line in lines), encoding="utf-8")
    found = {entry.version: entry.files_added for entry in snapshot.history(folder, None)}
    assert found == {0: 1, 1: 1, 2: 1, 3: 0, 4: 1, 5: 0}
