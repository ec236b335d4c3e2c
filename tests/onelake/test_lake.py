"""A lake without HTTP: what clients find, upload, rename and delete, on which conditions, and who sees what when."""

from __future__ import annotations

import os
from functools import partial
from itertools import count

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from zone_client import ABSENT_ONLY, SECOND, ZONE, ZoneClient, changes, matching, refused

from mirror_engine.onelake import store
from mirror_engine.onelake.conditions import NONE, SOURCE, Conditions, Properties
from mirror_engine.onelake.engine_view import EngineView
from mirror_engine.onelake.errors import StorageApiError
from mirror_engine.onelake.errors import StorageErrorCode as Code
from mirror_engine.onelake.store import LocalStore


def names(lines):
    return [name for name, _ in lines]


def test_a_workspace_lists_its_items_and_their_content(zone):
    zone.items.ensure("ws", "a")
    zone.storage.write("ws/stray", b"x")
    zone.storage.make_folder("ws/.hidden")
    workspace = zone.raw("/ws")
    assert names(zone.lake.list(workspace)) == ["a", "db"]
    assert names(zone.lake.list(workspace, "db", recursive=True)) == [
        "db",
        "db/Files",
        ZONE.removeprefix("ws/"),
        "db/Tables",
    ]


def test_a_workspace_lists_its_items_with_the_type_that_paths_need(zone):
    zone.items.allow_bare_names = False
    name = "db.MountedRelationalDatabase"
    expected = [name, f"{name}/Files", f"{name}/Files/LandingZone", f"{name}/Tables"]
    assert names(zone.lake.list(zone.raw("/ws"), recursive=True)) == expected


def test_names_below_an_item_begin_as_the_client_wrote_it(zone):
    zone.put("T/f", b"abc")
    for item in ("db", "db.MirroredDatabase", zone.at("").item.id):
        name = f"{item}/Files/LandingZone/T"
        assert names(zone.lake.list(zone.raw(f"/onelake/ws/{item}/Files/LandingZone"), recursive=True)) == [
            name,
            f"{name}/f",
        ]


PARTS = st.sampled_from(["a", "b", "a.", "a-", "a0", "é", "\U0001f600"])
EXAMPLES = count()
TREES = st.sets(st.lists(PARTS, min_size=1, max_size=4).map("/".join), max_size=12)


@pytest.fixture(scope="module")
def shared(tmp_path_factory):
    return ZoneClient(LocalStore(tmp_path_factory.mktemp("store")))


@settings(max_examples=50)  # each example is a folder on disk
@given(tree=TREES, start=st.lists(PARTS, max_size=4).map("/".join) | st.sampled_from(["a/", "a/a/", "z"]))
def test_a_listing_may_start_at_any_name_whether_it_is_there_or_not(shared, tree, start):
    top = shared.at(f"T{next(EXAMPLES)}")
    for path in ("", *tree):
        (shared.storage._root / top.path / path).mkdir(parents=True, exist_ok=True)
    for recursive in (True, False):
        every = names(shared.lake.list(top, recursive=recursive))
        first = f"{top.shown}/{start}"
        assert names(shared.lake.list(top, first, recursive=recursive)) == [name for name in every if name >= first]
        assert every == sorted(every)
    folders = {"/".join(path.split("/")[:depth]) for path in tree for depth in range(1, path.count("/") + 2)}
    assert len(names(shared.lake.list(top, recursive=True))) == len(folders)


@pytest.mark.slow
def test_a_listing_looks_up_no_more_than_it_shows(zone, monkeypatch):
    for number in range(1500):
        (zone.storage._root / zone.at("").path / f"T/{number:05}").parent.mkdir(parents=True, exist_ok=True)
        (zone.storage._root / zone.at("").path / f"T/{number:05}").touch()
    looked_up = []
    entries = LocalStore._entries
    monkeypatch.setattr(
        LocalStore, "_entries", lambda self, names, folder: looked_up.extend(names) or entries(self, names, folder)
    )
    every = names(zone.lake.list(zone.at(""), recursive=True))
    assert len(every) == 1501
    for start, prefix in [("", ""), (every[1200], ""), ("", every[1][:-2])]:
        looked_up.clear()
        page = zone.lake.list(zone.at(""), start, recursive=True, limit=10, prefix=prefix)
        assert names(page) == [name for name in every if name >= start and name.startswith(prefix)][:10]
        assert len(looked_up) < 600


