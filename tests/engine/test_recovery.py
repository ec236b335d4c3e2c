"""Recovery: the ledger is made to agree with the Delta log, and keeps what it knows better."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from types import SimpleNamespace
from unittest.mock import Mock

import pytest
from shop import NO_STOP, Shop, row

from mirror_engine import Config, RunResult
from mirror_engine.clock import Clock
from mirror_engine.engine.context import EngineContext
from mirror_engine.engine.recovery import (
    DeltaFolders,
    is_as_recorded,
    owner_of,
    rescan,
)
from mirror_engine.errors import StorageUnavailable, TableDamaged
from mirror_engine.events import ProgressRebuilt
from mirror_engine.landing_zone.layout import LEDGER
from mirror_engine.landing_zone.names import TableName
from mirror_engine.landing_zone.progress import Progress
from mirror_engine.tables.merge import arrow
from mirror_engine.tables.merge.arrow import ArrowWriter

ORDERS = TableName("", "Orders")


def test_recovery_applies_first_batch_after_keys_changed(tmp_path, monkeypatch):
    shop = Shop(tmp_path, ArrowWriter(tmp_path / "Tables", tmp_path / "scratch"))
    shop.orders().insert(row(1))
    with monkeypatch.context() as once, shop.engine() as running:
        once.setattr(arrow, "count_changes", Mock(side_effect=StorageUnavailable("the batch is not committed")))
        running.cycle(NO_STOP)
    assert [commit.operation for commit in shop.writer.history("dbo/Orders")] == ["CREATE TABLE"]
    (tmp_path / LEDGER).unlink()
    shop.publisher.table("Orders", keys=["city"])
    assert shop.sync().result is RunResult.CAUGHT_UP
    assert shop.ids() == [1]


def test_external_change_check_is_cached_but_not_for_commits():
    versions = iter([-1, 7, 8, 9])
    writer = SimpleNamespace(latest_external_change=lambda *_: next(versions))
    context, progress = EngineContext(None, writer, None, Config(), Clock(), None), Progress("1", "i", delta_version=5)
    look = partial(context.latest_external_change, ORDERS)
    assert [look(progress, 600.0), look(progress, 600.0), look(progress), look(progress, 600.0)] == [None, None, 7, 7]
    assert look(replace(progress, delta_version=6), 600.0) == 8


@pytest.mark.slow
def test_damaged_ledger_is_rebuilt_from_logs_and_reported(tmp_path):
    shop = Shop(tmp_path)
    shop.land(1, 2, 3, table="Others")
    shop.apply(1, 2, 3)
    before = shop.status()
    (shop.root / LEDGER).write_bytes(b"no database at all")
    assert shop.status() == before
    shop.events.clear()
    report = shop.sync()
    assert (report.result, report.commits) == (RunResult.CAUGHT_UP, 0)
    rebuilt = sorted((event.table.table, event.version) for event in shop.heard(ProgressRebuilt))
    assert rebuilt == [("Orders", 3), ("Others", 1)]
    shop.events.clear()
    shop.land(4)
    assert shop.sync().commits == 1
    assert not shop.heard(ProgressRebuilt)
    assert shop.ids() == [1, 2, 3, 4]
    assert shop.ids("Others") == [1, 2, 3]


def test_older_ledger_is_rebuilt_and_reported(tmp_path):
    shop = Shop(tmp_path)
    shop.apply(1)
    older = (shop.root / LEDGER).read_bytes()
    shop.apply(2)
    (shop.root / LEDGER).write_bytes(older)
    shop.events.clear()
    assert shop.sync().commits == 0
    assert shop.heard(ProgressRebuilt) == [ProgressRebuilt(ORDERS, 2)]
    assert shop.ids() == [1, 2]


def test_rescan_reads_no_other_folder(tmp_path, monkeypatch):
    shop = Shop(tmp_path)
    shop.orders().initial_load(row(1))
    shop.sync()
    unsure = DeltaFolders(damaged={"dbo/Orders": TableDamaged(tmp_path, "cut off")})
    with shop.engine() as running:
        assert rescan(running.context, unsure, {"dbo/Orders"}).damaged == {}
        monkeypatch.setattr(shop.writer, "snapshot", None)
        assert rescan(running.context, unsure, set()) == unsure


def test_a_delta_table_belongs_to_the_table_whose_delta_folder_it_is_in(tmp_path):
    shop = Shop(tmp_path)
    with shop.engine() as running:
        state = SimpleNamespace(record=SimpleNamespace(folder="Orders"))
        assert owner_of(running.context, "dbo/Orders", state) == TableName("", "Orders")
        assert owner_of(running.context, "dbo/copy", state) is None
        assert owner_of(running.context, "dbo/Orders", SimpleNamespace(record=None, batch_of=lambda _: None)) is None


def test_a_delta_table_of_another_generation_is_not_the_recorded_one():
    state = SimpleNamespace(record=SimpleNamespace(progress=Progress("one", "f")))
    assert is_as_recorded(Progress("one", "f", delta_version=3), state)
    assert not is_as_recorded(Progress("other", "f", delta_version=3), state)
    assert not is_as_recorded(Progress("one", "f", delta_version=3), None)
    assert is_as_recorded(Progress("one", "f"), None)


def test_table_without_a_record_is_ours_by_generation_and_batch():
    state = SimpleNamespace(record=None, batch_of={"mirror_engine:one": 2}.get)
    known = Progress("one", "f", batch=2, delta_version=3)
    assert is_as_recorded(known, state)
    assert is_as_recorded(replace(known, delta_version=-1), state)  # it was only made, and that is not noted
    for changes in ({"generation": "other"}, {"batch": 1}, {"batch": 3}):
        assert not is_as_recorded(replace(known, **changes), state)
