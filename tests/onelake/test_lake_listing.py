"""What a client finds in a lake: listings, properties, content."""

from __future__ import annotations

from functools import partial
from itertools import count

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from lakes import ZONE, ZoneClient, changes, matching, refused

from mirror_engine.onelake.errors import StorageApiError, StorageErrorCode
from mirror_engine.onelake.store import LocalStore


def names(lines):
    return [name for name, _ in lines]


def test_listed_names_are_relative_to_the_workspace(zone):
    zone.put("T/f", b"abc")
    for item in ("db", "db.MirroredDatabase", zone.at("").item.id):
        folder = zone.raw(f"/onelake/ws/{item}/Files/LandingZone")
        name = f"{item}/Files/LandingZone/T"
        assert zone.lake.list(folder) == [(name, zone.properties("T"))]
        assert names(zone.lake.list(folder, recursive=True)) == [name, f"{name}/f"]


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


PARTS = st.sampled_from(["a", "b", "a.", "a-", "a0", "é", "\U0001f600"])
EXAMPLES = count()
TREES = st.sets(st.lists(PARTS, min_size=1, max_size=4).map("/".join), max_size=12)


@pytest.fixture(scope="module")
def shared(tmp_path_factory):
    return ZoneClient(LocalStore(tmp_path_factory.mktemp("store")))


@settings(deadline=None, max_examples=50)  # each example is a folder on disk
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
        with refused(StorageErrorCode.PathNotFound):
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
    with refused(StorageErrorCode.WorkspaceNotFound):
        linked.raw("/space/T")
    with refused(StorageErrorCode.ArtifactNotFound):
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