def test_a_folder_that_goes_away_during_a_listing_is_left_out(zone, monkeypatch):
    for table in ("A", "B"):
        zone.put(f"{table}/f", b"")
    entries = zone.storage.entries

    def raced(path, is_due):
        if path.endswith("/A"):
            zone.storage.delete(zone.at("A").path)
        return entries(path, is_due)

    monkeypatch.setattr(zone.storage, "entries", raced)
    assert [name.rpartition("LandingZone/")[2] for name in names(zone.lake.list(zone.at(""), recursive=True))] == [
        "A",
        "B",
        "B/f",
    ]


def test_content_comes_with_the_properties_it_has(zone):
    put = zone.put("T/f", b"abc")
    properties, reader = zone.lake.read(zone.at("T/f"), matching(put))
    with reader:
        reader.seek(1)
        assert (properties, reader.read()) == (put, b"bc")
    properties, reader = zone.lake.read(zone.at(""))
    with reader:
        assert (properties.is_folder, reader.read()) == (True, b"")


@pytest.mark.parametrize("change", ["replace", "delete"])
def test_a_file_that_changes_while_it_is_opened_is_never_sent_with_another_ones_tag(zone, monkeypatch, change):
    zone.put("T/f", b"old")
    opened = zone.storage.open

    def raced(path):
        monkeypatch.setattr(zone.storage, "open", opened)
        if change == "replace":
            zone.put("T/f", b"newer")
        else:
            zone.lake.delete(zone.at("T/f"))
        return opened(path)

    monkeypatch.setattr(zone.storage, "open", raced)
    if change == "delete":
        with refused(Code.PathNotFound):
            zone.lake.read(zone.at("T/f"))
        return
    properties, reader = zone.lake.read(zone.at("T/f"))
    with reader:
        assert (properties, reader.read()) == (zone.properties("T/f"), b"newer")


def test_what_the_engine_is_just_writing_is_not_listed(zone):
    zone.storage.write("ws/db/.mirror-engine/ledger.sqlite", b"x")
    zone.storage.write("ws/db/Files/.mirror-engine-0123", b"x")
    workspace = zone.raw("/ws")
    assert not any(".mirror-engine" in name for name in names(zone.lake.list(workspace, recursive=True)))
    assert names(zone.lake.list(zone.raw("/ws/db"))) == ["db/Files", "db/Tables"]


@pytest.fixture
def linked(tmp_path):
    """A lake with links that lead out of it."""
    outside = tmp_path / "outside"
    (outside / "T").mkdir(parents=True)
    (outside / "T/secret").write_bytes(b"secret")
    zone = ZoneClient(LocalStore(tmp_path / "store"))
    zone.put("f", b"x")
    folder = tmp_path / "store" / ZONE
    (folder / "folder").symlink_to(outside)
    (folder / "file").symlink_to(outside / "T/secret")
    (folder / "nowhere").symlink_to("nothing")
    (tmp_path / "store/ws/item").symlink_to(outside)
    (tmp_path / "store/space").symlink_to(outside)
    return zone


def test_links_are_not_listed(linked):
    assert [name.rpartition("/")[2] for name in names(linked.lake.list(linked.at(""), recursive=True))] == ["f"]
    assert names(linked.lake.list(linked.raw("/ws"))) == ["db"]
    assert [workspace.name for workspace in linked.items.workspaces()] == ["ws"]
    with refused(Code.WorkspaceNotFound):
        linked.raw("/space/T")
    with refused(Code.ArtifactNotFound):
        linked.raw("/ws/item/T")


@pytest.mark.parametrize("path", ["folder", "file", "nowhere", "folder/T", "folder/T/secret", "folder/new", "file/x"])
def test_links_are_not_followed_by_anything(linked, tmp_path, path):
    at, file = linked.at(path), linked.at("f")
    with linked.lake.receive() as body:
        body.write(b"x")
        for attempt in (
            partial(linked.lake.properties, at),
            partial(linked.lake.read, at),
            partial(linked.lake.list, at),
            partial(linked.lake.list, at, recursive=True),
            partial(linked.lake.set_metadata, at),
            partial(linked.lake.copy, at, linked.at("g")),
            *changes(linked.lake, at, file, body),
        ):
            with pytest.raises(StorageApiError, match="does not exist") as problem:
                attempt()
            assert problem.value.code.status == 404
    assert sorted(child.name for child in (tmp_path / "outside").rglob("*")) == ["T", "secret"]
    assert (tmp_path / "outside/T/secret").read_bytes() == b"secret"
    assert linked.read("f") == b"x"


