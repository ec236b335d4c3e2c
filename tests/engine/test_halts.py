"""Halts: each begin and each end is reported once, by whichever run finds it, and is in the history of ROOT."""

from __future__ import annotations

import pytest
from shop import NO_STOP, Shop, name, row

from mirror_engine import RunResult
from mirror_engine.engine import planner
from mirror_engine.events import TableHalted, TableResumed
from mirror_engine.landing_zone.layout import LEDGER, ZONE
from mirror_engine.landing_zone.names import TableName
from mirror_engine.tables.merge.arrow import ArrowWriter

pytestmark = [pytest.mark.usefixtures("one_attempt"), pytest.mark.slow]


class Damaged:
    """ME081: another program's commit is cut off."""

    def __init__(self, shop):
        newest = max((shop.root / "Tables/dbo/Orders/_delta_log").glob("*.json"))
        self.commit = newest.with_name(f"{int(newest.stem) + 1:020}.json")

    def begin(self):
        self.commit.write_bytes(b'{"commitInfo":')

    def end(self):
        self.commit.unlink()


class Conflict:
    """ME004: two folders of one Delta table."""

    def __init__(self, shop):
        self.shop = shop

    def begin(self):
        self.shop.orders("dbo.Orders").insert(row(9))

    def end(self):
        self.shop.publisher.remove("dbo.schema/Orders")


class TooMany:
    """ME007: more tables than Fabric takes, under `strict`."""

    def __init__(self, shop):
        self.shop = shop

    def begin(self):
        self.shop.orders("Second").insert(row(9))

    def end(self):
        self.shop.publisher.remove("Orders")


class BrokenMetadata:
    """ME010: a halt that the progress of its table records, too."""

    def __init__(self, shop):
        self.path = shop.root / ZONE / "Orders/_metadata.json"

    def begin(self):
        self.whole = self.path.read_bytes()
        self.path.write_bytes(b"{")

    def end(self):
        self.path.write_bytes(self.whole)


class EmptyFile:
    """ME023 of a table that has no Delta table yet; its folder is deleted."""

    def __init__(self, shop):
        self.shop = shop

    def begin(self):
        self.shop.orders("New")
        (self.shop.root / ZONE / "New" / name(1)).write_bytes(b"")

    def end(self):
        self.shop.publisher.remove("New")


# what halts which table, the code, and the reason of its end
HALTS = [
    (Damaged, "Orders", "ME081", ""),
    (Conflict, "dbo.schema/Orders", "ME004", "deleted"),
    (TooMany, "Second", "ME007", ""),
    (BrokenMetadata, "Orders", "ME010", ""),
    (EmptyFile, "New", "ME023", "deleted"),
]


@pytest.fixture
def arrow_shop(tmp_path, monkeypatch):
    monkeypatch.setattr(planner, "MAX_FABRIC_TABLES", 1)
    return Shop(tmp_path / "shop", ArrowWriter(tmp_path / "shop/Tables", tmp_path / "scratch"))


def opened(shop, kind):
    if kind is TooMany:
        shop.config = type(shop.config)(strict=True)
    for number in (1, 2):
        shop.orders().insert(row(number), name=name(number))
    assert shop.sync().result is RunResult.CAUGHT_UP
    shop.events.clear()
    return kind(shop)


def told(shop):
    return [(type(event), event.table.folder) for event in shop.events if isinstance(event, TableHalted | TableResumed)]


def events_of(result):
    return [(each.change, each.table, each.reason or "") for each in result.changes]


def history(shop):
    with shop.mirror() as mirror:
        found = events_of(mirror.history())
    return [each for each in reversed(found) if each[0] in {"halted", "resumed"}]


