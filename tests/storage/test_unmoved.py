"""What processed files look like to who asks how the zone was before they were moved away."""

from __future__ import annotations

import pytest

from mirror_engine.landing_zone.layout import ZONE
from mirror_engine.landing_zone.names import READY_TO_DELETE_FOLDER, READY_TO_DELETE_INFO
from mirror_engine.storage.memory import MemoryStorage
from mirror_engine.storage.zone_view import UnmovedStorage

FIRST, SECOND = "00000000000000000001.parquet", "00000000000000000002.parquet"


@pytest.fixture(params=["Orders", "Sales.schema/Orders"])
def table(request):
    return f"{ZONE}/{request.param}"


@pytest.fixture
def storage(table):
    below = MemoryStorage()
    for path in (FIRST, SECOND, f"day=1/{FIRST}", f"day=1/{SECOND}"):
        below.put(f"{table}/{path}", path.encode())
    for path in (FIRST, f"day=1/{FIRST}"):
        below.move(f"{table}/{path}", f"{table}/{READY_TO_DELETE_FOLDER}/{path}")
    below.put(f"{table}/{READY_TO_DELETE_FOLDER}/{READY_TO_DELETE_INFO}", b"{}")
    return below


def names(entries):
    return [entry.name for entry in entries]


def test_moved_files_lie_at_their_old_places(storage, table):
    unmoved = UnmovedStorage(storage)
    assert names(unmoved.list(table)) == [FIRST, SECOND, READY_TO_DELETE_FOLDER, "day=1"]
    for path in (FIRST, f"day=1/{FIRST}"):
        assert unmoved.stat(f"{table}/{path}") == storage.stat(f"{table}/{READY_TO_DELETE_FOLDER}/{path}")
        assert unmoved.open(f"{table}/{path}").read() == path.encode()
    assert names(unmoved.list(f"{table}/day=1")) == [FIRST, SECOND]


def test_a_newer_file_at_the_old_place_is_the_one_that_counts(storage, table):
    storage.put(f"{table}/{FIRST}", b"newer")
    unmoved = UnmovedStorage(storage)
    newer = storage.stat(f"{table}/{FIRST}")
    assert next(entry for entry in unmoved.list(table) if entry.name == FIRST) == newer
    assert unmoved.stat(f"{table}/{FIRST}") == newer
    assert unmoved.open(f"{table}/{FIRST}").read() == b"newer"


def test_what_is_not_there_is_absent(storage, table):
    unmoved = UnmovedStorage(storage)
    assert unmoved.list(f"{table}/none") is None
    assert unmoved.stat(f"{table}/none") is None
    with pytest.raises(FileNotFoundError):
        unmoved.open(f"{table}/none")


def test_what_lies_at_the_old_place_counts_though_it_is_no_file(storage, table):
    storage.put(f"{table}/{FIRST}/inside", b"")
    with pytest.raises(FileNotFoundError):
        UnmovedStorage(storage).open(f"{table}/{FIRST}")


def test_where_what_was_processed_counts_a_newer_file_is_not_seen_but_told(storage, table):
    storage.put(f"{table}/{FIRST}", b"newer")
    storage.put(f"{table}/day=1/{FIRST}", b"newer")
    unmoved = UnmovedStorage(storage, processed_first=True)
    for path in (FIRST, f"day=1/{FIRST}"):
        moved = storage.stat(f"{table}/{READY_TO_DELETE_FOLDER}/{path}")
        assert unmoved.stat(f"{table}/{path}") == moved
        assert moved in unmoved.list(f"{table}/{path}".rpartition("/")[0])
        assert unmoved.open(f"{table}/{path}").read() == path.encode()
    everything = (FIRST, SECOND, f"day=1/{FIRST}", f"day=1/{SECOND}")
    assert unmoved.replaced(table, everything) == (FIRST, f"day=1/{FIRST}")
    assert unmoved.stat(f"{table}/{SECOND}") == storage.stat(f"{table}/{SECOND}")


def test_what_was_moved_away_and_not_replaced_is_not_told(storage, table):
    assert UnmovedStorage(storage, processed_first=True).replaced(table, (FIRST, SECOND, f"day=1/{FIRST}")) == ()


def test_of_two_moved_files_of_one_name_the_first_place_counts(storage, table):
    storage.put(f"{table}/_ProcessedFiles/{FIRST}", b"older name")
    unmoved = UnmovedStorage(storage, processed_first=True)
    moved = storage.stat(f"{table}/{READY_TO_DELETE_FOLDER}/{FIRST}")
    assert moved in unmoved.list(table)
    assert unmoved.stat(f"{table}/{FIRST}") == moved
    assert unmoved.open(f"{table}/{FIRST}").read() == FIRST.encode()


@pytest.mark.parametrize("processed_first", [False, True])
def test_a_partition_that_was_moved_away_as_a_whole_is_there(storage, table, processed_first):
    storage.move(f"{table}/day=1/{SECOND}", f"{table}/{READY_TO_DELETE_FOLDER}/day=1/{SECOND}")
    storage.delete(f"{table}/day=1")
    unmoved = UnmovedStorage(storage, processed_first=processed_first)
    assert names(unmoved.list(f"{table}/day=1")) == [FIRST, SECOND]
    assert unmoved.has_archive(f"{table}/day=1")
    assert not unmoved.has_archive(f"{table}/day=2")
