"""Views of a landing zone: mapped paths, and archived files at their old paths."""

from __future__ import annotations

import pytest
from memory_storage import MemoryStorage, names, read
from scripted_faults import Script, faulty

from mirror_engine.errors import StorageUnavailable
from mirror_engine.landing_zone.layout import ZONE
from mirror_engine.landing_zone.listing import Kind
from mirror_engine.landing_zone.names import READY_TO_DELETE_FOLDER, READY_TO_DELETE_INFO
from mirror_engine.storage.zone_view import RestoredView, ZoneView

FIRST, SECOND = "00000000000000000001.parquet", "00000000000000000002.parquet"


@pytest.mark.parametrize("change", ["write", "move", "delete"])
def test_a_view_refuses_changes(change):
    arguments = {"write": ("x", b""), "move": ("Zone/Orders/1.csv", "x"), "delete": ("Zone",)}[change]
    with pytest.raises(StorageUnavailable, match="for reading only"):
        getattr(ZoneView(MemoryStorage()), change)(*arguments)


@pytest.fixture(params=["Orders", "Sales.schema/Orders"])
def zone_table(request):
    return f"{ZONE}/{request.param}"


@pytest.fixture
def archive(zone_table):
    below = MemoryStorage()
    for path in (FIRST, SECOND, f"day=1/{FIRST}", f"day=1/{SECOND}"):
        below.put(f"{zone_table}/{path}", path.encode())
    for path in (FIRST, f"day=1/{FIRST}"):
        below.move(f"{zone_table}/{path}", f"{zone_table}/{READY_TO_DELETE_FOLDER}/{path}")
    below.put(f"{zone_table}/{READY_TO_DELETE_FOLDER}/{READY_TO_DELETE_INFO}", b"{}")
    return below


def test_a_file_archived_after_its_folder_was_listed_can_still_be_read(archive, zone_table):
    view = RestoredView(archive, archived_first=True)
    view.list(zone_table)
    archive.move(f"{zone_table}/{SECOND}", f"{zone_table}/{READY_TO_DELETE_FOLDER}/{SECOND}")
    assert read(view, f"{zone_table}/{SECOND}").decode() == SECOND


@pytest.mark.parametrize("archived_first", [False, True])
def test_a_listed_file_is_looked_up_and_opened_by_one_call_each(archive, zone_table, archived_first):
    asked = Script()
    view = RestoredView(faulty(archive, asked), archived_first=archived_first)
    for folder in (zone_table, f"{zone_table}/day=1"):
        for entry in [entry for entry in view.list(folder) if entry.kind is Kind.FILE]:
            asked.calls.clear()
            path = f"{folder}/{entry.name}"
            assert view.stat(path) == entry
            view.open(path, entry).close()
            assert [call.split()[0] for call in asked.calls] == ["stat", "open"]


def test_a_listed_file_is_opened_though_a_new_one_took_its_path(archive, zone_table):
    view = RestoredView(archive)
    (listed,) = (entry for entry in view.list(zone_table) if entry.name == FIRST)
    archive.write(f"{zone_table}/{FIRST}", b"new")
    with view.open(f"{zone_table}/{FIRST}", listed) as file:
        assert file.read() != b"new"


def test_a_folder_at_the_old_path_hides_the_archived_file(archive, zone_table):
    archive.put(f"{zone_table}/{FIRST}/inside", b"")
    with pytest.raises(FileNotFoundError):
        RestoredView(archive).open(f"{zone_table}/{FIRST}")


def test_of_two_archived_files_of_one_name_the_first_archive_applies(archive, zone_table):
    archive.put(f"{zone_table}/_ProcessedFiles/{FIRST}", b"older name")
    view = RestoredView(archive, archived_first=True)
    archived = archive.stat(f"{zone_table}/{READY_TO_DELETE_FOLDER}/{FIRST}")
    assert archived in view.list(zone_table)
    assert view.stat(f"{zone_table}/{FIRST}") == archived
    assert read(view, f"{zone_table}/{FIRST}").decode() == FIRST


@pytest.mark.parametrize("archived_first", [False, True])
def test_a_partition_that_was_archived_whole_is_there(archive, zone_table, archived_first):
    archive.move(f"{zone_table}/day=1/{SECOND}", f"{zone_table}/{READY_TO_DELETE_FOLDER}/day=1/{SECOND}")
    archive.delete(f"{zone_table}/day=1")
    view = RestoredView(archive, archived_first=archived_first)
    assert names(view, f"{zone_table}/day=1") == [FIRST, SECOND]
    assert view.has_archive(f"{zone_table}/day=1")
    assert not view.has_archive(f"{zone_table}/day=2")
