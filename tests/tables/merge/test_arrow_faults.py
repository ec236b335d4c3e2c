"""What goes wrong around a commit of `arrow`: after it nothing is lost, before it nothing stays."""

from __future__ import annotations

import json
import os
import time

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from delta_scenario import SIMPLE, Scenario, aged, known_log, schema_of
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError
from marking import marking
from shop import Shop, row

from mirror_engine.errors import CommitFailed, ScratchFailed
from mirror_engine.tables.changes import key_index
from mirror_engine.tables.changes.key_index import KeyIndex
from mirror_engine.tables.log import commit as log_commit
from mirror_engine.tables.log import data_files, vectors_in_use
from mirror_engine.tables.log.cleanup import FILE_RETENTION
from mirror_engine.tables.log.commit import put_commit
from mirror_engine.tables.log.data_rows import read_rows
from mirror_engine.tables.log.record import read_commit
from mirror_engine.tables.log.snapshot import open_log
from mirror_engine.tables.merge import arrow, compaction
from mirror_engine.tables.merge.arrow import ArrowWriter
from mirror_engine.tables.merge.compaction import vacuum

DAY = 86_400


@pytest.mark.parametrize(
    ("name", "value"),
    [*(("delta.checkpointInterval", each) for each in ("0", "-5", "abc", "")), (log_commit._INDEXED, "x")],
)
def test_odd_property_of_others_costs_no_commit(keyed, name, value):
    keyed.change((0, 1, "Linz"))
    log = keyed.log()
    put_commit(log.folder, 2, log_commit._described(log, list(log.fields.values()), {name: value}))
    keyed.version = 2
    keyed.change((1, 1, "Wels"))
    assert keyed.found() == [(1, "Wels")]


@pytest.mark.parametrize("change", [(1, 1, "Wels"), (0, 2, "Wels"), (2, 9, None)], ids=["merge", "append", "no rows"])
@pytest.mark.parametrize("error", [DeltaError("x"), MemoryError(), type("PanicException", (BaseException,), {})("x")])
def test_failing_checkpoint_leaves_the_commit(keyed, monkeypatch, error, change):
    def fail(_):
        raise error

    monkeypatch.setitem(log_commit._PROPERTIES, "delta.checkpointInterval", "3")
    monkeypatch.setattr(DeltaTable, "create_checkpoint", fail)
    keyed.change((0, 1, "Linz"))
    assert keyed.change(change).version == 2
    assert keyed.writer.snapshot("dbo/T").record_version == 2


def test_append_only_table_takes_inserts_and_compaction(keyed):
    keyed.change((0, 1, "Linz"))
    log = keyed.log()
    put_commit(log.folder, 2, log_commit._described(log, list(log.fields.values()), {"delta.appendOnly": "true"}))
    keyed.version = 2
    keyed.change((0, 2, "Wels"))
    with pytest.raises(CommitFailed, match="append-only"):
        keyed.change((1, 1, "Wels"))
    keyed.writer.maintain("dbo/T", 168.0)
    assert keyed.found() == [(1, "Linz"), (2, "Wels")]


# ---- the index of keys


@pytest.fixture
def eager_index(tmp_path, monkeypatch):
    monkeypatch.setattr(key_index, "_LEAST_ROWS", 1)
    monkeypatch.setattr(key_index, "_ROWS_PER_KEY", 0)
    return KeyIndex(tmp_path / "keys", 1 << 20)


def looked_up(index, table, *keys):
    log = table.log()
    (file,) = log.data_files()
    return index.find(log, file, table.schema.names[0], np.array(keys))


@pytest.mark.parametrize("damage", [lambda _: b"", lambda c: c[:-1], lambda c: c[:-120], lambda c: c + b"\0" * 12])
def test_torn_index_is_made_anew(keyed, eager_index, damage):
    keyed.change(*((0, key, "Linz") for key in range(50)))
    assert looked_up(eager_index, keyed, 30)[1].tolist() == [30]
    (path,) = eager_index._folder.iterdir()
    path.write_bytes(damage(path.read_bytes()))
    assert looked_up(eager_index, keyed, 30)[1].tolist() == [30]


