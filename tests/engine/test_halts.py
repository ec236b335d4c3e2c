"""Halts: each begin and each end is reported once, by whichever run finds it, and is in the history of ROOT."""

from __future__ import annotations

from functools import partial

import pytest
from shop import NO_STOP, Shop, cycles, row

from mirror_engine import Config, RunResult
from mirror_engine.engine import planner
from mirror_engine.events import TableHalted, TableResumed
from mirror_engine.landing_zone.layout import ZONE
from mirror_engine.landing_zone.names import TableName
from mirror_engine.tables.merge.arrow import ArrowWriter

pytestmark = [pytest.mark.usefixtures("one_attempt"), pytest.mark.slow]


def damaged(shop):
    """ME081: another program's commit is cut off."""
    newest = max((shop.root / "Tables/dbo/Orders/_delta_log").glob("*.json"))
    commit = newest.with_name(f"{int(newest.stem) + 1:020}.json")
    commit.write_bytes(b'{"commitInfo":')
    return commit.unlink


def conflict(shop):
    """ME004: two folders of one Delta table."""
    shop.orders("dbo.Orders").insert(row(9))
    return lambda: shop.publisher.remove("dbo.schema/Orders")


def too_many(shop):
    """ME007: more tables than Fabric takes, under `strict`."""
    shop.orders("Second").insert(row(9))
    return lambda: shop.publisher.remove("Orders")


def broken_metadata(shop):
    """ME010: a halt that the progress of its table records, too."""
    path = shop.root / ZONE / "Orders/_metadata.json"
    whole = path.read_bytes()
    path.write_bytes(b"{")
    return lambda: path.write_bytes(whole)


def empty_file(shop):
    """ME023 of a table that has no Delta table yet; its folder is deleted."""
    shop.orders("New").land(b"")
    return lambda: shop.publisher.remove("New")


# what halts which table, the code, and the reason of its end
HALTS = [
    (damaged, "Orders", "ME081", ""),
    (conflict, "dbo.schema/Orders", "ME004", "deleted"),
    (too_many, "Second", "ME007", ""),
    (broken_metadata, "Orders", "ME010", ""),
    (empty_file, "New", "ME023", "deleted"),
]


@pytest.fixture
def arrow_shop(tmp_path, monkeypatch):
    """A shop with a table that has caught up."""
    monkeypatch.setattr(planner, "MAX_FABRIC_TABLES", 1)
    shop = Shop(tmp_path / "shop", ArrowWriter(tmp_path / "shop/Tables", tmp_path / "scratch"))
    shop.land(1, 2)
    assert shop.sync().result is RunResult.CAUGHT_UP
    shop.events.clear()
    return shop


@pytest.fixture
def cause(arrow_shop, request):
    """Begins a halt; gives what ends it."""
    arrow_shop.config = Config(strict=request.param is too_many)
    return partial(request.param, arrow_shop)


def told(shop):
    return [(type(event), event.table.folder) for event in shop.heard(TableHalted, TableResumed)]


def events_of(result):
    return [(each.change, each.table, each.reason or "") for each in result.changes]


def history(shop):
    with shop.mirror() as mirror:
        found = events_of(mirror.history())
    return [each for each in reversed(found) if each[0] in {"halted", "resumed"}]


@pytest.mark.parametrize(("cause", "table", "code", "reason"), HALTS, indirect=["cause"])
def test_halt_and_its_end_are_reported_by_the_runs_that_see_them(arrow_shop, cause, table, code, reason):
    name_of = TableName.from_folder(table).normalized
    begun, over = ("halted", name_of, code), ("resumed", name_of, reason)
    end = cause()
    report = arrow_shop.sync()
    assert report.result is RunResult.NEEDS_ATTENTION
    assert begun in events_of(report)
    assert history(arrow_shop) == [begun]
    assert arrow_shop.sync().changes == []  # it is known
    end()
    report = arrow_shop.sync()
    assert report.result is RunResult.CAUGHT_UP
    assert over in events_of(report)
    assert history(arrow_shop) == [begun, over]
    assert told(arrow_shop) == [(TableHalted, table), (TableResumed, table)]
    assert arrow_shop.sync().changes == []


@pytest.mark.parametrize(("cause", "table", "code", "reason"), HALTS, indirect=["cause"])
def test_halt_and_its_end_in_one_run_are_reported_once(arrow_shop, cause, table, code, reason):
    with arrow_shop.engine() as running:
        running.cycle(NO_STOP)
        end = cause()
        cycles(running, 3)
        end()
        cycles(running, 3)
    assert told(arrow_shop) == [(TableHalted, table), (TableResumed, table)]
    name_of = TableName.from_folder(table).normalized
    assert history(arrow_shop) == [("halted", name_of, code), ("resumed", name_of, reason)]


def test_halt_of_a_killed_run_is_not_lost(arrow_shop, monkeypatch):
    """It may be told twice, never not at all."""
    empty_file(arrow_shop)
    monkeypatch.setattr("mirror_engine.engine.halts.Halts.store", lambda _: None)
    arrow_shop.sync()
    monkeypatch.undo()
    assert history(arrow_shop) == [("halted", "New", "ME023")]
    arrow_shop.sync()
    assert {*history(arrow_shop)} == {("halted", "New", "ME023")}


def test_another_reason_is_another_halt(arrow_shop):
    metadata = arrow_shop.root / ZONE / "Orders/_metadata.json"
    end = broken_metadata(arrow_shop)
    arrow_shop.sync()
    metadata.write_bytes(b"[")  # in other words, at the same place
    assert arrow_shop.sync().changes == []
    metadata.unlink()
    arrow_shop.sync()
    end()
    arrow_shop.sync()
    assert [each for _, _, each in history(arrow_shop)] == ["ME010", "ME009", ""]


def test_dropped_table_reports_no_resume(arrow_shop):
    broken_metadata(arrow_shop)
    arrow_shop.sync()
    arrow_shop.publisher.remove("Orders")
    assert [each.change for each in arrow_shop.sync().changes] == ["dropped"]
    arrow_shop.land(1)
    assert arrow_shop.sync().changes == []


def test_hidden_folder_ends_no_halt(arrow_shop):
    end = broken_metadata(arrow_shop)
    arrow_shop.sync()
    folder, away = arrow_shop.root / ZONE / "Orders", arrow_shop.root.with_name("away")
    folder.rename(away)
    folder.symlink_to(away)
    arrow_shop.sync()
    folder.unlink()
    away.rename(folder)
    arrow_shop.sync()
    assert history(arrow_shop) == [("halted", "Orders", "ME010")]
    end()
    arrow_shop.sync()
    assert history(arrow_shop)[1:] == [("resumed", "Orders", "")]


def test_lost_ledger_tells_a_halt_again(arrow_shop):
    end = broken_metadata(arrow_shop)
    arrow_shop.sync()
    arrow_shop.lose_ledger()
    arrow_shop.sync()
    end()
    arrow_shop.sync()
    assert history(arrow_shop) == [("halted", "Orders", "ME010")] * 2 + [("resumed", "Orders", "")]
