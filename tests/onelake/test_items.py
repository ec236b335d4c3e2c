"""Workspaces and items: folders with GUIDs that stay."""

from __future__ import annotations

import os
import re
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

from mirror_engine.errors import UsageError
from mirror_engine.onelake.errors import FabricApiError
from mirror_engine.onelake.items import Items
from mirror_engine.onelake.store import LocalStore

GUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


@pytest.fixture
def item_store(tmp_path):
    return LocalStore(tmp_path)


@pytest.fixture
def registry(item_store):
    return Items(item_store)


@pytest.fixture
def known_workspace(registry):
    return registry.ensure_workspace("ws")


def test_guids_outlast_the_process(item_store, registry):
    item = replace(registry.ensure("ws", "db"), description="d", definition=b'{"\xff')
    registry.change(item)
    again = Items(item_store)
    assert again.ensure("ws", "db") == item
    assert list(again.workspaces()) == [item.workspace]


def test_folders_created_outside_get_a_guid_that_stays(item_store, registry):
    item_store.make_folder("other/new")
    item_store.make_folder("ws/.hidden")
    item_store.write("ws/file", b"")
    item_store.write("file", b"")
    (other, ws) = registry.workspaces()
    (new,) = registry.items(other)
    assert (other.name, ws.name, new.name) == ("other", "ws", "new")
    assert list(registry.items(ws)) == []
    assert Items(item_store).item(other, new.id) == new


def test_an_item_is_found_by_guid_name_and_name_with_its_type(registry):
    item = registry.ensure("ws", "db")
    for segment in ("db", item.id, item.id.upper(), "db.MountedRelationalDatabase", "db.MirroredDatabase"):
        assert registry.item(item.workspace, segment) == item
    for segment in ("DB", "db.Lakehouse", "", ".", "..", "../ws/db", ".mirror-engine", "db/Files", item.workspace.id):
        assert registry.item(item.workspace, segment) is None
    assert registry.workspace(item.workspace.id.upper()) == item.workspace
    for segment in ("WS", "", ".", "..", "ws/db", ".mirror-engine", item.id):
        assert registry.workspace(segment) is None


def test_a_name_is_looked_for_as_written_before_its_suffix_is_dropped(item_store, registry, known_workspace):
    item_store.make_folder("ws/db.MirroredDatabase")
    registry.create(known_workspace, "db")
    found = registry.item(known_workspace, "db.MirroredDatabase")
    assert found is not None
    assert found.name == "db.MirroredDatabase"


def test_a_folder_called_like_a_guid_is_found_by_it(item_store, registry):
    name = "1B4E28BA-2fa1-11d2-883f-0016d3cca427"
    item_store.make_folder(name)
    found = registry.workspace(name)
    assert found is not None
    assert (found.name, found.id) == (name, name.lower())
    assert registry.workspace(name.lower()) == found


@pytest.mark.parametrize("name", ["db", "DB"])
def test_a_name_can_be_used_once_in_any_case(registry, known_workspace, name):
    registry.create(known_workspace, "db")
    other = registry.create(known_workspace, "other")
    with pytest.raises(FabricApiError, match="in use"):
        registry.create(known_workspace, name)
    with pytest.raises(FabricApiError, match="in use"):
        registry.change(replace(other, name=name))
    assert [item.name for item in registry.items(known_workspace)] == ["db", "other"]


ODD = ["", ".", "..", ".x", " x", "x ", "x.", "\ud800", *(f"a{letter}b" for letter in '/\\\0\n:"|?*<>')]
TAKEN = ["x" * 230, "é" * 120, "onelake", "1b4e28ba-2fa1-11d2-883f-0016d3cca427", "db.MirroredDatabase"]


@pytest.mark.slow
@pytest.mark.parametrize("name", [*ODD, *TAKEN])
def test_names_that_no_folder_can_have_everywhere_are_refused(item_store, registry, known_workspace, name):
    item = registry.create(known_workspace, "db")
    for attempt in (
        lambda: registry.create(known_workspace, name),
        lambda: registry.change(replace(item, name=name)),
        lambda: registry.ensure("new", name),
        lambda: registry.ensure(name, "x"),
    ):
        with pytest.raises(FabricApiError, match="A name "):
            attempt()
    assert [entry.name for entry in item_store.list("") or ()] == [".mirror-engine", "ws"]
    assert list(registry.items(known_workspace)) == [item]


def test_a_renamed_item_keeps_its_guid_and_content(item_store, registry):
    item = registry.ensure("ws", "db")
    item_store.write("ws/db/Files/LandingZone/T/f", b"x")
    renamed = registry.change(replace(item, name="Db", description="new"))
    assert registry.item(item.workspace, item.id) == renamed
    assert registry.item(item.workspace, "db") is None
    assert item_store.stat("ws/Db/Files/LandingZone/T/f") is not None
    assert Items(item_store).item(item.workspace, "Db") == renamed
    with pytest.raises(FabricApiError, match="not be found"):
        registry.change(replace(item, id="unknown"))


def test_a_removed_item_is_in_the_trash_and_a_new_one_has_another_guid(item_store, registry):
    item = registry.ensure("ws", "db")
    item_store.write("ws/db/Files/f", b"x")
    registry.remove(item)
    registry.remove(item)
    assert registry.item(item.workspace, "db") is None
    assert registry.item(item.workspace, item.id) is None
    trash = [entry.name for entry in item_store.list(".mirror-engine/trash") or ()]
    kept = [item_store.stat(f".mirror-engine/trash/{name}/db/Files/f") for name in trash]
    assert any(kept)
    assert registry.create(item.workspace, "db").id != item.id


def test_guids_are_on_the_disk_before_they_are_used(tmp_path, registry, monkeypatch):
    synced, fsync = [], os.fsync
    monkeypatch.setattr(os, "fsync", lambda opened: synced.append(os.fstat(opened).st_ino) or fsync(opened))
    for make in (lambda: registry.ensure_workspace("ws"), lambda: registry.ensure("ws", "db")):
        make()
        assert (tmp_path / ".mirror-engine/items.json").stat().st_ino in synced


def test_a_damaged_registry_names_the_way_to_restore_it(item_store):
    for content in (b"{", b"[1]", b'{"ws": {"id": "x"}}', b'{"ws": [1]}', b"\xff"):
        item_store.write(".mirror-engine/items.json", content)
        with pytest.raises(UsageError, match="is damaged") as problem:
            Items(item_store)
        assert "delete it" in problem.value.help


def test_of_many_who_create_one_name_one_succeeds(item_store, registry):
    workspace = registry.ensure_workspace("ws")

    def create(_):
        try:
            return registry.create(workspace, "db")
        except FabricApiError:
            return None

    with ThreadPoolExecutor(8) as pool:
        made = [item for item in pool.map(create, range(8)) if item]
    assert made == list(registry.items(workspace)) == list(Items(item_store).items(workspace))
