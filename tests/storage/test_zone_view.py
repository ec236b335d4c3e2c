"""Views of a landing zone: mapped paths, and archived files at their old paths."""

from __future__ import annotations

import pytest
from memory_storage import MemoryStorage, names, read
from scripted_faults import Script, faulty

from mirror_engine.errors import StorageUnavailable
from mirror_engine.landing_zone.layout import ZONE
from mirror_engine.landing_zone.listing import Kind
from mirror_engine.landing_zone.names import READY_TO_DELETE_FOLDER, READY_TO_DELETE_INFO
from mirror_engine.storage.zone_view import RestoredView, Source, ZoneView

FIRST, SECOND = "00000000000000000001.parquet", "00000000000000000002.parquet"


@pytest.fixture
def zone():
    storage = MemoryStorage()
    for path in ("Zone/Orders/1.csv", "Zone/Orders/2.csv", "Zone/S.schema/Items/1.csv", "Zone/S.schema/Orders/1.csv"):
        storage.write(path, path.encode())
    return storage


@pytest.mark.parametrize("change", ["write", "move", "delete"])
def test_a_view_refuses_changes(zone, change):
    arguments = {"write": ("x", b""), "move": ("Zone/Orders/1.csv", "x"), "delete": ("Zone",)}[change]
    with pytest.raises(StorageUnavailable, match="for reading only"):
        getattr(ZoneView(zone), change)(*arguments)


def test_what_is_hidden_is_absent(zone):
    view = ZoneView(zone, {"Zone/Orders/1.csv": None, "Zone/S.schema/Orders": None})
    assert names(view, "Zone") == ["Orders", "S.schema"]
    assert names(view, "Zone/S.schema") == ["Items"]
    assert names(view, "Zone/Orders") == ["2.csv"]
    for absent in ("Zone/S.schema/Orders", "Zone/none"):
        assert view.list(absent) is None
    for absent in ("Zone/S.schema/Orders/1.csv", "Zone/Orders/1.csv"):
        assert view.stat(absent) is None
        with pytest.raises(FileNotFoundError):
            view.open(absent)


def test_swapped_files_keep_the_paths_name_and_the_mapped_time(zone):
    first, second = "Zone/Orders/1.csv", "Zone/Orders/2.csv"
    view = ZoneView(zone, {first: Source(second, 11), second: Source(first, 22)})
    assert [read(view, path).decode() for path in (first, second)] == [second, first]
    entries = view.list("Zone/Orders")
    assert [(entry.name, entry.modified_ns) for entry in entries] == [("1.csv", 11), ("2.csv", 22)]
    assert [view.stat(path) for path in (first, second)] == entries
    assert entries[0].identity == zone.stat(second).identity


def test_a_storage_can_be_shown_below_another_path(zone):
    view = ZoneView(zone, {"": None, "A/B/T": Source("Zone/Orders")})
    assert [names(view, folder) for folder in ("", "A", "A/B", "A/B/T")] == [["A"], ["B"], ["T"], ["1.csv", "2.csv"]]
    assert view.stat("A/B").kind is Kind.FOLDER
    assert view.stat("A/B/T").identity == zone.stat("Zone/Orders").identity
    assert read(view, "A/B/T/2.csv").decode() == "Zone/Orders/2.csv"
    assert view.list("Zone") is None


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


def test_archived_files_are_at_their_old_paths(storage, table):
    view = RestoredView(storage)
    assert names(view, table) == [FIRST, SECOND, READY_TO_DELETE_FOLDER, "day=1"]
    for path in (FIRST, f"day=1/{FIRST}"):
        assert view.stat(f"{table}/{path}") == storage.stat(f"{table}/{READY_TO_DELETE_FOLDER}/{path}")
        assert read(view, f"{table}/{path}").decode() == path
    assert names(view, f"{table}/day=1") == [FIRST, SECOND]