@pytest.mark.parametrize(
    ("committed", "appends", "position", "content"),
    [
        (b"", [(3, b"DEF"), (6, b"g"), (0, b"xxxxx"), (0, b"abc")], 7, b"abcDEFg"),
        (b"abc", [(3, b"def")], 6, b"abcdef"),
        (b"abc", [(3, b"d"), (4, b"e")], 5, b"abcde"),
        (b"abc", [(3, b"de"), (7, b"hi"), (5, b"fg")], 9, b"abcdefghi"),
        (b"abc", [(0, b"abc")], 3, b"abc"),
        (b"abc", [], 3, b"abc"),
    ],
)
def test_a_flush_commits_appends_in_any_order(zone, committed, appends, position, content):
    created = zone.put("T/f", committed)
    for start, part in appends:
        assert zone.append("T/f", start, part) == created
    flushed = zone.flush("T/f", position, matching(created))
    assert (flushed.size, zone.read("T/f")) == (position, content)
    assert zone.flush("T/f", position) == flushed  # its response may have been lost
    assert (flushed.etag == created.etag) == (committed == content)


@pytest.mark.parametrize("position", [0, 2, 4, 6, 9, 11, -1])
def test_a_flush_to_a_position_without_a_chain_of_parts_is_rejected(zone, position):
    zone.put("T/f", b"abc")
    zone.append("T/f", 3, b"de")
    zone.append("T/f", 7, b"hi")
    with refused(Code.InvalidFlushPosition):
        zone.flush("T/f", position)
    with refused(Code.PathAlreadyExists):
        zone.flush("T/f", 5, ABSENT_ONLY)
    assert zone.read("T/f") == b"abc"
    zone.append("T/f", 5, b"fg")
    zone.flush("T/f", 9)
    assert zone.read("T/f") == b"abcdefghi"


def test_parts_beyond_the_flush_are_dropped(zone):
    zone.create("T/f")
    zone.append("T/f", 0, b"abc")
    zone.append("T/f", 3, b"def")
    zone.flush("T/f", 3)
    with refused(Code.InvalidFlushPosition):
        zone.flush("T/f", 6)


def test_append_during_a_flush_goes_on_with_its_file(zone, monkeypatch):
    """Writers that send many parts at once flush while later ones arrive."""
    zone.create("T/f")
    zone.append("T/f", 0, b"abc")
    read = zone.lake.read

    def read_meanwhile(*words):
        monkeypatch.undo()
        zone.append("T/f", 3, b"def")
        return read(*words)

    monkeypatch.setattr(zone.lake, "read", read_meanwhile)
    assert zone.flush("T/f", 3).size == 3
    assert zone.flush("T/f", 6).size == 6
    assert zone.read("T/f") == b"abcdef"
    assert zone.lake._uploads.used_bytes == 0


def test_appends_follow_a_rename_and_are_lost_with_their_file(zone):
    zone.create("T/f")
    zone.append("T/f", 0, b"abc")
    zone.rename("T/f", "T/g")
    zone.rename("T", "U")
    zone.flush("U/g", 3)
    assert zone.read("U/g") == b"abc"
    for lose in (
        lambda: zone.lake.delete(zone.at("T/f")),
        lambda: zone.create("T/f"),
        lambda: zone.rename("T/other", "T/f"),
    ):
        zone.create("T/other")
        zone.create("T/f")
        zone.append("T/f", 0, b"abc")
        lose()
        zone.create("T/f")
        with refused(Code.InvalidFlushPosition):
            zone.flush("T/f", 3)
    assert zone.lake._uploads.used_bytes == 0


