"""Wait conditions: tables that have caught up, applied files, and why a condition is not met yet."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa
import pytest
from msgspec import structs
from scripted_faults import Failing, faulty

from mirror_engine.errors import UsageError
from mirror_engine.mirror import Mirror
from mirror_engine.monitoring.wait_conditions import file_not_applied, tables_not_caught_up
from mirror_engine.storage.local import LocalStorage
from mirror_engine.tables.dry_run.memory import MemoryDeltaWriter

pytestmark = pytest.mark.slow  # whole programs: no part of the quick look

TYPES = {"Id": pa.int64()}
FIRST, SECOND, THIRD, FOURTH = (f"{number:020}.parquet" for number in (1, 2, 3, 4))


@pytest.fixture
def items_table(publisher):
    return publisher.table("Items", keys=["Id"], types=TYPES)


@pytest.fixture
def waiting_mirror(tmp_path):
    return Mirror(tmp_path, writer=MemoryDeltaWriter())


def behind(mirror, *names):
    return [(found.table, found.state, found.message) for found in tables_not_caught_up(mirror._status(), names, "dbo")]


def not_applied(mirror, file, *names):
    return [(found.table, found.message) for found in file_not_applied(mirror._status(), file, names, "dbo")]


def test_a_table_has_caught_up_once_all_files_are_applied(waiting_mirror, publisher) -> None:
    assert behind(waiting_mirror) == [("", "", "the landing zone has no table folder yet")]
    publisher.table("Items", keys=["Id"], types=TYPES).insert({"Id": 1})
    ((table, state, reason),) = behind(waiting_mirror)
    assert (table, state) == ("Items", "loading")
    assert reason.startswith("Items: 1 file pending")
    assert "start `mirror-engine run`" in tables_not_caught_up(waiting_mirror._status(), (), "dbo")[0].help
    waiting_mirror.sync()
    assert behind(waiting_mirror) == behind(waiting_mirror, "dbo.items") == []


def test_a_named_table_must_exist(waiting_mirror, items_table) -> None:
    items_table.insert({"Id": 1})
    waiting_mirror.sync()
    message = "Sales.Orders: the landing zone has no such table folder yet"
    assert behind(waiting_mirror, "Items", "Sales.Orders") == [("Sales.Orders", "", message)]
    (found,) = tables_not_caught_up(waiting_mirror._status(), ["Itmes"], "dbo")
    assert found.help.startswith("did you mean Items? ")


def test_a_table_without_files_counts_only_if_it_is_named(waiting_mirror, items_table, publisher) -> None:
    publisher.table("Empty", keys=["Id"], types=TYPES)
    items_table.insert({"Id": 1})
    waiting_mirror.sync()
    assert behind(waiting_mirror) == []
    assert behind(waiting_mirror, "Empty") == [("Empty", "empty", "Empty has metadata but no change files")]


def test_a_folder_that_cannot_be_listed_may_hold_files(waiting_mirror, items_table, publisher, tmp_path) -> None:
    """However short the failure: one that is not seen is not caught up."""
    publisher.table("Orders", keys=["Id"], types=TYPES).insert({"Id": 1})
    waiting_mirror.sync()
    items_table.insert({"Id": 1})
    message = "Items: its folder cannot be listed or read; no table is dropped [ME070]"
    for call in ("list .*Items", "stat .*Items", "open .*Items"):
        broken = Mirror(tmp_path, storage=faulty(LocalStorage(tmp_path), Failing(call)), writer=waiting_mirror._writer)
        assert behind(broken) == [("Items", "unlisted", message)]


def test_a_table_that_cannot_go_on_needs_attention(waiting_mirror, items_table, publisher) -> None:
    publisher.folder("Bare").land(b"", name=FIRST)
    orders = publisher.table("Orders", keys=["Id"], types=TYPES)
    items_table.land(b"")
    orders.skip_numbers()
    orders.insert({"Id": 1})
    waiting_mirror.sync()
    found = {one.table: one for one in tables_not_caught_up(waiting_mirror._status(), (), "dbo")}
    assert {name: (one.state, one.needs_attention) for name, one in found.items()} == {
        "Bare": ("unconfigured", False),
        "Items": ("halted", True),
        "Orders": ("blocked", True),
    }
    for name, part in (("Bare", "ME008"), ("Items", "ME023"), ("Orders", FIRST)):
        assert part in found[name].message
        assert found[name].help


@pytest.mark.parametrize("name", ["2", "0002", SECOND, f"Items/{SECOND}", "Items/2"])
def test_a_file_is_named_by_path_name_or_number_landed_or_not(waiting_mirror, items_table, name) -> None:
    items_table.insert({"Id": 1})
    waiting_mirror.sync()
    assert not_applied(waiting_mirror, "1") == not_applied(waiting_mirror, FIRST) == []
    assert not_applied(waiting_mirror, name) == [("Items", f"Items: {SECOND} has not landed yet")]
    items_table.insert({"Id": 2})
    assert not_applied(waiting_mirror, name) == [("Items", f"Items: {SECOND} is pending: ready for the next cycle")]
    waiting_mirror.sync()
    assert not_applied(waiting_mirror, name) == not_applied(waiting_mirror, name, "Items") == []


def test_a_file_that_was_moved_away_stays_applied(waiting_mirror, items_table, tmp_path) -> None:
    items_table.insert({"Id": 1})
    items_table.insert({"Id": 2})
    waiting_mirror.sync()
    assert not (tmp_path / f"Files/LandingZone/Items/{FIRST}").exists()
    assert not_applied(waiting_mirror, FIRST) == []
    status = waiting_mirror._status()
    forgetful = structs.replace(status, tables=(replace(status.tables[0], files=()),))
    assert file_not_applied(forgetful, FIRST, (), "dbo") == file_not_applied(forgetful, SECOND, (), "dbo") == ()
    assert file_not_applied(forgetful, THIRD, (), "dbo")[0].message == f"Items: {THIRD} has not landed yet"
    assert file_not_applied(forgetful, FIRST.replace("parquet", "csv"), (), "dbo") != ()


def test_a_file_that_is_never_applied_needs_attention(waiting_mirror, items_table) -> None:
    items_table.insert({"Id": 1})
    items_table.insert({"Id": 2})
    waiting_mirror.sync()
    items_table.insert({"Id": 3}, name=FIRST)
    items_table.put("2.parquet", b"")
    items_table.land(b"")
    items_table.insert({"Id": 4})
    waiting_mirror.sync()
    overwritten = "applied: file was overwritten after it was applied; the new content is ignored"
    for name, message in {
        FIRST: f"Items: {FIRST} is {overwritten}",
        "2.parquet": "Items: 2.parquet: ignored: 1 digit, expected 20 digits before `.parquet` [ME020]",
        THIRD: f"Items: {THIRD} is rejected: file is empty (0 bytes)",
        FOURTH: f"Items: {FOURTH} is pending: the table is halted at Items/{THIRD}",
    }.items():
        (found,) = file_not_applied(waiting_mirror._status(), name, (), "dbo")
        assert (found.message, found.needs_attention) == (message, True)
    assert not_applied(waiting_mirror, SECOND) == []


def test_a_file_name_that_several_tables_have_is_ambiguous(waiting_mirror, items_table, publisher) -> None:
    items_table.insert({"Id": 1})
    publisher.table("Orders", keys=["Id"], types=TYPES).insert({"Id": 1})
    with pytest.raises(UsageError, match="may be a file of Items and Orders"):
        not_applied(waiting_mirror, FIRST)
    assert len(not_applied(waiting_mirror, FIRST, "Orders")) == 1
    assert not_applied(waiting_mirror, THIRD) == [("", f"{THIRD} has not landed yet")]
    assert not_applied(waiting_mirror, FIRST, "Nowhere") == [("", f"{FIRST} has not landed yet")]