def test_a_file_archived_after_its_folder_was_listed_can_still_be_read(storage, table):
    view = RestoredView(storage, archived_first=True)
    view.list(table)
    storage.move(f"{table}/{SECOND}", f"{table}/{READY_TO_DELETE_FOLDER}/{SECOND}")
    assert read(view, f"{table}/{SECOND}").decode() == SECOND


@pytest.mark.parametrize("archived_first", [False, True])
def test_of_an_archived_and_a_new_file_at_one_path_the_option_selects(storage, table, archived_first):
    for path in (FIRST, f"day=1/{FIRST}"):
        storage.put(f"{table}/{path}", b"newer")
        view = RestoredView(storage, archived_first=archived_first)
        shown = f"{table}/{READY_TO_DELETE_FOLDER}/{path}" if archived_first else f"{table}/{path}"
        assert view.stat(f"{table}/{path}") == storage.stat(shown)
        assert storage.stat(shown) in view.list(f"{table}/{path}".rpartition("/")[0])
        assert read(view, f"{table}/{path}").decode() == (path if archived_first else "newer")
        assert view.stat(f"{table}/{SECOND}") == storage.stat(f"{table}/{SECOND}")


def test_replaced_files_are_those_at_both_paths(storage, table):
    everything = (FIRST, SECOND, f"day=1/{FIRST}", f"day=1/{SECOND}")
    assert RestoredView(storage, archived_first=True).replaced(table, everything) == ()
    storage.put(f"{table}/{FIRST}", b"newer")
    storage.put(f"{table}/day=1/{FIRST}", b"newer")
    assert RestoredView(storage, archived_first=True).replaced(table, everything) == (FIRST, f"day=1/{FIRST}")


@pytest.mark.parametrize("archived_first", [False, True])
def test_a_listed_file_is_looked_up_and_opened_by_one_call_each(storage, table, archived_first):
    asked = Script()
    view = RestoredView(faulty(storage, asked), archived_first=archived_first)
    for folder in (table, f"{table}/day=1"):
        for entry in [entry for entry in view.list(folder) if entry.kind is Kind.FILE]:
            asked.calls.clear()
            path = f"{folder}/{entry.name}"
            assert view.stat(path) == entry
            view.open(path, entry).close()
            assert [call.split()[0] for call in asked.calls] == ["stat", "open"]


def test_a_listed_file_is_opened_though_a_new_one_took_its_path(storage, table):
    view = RestoredView(storage)
    (listed,) = (entry for entry in view.list(table) if entry.name == FIRST)
    storage.write(f"{table}/{FIRST}", b"new")
    with view.open(f"{table}/{FIRST}", listed) as file:
        assert file.read() != b"new"


def test_a_folder_at_the_old_path_hides_the_archived_file(storage, table):
    storage.put(f"{table}/{FIRST}/inside", b"")
    with pytest.raises(FileNotFoundError):
        RestoredView(storage).open(f"{table}/{FIRST}")


def test_of_two_archived_files_of_one_name_the_first_archive_applies(storage, table):
    storage.put(f"{table}/_ProcessedFiles/{FIRST}", b"older name")
    view = RestoredView(storage, archived_first=True)
    archived = storage.stat(f"{table}/{READY_TO_DELETE_FOLDER}/{FIRST}")
    assert archived in view.list(table)
    assert view.stat(f"{table}/{FIRST}") == archived
    assert read(view, f"{table}/{FIRST}").decode() == FIRST


@pytest.mark.parametrize("archived_first", [False, True])
def test_a_partition_that_was_archived_whole_is_there(storage, table, archived_first):
    storage.move(f"{table}/day=1/{SECOND}", f"{table}/{READY_TO_DELETE_FOLDER}/day=1/{SECOND}")
    storage.delete(f"{table}/day=1")
    view = RestoredView(storage, archived_first=archived_first)
    assert names(view, f"{table}/day=1") == [FIRST, SECOND]
    assert view.has_archive(f"{table}/day=1")
    assert not view.has_archive(f"{table}/day=2")
