"""What an engine does while the power is cut: what is there before, and the act that is recorded.

As a program it does an act: `python -m power_cuts.scenarios NAME ROOT PLANTED`.
"""

from __future__ import annotations

import sys
import time
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from marking import marking

from mirror_engine import Config, Mirror, RunResult
from mirror_engine.landing_zone.layout import LEDGER
from mirror_engine.tables import passthrough
from mirror_engine.tables.log import durability, table_path
from mirror_engine.testing.landing_zone_writer import LandingZoneWriter

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

SAID = "said"  # a folder beside ROOT: made when the engine said that it has caught up
TYPES = {"id": pa.int64(), "city": pa.string()}
DAYS = 60


def rows(*numbers, city="Linz"):
    return [{"id": number, "city": city} for number in numbers]


@dataclass(frozen=True)
class CutShop:
    """A ROOT, its publisher and its options."""

    root: Path
    options: Mapping[str, Any]

    @property
    def zone(self):
        return LandingZoneWriter(self.root)

    def orders(self, name="Orders", **options):
        return self.zone.table(name, keys=["id"], types=TYPES, **options)

    def mirror(self):
        return Mirror(self.root, Config(merge_engine="arrow", **self.options))

    def sync(self, *, days=0):
        with self.mirror() as mirror:
            mirror.advance(days=days)
            report = mirror.sync()
        assert report.result is RunResult.CAUGHT_UP, report
        return report

    def contents(self):
        """Rows of all Delta tables, sorted."""
        with self.mirror() as mirror:
            return {name: ordered(mirror.read_table(name)) for name in mirror.tables()}


def ordered(table):
    """Rows of a table, in an order of their own."""
    return sorted(table.to_pylist(), key=repr)


@dataclass(frozen=True)
class Scenario:
    """Args:
    before: makes what is there, and lands what waits.
    act: what the engine does then.
    options: of the engine.
    gone: tables that are dropped.
    """

    before: Callable[[CutShop], None]
    act: Callable[[CutShop], object] = CutShop.sync
    options: Mapping[str, Any] = field(default_factory=dict)
    may_be_gone: bool = False


def _loaded(shop, *, also=()):
    """Two tables with rows; what the engine makes once for a ROOT is there."""
    shop.orders("Other").initial_load(*rows(1))
    orders = shop.orders()
    orders.initial_load(*rows(*range(1, 9)), *also)
    shop.sync()
    return orders


def creation(shop):
    shop.orders("Other").initial_load(*rows(1))
    shop.sync()
    shop.orders("dbo.New").insert(*rows(1, 2))


def first_start(shop):
    shop.orders().insert(*rows(1, 2))


def append(shop):
    _loaded(shop).insert(*rows(20, 21))


def changes(shop):
    orders = _loaded(shop)
    orders.update(*rows(3, city="Wels"))
    orders.delete(*rows(4))
    orders.upsert(*rows(5, 30, city="Enns"))


def again_marked(shop):
    """Rows of a file that is marked already: the vector before is replaced."""
    orders = _loaded(shop)
    orders.update(*rows(3, city="Wels"))
    shop.sync()
    orders.update(*rows(5, city="Enns"))


def passed_through(shop):
    orders = _loaded(shop)
    orders.land_parquet(pa.table({"id": list(range(50, 90)), "city": ["x"] * 40}, pa.schema(TYPES.items())))


def evolution(shop):
    _loaded(shop)
    wider = shop.zone.table("Orders", keys=["id"], types=TYPES | {"note": pa.string()})
    wider.skip_numbers(1)
    wider.upsert({"id": 3, "city": "Wels", "note": "n"}, {"id": 40, "city": "Enns", "note": None})


def partitions(shop):
    days = shop.zone.table("Days", keys=["id", "day"], types=TYPES, partitioned=True)
    for day in ("day=1", "day=2"):
        days.insert(*rows(1, 2), partition=day)
    shop.sync()
    days.update(*rows(1, city="Wels"), partition="day=1")
    days.insert(*rows(3), partition="day=3")


def many_commits(shop):
    orders = _loaded(shop)
    for number in range(100, 106):
        orders.insert(*rows(number))
        shop.sync()
    orders.update(*rows(100, city="Wels"))


def dropped(shop):
    _loaded(shop).drop()


def recreated(shop):
    _loaded(shop).drop()
    shop.orders().insert(*rows(70, 71))


def ledger_lost(shop):
    append(shop)
    _lose_ledger(shop)


def _lose_ledger(shop):
    for file in shop.root.glob(f"{LEDGER}*"):
        file.unlink()


def archived(shop):
    orders = _loaded(shop)
    for number in range(100, 103):
        orders.update(*rows(3, city=str(number)))
        shop.sync()


def maintain(shop):
    """Put small files together, and vacuum what was replaced long ago."""
    now = time.time
    time.time = lambda: now() + DAYS * 86_400
    try:
        with shop.mirror() as mirror:
            mirror.maintain()
    finally:
        time.time = now


def rebuild(shop):
    with shop.mirror() as mirror:
        mirror.rebuild(["Orders"], replay=True)
    shop.sync()


def later(shop):
    return shop.sync(days=DAYS)


SCENARIOS = {
    "first start": Scenario(first_start),
    "creation": Scenario(creation),
    "append": Scenario(append),
    "vectors": Scenario(changes),
    "vectors again": Scenario(again_marked),
    "rewrite": Scenario(changes, options={"deletion_vectors": "off"}),
    "change data": Scenario(changes, options={"change_data_feed": "on"}),
    "passthrough": Scenario(passed_through),
    "evolution": Scenario(evolution),
    "partitions": Scenario(partitions),
    "file by file": Scenario(changes, options={"max_batch_files": 1}),
    "checkpoint": Scenario(many_commits),
    "maintenance": Scenario(many_commits, maintain),
    "drop": Scenario(dropped, may_be_gone=True),
    "recreation": Scenario(recreated, may_be_gone=True),
    "ledger lost": Scenario(ledger_lost),
    "rebuild": Scenario(archived, rebuild, may_be_gone=True),
    "retention": Scenario(archived, later),
}


@contextmanager
def small():
    """Small tables take the ways of large ones."""
    with ExitStack() as stack:
        stack.enter_context(marking())
        patch = stack.enter_context(pytest.MonkeyPatch.context())
        patch.setattr(passthrough, "MIN_BYTES", 1)
        yield


def shop_of(scenario, root):
    return CutShop(root, scenario.options)


def _nothing(*_, **__):
    pass


PLANTED = {
    "data files are not fsynced": (durability, "_sync_files"),
    "names are not fsynced": (durability, "sync_folder"),
    "commits are not fsynced": (durability, "_sync_commits"),
    "log entries are not fsynced": (table_path.os, "fsync"),
}


if __name__ == "__main__":
    chosen, place = SCENARIOS[sys.argv[1]], Path(sys.argv[2])
    with small(), pytest.MonkeyPatch.context() as planting:
        if sys.argv[3]:
            planting.setattr(*PLANTED[sys.argv[3]], _nothing)
        chosen.act(shop_of(chosen, place))
        (place.parent / SAID).mkdir()
