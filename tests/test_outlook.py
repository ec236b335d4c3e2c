"""The outlook: plans from one look, whatever was looked at before."""

from __future__ import annotations

import threading
from contextlib import contextmanager
from dataclasses import replace

import pytest
from shop import Shop, row

from mirror_engine import Config
from mirror_engine.anchor import Anchor, Moored
from mirror_engine.landing_zone.names import TableName
from mirror_engine.landing_zone.states import Waiting
from mirror_engine.outlook import Outlook
from mirror_engine.places import around, taken_places
from mirror_engine.poller import Poller
from mirror_engine.recovery import DeltaFolders
from mirror_engine.steps import BeginGeneration, DropTable, LearnIdentity

ORDERS = TableName("", "Orders")
IN_SCHEMA = TableName("dbo", "ORDERS")


@pytest.fixture
def doors(tmp_path):
    with doors_of(tmp_path) as found:
        yield found


@contextmanager
def doors_of(root):
    shop = Shop(root)
    shop.orders().load(row(1))
    with shop.engine() as running:
        yield running.doors


def look(doors):
    return Poller(doors.storage, doors.config).look()


def replayed(root):
    shop = Shop(root)
    shop.orders().load(row(1))
    shop.once()
    return shop


def test_each_look_makes_its_own_plans(doors):
    with_orders = look(doors)
    without = replace(with_orders, tables=())
    assert list(Outlook(doors, DeltaFolders(), without).plans()) == []
    plans = Outlook(doors, DeltaFolders(), with_orders).plans()
    assert isinstance(plans[ORDERS].steps[0], BeginGeneration)
    assert Outlook(doors, DeltaFolders(), with_orders).plans(only=()) == {}


def test_only_a_moved_anchor_makes_another_identity_a_copy(tmp_path):
    shop = replayed(tmp_path)
    with shop.engine() as running:
        doors, zone = running.doors, look(running.doors)
        recreated = replace(zone, tables=tuple(replace(table, identity="other") for table in zone.tables))
        moored = Moored.at(doors, zone)
        progress = doors.ledger.progress(ORDERS)
        assert isinstance(Outlook(doors, DeltaFolders(), recreated).plans()[ORDERS].steps[0], DropTable)
        assert not moored.has_moved(recreated.tables[0], progress)
        copied = replace(moored, before=Anchor("elsewhere", zone.identity))
        assert copied.has_moved(recreated.tables[0], progress)
        assert not copied.has_moved(zone.tables[0], progress)


def test_a_copied_root_is_learned_and_an_uncertain_look_is_not_remembered(tmp_path):
    shop = replayed(tmp_path)
    with shop.engine() as running:
        doors, zone = running.doors, look(running.doors)
        elsewhere = replace(
            zone, identity="other", tables=tuple(replace(table, identity="other") for table in zone.tables)
        )
        Moored.at(doors, replace(elsewhere, unlisted=frozenset({"Orders"}))).remember([], [])
        Moored.at(doors, replace(elsewhere, tables=())).remember([], [])
        outlook = Outlook(doors, DeltaFolders(), elsewhere)
        plan = outlook.plans()[ORDERS]
        assert isinstance(plan.steps[0], LearnIdentity)  # byte for byte what was applied
        outlook.moored.remember([plan], [])
        outlook.moored.remember([], [str(outlook.moored.before)])  # a turn that was planned before it moved
        still = Moored.at(doors, elsewhere)
        assert still.now != still.before
        outlook.moored.remember([], [str(outlook.moored.now)])
        after = Moored.at(doors, elsewhere)
        assert after.now == after.before


def test_who_has_a_table_owns_its_place_though_another_would_come_first(tmp_path):
    with doors_of(tmp_path / "new") as doors:
        assert list(taken_places(doors, frozenset(), [ORDERS, IN_SCHEMA])) == [ORDERS]
    with replayed(tmp_path / "known").engine() as running:
        refusals = taken_places(running.doors, frozenset(), [IN_SCHEMA])
        assert {name: said.code for name, said in refusals.items()} == {IN_SCHEMA: "ME004"}


def test_a_table_at_hand_keeps_those_from_being_planned_that_share_its_place(tmp_path):
    with doors_of(tmp_path) as doors:
        outlook = Outlook(doors, DeltaFolders(), look(doors))
        assert outlook.plans(but=[TableName("", "Items")]).keys() == {ORDERS}
        assert outlook.plans(but=[ORDERS]) == outlook.plans(but=[IN_SCHEMA]) == {}
    names = {TableName("", "a"), TableName("A", "b"), TableName("A", "c"), TableName("", "d")}
    flat = replace(doors, config=Config(default_schema="none"))
    assert around(flat, names, [TableName("", "a")]) == names - {TableName("", "d")}
    assert around(flat, names, [TableName("A", "b")]) == {TableName("", "a"), TableName("A", "b")}


def test_a_plan_is_made_anew_only_where_what_it_is_made_from_has_changed(tmp_path):
    shop = replayed(tmp_path)
    with shop.engine() as running:
        doors, before = running.doors, {}
        poller = Poller(doors.storage, doors.config)

        def planned():
            return Outlook(doors, DeltaFolders(), poller.look(), before).plans()[ORDERS]

        planned()  # the first look remembers nothing of the folder yet
        first = planned()
        assert planned() is first
        known = doors.ledger.progress(ORDERS)
        doors.ledger.record(ORDERS, replace(known, waiting={"gone": "x"}))
        assert planned() != first
        doors.ledger.record(ORDERS, known)
        assert planned() == first
        shop.publisher.folder("Orders").put("b.parquet", b"x")
        assert planned() != first
        shop.publisher.remove("Orders")
        assert isinstance(Outlook(doors, DeltaFolders(), poller.look(), before).plans()[ORDERS].steps[0], DropTable)


def test_a_table_that_waits_for_data_is_planned_by_the_clock(tmp_path):
    shop = Shop(tmp_path)
    shop.orders()
    with shop.engine() as running:
        for expired in (False, False, True):
            running.cycle(threading.Event())
            (plan,) = running.last.plans.values()
            assert plan.state == Waiting(expired=expired)
            shop.now += 8 * 86_400
