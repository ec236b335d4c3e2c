"""A log stays open between its table's batches, and says the same as one that is opened anew."""

from __future__ import annotations

import random
import shutil

import pyarrow as pa
import pytest
from delta_scenario import SIMPLE, Scenario, add_rows, evolved, facts, known_log, schema_of
from deltalake import DeltaTable

from mirror_engine.errors import CommitConflict, TableDamaged
from mirror_engine.landing_zone.layout import TABLES
from mirror_engine.tables.base import ChangeBatch
from mirror_engine.tables.log import snapshot as module
from mirror_engine.tables.log.commit import put_commit
from mirror_engine.tables.log.record import creation_record, to_metadata
from mirror_engine.tables.log.snapshot import KeptLogs, refuse_newer_rows
from mirror_engine.tables.merge import arrow
from mirror_engine.tables.merge.arrow import ArrowWriter


@pytest.fixture
def opened_logs(monkeypatch):
    """Folders of the logs that were opened anew."""
    folders, open_delta = [], module.open_delta

    def recorded(folder, version=None):
        folders.append(folder.name)
        return open_delta(folder, version)

    monkeypatch.setattr(module, "open_delta", recorded)
    return folders


def begun(writer, name="dbo/T"):
    table = Scenario(writer, SIMPLE, ["Id"], name)
    table.change((0, 1, "Linz"))
    table.change_after_snapshot((1, 1, "Graz"))
    return table


@pytest.mark.slow
def test_next_batches_open_no_log(local, opened_logs, monkeypatch):
    table = begun(local)
    opened_logs.clear()
    monkeypatch.setattr(DeltaTable, "transaction_version", lambda *_: pytest.fail("all commits are read"))
    for number in range(2, 15):
        table.change_after_snapshot((number % 3 and 4, number, "Wien"))
    assert opened_logs == []
    assert len(table.found()) == len(range(2, 15)) + 1


@pytest.mark.slow
def test_deltalake_reads_no_commit_of_this_engine_until_small_files_are_looked_at(local, monkeypatch):
    table, moved = begun(local), []
    move_on = DeltaTable.update_incremental
    monkeypatch.setattr(DeltaTable, "update_incremental", lambda table: moved.append(table.version()) or move_on(table))
    for number in range(2, 16):
        table.change_after_snapshot((number % 3 and 4, number, "Wien"))
    assert moved == [1, 8, 16]  # at the versions 8 and 16, and after files were put together


def test_files_of_own_commits_are_chosen_by_their_bounds(local):
    table = begun(local)
    for key in (10, 20, 30):
        table.change_after_snapshot((0, key, "Wien"))
    log = local.snapshot("dbo/T").log
    assert len(log.own) == 4
    whole, text = pa.int32(), pa.string()
    for name, kind, ends, count in (
        ("Id", whole, (15, 25), 1),
        ("Id", whole, (31, 99), 0),
        ("Id", whole, (10, 30), 3),
        ("City", text, ("A", "B"), 0),
        ("City", text, ("A", "Wien"), 4),
    ):
        bounds = {name: tuple(pa.scalar(end, kind) for end in ends)}
        chosen = {file.spelled for file in log.data_files(bounds)}
        assert chosen == {file.spelled for file in known_log(log.folder).data_files(bounds)}
        assert len(chosen) == count, ends


def test_files_of_another_program_need_no_statistics(local):
    table = begun(local)
    folder = local.path("dbo/T")
    (known,) = known_log(folder).data_files()
    removed = {"path": known.spelled, "dataChange": True, "deletionTimestamp": 0}
    added = {
        "path": known.spelled,
        "partitionValues": {},
        "size": known.size,
        "modificationTime": 0,
        "dataChange": True,
    }
    for number, action in enumerate(({"remove": removed}, {"add": added}), 3):
        put_commit(folder, number, [{"commitInfo": {"operation": "WRITE", "engineInfo": "another"}}, action])
    assert facts(local.snapshot("dbo/T").log) == facts(known_log(folder))
    assert len(table.found()) == 1


def test_a_log_that_another_program_moved_on_has_no_handle_of_its_version(local):
    table = begun(local)
    table.change_after_snapshot((0, 10, "Wien"))
    log = local.snapshot("dbo/T").log
    add_rows(log.folder, SIMPLE, [(7, "x")])
    with pytest.raises(CommitConflict, match="was committed by another writer"):
        _ = log.table


@pytest.mark.parametrize(
    ("record", "found"),
    [(True, False), (False, False), (True, True)],
    ids=["a late commit", "one without a record", "both came since the look"],
)
def test_first_batch_is_refused_where_another_commit_came_first(local, monkeypatch, record, found):
    """LZ-4.18: it builds on the commit that made the table, and on nothing that another engine committed on top."""
    table, other = Scenario(local, SIMPLE, ["Id"]), Scenario(local, SIMPLE, ["Id"])
    other.generation, other.batch = "another", 1
    file = table.file(SIMPLE.names, (1, 1, "Linz"))
    table.batch += 1
    wanted, create = table.record(file), arrow.create_table

    def created(folder, *arguments, **options):
        assert create(folder, *arguments, **options)
        metadata = {"userMetadata": to_metadata(other.record(file))} if record else {}
        put_commit(folder, 1, [{"commitInfo": {"operation": "WRITE", "engineInfo": "mirror_engine", **metadata}}])
        return True

    if found:
        created(local.path("dbo/T"), SIMPLE, creation_record(wanted))
    else:
        monkeypatch.setattr(arrow, "create_table", created)
    with pytest.raises(CommitConflict, match="another program or engine committed there"):
        local.apply("dbo/T", ChangeBatch((file,), SIMPLE, table.keys), wanted)


