"""The outlook: plans from one look, whatever was looked at before."""

from __future__ import annotations

import threading
from contextlib import contextmanager
from dataclasses import replace

import pytest
from shop import Shop, row

from mirror_engine import Config
from mirror_engine.engine.ownership import around, taken_places
from mirror_engine.engine.plan import DropTable, StartGeneration, UpdateFolderIdentity
from mirror_engine.engine.planner import ZonePlanner
from mirror_engine.engine.poller import Poller
from mirror_engine.engine.recovery import DeltaFolders
from mirror_engine.engine.root_identity import RootIdentity, RootIdentityCheck
from mirror_engine.landing_zone.names import TableName
from mirror_engine.landing_zone.states import Empty

ORDERS = TableName("", "Orders")
IN_SCHEMA = TableName("dbo", "ORDERS")


@pytest.fixture
def context(tmp_path):
    with doors_of(tmp_path) as found:
        yield found


@contextmanager
def doors_of(root):
    shop = Shop(root)
    shop.orders().initial_load(row(1))
    with shop.engine() as running:
        yield running.context


def look(context):
    return Poller(context.storage, context.config).look()


def replayed(root):
    shop = Shop(root)
    shop.orders().initial_load(row(1))
    shop.sync()
    return shop


def test_each_look_makes_its_own_plans(context):
    with_orders = look(context)
    without = replace(with_orders, tables=())
    assert list(ZonePlanner(context, DeltaFolders(), without).plans()) == []
    plans = ZonePlanner(context, DeltaFolders(), with_orders).plans()
    assert isinstance(plans[ORDERS].steps[0], StartGeneration)
    assert ZonePlanner(context, DeltaFolders(), with_orders).plans(only=()) == {}


def test_only_a_moved_anchor_makes_another_identity_a_copy(tmp_path):
    shop = replayed(tmp_path)
    with shop.engine() as running:
        context, zone = running.context, look(running.context)
        recreated = replace(zone, tables=tuple(replace(table, identity="other") for table in zone.tables))
        identity_check = RootIdentityCheck.at(context, zone)
        progress = context.ledger.progress(ORDERS)
        assert isinstance(ZonePlanner(context, DeltaFolders(), recreated).plans()[ORDERS].steps[0], DropTable)
        assert not identity_check.has_moved(recreated.tables[0], progress)
        copied = replace(identity_check, before=RootIdentity("elsewhere", zone.identity))
        assert copied.has_moved(recreated.tables[0], progress)
        assert not copied.has_moved(zone.tables[0], progress)


def test_a_copied_root_is_learned_and_an_uncertain_look_is_not_remembered(tmp_path):
    shop = replayed(tmp_path)
    with shop.engine() as running:
        context, zone = running.context, look(running.context)
        elsewhere = replace(
            zone, identity="other", tables=tuple(replace(table, identity="other") for table in zone.tables)
        )
        RootIdentityCheck.at(context, replace(elsewhere, unlisted=frozenset({"Orders"}))).remember([], [])
        RootIdentityCheck.at(context, replace(elsewhere, tables=())).remember([], [])
        zone_planner = ZonePlanner(context, DeltaFolders(), elsewhere)
        plan = zone_planner.plans()[ORDERS]
        assert isinstance(plan.steps[0], UpdateFolderIdentity)  # byte for byte what was applied
        zone_planner.identity_check.remember([plan], [])
        zone_planner.identity_check.remember(
            [], [str(zone_planner.identity_check.before)]
        )  # a turn that was planned before it moved
        still = RootIdentityCheck.at(context, elsewhere)
        assert still.now != still.before
        zone_planner.identity_check.remember([], [str(zone_planner.identity_check.now)])
        after = RootIdentityCheck.at(context, elsewhere)
        assert after.now == after.before


def test_who_has_a_table_owns_its_place_though_another_would_come_first(tmp_path):
    with doors_of(tmp_path / "new") as context:
        assert list(taken_places(context, frozenset(), [ORDERS, IN_SCHEMA])) == [ORDERS]
    with replayed(tmp_path / "known").engine() as running:
        refusals = taken_places(running.context, frozenset(), [IN_SCHEMA])
        assert {name: said.code for name, said in refusals.items()} == {IN_SCHEMA: "ME004"}


def test_a_table_at_hand_keeps_those_from_being_planned_that_share_its_place(tmp_path):
    with doors_of(tmp_path) as context:
        zone_planner = ZonePlanner(context, DeltaFolders(), look(context))
        assert zone_planner.plans(but=[TableName("", "Items")]).keys() == {ORDERS}
        assert zone_planner.plans(but=[ORDERS]) == zone_planner.plans(but=[IN_SCHEMA]) == {}
    names = {TableName("", "a"), TableName("A", "b"), TableName("A", "c"), TableName("", "d")}
    flat = replace(context, config=Config(default_schema="none"))
    assert around(flat, names, [TableName("", "a")]) == names - {TableName("", "d")}
    assert around(flat, names, [TableName("A", "b")]) == {TableName("", "a"), TableName("A", "b")}


def test_a_plan_is_made_anew_only_where_what_it_is_made_from_has_changed(tmp_path):
    shop = replayed(tmp_path)
    with shop.engine() as running:
        context, before = running.context, {}
        poller = Poller(context.storage, context.config)

        def planned():
            return ZonePlanner(context, DeltaFolders(), poller.look(), before).plans()[ORDERS]

        planned()  # the first look remembers nothing of the folder yet
        first = planned()
        assert planned() is first
        known = context.ledger.progress(ORDERS)
        context.ledger.record(ORDERS, replace(known, waiting={"gone": "x"}))
        assert planned() != first
        context.ledger.record(ORDERS, known)
        assert planned() == first
        shop.publisher.folder("Orders").put("b.parquet", b"x")
        assert planned() != first
        shop.publisher.remove("Orders")
        assert isinstance(
            ZonePlanner(context, DeltaFolders(), poller.look(), before).plans()[ORDERS].steps[0], DropTable
        )


def test_a_table_that_waits_for_data_is_planned_by_the_clock(tmp_path):
    shop = Shop(tmp_path)
    shop.orders()
    with shop.engine() as running:
        for expired in (False, False, True):
            running.cycle(threading.Event())
            (plan,) = running.last.plans.values()
            assert plan.state == Empty(expired=expired)
            shop.now += 8 * 86_400