def test_blocks_become_a_file_in_the_order_of_the_list(zone):
    for block_id, content in [("b", b"22"), ("a", b"xx"), ("c", b"3"), ("a", b"1")]:
        zone.put_block("T/f", block_id, content)
    assert zone.lake.put_block_list(zone.at("T/f"), ["a", "b", "a"]).size == 4
    assert zone.read("T/f") == b"1221"
    with refused(Code.InvalidBlockList):
        zone.lake.put_block_list(zone.at("T/f"), ["c"])
    assert zone.lake.put_block_list(zone.at("T/g"), []).size == 0
    assert zone.lake._uploads.used_bytes == 0
    zone.put_block("T/f", "a", b"abc")
    zone.put("T/f", b"whole")  # drops the blocks
    with refused(Code.InvalidBlockList):
        zone.lake.put_block_list(zone.at("T/f"), ["a"])


def test_a_rejected_block_list_keeps_its_blocks(zone):
    zone.put_block("T/f", "a", b"abc")
    with refused(Code.InvalidBlockList):
        zone.lake.put_block_list(zone.at("T/f"), ["a", "b"])
    with refused(Code.ConditionNotMet):
        zone.lake.put_block_list(zone.at("T/f"), ["a"], Conditions.of({"if-match": "*"}))
    assert zone.lake.put_block_list(zone.at("T/f"), ["a"], ABSENT_ONLY).size == 3
    assert zone.read("T/f") == b"abc"


def test_a_repeated_block_list_changes_nothing_unless_the_file_changed(zone, monkeypatch):
    zone.put_block("T/f", "a", b"abc")
    first = zone.lake.put_block_list(zone.at("T/f"), ["a"])
    assert zone.lake.put_block_list(zone.at("T/f"), ["a"]) == first
    with refused(Code.InvalidBlockList):
        zone.lake.put_block_list(zone.at("T/f"), ["a", "a"])
    zone.put("T/f", b"other")
    with refused(Code.InvalidBlockList):
        zone.lake.put_block_list(zone.at("T/f"), ["a"])
    monkeypatch.setattr("mirror_engine.onelake.lake.MAX_BLOCK_LISTS", 2)
    zone = ZoneClient(zone.storage)
    for name in "abc":
        zone.put_block(name, "x", b"x")
        zone.lake.put_block_list(zone.at(name), ["x"])
    zone.lake.put_block_list(zone.at("b"), ["x"])
    with refused(Code.InvalidBlockList):
        zone.lake.put_block_list(zone.at("a"), ["x"])


def test_uncommitted_parts_are_counted(zone, monkeypatch):
    monkeypatch.setattr(store, "MAX_PARTS", 3)
    zone.create("T/f")
    zone.append("T/f", 0, b"a")
    for block in "12":
        zone.put_block("T/g", block, b"b")
    zone.put_block("T/g", "2", b"c")  # again
    with refused(Code.ServerBusy):
        zone.append("T/f", 1, b"d")
    with refused(Code.ServerBusy):
        zone.put_block("T/h", "1", b"d")
    with refused(Code.InvalidBlockList):
        zone.lake.put_block_list(zone.at("T/g"), ["3"])
    with refused(Code.ServerBusy):
        zone.append("T/f", 1, b"d")
    zone.lake.put_block_list(zone.at("T/g"), ["1", "2"])
    zone.append("T/f", 1, b"d")
    zone.put_block("T/h", "1", b"d")
    assert zone.flush("T/f", 2).size == 2


def test_a_copy_is_a_file_of_its_own_and_a_copied_folder_is_empty(zone):
    source = zone.put("T/f", b"abc")
    assert zone.lake.copy(zone.at("T/f"), zone.at("U/g")).etag != source.etag
    assert (zone.read("U/g"), zone.read("T/f")) == (b"abc", b"abc")
    assert zone.lake.copy(zone.at("T"), zone.at("V")).is_folder
    assert zone.names("V") == []


def test_uncommitted_bytes_have_a_quota_that_commits_and_failures_give_back(zone, monkeypatch):
    monkeypatch.setattr(store, "STAGING_BYTES", 10)
    zone.create("f")
    zone.append("f", 0, b"123456")
    with refused(Code.ServerBusy):
        zone.append("f", 6, b"78901")
    zone.append("f", 6, b"7890")
    with refused(Code.ServerBusy):
        zone.put("g", b"1")
    zone.flush("f", 10)
    zone.put("g", b"1234567890")
    assert (zone.read("f"), zone.read("g")) == (b"1234567890", b"1234567890")


