"""A commit and a look cost the same however many commits a log holds: exact names are probed, no log is listed."""

from __future__ import annotations

import json
import os
from contextlib import contextmanager

import pytest
from deltalake import DeltaTable
from seed import by_night
from shop import NO_STOP, Shop, row

from mirror_engine.engine.maintenance import MaintenanceScheduler
from mirror_engine.landing_zone.layout import SCRATCH, TABLES
from mirror_engine.tables.log.commit import put_commit
from mirror_engine.tables.log.durability import make_durable
from mirror_engine.tables.log.snapshot import history
from mirror_engine.tables.merge.arrow import ArrowWriter

pytestmark = pytest.mark.slow

OLDER = by_night(1_000, 5_000)
NO_CHANGE = {"commitInfo": {"operation": "SET TBLPROPERTIES", "engineInfo": "another"}}


@pytest.fixture(scope="module")
def long_log(tmp_path_factory):
    """A table whose log has many commits before its newest checkpoint."""
    root = tmp_path_factory.mktemp("shop")
    writer = ArrowWriter(root / TABLES, root / SCRATCH)
    shop = Shop(root, writer, max_batch_files=1, auto_maintain=1_000_000)
    shop.table = shop.orders()
    shop.table.upsert(row(0))
    shop.sync()
    shop.folder = writer.path("dbo/Orders")
    for version in range(2, OLDER):
        (shop.folder / f"_delta_log/{version:020}.json").write_text(json.dumps(NO_CHANGE))
    DeltaTable(str(shop.folder)).create_checkpoint()
    shop.table.upsert(row(1))
    shop.sync()
    return shop


@contextmanager
def listed(monkeypatch):
    """Names that are read of `_delta_log` folders, as they are read."""
    names, scan, list_all = [], os.scandir, os.listdir

    class Entries:
        def __init__(self, path):
            self.entries, self.is_log = scan(path), "_delta_log" in str(path)

        def __iter__(self):
            for entry in self.entries:
                if self.is_log:
                    names.append(entry.name)
                yield entry

        def __enter__(self):
            return self

        def __exit__(self, *exception):
            self.entries.close()

    def listdir(path="."):
        found = list_all(path)
        names.extend(found if "_delta_log" in str(path) else ())
        return found

    with monkeypatch.context() as patched:
        patched.setattr(os, "scandir", Entries)
        patched.setattr(os, "listdir", listdir)
        yield names


def test_commit_and_cycle_list_no_log(long_log, monkeypatch):
    with long_log.engine() as running, MaintenanceScheduler(running.context, lambda: None) as upkeep:
        running.cycle(NO_STOP)
        for number in range(2, 4):
            long_log.table.upsert(row(number))
            with listed(monkeypatch) as names:
                running.cycle(NO_STOP)
                committed = running.last.commits
                running.cycle(NO_STOP)
                upkeep.start(running.idle_tables, is_busy=False)
            assert [len(commit.files) for commit in committed] == [1]
            assert len(names) <= 1  # whether it is a table


def test_history_with_limit_lists_no_log(long_log, monkeypatch):
    with listed(monkeypatch) as names:
        entries = long_log.writer.history("dbo/Orders", limit=3)
    newest = long_log.writer.snapshot("dbo/Orders").version
    assert [entry.version for entry in entries] == [newest, newest - 1, newest - 2]
    assert len(names) <= 1


def test_history_until_a_version_begins_there(long_log):
    assert [entry.version for entry in long_log.writer.history("dbo/Orders", limit=2, until=1)] == [1, 0]
    assert long_log.writer.history("dbo/Orders", limit=2, until=1)[0].files


def test_fsync_of_no_new_commit_lists_no_log(long_log, monkeypatch):
    newest = long_log.writer.snapshot("dbo/Orders").version
    with listed(monkeypatch) as names:
        make_durable(long_log.folder, newest)
    assert names == []


@pytest.mark.parametrize("hint", ["kept", "lost", "of a checkpoint that is gone", "no JSON"])
def test_history_finds_newest_commit_whatever_the_hint_says(tmp_path, hint):
    for version in range(7):
        put_commit(tmp_path, version, [NO_CHANGE])
    last = tmp_path / "_delta_log/_last_checkpoint"
    match hint:
        case "kept":
            last.write_text('{"version": 4, "size": 1}')
        case "of a checkpoint that is gone":
            last.write_text('{"version": 2, "size": 1}')
        case "no JSON":
            last.write_text("{")
    for version in range(3):
        (tmp_path / f"_delta_log/{version:020}.json").unlink()
    assert [entry.version for entry in history(tmp_path, 2)] == [6, 5]
    assert [entry.version for entry in history(tmp_path, None)] == [6, 5, 4, 3]
