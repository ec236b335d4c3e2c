"""What one waits for: level tables and applied files, and the reason where it is not so yet."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa
import pytest

from mirror_engine.errors import UsageError
from mirror_engine.mirror import Mirror
from mirror_engine.monitoring.wait_conditions import not_applied, not_level
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


def level(mirror, *names):
    return [(found.table, found.state, found.reason) for found in not_level(mirror.status(), names, "dbo")]


def applied(mirror, file, *names):
    return [(found.table, found.reason) for found in not_applied(mirror.status(), file, names, "dbo")]


def test_an_empty_zone_is_not_level_yet(mirror) -> None:
    assert level(mirror) == [("", "", "no table folder lies in the landing zone yet")]


def test_a_table_is_level_once_everything_is_applied(mirror, items) -> None:
    items.insert({"Id": 1})
    ((table, state, reason),) = level(mirror)
    assert (table, state) == ("Items", "loading")
    assert reason.startswith("loading: 1 file ready")
    assert "start `mirror-engine run`" in not_level(mirror.status(), (), "dbo")[0].advice
    mirror.sync()
    assert level(mirror) == level(mirror, "dbo.items") == []


def test_a_named_table_is_waited_for_even_if_it_is_not_there(mirror, items) -> None:
    items.insert({"Id": 1})
    mirror.sync()
    assert level(mirror, "Items", "Sales.Orders") == [
        ("Sales.Orders", "", "no table folder of that name lies in the landing zone yet")
    ]


def test_a_table_without_files_keeps_only_those_waiting_who_name_it(mirror, items, publisher) -> None:
    publisher.table("Empty", keys=["Id"], types=TYPES)
    items.insert({"Id": 1})
    mirror.sync()
    assert level(mirror) == []
    assert level(mirror, "Empty") == [("Empty", "waiting", "empty: waits for its first change file")]


def test_files_without_metadata_are_not_level(mirror, items, tmp_path) -> None:
    items.insert({"Id": 1})
    (tmp_path / "Files/LandingZone/Items/_metadata.json").unlink()
    ((_, state, reason),) = level(mirror)
    assert state == "unconfigured"
    assert "ME008" in reason
    assert not not_level(mirror.status(), (), "dbo")[0].needs_a_person


def test_latched_and_blocked_tables_need_a_person(mirror, items, publisher) -> None:
    orders = publisher.table("Orders", keys=["Id"], types=TYPES)
    items.land(b"")
    orders.skip_numbers()
    orders.insert({"Id": 1})
    mirror.sync()
    found = {one.table: one for one in not_level(mirror.status(), (), "dbo")}
    assert found["Items"].state == "halted"
    assert "ME023" in found["Items"].reason
    assert FIRST in found["Orders"].reason
    assert all(one.needs_a_person and one.advice for one in found.values())


def test_a_file_is_waited_for_by_its_path_or_its_name(mirror, items) -> None:
    items.insert({"Id": 1})
    for name in (FIRST, f"Items/{FIRST}"):
        assert applied(mirror, name) == [("Items", f"{FIRST} is waiting: ready, goes in with the next cycle")]
    mirror.sync()
    for name in (FIRST, f"Items/{FIRST}"):
        assert applied(mirror, name) == applied(mirror, name, "Items") == []


def test_a_file_that_was_moved_away_stays_applied(mirror, items, tmp_path) -> None:
    items.insert({"Id": 1})
    items.insert({"Id": 2})
    mirror.sync()
    assert not (tmp_path / f"Files/LandingZone/Items/{FIRST}").exists()
    assert applied(mirror, FIRST) == []
    status = mirror.status()
    forgetful = replace(status, tables=(replace(status.tables[0], files=()),))
    assert not_applied(forgetful, FIRST, (), "dbo") == not_applied(forgetful, SECOND, (), "dbo") == ()
    assert not_applied(forgetful, THIRD, (), "dbo")[0].reason == f"{THIRD} has not landed yet"
    assert not_applied(forgetful, FIRST.replace("parquet", "csv"), (), "dbo") != ()


def test_a_file_that_is_passed_over_will_never_be_applied(mirror, items) -> None:
    items.insert({"Id": 1})
    items.put("2.parquet", b"")
    mirror.sync()
    (found,) = not_applied(mirror.status(), "Items/2.parquet", (), "dbo")
    assert "ME020" in found.reason
    assert found.needs_a_person


def test_a_refused_file_and_those_behind_it_say_so(mirror, items) -> None:
    items.land(b"")
    items.insert({"Id": 1})
    mirror.sync()
    refused, behind = (not_applied(mirror.status(), name, (), "dbo")[0] for name in (FIRST, SECOND))
    assert refused.reason == f"{FIRST} is refused: 0 bytes"
    assert "latched" in behind.reason
    assert refused.needs_a_person
    assert behind.needs_a_person


def test_a_name_that_several_tables_have_must_say_which(mirror, items, publisher) -> None:
    items.insert({"Id": 1})
    publisher.table("Orders", keys=["Id"], types=TYPES).insert({"Id": 1})
    with pytest.raises(UsageError, match="may be a file of Items and Orders"):
        applied(mirror, FIRST)
    assert len(applied(mirror, FIRST, "Orders")) == 1
    assert applied(mirror, THIRD) == [("", f"{THIRD} has not landed yet")]
    assert applied(mirror, FIRST, "Nowhere") == [("", f"{FIRST} has not landed yet")]


@pytest.mark.parametrize("number", ["2", "0002"])
def test_a_file_may_be_named_by_its_number_landed_or_not(mirror, items, number) -> None:
    items.insert({"Id": 1})
    mirror.sync()
    assert applied(mirror, "1") == []
    assert applied(mirror, number) == [("Items", f"{SECOND} has not landed yet")]
    items.insert({"Id": 2})
    assert applied(mirror, number)[0][1].startswith(f"{SECOND} is waiting")
    assert applied(mirror, f"Items/{number}")[0][1].startswith(f"{SECOND} is waiting")
    mirror.sync()
    assert applied(mirror, number) == []


def test_a_table_that_is_nearly_named_is_hinted_at(mirror, items) -> None:
    items.insert({"Id": 1})
    (found,) = not_level(mirror.status(), ["Itmes"], "dbo")
    assert found.advice == "Did you mean dbo.Items?"


def test_a_file_that_took_an_applied_ones_name_is_never_applied(mirror, items) -> None:
    items.insert({"Id": 1})
    items.insert({"Id": 2})
    mirror.sync()
    items.insert({"Id": 3}, name=FIRST)
    (found,) = not_applied(mirror.status(), FIRST, (), "dbo")
    assert found.reason == f"{FIRST} is applied: overwritten after it was applied, not read"
    assert found.needs_a_person
    assert applied(mirror, SECOND) == []