def test_uploads_expire(tmp_path):
    zone = ZoneClient(LocalStore(tmp_path))
    zone.create("f")
    zone.append("f", 0, b"abc")
    zone.put_block("g", "a", b"abc")
    for hours, used_bytes in ((23.9, 6), (0.2, 0)):
        zone.options.clock.advance(hours=hours)
        zone.lake.receive().discard()
        assert zone.lake._uploads.used_bytes == used_bytes
    with refused(Code.InvalidFlushPosition):
        zone.flush("f", 3)


def test_uncommitted_files_of_an_earlier_process_are_deleted(zone):
    zone.create("f")
    zone.append("f", 0, b"abc")
    again = ZoneClient(zone.storage)
    assert zone.storage.list(".mirror-engine/staging") in (None, [])
    with refused(Code.InvalidFlushPosition):
        again.flush("f", 3)


def test_a_rename_keeps_tag_and_last_modified_of_files_and_folders(zone):
    file, folder = zone.put("T/_f", b"abc"), zone.properties("T")
    assert zone.rename("T/_f", "T/f") == file == zone.properties("T/f")
    assert zone.rename("T", "U").etag == folder.etag == zone.properties("U").etag
    assert zone.properties("U/f") == file
    assert zone.names() == ["U"]


@pytest.mark.parametrize("call", ["replace", "rename"])
def test_file_archived_before_its_answer_is_reported_as_written(zone, monkeypatch, call):
    """An engine may apply a file and move it away at once."""
    written, moved = zone.put("T/_f", b"abc"), getattr(os, call)

    def archived(source, target, *, src_dir_fd, dst_dir_fd):
        moved(source, target, src_dir_fd=src_dir_fd, dst_dir_fd=dst_dir_fd)
        os.unlink(target, dir_fd=dst_dir_fd)

    monkeypatch.setattr(os, call, archived)
    if call == "rename":
        assert zone.rename("T/_f", "T/f") == written
    else:
        assert zone.put("T/f", b"abcd").size == 4


def test_a_rename_that_touches_changes_a_files_tag_and_time_only(zone):
    zone.options.rename_updates_mtime = True
    file, folder = zone.put("T/_f", b"abc"), zone.properties("T")
    renamed = zone.rename("T/_f", "T/f")
    assert renamed == zone.properties("T/f")
    assert renamed.modified_ns > file.modified_ns
    assert renamed.etag != file.etag
    assert zone.rename("T", "U").etag == folder.etag


def test_file_lost_by_unconditional_rename_is_reported(zone, tmp_path):
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
    seen = EngineView(tmp_path / "store" / item.path, zone.options.history, item.path)
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


OTHER_TAG = Conditions.of({"if-match": '"other"'})
ANY_TAG = Conditions.of({"if-match": "*"})
OTHER_SOURCE = Conditions.of({"x-ms-source-if-match": '"other"'}, SOURCE)


@pytest.fixture
def filled(zone):
    """The files T/f and T/g, an empty folder U, another item, a folder outside of Files and Tables."""
    zone.put("T/f", b"abc")
    zone.put("T/g", b"other")
    zone.lake.create_folder(zone.at("U"))
    zone.items.ensure("ws", "other")
    zone.storage.make_folder("ws/db/Other")
    return zone


