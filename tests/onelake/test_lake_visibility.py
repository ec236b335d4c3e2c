"""Who sees what, and when."""

from __future__ import annotations

from lakes import SECOND, ZONE, ZoneClient, matching, refused

from mirror_engine.onelake.errors import StorageErrorCode
from mirror_engine.onelake.options import DeletedFolder, EngineView
from mirror_engine.onelake.requests import SOURCE, Conditions
from mirror_engine.onelake.store import LocalStore
from mirror_engine.storage.local import LocalStorage


def test_a_reader_keeps_what_it_opened_while_the_file_is_replaced(zone):
    zone.put("T/f", b"old")
    before, reader = zone.lake.read(zone.at("T/f"))
    zone.append("T/f", 3, b"er")
    zone.flush("T/f", 5)
    with reader:
        assert (before.size, reader.read()) == (3, b"old")
    assert zone.engine_sees("T/f") == b"older"


def test_a_rename_keeps_tag_and_last_modified_of_files_and_folders(zone):
    file, folder = zone.put("T/_f", b"abc"), zone.properties("T")
    assert zone.rename("T/_f", "T/f") == file == zone.properties("T/f")
    assert zone.rename("T", "U").etag == folder.etag == zone.properties("U").etag
    assert zone.properties("U/f") == file
    assert zone.names() == ["U"]


def test_a_rename_that_touches_changes_a_files_tag_and_time_only(zone):
    zone.options.rename_updates_mtime = True
    file, folder = zone.put("T/_f", b"abc"), zone.properties("T")
    renamed = zone.rename("T/_f", "T/f")
    assert renamed == zone.properties("T/f")
    assert renamed.modified_ns > file.modified_ns
    assert renamed.etag != file.etag
    assert zone.rename("T", "U").etag == folder.etag


def test_a_file_lost_by_an_unconditional_rename_is_reported_and_the_engine_knows_it(zone, tmp_path):
    there, new = zone.put("T/f", b"old"), zone.put("T/_f", b"new")
    fresh = Conditions.of({"x-ms-source-if-match": new.etag}, SOURCE)
    zone.lake.rename(zone.at("T/_f"), zone.at("T/f"), matching(there), fresh)
    zone.put("T/_metadata.json", b"old")
    zone.put("T/new.json", b"newer")
    zone.rename("T/new.json", "T/_metadata.json")
    zone.rename("T/f", "T/f")
    zone.put("T/_2", b"_2")
    assert zone.lost_files == []
    item, lost = zone.at("T").item, zone.properties("T/f")
    zone.rename("T/_2", "T/f")
    assert zone.lost_files == [f"{ZONE}/T/f"]
    seen = EngineView(LocalStorage(tmp_path / "store" / item.path), zone.options.delays, item.path)
    listed = {each.name: each.replaced for each in seen.list("Files/LandingZone/T")}
    assert listed == {"_metadata.json": "", "f": lost.identity}
    assert seen.stat("Files/LandingZone/T/f").replaced == lost.identity
    assert (zone.read("T/f"), zone.read("T/_metadata.json")) == (b"_2", b"newer")


def test_a_files_tag_changes_with_content_and_metadata_only(zone):
    tags = [zone.create("T/f").etag, zone.create("T/f").etag]
    zone.append("T/f", 0, b"abc")
    changes = (lambda: zone.flush("T/f", 3), *[lambda: zone.put("T/f", b"abc")] * 2)
    tags += [change().etag for change in changes]
    before, folder = zone.properties("T/f"), zone.properties("T")
    touched = zone.lake.set_metadata(zone.at("T/f"))
    assert touched.modified_ns > before.modified_ns
    assert zone.lake.set_metadata(zone.at("T")).etag == folder.etag
    assert len({*tags, touched.etag}) == len(tags) + 1
    zone.lake.read(zone.at("T/f"))[1].close()
    zone.append("T/f", 3, b"x")
    zone.put("T/g", b"x")
    assert zone.properties("T/f") == touched
    assert all(tag.startswith('"0x8D') and tag.endswith('"') and len(tag) == 19 for tag in tags)


def test_a_folders_tag_outlasts_changes_inside_repeated_create_and_restart(zone):
    before = zone.lake.create_folder(zone.at("T")).etag
    zone.put("T/f", b"abc")
    zone.rename("T/f", "T/g")
    zone.lake.delete(zone.at("T/g"))
    assert zone.lake.create_folder(zone.at("T")).etag == before
    assert ZoneClient(zone.storage).properties("T").etag == before


def test_a_folder_recreated_at_once_has_a_new_etag(zone):
    tags = []
    for _ in range(5):
        tags.append(zone.lake.create_folder(zone.at("T")).etag)
        zone.put("T/f", b"abc")
        zone.lake.delete(zone.at("T"), recursive=True)
    assert len(set(tags)) == 5


def test_a_recursive_delete_shows_in_one_step_and_leaves_nothing_behind(zone, monkeypatch):
    for path in ("T/a/f", "T/b/c/f", "T/f", "U/f"):
        zone.put(path, b"x")
    seen = []
    move_to_trash = zone.storage.move_to_trash

    def watched(path):
        discard = move_to_trash(path)
        seen.append(zone.names())
        return discard

    monkeypatch.setattr(zone.storage, "move_to_trash", watched)
    zone.lake.delete(zone.at("T"), recursive=True)
    assert seen == [["U"]]
    assert zone.storage.list(".mirror-engine/staging") == []


def test_last_modified_has_its_full_resolution_and_two_changes_in_one_tick_have_different_tags(tmp_path):
    still = ZoneClient(LocalStore(tmp_path), clock=lambda: 5 * SECOND)
    changes = [still.put("f", b""), *(still.lake.set_metadata(still.at("f")) for _ in range(3))]
    assert [change.modified_ns - 5 * SECOND for change in changes] == [0, 1, 2, 3]
    assert len({change.etag for change in changes}) == 4
    assert still.storage.stat(f"{ZONE}/f").modified_ns == changes[-1].modified_ns


def test_the_engine_sees_a_kept_deleted_folder_instead_of_its_recreation(zone):
    zone.put("T/_metadata.json", b"old")
    folder, delays, at = DeletedFolder.of(zone.storage, f"{ZONE}/T"), zone.options.delays, "Files/LandingZone"
    view = EngineView(LocalStorage(zone.storage._root / "ws/db"), delays, "ws/db")
    delays.keep_visible(folder, 60.0)
    zone.options.clock.advance(seconds=59)
    zone.lake.delete(zone.at("T"), recursive=True)
    zone.put("T/new", b"x")
    assert view.list(at) == [folder.entries[f"{ZONE}/T"]] == [view.stat(f"{at}/T")]
    assert [entry.name for entry in view.list(f"{at}/T") or ()] == ["_metadata.json"]
    assert view.stat(f"{at}/T/new") is None
    with view.open(f"{at}/T/_metadata.json") as file:
        assert file.read() == b"old"
    zone.options.clock.advance(seconds=1)
    assert [entry.name for entry in view.list(f"{at}/T") or ()] == ["new"]
    with refused(StorageErrorCode.PathNotFound):
        DeletedFolder.of(zone.storage, f"{ZONE}/U")
