"""Wait conditions: tables that have caught up, applied files, and why a condition is not met yet."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa
import pytest

from mirror_engine.errors import UsageError
from mirror_engine.mirror import Mirror
from mirror_engine.monitoring.wait_conditions import file_not_applied, tables_not_caught_up
from mirror_engine.publisher.landing_zone_writer import LandingZoneWriter
from mirror_engine.tables.merge.memory import MemoryDeltaWriter

pytestmark = pytest.mark.slow  # whole programs: no part of the quick look

TYPES = {"Id": pa.int64()}
FIRST, SECOND, THIRD = (f"{number:020}.parquet" for number in (1, 2, 3))


@pytest.fixture
def publisher(tmp_path):
    return LandingZoneWriter(tmp_path)


@pytest.fixture
def items(publisher):
    return publisher.table("Items", keys=["Id"], types=TYPES)


@pytest.fixture
def mirror(tmp_path):
    return Mirror(tmp_path, writer=MemoryDeltaWriter())


def behind(mirror, *names):
    return [(found.table, found.state, found.message) for found in tables_not_caught_up(mirror.status(), names, "dbo")]


def not_applied(mirror, file, *names):
    return [(found.table, found.message) for found in file_not_applied(mirror.status(), file, names, "dbo")]


def test_an_empty_zone_has_not_caught_up(mirror) -> None:
    assert behind(mirror) == [("", "", "the landing zone has no table folder yet")]


def test_a_table_has_caught_up_once_all_files_are_applied(mirror, items) -> None:
    items.insert({"Id": 1})
    ((table, state, reason),) = behind(mirror)
    assert (table, state) == ("Items", "loading")
    assert reason.startswith("Items: 1 file pending")
    assert "start `mirror-engine run`" in tables_not_caught_up(mirror.status(), (), "dbo")[0].help
    mirror.sync()
    assert behind(mirror) == behind(mirror, "dbo.items") == []


def test_a_named_table_must_exist(mirror, items) -> None:
    items.insert({"Id": 1})
    mirror.sync()
    assert behind(mirror, "Items", "Sales.Orders") == [
        ("Sales.Orders", "", "Sales.Orders: the landing zone has no such table folder yet")
    ]


def test_a_table_without_files_counts_only_if_it_is_named(mirror, items, publisher) -> None:
    publisher.table("Empty", keys=["Id"], types=TYPES)
    items.insert({"Id": 1})
    mirror.sync()
    assert behind(mirror) == []
    assert behind(mirror, "Empty") == [("Empty", "empty", "Empty has metadata but no change files")]


def test_files_without_metadata_are_pending(mirror, items, tmp_path) -> None:
    items.insert({"Id": 1})
    (tmp_path / "Files/LandingZone/Items/_metadata.json").unlink()
    ((_, state, reason),) = behind(mirror)
    assert state == "unconfigured"
    assert "ME008" in reason
    assert not tables_not_caught_up(mirror.status(), (), "dbo")[0].needs_attention


def test_halted_and_blocked_tables_need_attention(mirror, items, publisher) -> None:
    orders = publisher.table("Orders", keys=["Id"], types=TYPES)
    items.land(b"")
    orders.skip_numbers()
    orders.insert({"Id": 1})
    mirror.sync()
    found = {one.table: one for one in tables_not_caught_up(mirror.status(), (), "dbo")}
    assert found["Items"].state == "halted"
    assert "ME023" in found["Items"].message
    assert FIRST in found["Orders"].message
    assert all(one.needs_attention and one.help for one in found.values())


def test_a_file_is_named_by_path_or_name(mirror, items) -> None:
    items.insert({"Id": 1})
    for name in (FIRST, f"Items/{FIRST}"):
        assert not_applied(mirror, name) == [("Items", f"Items: {FIRST} is pending: ready for the next cycle")]
    mirror.sync()
    for name in (FIRST, f"Items/{FIRST}"):
        assert not_applied(mirror, name) == not_applied(mirror, name, "Items") == []


def test_a_file_that_was_moved_away_stays_applied(mirror, items, tmp_path) -> None:
    items.insert({"Id": 1})
    items.insert({"Id": 2})
    mirror.sync()
    assert not (tmp_path / f"Files/LandingZone/Items/{FIRST}").exists()
    assert not_applied(mirror, FIRST) == []
    status = mirror.status()
    forgetful = replace(status, tables=(replace(status.tables[0], files=()),))
    assert file_not_applied(forgetful, FIRST, (), "dbo") == file_not_applied(forgetful, SECOND, (), "dbo") == ()
    assert file_not_applied(forgetful, THIRD, (), "dbo")[0].message == f"Items: {THIRD} has not landed yet"
    assert file_not_applied(forgetful, FIRST.replace("parquet", "csv"), (), "dbo") != ()


def test_an_ignored_file_is_never_applied(mirror, items) -> None:
    items.insert({"Id": 1})
    items.put("2.parquet", b"")
    mirror.sync()
    (found,) = file_not_applied(mirror.status(), "Items/2.parquet", (), "dbo")
    assert "ME020" in found.message
    assert found.needs_attention


def test_a_rejected_file_and_those_after_it_need_attention(mirror, items) -> None:
    items.land(b"")
    items.insert({"Id": 1})
    mirror.sync()
    rejected, pending = (file_not_applied(mirror.status(), name, (), "dbo")[0] for name in (FIRST, SECOND))
    assert rejected.message == f"Items: {FIRST} is rejected: file is empty (0 bytes)"
    assert "halted" in pending.message
    assert rejected.needs_attention
    assert pending.needs_attention


def test_a_file_name_that_several_tables_have_is_ambiguous(mirror, items, publisher) -> None:
    items.insert({"Id": 1})
    publisher.table("Orders", keys=["Id"], types=TYPES).insert({"Id": 1})
    with pytest.raises(UsageError, match="may be a file of Items and Orders"):
        not_applied(mirror, FIRST)
    assert len(not_applied(mirror, FIRST, "Orders")) == 1
    assert not_applied(mirror, THIRD) == [("", f"{THIRD} has not landed yet")]
    assert not_applied(mirror, FIRST, "Nowhere") == [("", f"{FIRST} has not landed yet")]


@pytest.mark.parametrize("number", ["2", "0002"])
def test_a_file_may_be_named_by_its_number_landed_or_not(mirror, items, number) -> None:
    items.insert({"Id": 1})
    mirror.sync()
    assert not_applied(mirror, "1") == []
    assert not_applied(mirror, number) == [("Items", f"Items: {SECOND} has not landed yet")]
    items.insert({"Id": 2})
    assert not_applied(mirror, number)[0][1].startswith(f"Items: {SECOND} is pending")
    assert not_applied(mirror, f"Items/{number}")[0][1].startswith(f"Items: {SECOND} is pending")
    mirror.sync()
    assert not_applied(mirror, number) == []


def test_a_misspelled_table_is_suggested(mirror, items) -> None:
    items.insert({"Id": 1})
    (found,) = tables_not_caught_up(mirror.status(), ["Itmes"], "dbo")
    assert found.help.startswith("did you mean dbo.Items? ")


def test_a_file_that_replaced_an_applied_one_is_never_applied(mirror, items) -> None:
    items.insert({"Id": 1})
    items.insert({"Id": 2})
    mirror.sync()
    items.insert({"Id": 3}, name=FIRST)
    (found,) = file_not_applied(mirror.status(), FIRST, (), "dbo")
    assert (
        found.message
        == f"Items: {FIRST} is applied: file was overwritten after it was applied; the new content is ignored"
    )
    assert found.needs_attention
    assert not_applied(mirror, SECOND) == []