def test_index_of_a_full_disk_is_none(keyed, eager_index, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    keyed.change(*((0, key, "Linz") for key in range(50)))
    monkeypatch.setattr(os, "fsync", full)
    assert looked_up(eager_index, keyed, 30) is None
    assert list(eager_index._folder.iterdir()) == []


def test_index_of_keys_that_are_all_null_finds_nothing(keyed, eager_index):
    keyed.change((0, None, "Linz"), (0, None, "Wels"))
    for _ in range(2):
        places, rows = looked_up(eager_index, keyed, 30)
        assert (places.tolist(), rows.tolist()) == ([], [])


def test_index_is_of_the_column_in_the_file(local, eager_index):
    """Another program may swap the names of two mapped columns."""
    table = Scenario(local, schema_of("a b:long", "c d:long"), ["a b"])
    table.change(*((0, key, 100 - key) for key in range(50)))
    assert looked_up(eager_index, table, 30)[1].tolist() == [30]
    log = table.log()
    first, second = log.fields.values()
    swapped = [{**first, "name": "c d"}, {**second, "name": "a b"}]
    put_commit(log.folder, log.version + 1, log_commit._described(log, swapped, log.configuration))
    assert looked_up(eager_index, table, 30) is not None
    assert looked_up(eager_index, table, 70)[1].tolist() == [30]


# ---- maintenance and folds


def test_compaction_stops_at_a_commit_of_others(local, monkeypatch):
    table = Scenario(local, schema_of("Id:long", "v:long", "p:string", partitions=["p"]), ["Id"])
    for number in range(2):
        table.change((0, 2 * number, number, "a"), (0, 2 * number + 1, number, "b"))
    real, calls = compaction.commit_maintenance, []

    def commit(*arguments):
        real(*arguments)
        calls.append(arguments)
        if len(calls) == 1:
            DeltaTable(str(table.folder)).delete('"Id" = 1 or "Id" = 3')

    monkeypatch.setattr(compaction, "commit_maintenance", commit)
    local.maintain("dbo/T", 168.0)
    assert sorted(found[0] for found in table.found()) == [0, 2]
    assert len(calls) == 1


def test_maintenance_of_full_files_is_done_once(keyed, monkeypatch):
    """Narrow rows: a file has as many as it may, and is small all the same."""
    monkeypatch.setattr(data_files, "FILE_ROWS", 10)
    monkeypatch.setattr(compaction, "FILE_ROWS", 10)
    monkeypatch.setattr(data_files, "_GROUP_BYTES", 1)
    for first in (0, 10, 20):
        keyed.change(*((0, key, "Linz") for key in range(first, first + 10)))
    keyed.writer.maintain("dbo/T", 168.0)
    assert keyed.writer.maintain("dbo/T", 168.0)["files_added"] == 0


def test_full_disk_during_a_fold_fails_no_batch(local, keyed, monkeypatch):

    def full(*_):
        raise OSError(28, "No space left on device")

    with marking(crowd=2, commits=1):
        keyed.change((0, 1, "Linz"))
        monkeypatch.setattr(compaction, "write_together", full)
        assert keyed.change((0, 2, "Wels")).applied_by == "append"
        with pytest.raises(ScratchFailed):
            local.maintain("dbo/T", 168.0)
    assert keyed.found() == [(1, "Linz"), (2, "Wels")]


@pytest.mark.slow
def test_record_outlives_a_fold_and_the_log_cleanup_of_others(tmp_path):
    with marking(crowd=2, commits=2):
        shop = Shop(tmp_path, ArrowWriter(tmp_path / "Tables", tmp_path / "scratch"))
        orders = shop.orders()
        for number in range(1, 4):
            orders.insert(row(number))
            shop.sync()
        folder = tmp_path / "Tables/dbo/Orders"
        log = known_log(folder)
        assert shop.writer.history("dbo/Orders", limit=1)[0].operation == "OPTIMIZE"
        log.table.create_checkpoint()
        for version in range(log.version):
            (folder / f"_delta_log/{version:020}.json").unlink()
        orders.insert(row(4))
        shop.sync()
        assert shop.ids() == [1, 2, 3, 4]


@pytest.mark.parametrize("marks", [False, True])
def test_vacuum_keeps_what_was_removed_since_whatever_commits_say(local, keyed, request, marks):
    """`commitInfo` is optional."""
    if marks:
        request.getfixturevalue("marking")
    keyed.change(*((0, key, "Linz") for key in range(10)))
    keyed.change((1, 1, "Wels"))
    keyed.change((1, 2, "Enns"))
    folder = keyed.folder
    aged([*folder.glob("*.parquet"), *folder.glob("*.bin")])
    put_commit(folder, keyed.version + 1, [{"txn": {"appId": "other", "version": 1}}])
    vacuum("dbo/T", known_log(folder), 168.0)
    for version in range(1, keyed.version + 1):
        assert len(local.rows("dbo/T", version=version)) == 10, version


@pytest.mark.parametrize("spelled", ["./{name}", "{folder}/{name}", "file://{folder}/{name}", "vector"])
def test_vacuum_keeps_files_that_the_log_spells_otherwise(keyed, request, spelled):
    if spelled == "vector":
        request.getfixturevalue("marking")
    keyed.change(*((0, key, "Linz") for key in range(10)))
    keyed.change((2, 1, None))
    folder = keyed.folder
    commit = folder / f"_delta_log/{keyed.version:020}.json"
    actions = [json.loads(line) for line in commit.read_text(encoding="utf-8").splitlines()]
    (add,) = (action["add"] for action in actions if "add" in action)
    if spelled == "vector":
        (file,) = folder.glob("*.bin")
        add["deletionVector"] |= {"storageType": "p", "pathOrInlineDv": str(file)}
    else:
        add["path"] = spelled.format(folder=folder, name=add["path"])
    commit.write_text("\n".join(map(json.dumps, actions)), encoding="utf-8")
    aged([*folder.glob("*.parquet"), *folder.glob("*.bin")])
    log = open_log(folder)
    vacuum("dbo/T", log, 0.0)
    assert len(read_rows(log)) == 9


@pytest.mark.slow
@pytest.mark.parametrize("retention", [7, 1])
def test_vacuum_reads_only_new_commits_if_the_checkpoint_names_all_files(local, monkeypatch, retention):
    """A checkpoint that was made under a shorter retention, or by a clock that was ahead, lacks some."""
    monkeypatch.setitem(log_commit._PROPERTIES, "delta.checkpointInterval", "5")
    monkeypatch.setattr(log_commit, "log_properties", lambda _: {FILE_RETENTION: f"interval {retention} days"})
    monkeypatch.setattr(log_commit, "now_ms", lambda: int(1000 * (time.time() - 3 * DAY)))
    table, read = Scenario(local, SIMPLE, ["Id"]), []
    for key in range(6):
        table.change((4, 1, f"{key}"))
    folder = table.folder
    assert (folder / f"_delta_log/{4:020}.checkpoint.parquet").exists()
    aged(folder.glob("*.parquet"))
    monkeypatch.setattr(vectors_in_use, "read_commit", lambda *at: read.append(at[1]) or read_commit(*at))
    vacuum("dbo/T", known_log(folder), 168.0)
    assert read == ([0, 1, 2, 5, 6] if retention == 7 else [0, 1, 2, *range(7)])
    for version in range(1, table.version + 1):
        assert len(local.rows("dbo/T", version=version)) == 1, version


@pytest.mark.slow
def test_vacuum_keeps_every_vector_of_a_file_that_a_checkpoint_names(local, keyed, marking, monkeypatch):  # noqa: ARG001 - rows are marked
    """A file with another vector is another file of the log."""
    monkeypatch.setattr(arrow, "_COMMITS", 10**6)
    monkeypatch.setitem(log_commit._PROPERTIES, "delta.checkpointInterval", "5")
    keyed.change(*((0, key, "Linz") for key in range(10)))
    for key in range(5):
        keyed.change((2, key, None))
    folder = keyed.folder
    for version in range(4):
        (folder / f"_delta_log/{version:020}.json").unlink()
    vectors = [*folder.glob("*.bin")]
    assert len(vectors) == 5
    aged(vectors)
    vacuum("dbo/T", known_log(folder), 168.0)
    assert all(file.exists() for file in vectors)
    assert len(local.rows("dbo/T", version=5)) == 6


# ---- checkpoints, as others write them


@pytest.fixture
def marked(local, marking):  # noqa: ARG001 - rows are marked
    table = Scenario(local, SIMPLE, ["Id"])
    table.change(*((0, key, "Linz") for key in range(10)))
    for key in range(1, 4):
        table.change((2, key, None))
    table.log().table.create_checkpoint()
    return table


def drop_commits(folder, until):
    for version in range(until):
        (folder / f"_delta_log/{version:020}.json").unlink(missing_ok=True)


def goes_on(table):
    fresh = ArrowWriter(table.writer._root, table.writer._scratch.parent / "another")
    table.writer = fresh
    table.change((2, 5, None))
    return [found[0] for found in table.found()]


@pytest.mark.slow
def test_checkpoint_is_found_without_its_hint(marked):
    folder = marked.folder
    drop_commits(folder, marked.version)
    (folder / "_delta_log/_last_checkpoint").unlink()
    assert goes_on(marked) == [0, 4, 6, 7, 8, 9]


@pytest.mark.slow
def test_old_hint_is_no_obstacle(marked):
    folder = marked.folder
    hint = folder / "_delta_log/_last_checkpoint"
    old, version = hint.read_bytes(), marked.version
    marked.change((2, 9, None))
    known_log(folder).table.create_checkpoint()
    hint.write_bytes(old)
    drop_commits(folder, marked.version)
    (folder / f"_delta_log/{version:020}.checkpoint.parquet").unlink()
    assert goes_on(marked) == [0, 4, 6, 7, 8]


@pytest.mark.slow
@pytest.mark.parametrize("has_hint", [False, True])
def test_checkpoint_in_parts_is_read(marked, has_hint):
    folder, version = marked.folder, marked.version
    whole = folder / f"_delta_log/{version:020}.checkpoint.parquet"
    rows = pq.read_table(whole)
    for part in (1, 2):
        name = f"{version:020}.checkpoint.{part:010}.{2:010}.parquet"
        pq.write_table(rows.slice((part - 1) * 3, 3 if part == 1 else None), folder / "_delta_log" / name)
    whole.unlink()
    hint = folder / "_delta_log/_last_checkpoint"
    hint.write_text(json.dumps({"version": version, "size": rows.num_rows, "parts": 2})) if has_hint else hint.unlink()
    drop_commits(folder, version)
    assert goes_on(marked) == [0, 4, 6, 7, 8, 9]


@pytest.mark.slow
def test_part_of_a_checkpoint_alone_is_none(marked):
    folder, version = marked.folder, marked.version
    marked.change((2, 9, None))
    part = folder / f"_delta_log/{marked.version:020}.checkpoint.{1:010}.{2:010}.parquet"
    pq.write_table(pa.table({"txn": pa.nulls(1)}), part)
    assert version == marked.version - 1
    assert goes_on(marked) == [0, 4, 6, 7, 8]
