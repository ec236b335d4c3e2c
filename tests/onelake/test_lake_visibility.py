"""Who sees what, and when."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakes import ABSENT_ONLY, SECOND, ZONE, ZoneClient, matching, refused

from mirror_engine.onelake.conditions import SOURCE, Conditions
from mirror_engine.onelake.errors import StorageErrorCode
from mirror_engine.onelake.store import LocalStore
from mirror_engine.onelake.visibility import DeletedFolder, EngineView
from mirror_engine.storage.local import LocalStorage

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    import pytest


def test_a_created_file_shows_at_once_with_no_bytes(zone: ZoneClient) -> None:
    zone.create("T/f")
    assert zone.names("T") == ["f"]
    assert zone.properties("T/f").size == 0
    assert zone.engine_sees("T/f") == b""


def test_an_overwriting_create_drops_the_old_content_at_once(zone: ZoneClient) -> None:
    zone.put("T/f", b"old")
    zone.create("T/f")
    assert zone.engine_sees("T/f") == b""


def test_what_is_not_committed_is_invisible(zone: ZoneClient) -> None:
    created = zone.create("T/f")
    zone.append("T/f", 0, b"abc")
    zone.put_block("T/g", "a", b"abc")
    with zone.lake.receive() as body:
        body.write(b"abc")
        assert list(zone.lake.list(zone.at("T"), recursive=True)) == list(zone.lake.list(zone.at("T")))
        assert zone.names("T") == ["f"]
        assert zone.names() == ["T"]
        assert zone.properties("T/f") == created
        assert zone.engine_sees("T/f") == b""


def test_a_reader_keeps_what_it_opened_while_the_file_is_replaced(zone: ZoneClient) -> None:
    zone.put("T/f", b"old")
    before, reader = zone.lake.read(zone.at("T/f"))
    zone.append("T/f", 3, b"er")
    zone.flush("T/f", 5)
    with reader:
        assert (before.size, reader.read()) == (3, b"old")
    assert zone.engine_sees("T/f") == b"older"


def test_a_rename_keeps_tag_and_last_modified_of_files_and_folders(zone: ZoneClient) -> None:
    file, folder = zone.put("T/_f", b"abc"), zone.properties("T")
    assert zone.rename("T/_f", "T/f") == file == zone.properties("T/f")
    assert zone.rename("T", "U").etag == folder.etag == zone.properties("U").etag
    assert zone.properties("U/f") == file
    assert zone.names() == ["U"]


def test_a_rename_that_touches_changes_a_files_tag_and_time_only(zone: ZoneClient) -> None:
    zone.options.rename_updates_mtime = True
    file, folder = zone.put("T/_f", b"abc"), zone.properties("T")
    renamed = zone.rename("T/_f", "T/f")
    assert renamed == zone.properties("T/f")
    assert renamed.modified_ns > file.modified_ns
    assert renamed.etag != file.etag
    assert zone.rename("T", "U").etag == folder.etag


def test_a_file_lost_by_an_unconditional_rename_is_reported(zone: ZoneClient) -> None:
    for name in ("_1", "_2", "_metadata"):
        zone.put(f"T/{name}", name.encode())
    zone.rename("T/_1", "T/1.csv")
    assert zone.lost_files == []
    zone.rename("T/_2", "T/1.csv")
    assert zone.lost_files == [f"{ZONE}/T/1.csv"]
    assert zone.read("T/1.csv") == b"_2"


def test_files_replaced_with_a_condition_are_not_reported(zone: ZoneClient) -> None:
    there = zone.put("T/f", b"old")
    zone.put("T/_f", b"new")
    zone.rename("T/_f", "T/f", matching(there))
    zone.put("T/_metadata.json", b"old")
    zone.put("T/new.json", b"new")
    zone.rename("T/new.json", "T/_metadata.json")
    zone.rename("T/f", "T/f")
    assert zone.lost_files == []


def test_a_files_tag_changes_with_content_and_metadata_only(zone: ZoneClient) -> None:
    tags = [zone.create("T/f").etag]
    tags.append(zone.create("T/f").etag)
    zone.append("T/f", 0, b"abc")
    tags.append(zone.flush("T/f", 3).etag)
    tags.append(zone.put("T/f", b"abc").etag)
    tags.append(zone.put("T/f", b"abc").etag)
    tags.append(zone.lake.set_metadata(zone.at("T/f")).etag)
    assert len(set(tags)) == len(tags)
    zone.lake.read(zone.at("T/f"))[1].close()
    zone.append("T/f", 3, b"x")
    zone.put("T/g", b"x")
    assert zone.properties("T/f").etag == tags[-1]
    assert all(tag.startswith('"0x8D') and tag.endswith('"') and len(tag) == 19 for tag in tags)


def test_metadata_sets_last_modified_of_a_file_and_nothing_of_a_folder(zone: ZoneClient) -> None:
    file, folder = zone.put("T/f", b"abc"), zone.properties("T")
    assert zone.lake.set_metadata(zone.at("T/f")).modified_ns > file.modified_ns
    assert zone.lake.set_metadata(zone.at("T")).etag == folder.etag
    with refused(StorageErrorCode.ConditionNotMet):
        zone.lake.set_metadata(zone.at("T/f"), matching(file))
    with refused(StorageErrorCode.PathNotFound):
        zone.lake.set_metadata(zone.at("T/nothing"))


def test_a_folders_tag_outlasts_changes_inside_repeated_create_and_restart(zone: ZoneClient) -> None:
    before = zone.lake.create_folder(zone.at("T")).etag
    zone.put("T/f", b"abc")
    zone.rename("T/f", "T/g")
    zone.lake.delete(zone.at("T/g"))
    assert zone.lake.create_folder(zone.at("T")).etag == before
    assert ZoneClient(zone.storage).properties("T").etag == before


def test_a_folder_recreated_at_once_has_a_new_etag(zone: ZoneClient) -> None:
    tags = []
    for _ in range(5):
        tags.append(zone.lake.create_folder(zone.at("T")).etag)
        zone.put("T/f", b"abc")
        zone.lake.delete(zone.at("T"), recursive=True)
    assert len(set(tags)) == 5


def test_a_recursive_delete_takes_all_away_and_leaves_nothing_behind(zone: ZoneClient) -> None:
    for path in ("T/a/f", "T/b/c/f", "T/f", "U/f"):
        zone.put(path, b"x")
    zone.lake.delete(zone.at("T"), recursive=True)
    assert zone.names() == ["U"]
    assert zone.storage.list(".mirror-engine/staging") in (None, [])


def test_a_recursive_delete_shows_in_one_step(zone: ZoneClient, monkeypatch: pytest.MonkeyPatch) -> None:
    zone.put("T/a/f", b"x")
    seen = []
    move_to_trash = zone.storage.move_to_trash

    def watched(path: str) -> Callable[[], None]:
        discard = move_to_trash(path)
        return lambda: (seen.append(zone.names()), discard())[1]

    monkeypatch.setattr(zone.storage, "move_to_trash", watched)
    zone.lake.delete(zone.at("T"), recursive=True)
    assert seen == [[]]


def test_last_modified_keeps_its_full_resolution_and_order(zone: ZoneClient) -> None:
    first, second = zone.put("T/a", b""), zone.put("T/b", b"")
    assert 0 < second.modified_ns - first.modified_ns < SECOND
    assert zone.storage.stat(f"{ZONE}/T/a").modified_ns == first.modified_ns  # type: ignore[union-attr]


def test_two_changes_in_one_tick_of_the_clock_have_different_tags(zone: ZoneClient, tmp_path: Path) -> None:
    assert zone
    still = ZoneClient(LocalStore(tmp_path / "still"), clock=lambda: 5 * SECOND)
    tags = {still.put("f", b"").etag, *(still.lake.set_metadata(still.at("f")).etag for _ in range(3))}
    assert len(tags) == 4


def test_a_rename_obeys_the_conditions_on_both_ends(zone: ZoneClient) -> None:
    source, target = zone.put("T/f", b"new"), zone.put("T/g", b"old")
    with refused(StorageErrorCode.PathAlreadyExists):
        zone.rename("T/f", "T/g", ABSENT_ONLY)
    with refused(StorageErrorCode.ConditionNotMet):
        zone.rename("T/f", "T/g", matching(source))
    stale = Conditions.of({"x-ms-source-if-match": target.etag}, SOURCE)
    with refused(StorageErrorCode.SourceConditionNotMet):
        zone.lake.rename(zone.at("T/f"), zone.at("T/g"), source_conditions=stale)
    assert zone.read("T/g") == b"old"
    fresh = Conditions.of({"x-ms-source-if-match": source.etag}, SOURCE)
    zone.lake.rename(zone.at("T/f"), zone.at("T/g"), matching(target), fresh)
    assert zone.read("T/g") == b"new"


def test_the_engine_sees_a_kept_deleted_folder_instead_of_its_recreation(zone: ZoneClient) -> None:
    zone.put("T/_metadata.json", b"old")
    folder, delays, at = DeletedFolder.of(zone.storage, f"{ZONE}/T"), zone.options.delays, "Files/LandingZone"
    view = EngineView(LocalStorage(zone.storage._root / "ws/db"), delays, "ws/db")
    delays.keep_visible(folder, 60.0)
    zone.lake.delete(zone.at("T"), recursive=True)
    zone.put("T/new", b"x")
    assert view.list(at) == [folder.entries[f"{ZONE}/T"]] == [view.stat(f"{at}/T")]
    assert [entry.name for entry in view.list(f"{at}/T") or ()] == ["_metadata.json"]
    assert view.stat(f"{at}/T/new") is None
    with view.open(f"{at}/T/_metadata.json") as file:
        assert file.read() == b"old"
    delays.forget(folder)
    assert [entry.name for entry in view.list(f"{at}/T") or ()] == ["new"]
