"""Somebody else writes to our Delta tables: what changes rows is named with its version, until the table is new."""

from __future__ import annotations

import shutil

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from deltalake.schema import Field, PrimitiveType
from lake import NO_ROWS, Lake
from shop import NO_STOP, TYPES, SharedMemoryWriter, Shop, row

from mirror_engine.errors import CommitConflict
from mirror_engine.landing_zone.layout import ENGINE

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("no_pauses")]


def foreign(shop, table="Orders"):
    return [found.message for found, _ in shop.status(table).diagnostics if found.code == "ME080"]


@pytest.fixture
def shop(tmp_path):
    """One that has applied rows 1 and 2, in the Delta versions 1 and 2."""
    shop = Shop(tmp_path / "shop")
    shop.table = shop.orders()
    for number in (1, 2):
        shop.table.insert(row(number))
        shop.sync()
    return shop


@pytest.fixture
def lake(tmp_path):
    """One on real Delta tables: that of its one table has no row, at version 1."""
    return Lake(tmp_path / "lake", files=1)


def append(folder, *numbers):
    write_deltalake(str(folder), pa.table({"id": numbers, "city": ["x"] * len(numbers)}), mode="append")


def test_rows_of_another_program_are_named_with_their_version(shop):
    assert foreign(shop) == []
    shop.writer.write_as_another("dbo/Orders", [row(1)], "DELETE")
    assert foreign(shop) == ["another program changed the Delta table at version 3"]
    shop.sync()
    assert shop.said().count("ME080") == 1


def test_it_is_told_once_while_the_engine_runs_and_again_when_it_happens_again(shop):
    with shop.engine() as running:
        running.cycle(NO_STOP)
        for rows in ([], [row(9)]):
            shop.writer.write_as_another("dbo/Orders", rows)
            running.cycle(NO_STOP)
            running.cycle(NO_STOP)
    assert shop.said().count("ME080") == 2


def test_what_changes_no_row_is_no_alarm(shop):
    shop.writer.write_as_another("dbo/Orders", [row(1), row(2)], "OPTIMIZE")
    assert foreign(shop) == []


@pytest.mark.parametrize("ledger", ["kept", "lost"])
def test_later_commits_of_ours_do_not_hide_it(shop, ledger):
    shop.writer.write_as_another("dbo/Orders", [])
    for number in (3, 4):
        shop.table.insert(row(number))
        shop.sync()
    if ledger == "lost":
        shutil.rmtree(shop.root / ENGINE)
    assert foreign(shop) == ["another program changed the Delta table at version 3"]
    shop.sync()
    assert foreign(shop) == ["another program changed the Delta table at version 3"]


class Raced(SharedMemoryWriter):
    """Somebody is quicker by one commit, once."""

    conflict = False

    def apply(self, table, batch, record):
        if record.progress.batch == 3 and not self.latest_external_change(table, 2) >= 0:
            self.write_as_another(table, [])
            if self.conflict:
                raise CommitConflict("scripted")
        return super().apply(table, batch, record)


@pytest.mark.parametrize("conflict", [False, True])
@pytest.mark.parametrize("ledger", ["kept", "older", "lost"])
def test_one_who_came_between_the_look_and_the_commit_is_named(tmp_path, conflict, ledger):
    shop = Shop(tmp_path / "shop", Raced())
    shop.writer.conflict = conflict
    shop.table = shop.orders()
    for number in (1, 2):
        shop.table.insert(row(number))
        shop.sync()
    shutil.copytree(shop.root / ENGINE, tmp_path / "older")
    shop.table.insert(row(3))
    shop.sync()
    if ledger != "kept":
        shutil.rmtree(shop.root / ENGINE)
    if ledger == "older":
        shutil.copytree(tmp_path / "older", shop.root / ENGINE)
    assert foreign(shop) == ["another program changed the Delta table at version 3"]
    assert shop.ids() == [3]


def test_a_table_built_anew_is_ours_alone(shop):
    shop.writer.write_as_another("dbo/Orders", [])
    shop.sync()
    shop.publisher.remove("Orders")
    shop.orders().insert(row(5))
    assert foreign(shop) == []
    shop.sync()
    assert foreign(shop) == []
    assert shop.ids() == [5]


def test_commits_that_change_rows_or_columns_are_told_from_those_that_do_not(lake):
    table = lambda: DeltaTable(str(lake.folder))  # noqa: E731 - the newest version, each time
    assert foreign(lake) == []
    table().alter.set_table_properties({"delta.logRetentionDuration": "interval 60 days"})
    assert foreign(lake) == []
    append(lake.folder, 1)
    append(lake.folder, 2)
    assert foreign(lake) == ["another program changed the Delta table at version 4"]
    table().optimize.compact()
    table().vacuum(retention_hours=0, dry_run=False, enforce_retention_duration=False)
    table().create_checkpoint()
    assert foreign(lake) == ["another program changed the Delta table at version 4"]
    table().delete("id = 1")
    version = table().version()
    assert foreign(lake) == [f"another program changed the Delta table at version {version}"]
    table().alter.add_columns(Field("note", PrimitiveType("string")))
    assert foreign(lake) == [f"another program changed the Delta table at version {version + 1}"]


def test_the_engine_goes_on_over_what_others_did(lake):
    append(lake.folder, 7)
    lake.land()
    lake.sync()
    assert foreign(lake) == ["another program changed the Delta table at version 2"]
    assert lake.status().watermarks == {"": 2}
    assert lake.ids() == [7]


def test_our_own_commits_are_no_others(lake):
    """Also one that adds columns."""
    lake.table.land_parquet(pa.schema([*TYPES.items(), ("note", pa.string())]).empty_table())
    lake.sync()
    assert [entry.operation for entry in lake.writer.history("dbo/Orders")][:2] == ["WRITE", "WRITE"]
    assert lake.writer.latest_external_change("dbo/Orders", -1) == -1


def test_a_table_somebody_made_anew_at_the_same_place_is_looked_at_anew(lake):
    append(lake.folder, 1)
    assert lake.writer.latest_external_change("dbo/Orders", -1) == 2
    lake.publisher.remove("Orders")
    lake.orders().land_parquet(NO_ROWS)
    lake.sync()
    lake.sync()
    assert lake.writer.latest_external_change("dbo/Orders", -1) == -1
