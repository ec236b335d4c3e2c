"""Plans of a whole zone: root identity, ownership of Delta folders, tables in progress."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import replace

import pytest
from shop import Shop, name, row

from mirror_engine import Config
from mirror_engine.engine.planner import (
    DropTable,
    StartGeneration,
    UpdateFolderIdentity,
    ZonePlanner,
    overlapping_tables,
    ownership_conflicts,
)
from mirror_engine.engine.poller import Poller
from mirror_engine.engine.recovery import DeltaFolders
from mirror_engine.engine.root_identity import FolderChange, RootIdentity, RootIdentityCheck
from mirror_engine.landing_zone.names import TableName

ORDERS = TableName("", "Orders")
IN_SCHEMA = TableName("dbo", "ORDERS")


@pytest.fixture
def context(tmp_path):
    with context_of(tmp_path) as context:
        yield context


@contextmanager
def context_of(root):
    shop = Shop(root)
    shop.orders().initial_load(row(1))
    with shop.engine() as running:
        yield running.context


def scan(context):
    return Poller(context.storage, context.config).scan()


def replayed(root):
    shop = Shop(root)
    shop.orders().initial_load(row(1))
    shop.sync()
    return shop


def test_tables_are_planned_by_the_listing(context):
    with_orders = scan(context)
    without = replace(with_orders, tables=())
    assert list(ZonePlanner(context, DeltaFolders(), without).plans()) == []
    plans = ZonePlanner(context, DeltaFolders(), with_orders).plans()
    assert isinstance(plans[ORDERS].steps[0], StartGeneration)


def test_another_folder_identity_is_a_copy_only_where_root_moved(tmp_path):
    shop = replayed(tmp_path)
    with shop.engine() as running:
        context, zone = running.context, scan(running.context)
        recreated = replace(zone, tables=tuple(replace(table, identity="other") for table in zone.tables))
        check = RootIdentityCheck.at(context, zone)
        progress = context.ledger.progress(ORDERS)
        assert isinstance(ZonePlanner(context, DeltaFolders(), recreated).plans()[ORDERS].steps[0], DropTable)
        assert check.change_of(recreated.tables[0], progress) is FolderChange.RECREATED
        copied = replace(check, before=RootIdentity("elsewhere", zone.identity))
        assert copied.change_of(recreated.tables[0], progress) is FolderChange.MOVED
        assert copied.change_of(zone.tables[0], progress) is FolderChange.NONE
        first = replace(check, before=RootIdentity("", zone.identity))  # ROOT in a store, before it had a table
        assert first.change_of(recreated.tables[0], progress) is FolderChange.MOVED  # the content decides
        shop.publisher.table("Orders").put(name(1), b"other")
        assert first.change_of(recreated.tables[0], progress) is FolderChange.RECREATED


def test_a_moved_root_is_remembered_once_it_is_certain_and_recorded(tmp_path):
    shop = replayed(tmp_path)
    with shop.engine() as running:
        context, zone = running.context, scan(running.context)
        elsewhere = replace(
            zone, identity="other", tables=tuple(replace(table, identity="other") for table in zone.tables)
        )
        ZonePlanner(context, DeltaFolders(), replace(elsewhere, unlisted=frozenset({"Orders"}))).remember_root([], [])
        ZonePlanner(context, DeltaFolders(), replace(elsewhere, tables=())).remember_root([], [])
        zone_planner = ZonePlanner(context, DeltaFolders(), elsewhere)
        plan = zone_planner.plans()[ORDERS]
        assert isinstance(plan.steps[0], UpdateFolderIdentity)  # byte for byte what was applied
        zone_planner.remember_root([plan], [])  # its folder's identity is not recorded yet
        zone_planner.remember_root([], [str(zone_planner.root.before)])  # a task in progress was planned before
        still = RootIdentityCheck.at(context, elsewhere)
        assert still.now != still.before
        known = context.ledger.progress(ORDERS)
        context.ledger.record(ORDERS, replace(known, identity="other"))
        zone_planner.remember_root([plan], [str(zone_planner.root.now)])
        after = RootIdentityCheck.at(context, elsewhere)
        assert after.now == after.before


def test_a_folder_with_a_table_owns_its_delta_folder_whatever_its_name(tmp_path):
    with context_of(tmp_path / "new") as context:
        assert list(ownership_conflicts(context, frozenset(), [ORDERS, IN_SCHEMA])) == [ORDERS]
    with replayed(tmp_path / "known").engine() as running:
        refusals = ownership_conflicts(running.context, frozenset(), [IN_SCHEMA])
        assert {name: said.code for name, said in refusals.items()} == {IN_SCHEMA: "ME004"}


def test_tables_whose_delta_folder_overlaps_one_in_progress_are_not_planned(tmp_path):
    with context_of(tmp_path) as context:
        zone_planner = ZonePlanner(context, DeltaFolders(), scan(context))
        assert zone_planner.plans(except_for=[TableName("", "Items")]).keys() == {ORDERS}
        assert zone_planner.plans(except_for=[ORDERS]) == zone_planner.plans(except_for=[IN_SCHEMA]) == {}
    names = {TableName("", "a"), TableName("A", "b"), TableName("A", "c"), TableName("", "d")}
    flat = replace(context, config=Config(default_schema="none"))
    assert overlapping_tables(flat, names, [TableName("", "a")]) == names - {TableName("", "d")}
    assert overlapping_tables(flat, names, [TableName("A", "b")]) == {TableName("", "a"), TableName("A", "b")}
