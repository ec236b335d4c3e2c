"""Storages that show less than there is, or in another order."""

from __future__ import annotations

import pytest

from mirror_engine.storage.memory import MemoryStorage
from mirror_engine.storage.zone_view import OneTableStorage, RearrangedStorage, Slot


@pytest.fixture
def storage():
    made = MemoryStorage()
    for path in ("Zone/Orders/1.csv", "Zone/Orders/2.csv", "Zone/S.schema/Items/1.csv", "Zone/S.schema/Orders/1.csv"):
        made.write(path, path.encode())
    made.write("Other/x", b"x")
    return made


def names(storage, folder):
    return [entry.name for entry in storage.list(folder)]


def read(storage, path):
    with storage.open(path) as file:
        return file.read().decode()


def test_one_table_alone_is_seen_in_its_zone(storage) -> None:
    alone = OneTableStorage(storage, "Zone", "S.schema/Items")
    assert names(alone, "Zone") == ["S.schema"]
    assert names(alone, "Zone/S.schema") == ["Items"]
    assert names(alone, "Zone/S.schema/Items") == ["1.csv"]
    assert names(alone, "") == ["Other", "Zone"]
    assert names(alone, "Other") == ["x"]
    assert alone.list("Zone/nowhere") is None


def test_files_lie_in_each_others_place_under_the_place_s_own_name_and_time(storage) -> None:
    first, second = "Zone/Orders/1.csv", "Zone/Orders/2.csv"
    changed = RearrangedStorage(storage, {first: Slot(second, 11), second: Slot(first, 22)})
    assert [read(changed, path) for path in (first, second)] == [second, first]
    seen = changed.list("Zone/Orders")
    assert [(entry.name, entry.modified_ns) for entry in seen] == [("1.csv", 11), ("2.csv", 22)]
    assert [changed.stat(path) for path in (first, second)] == seen
    assert seen[0].identity == storage.stat(second).identity


def test_a_file_that_is_hidden_is_not_there(storage) -> None:
    changed = RearrangedStorage(storage, {"Zone/Orders/1.csv": None})
    assert names(changed, "Zone/Orders") == ["2.csv"]
    assert changed.stat("Zone/Orders/1.csv") is None
    with pytest.raises(FileNotFoundError):
        changed.open("Zone/Orders/1.csv")
    assert names(changed, "Zone/S.schema/Orders") == ["1.csv"]