ATTEMPTS = [  # others are in test_storage_api.py
    # create
    (Code.PathAlreadyExists, lambda z: z.lake.create_folder(z.at("U"), ABSENT_ONLY)),
    (Code.PathAlreadyExists, lambda z: z.create("T", ABSENT_ONLY)),
    (Code.PathConflict, lambda z: z.create("T")),
    (Code.PathConflict, lambda z: z.create("T/f/below")),
    # append and flush
    (Code.PathNotFound, lambda z: z.append("T/new", 0, b"x")),
    (Code.PathConflict, lambda z: z.append("T", 0, b"x")),
    (Code.PathConflict, lambda z: z.flush("T", 0)),
    (Code.InvalidHeaderValue, lambda z: z.append("T/f", 3, b"")),
    # put, blocks, copy, metadata
    (Code.ConditionNotMet, lambda z: z.put("T/f", b"x", OTHER_TAG)),
    (Code.ConditionNotMet, lambda z: z.put("T/new", b"x", ANY_TAG)),
    (Code.PathConflict, lambda z: z.put("T", b"x")),
    (Code.InvalidHeaderValue, lambda z: z.put_block("T/f", "a", b"")),
    (Code.PathConflict, lambda z: z.put_block("T", "a", b"x")),
    (Code.PathAlreadyExists, lambda z: z.lake.copy(z.at("T/f"), z.at("T/g"), ABSENT_ONLY)),
    (Code.PathConflict, lambda z: z.lake.copy(z.at("T/f"), z.at("U"))),
    (Code.SourcePathNotFound, lambda z: z.lake.copy(z.at("T/new"), z.at("T/g"))),
    (Code.SourceConditionNotMet, lambda z: z.lake.copy(z.at("T/f"), z.at("T/g"), source_conditions=OTHER_SOURCE)),
    (Code.PathNotFound, lambda z: z.lake.set_metadata(z.at("T/new"))),
    # rename
    (Code.SourcePathNotFound, lambda z: z.rename("T/new", "T/h")),
    (Code.ConditionNotMet, lambda z: z.rename("T/f", "T/g", OTHER_TAG)),
    (Code.InvalidSourceUri, lambda z: z.lake.rename(z.at("T/f"), z.raw("/ws/other/Files/f"))),
    # delete
    (Code.ConditionNotMet, lambda z: z.lake.delete(z.at("T"), OTHER_TAG, recursive=True)),
    (Code.PathNotFound, lambda z: z.lake.delete(z.at("T/new"))),
    (Code.PathNotFound, lambda z: z.lake.delete(z.at("V"), recursive=True)),
    # read and list
    (Code.PathNotFound, lambda z: z.properties("T/new")),
    (Code.PathNotFound, lambda z: z.properties("T/f/below")),
    (Code.ConditionNotMet, lambda z: z.lake.read(z.at("T/f"), OTHER_TAG)),
    (Code.NotModified, lambda z: z.lake.read(z.at("T/f"), Conditions.of({"if-none-match": z.properties("T/f").etag}))),
    (Code.PathNotFound, lambda z: z.lake.list(z.at("T/f/below"))),
    (Code.PathNotFound, lambda z: z.lake.list(z.at("V"), recursive=True)),
    # workspaces and items
    (Code.WorkspaceNotFound, lambda z: z.lake.destination(b"/new/x/Files/f")),
    (Code.ArtifactNotFound, lambda z: z.lake.destination(b"/ws/new/Files/f")),
]


@pytest.mark.slow
@pytest.mark.parametrize(("code", "attempt"), ATTEMPTS, ids=lambda value: getattr(value, "name", ""))
def test_rejected_requests_change_nothing(filled, code, attempt):
    with refused(code):
        attempt(filled)
    assert (filled.names(), filled.names("T")) == (["T", "U"], ["f", "g"])
    assert (filled.read("T/f"), filled.read("T/g")) == (b"abc", b"other")
    assert [item.name for item in filled.items.all()] == ["db", "other"]


CREATIONS = {"create_folder", "create_file", "put", "put_block_list", "copy"}
REFUSED = Code.OperationNotAllowedOnThePath


@pytest.mark.slow
@pytest.mark.parametrize(
    ("path", "code", "code_of_creation"),
    [
        ("/ws", Code.ArtifactIdMissing, Code.ArtifactIdMissing),
        *((path, REFUSED, Code.PathAlreadyExists) for path in ("/ws/db/Files", "/ws/db/Tables")),
        *((path, REFUSED, REFUSED) for path in ("/ws/db", "/ws/db/Other", "/ws/db/Other/x", "/ws/other/Tables")),
    ],
)
def test_managed_folders_cannot_be_changed(filled, path, code, code_of_creation):
    filled.storage.delete("ws/other/Tables")
    managed, file, lake = filled.raw(path), filled.at("T/f"), filled.lake
    with lake.receive() as body:
        body.write(b"x")
        create_only = partial(lake.create_folder, managed, ABSENT_ONLY)
        for attempt in (create_only, partial(lake.put_block, managed, "a", body), *changes(lake, managed, file, body)):
            with refused(code_of_creation if attempt.func.__name__ in CREATIONS else code):
                attempt()
    assert filled.read("T/f") == b"abc"
    assert [name for name, _ in lake.list(filled.raw("/ws/db"))] == ["db/Files", "db/Other", "db/Tables"]