@pytest.mark.parametrize(("kind", "table", "code", "end"), HALTS)
def test_halt_and_its_end_are_reported_by_the_runs_that_find_them(arrow_shop, kind, table, code, end):
    name_of = TableName.from_folder(table).normalized
    cause, begun, over = opened(arrow_shop, kind), ("halted", name_of, code), ("resumed", name_of, end)
    cause.begin()
    report = arrow_shop.sync()
    assert report.result is RunResult.NEEDS_ATTENTION
    assert begun in events_of(report)
    assert history(arrow_shop) == [begun]
    assert arrow_shop.sync().changes == []  # it is known
    cause.end()
    report = arrow_shop.sync()
    assert report.result is RunResult.CAUGHT_UP
    assert over in events_of(report)
    assert history(arrow_shop) == [begun, over]
    assert told(arrow_shop) == [(TableHalted, table), (TableResumed, table)]
    assert arrow_shop.sync().changes == []


@pytest.mark.parametrize(("kind", "table", "code", "end"), HALTS)
def test_halt_and_its_end_in_one_run_are_reported_once(arrow_shop, kind, table, code, end):
    cause = opened(arrow_shop, kind)
    with arrow_shop.engine() as running:
        running.cycle(NO_STOP)
        cause.begin()
        for _ in range(3):
            running.cycle(NO_STOP)
        cause.end()
        for _ in range(3):
            running.cycle(NO_STOP)
    assert told(arrow_shop) == [(TableHalted, table), (TableResumed, table)]
    name_of = TableName.from_folder(table).normalized
    assert history(arrow_shop) == [("halted", name_of, code), ("resumed", name_of, end)]


def test_halt_whose_run_was_killed_before_it_was_stored_is_not_lost(arrow_shop, monkeypatch):
    """It may be told twice, never not at all."""
    cause = opened(arrow_shop, EmptyFile)
    cause.begin()
    monkeypatch.setattr("mirror_engine.engine.halts.Halts.store", lambda _: None)
    arrow_shop.sync()
    monkeypatch.undo()
    assert history(arrow_shop) == [("halted", "New", "ME023")]
    arrow_shop.sync()
    assert {*history(arrow_shop)} == {("halted", "New", "ME023")}


def test_another_reason_is_another_halt(arrow_shop):
    opened(arrow_shop, BrokenMetadata)
    metadata = arrow_shop.root / ZONE / "Orders/_metadata.json"
    whole = metadata.read_bytes()
    metadata.write_bytes(b"{")
    arrow_shop.sync()
    metadata.write_bytes(b"[")  # in other words, at the same place
    assert arrow_shop.sync().changes == []
    metadata.unlink()
    arrow_shop.sync()
    metadata.write_bytes(whole)
    arrow_shop.sync()
    assert [each for _, _, each in history(arrow_shop)] == ["ME010", "ME009", ""]


def test_dropped_table_is_halted_no_more_without_a_word_of_its_own(arrow_shop):
    cause = opened(arrow_shop, BrokenMetadata)
    cause.begin()
    arrow_shop.sync()
    arrow_shop.publisher.remove("Orders")
    assert [each.change for each in arrow_shop.sync().changes] == ["dropped"]
    arrow_shop.orders().insert(row(1), name=name(1))
    assert arrow_shop.sync().changes == []


def test_hidden_folder_ends_no_halt(arrow_shop):
    cause = opened(arrow_shop, BrokenMetadata)
    cause.begin()
    arrow_shop.sync()
    folder, away = arrow_shop.root / ZONE / "Orders", arrow_shop.root.with_name("away")
    folder.rename(away)
    folder.symlink_to(away)
    arrow_shop.sync()
    folder.unlink()
    away.rename(folder)
    arrow_shop.sync()
    assert history(arrow_shop) == [("halted", "Orders", "ME010")]
    cause.end()
    arrow_shop.sync()
    assert history(arrow_shop)[1:] == [("resumed", "Orders", "")]


def test_lost_ledger_tells_a_halt_again(arrow_shop):
    cause = opened(arrow_shop, BrokenMetadata)
    cause.begin()
    arrow_shop.sync()
    for file in arrow_shop.root.glob(f"{LEDGER}*"):
        file.unlink()
    arrow_shop.sync()
    cause.end()
    arrow_shop.sync()
    assert history(arrow_shop) == [("halted", "Orders", "ME010")] * 2 + [("resumed", "Orders", "")]