def test_rows_that_another_engine_committed_since_are_refused(local):
    """Spark appends to any version: what came before its commit is looked for."""
    table = begun(local)
    folder = local.path("dbo/T")
    refuse_newer_rows("dbo/T", folder, table.version)
    with pytest.raises(CommitConflict, match="another engine committed first"):
        refuse_newer_rows("dbo/T", folder, table.version - 1)
    add_rows(folder, SIMPLE, [(7, "x")])
    with pytest.raises(CommitConflict, match="another program changed its rows"):
        refuse_newer_rows("dbo/T", folder, table.version)


def test_repeated_batch_is_refused(local):
    table = begun(local)
    table.batch -= 1
    with pytest.raises(CommitConflict, match="batch 2 is already in the table"):
        table.change_after_snapshot((4, 2, "Wien"))


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_kept_log_equals_one_opened_anew_after_any_commits(local, seed):
    choose, table = random.Random(seed), begun(local)
    folder = local.path("dbo/T")

    def another():
        return DeltaTable(str(folder))

    foreign = [
        lambda number: add_rows(folder, SIMPLE, [(number, "x")]),
        lambda _: another().optimize.compact(),
        lambda number: another().delete(f"Id = {number - 3}"),
        lambda number: another().alter.set_table_properties({"delta.appendOnly": str(number < 0).lower()}),
        lambda _: another().create_checkpoint(),
        lambda number: evolved(known_log(folder), SIMPLE, change_data_feed="on" if number % 2 else "off"),
    ]
    for number in range(2, 20):
        for write in choose.sample(foreign, choose.randrange(3)):
            write(number)
        before = local.snapshot("dbo/T").log
        assert facts(before) == facts(known_log(folder))
        local._logs.keep(before)
        table.version = before.version
        table.change_after_snapshot((4, number, "Wien"))


def test_rebuilt_table_of_same_version_is_opened_anew(local, opened_logs):
    begun(local).change_after_snapshot((4, 2, "Wien"))
    shutil.rmtree(local.path("dbo/T"))
    other = Scenario(local, SIMPLE, ["Id"])
    other.generation = "g2"
    local._logs, kept = KeptLogs(), local._logs
    for number in range(3):
        other.change_after_snapshot((0, number, "Bonn"))
    local._logs = kept
    opened_logs.clear()
    assert local.snapshot("dbo/T").record.progress.generation == "g2"
    assert opened_logs == ["T"]


@pytest.mark.slow
def test_deleted_or_dropped_table_is_none(local):
    for remove in (shutil.rmtree, lambda _: local.drop("dbo/T")):
        begun(local)
        remove(local.path("dbo/T"))
        assert local.snapshot("dbo/T") is None


@pytest.mark.slow
def test_damage_in_a_newer_commit_is_told(local):
    begun(local)
    (local.path("dbo/T") / f"_delta_log/{3:020}.json").write_text("{")
    with pytest.raises(TableDamaged, match="commit 3"):
        local.snapshot("dbo/T")


def test_damage_that_comes_before_new_columns_is_told(local):
    table = begun(local)
    table.change_after_snapshot((0, 2, "Wien"))
    snapshot = local.snapshot("dbo/T")
    (local.path("dbo/T") / f"_delta_log/{snapshot.version + 1:020}.json").write_text("{")
    table.schema = schema_of("Id", "City:string", "Zip")
    with pytest.raises(TableDamaged, match=f"commit {snapshot.version + 1}"):
        table.apply(table.file(table.schema.names, (0, 3, "Linz", 4020)), snapshot=snapshot)


@pytest.mark.slow
def test_few_logs_are_kept_and_one_user_has_each(local, opened_logs, monkeypatch):
    monkeypatch.setattr(module, "_KEPT_LOGS", 2)
    for name in "ABC":
        begun(local, f"dbo/{name}")
    opened_logs.clear()
    for name in "CCBA":
        local.snapshot(f"dbo/{name}")
    assert opened_logs == ["C", "A"]


@pytest.mark.slow
def test_log_in_a_store_is_opened_anew_before_its_token_expires(onelake_server, tmp_path, opened_logs, monkeypatch):
    with onelake_server.in_use() as server:
        writer = ArrowWriter(server.new_root() / TABLES, tmp_path)
        table = begun(writer)
        opened_logs.clear()
        table.change_after_snapshot((4, 2, "Wien"))
        assert opened_logs == []
        now = module.time.monotonic() + module._KEPT_SECONDS
        monkeypatch.setattr(module.time, "monotonic", lambda: now)
        table.change_after_snapshot((4, 3, "Wien"))
        assert opened_logs == ["T"]