def test_managed_folder_changes_can_be_allowed(zone):
    zone.options.allow_managed_folder_changes = True
    zone.lake.create_folder(zone.raw("/ws/db/Other"))
    zone.lake.rename(zone.raw("/ws/db/Other"), zone.raw("/ws/db/More"))
    zone.lake.create_folder(zone.lake.destination(b"/new/x/Files"))
    assert zone.items.ensure("new", "x").path == "new/x"
    assert zone.lake.destination(b"/newer").path == "newer"
    zone.items.allow_bare_names = False
    assert zone.lake.destination(b"/newer/y.MirroredDatabase").path == "newer/y"
    with refused(Code.FriendlyNameSupportDisabled):
        zone.lake.destination(b"/newer/z")
    assert [item.name for item in zone.items.all()] == ["x", "y", "db"]
    zone.items.allow_bare_names = True
    for path in ("/ws/db/More", "/ws/db/Tables", "/ws/db/Files", "/new/x", "/newer"):
        zone.lake.delete(zone.raw(path), recursive=True)
    with refused(Code.WorkspaceNotFound):
        zone.raw("/newer")
    with refused(Code.InvalidUri):
        zone.lake.destination(b"/ws/a%3Ab")


NOON = "Sun, 06 Nov 1994 12:00:00 GMT"
NOON_SECONDS = 784123200
THERE = Properties(is_folder=False, size=1, modified_ns=NOON_SECONDS * SECOND + 999_999_999, identity="1")
TAG = THERE.etag.strip('"')

FULFILLED = [
    {},
    {"if-match": f'"{TAG}"'},
    {"if-match": TAG},
    {"if-match": f'"x", "{TAG}"'},
    {"if-match": f'W/"{TAG}"'},
    {"if-match": "*"},
    {"if-none-match": '"other"'},
    {"if-unmodified-since": NOON},
    {"if-modified-since": "Sun, 06 Nov 1994 11:59:59 GMT"},
    {"if-modified-since": NOON, "if-none-match": '"other"'},
]
UNFULFILLED = [
    {"if-match": '"other"'},
    {"if-match": f'"{TAG}2"'},
    {"if-none-match": f'"{TAG}"'},
    {"if-none-match": TAG},
    {"if-unmodified-since": "Sun, 06 Nov 1994 11:59:59 GMT"},
    {"if-modified-since": NOON},
]


@pytest.mark.parametrize("headers", FULFILLED, ids=str)
def test_fulfilled_conditions_pass(headers):
    Conditions.of(headers).check_write(THERE)
    Conditions.of(headers).check_read(THERE)
    Conditions.of({f"{SOURCE}{name}": value for name, value in headers.items()}, SOURCE).check_present(THERE)


@pytest.mark.parametrize("headers", UNFULFILLED, ids=str)
def test_unfulfilled_conditions_reject_a_change_and_a_current_copy_is_not_modified(headers):
    with refused(Code.ConditionNotMet):
        Conditions.of(headers).check_write(THERE)
    source = Conditions.of({f"{SOURCE}{name}": value for name, value in headers.items()}, SOURCE)
    with refused(Code.SourceConditionNotMet):
        source.check_present(THERE)
    is_known = "if-none-match" in headers or "if-modified-since" in headers
    with refused(Code.NotModified if is_known else Code.ConditionNotMet):
        Conditions.of(headers).check_read(THERE)


def test_create_only_is_rejected_for_an_existing_path():
    create_only = Conditions.of({"if-none-match": "*"})
    with refused(Code.PathAlreadyExists):
        create_only.check_write(THERE)
    create_only.check_write(None)
    Conditions.of({"if-none-match": f'"{TAG}"', "if-unmodified-since": NOON}).check_write(None)
    with refused(Code.NotModified):
        create_only.check_read(THERE)


def test_the_headers_of_the_source_are_not_those_of_the_target():
    assert Conditions.of({"x-ms-source-if-match": '"a"', "content-type": "x"}) == NONE
    assert Conditions.of({"if-match": '"a"'}, SOURCE).if_match is None


@pytest.mark.parametrize("text", ["", "yesterday", "Sun, 99 Nov 1994 12:00:00 GMT", "Sun, 06 Nov 99999 12:00:00 GMT"])
@pytest.mark.parametrize("name", ["if-modified-since", "if-unmodified-since"])
def test_a_date_that_is_none_is_refused(name, text):
    with refused(Code.InvalidHeaderValue):
        Conditions.of({name: text})
