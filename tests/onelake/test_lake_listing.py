"""What a client finds in a lake: listings, properties, content (endpoint chapters 3, 4 and 9)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st
from lakes import ZONE, Shore, matching, refused, storage_called
from memory_storage import WritableMemoryStorage

from mirror_engine.onelake.errors import StorageErrorCode
from mirror_engine.onelake.requests import Conditions

if TYPE_CHECKING:
    from pathlib import Path

    from mirror_engine.onelake.lake import Listed
    from mirror_engine.onelake.requests import Address

pytestmark = pytest.mark.slow


@pytest.fixture(params=["memory", "local"])
def shore(request: pytest.FixtureRequest, tmp_path: Path) -> Shore:
    return Shore(storage_called(request.param, tmp_path))


def names(lines: object) -> list[str]:
    return [line.name for line in lines]  # type: ignore[attr-defined]


def test_a_listing_names_what_lies_there_as_seen_from_the_workspace(shore: Shore) -> None:
    """Chapter 3: the item's segment as the client wrote it."""
    shore.put("T/f", b"abc")
    for item in ("db", "db.MirroredDatabase", shore.at("").item.id):  # type: ignore[union-attr]
        folder = shore.raw(f"/onelake/ws/{item}/Files/LandingZone")
        (line,) = shore.lake.children(folder)
        assert line.name == f"{item}/Files/LandingZone/T"
        assert line.properties == shore.properties("T")
        assert names(shore.lake.descendants(folder)) == [line.name, f"{line.name}/f"]


def test_a_workspace_lists_its_items_and_what_lies_in_them(shore: Shore) -> None:
    shore.items.ensure("ws", "a")
    shore.storage.write("ws/stray", b"x")
    shore.storage.make_folder("ws/.hidden")
    workspace = shore.raw("/ws")
    assert names(shore.lake.children(workspace)) == ["a", "db"]
    assert names(shore.lake.descendants(workspace, "db")) == ["db", "db/Files", ZONE.removeprefix("ws/"), "db/Tables"]


def test_only_a_folder_that_is_there_can_be_listed(shore: Shore) -> None:
    shore.put("f", b"x")
    for path in ("f", "nothing", "f/below"):
        for look in (shore.lake.children, shore.lake.descendants):
            with refused(StorageErrorCode.PATH_NOT_FOUND):
                look(shore.at(path))


def test_whole_names_are_sorted_by_code_point_so_a_dot_comes_before_what_lies_inside(shore: Shore) -> None:
    """Chapter 4: byte order."""
    for path in ("a/b", "a.txt", "a0", "a/a/z", "B", "é", "_x", "a-"):
        shore.put(f"T/{path}", b"")
    found = [name.partition("/T/")[2] for name in names(shore.lake.descendants(shore.at("T")))]
    assert found == ["B", "_x", "a", "a-", "a.txt", "a/a", "a/a/z", "a/b", "a0", "é"]
    assert found == sorted(found, key=str.encode)
    assert shore.names("T") == ["B", "_x", "a", "a-", "a.txt", "a0", "é"]


PARTS = st.sampled_from(["a", "b", "a.", "a-", "a0", "é", "\U0001f600"])
TREES = st.sets(st.lists(PARTS, min_size=1, max_size=4).map("/".join), max_size=12)


@given(tree=TREES, start=st.lists(PARTS, max_size=4).map("/".join) | st.sampled_from(["a/", "a/a/", "z"]))
def test_a_listing_may_start_at_any_name_whether_it_is_there_or_not(tree: set[str], start: str) -> None:
    """Chapter 4: `startFrom`, inclusive."""
    shore = Shore(WritableMemoryStorage())
    for path in tree:
        shore.lake.create_folder(shore.at(path))
    above = shore.at("").shown
    for look in (shore.lake.descendants, shore.lake.children):
        every = names(look(shore.at("")))
        first = f"{above}/{start}"
        assert names(look(shore.at(""), first)) == [name for name in every if name >= first]
        assert every == sorted(every)
    folders = {"/".join(path.split("/")[:depth]) for path in tree for depth in range(1, path.count("/") + 2)}
    assert len(names(shore.lake.descendants(shore.at("")))) == len(folders)


def test_a_listing_from_a_late_name_looks_into_no_folder_before_it(
    shore: Shore, monkeypatch: pytest.MonkeyPatch
) -> None:
    for table in range(20):
        shore.put(f"T{table:02}/f", b"")
    looked: list[str] = []
    listing = shore.storage.list
    monkeypatch.setattr(shore.storage, "list", lambda path: looked.append(path) or listing(path))
    start = f"{ZONE.removeprefix('ws/')}/T18/f"
    assert len(names(shore.lake.descendants(shore.at(""), start))) == 3
    assert looked == [ZONE, f"{ZONE}/T18", f"{ZONE}/T19"]


def test_a_folder_that_goes_away_during_a_listing_is_left_out(shore: Shore) -> None:
    for table in ("A", "B"):
        shore.put(f"{table}/f", b"")
    lines = shore.lake.descendants(shore.at(""))
    assert next(lines).name.endswith("/A")
    shore.lake.delete_all(shore.at("B"))
    shore.lake.delete_all(shore.at("A"))
    assert [name.rpartition("/")[2] for name in names(lines)] == ["B"]


def test_a_tree_deeper_than_any_stack_can_be_listed() -> None:
    storage = WritableMemoryStorage()
    shore = Shore(storage)
    storage.put(f"{shore.at('').path}/{'d/' * 1200}f", b"")  # past the endpoint, which takes no such path
    assert sum(1 for _ in shore.lake.descendants(shore.at(""))) == 1201


def test_properties_are_those_of_files_folders_items_and_workspaces(shore: Shore) -> None:
    put = shore.put("T/f", b"abc")
    assert (put.is_folder, put.size) == (False, 3)
    for path in ("/ws", "/ws/db", "/ws/db/Files", f"/{ZONE}/T"):
        assert shore.lake.properties(shore.raw(path)).is_folder
    for path in ("nothing", "T/f/below"):
        with refused(StorageErrorCode.PATH_NOT_FOUND):
            shore.properties(path)


def test_content_comes_with_the_properties_it_has(shore: Shore) -> None:
    put = shore.put("T/f", b"abc")
    properties, reader = shore.lake.read(shore.at("T/f"), matching(put))
    with reader:
        reader.seek(1)
        assert (properties, reader.read()) == (put, b"bc")
    with refused(StorageErrorCode.NOT_MODIFIED):
        shore.lake.read(shore.at("T/f"), Conditions.of({"if-none-match": put.etag}))
    with refused(StorageErrorCode.CONDITION_NOT_MET):
        shore.lake.read(shore.at("T/f"), Conditions.of({"if-match": '"other"'}))
    with refused(StorageErrorCode.PATH_NOT_FOUND):
        shore.lake.read(shore.at("T/nothing"))


def test_a_folder_is_read_as_nothing(shore: Shore) -> None:
    properties, reader = shore.lake.read(shore.at(""))
    with reader:
        assert (properties.is_folder, reader.read()) == (True, b"")


@pytest.mark.parametrize("change", ["replace", "delete"])
def test_a_file_that_changes_while_it_is_opened_is_never_sent_with_another_ones_tag(
    shore: Shore, monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    """Rule 7.3, against whoever writes into the folder beside the endpoint."""
    shore.put("T/f", b"old")
    opened = shore.storage.open

    def raced(path: str) -> object:
        monkeypatch.setattr(shore.storage, "open", opened)
        if change == "replace":
            shore.put("T/f", b"newer")
        else:
            shore.lake.delete(shore.at("T/f"))
        return opened(path)

    monkeypatch.setattr(shore.storage, "open", raced)
    if change == "delete":
        with refused(StorageErrorCode.PATH_NOT_FOUND):
            shore.lake.read(shore.at("T/f"))
        return
    properties, reader = shore.lake.read(shore.at("T/f"))
    with reader:
        assert (properties, reader.read()) == (shore.properties("T/f"), b"newer")


def test_what_the_engine_is_just_writing_is_not_listed(shore: Shore) -> None:
    shore.storage.write("ws/db/.mirror-engine/ledger.sqlite", b"x")
    shore.storage.write("ws/db/Files/.mirror-engine-0123", b"x")
    workspace: Address = shore.raw("/ws")
    assert not any(".mirror-engine" in name for name in names(shore.lake.descendants(workspace)))
    assert names(shore.lake.children(shore.raw("/ws/db"))) == ["db/Files", "db/Tables"]


@pytest.fixture
def linked(tmp_path: Path) -> Shore:
    """A lake with links that lead out of it."""
    outside = tmp_path / "outside"
    (outside / "T").mkdir(parents=True)
    (outside / "T/secret").write_bytes(b"secret")
    shore = Shore(storage_called("local", tmp_path))
    shore.put("f", b"x")
    zone = tmp_path / "store" / ZONE
    (zone / "folder").symlink_to(outside)
    (zone / "file").symlink_to(outside / "T/secret")
    (zone / "nowhere").symlink_to("nothing")
    (tmp_path / "store/ws/item").symlink_to(outside)
    (tmp_path / "store/space").symlink_to(outside)
    return shore


def test_links_are_not_listed(linked: Shore) -> None:
    """Rule 9.5."""
    lines: list[Listed] = list(linked.lake.descendants(linked.at("")))
    assert [line.name.rpartition("/")[2] for line in lines] == ["f"]
    assert names(linked.lake.children(linked.raw("/ws"))) == ["db"]
    assert [workspace.name for workspace in linked.items.workspaces()] == ["ws"]


@pytest.mark.parametrize("path", ["folder", "file", "nowhere", "folder/T", "folder/T/secret", "folder/new", "file/x"])
def test_links_are_not_followed_by_anything(linked: Shore, tmp_path: Path, path: str) -> None:
    """Rule 9.5."""
    at, file = linked.at(path), linked.at("f")
    with linked.lake.receive() as body:
        body.write(b"x")
        for attempt in (
            lambda: linked.lake.properties(at),
            lambda: linked.lake.read(at),
            lambda: linked.lake.children(at),
            lambda: linked.lake.descendants(at),
            lambda: linked.lake.create_folder(at),
            lambda: linked.lake.create_file(at),
            lambda: linked.lake.put(at, body),
            lambda: linked.lake.append(at, 0, body),
            lambda: linked.lake.flush(at, 0),
            lambda: linked.lake.put_block_list(at, []),
            lambda: linked.lake.copy(file, at),
            lambda: linked.lake.set_metadata(at),
            lambda: linked.lake.delete(at),
            lambda: linked.lake.delete_all(at),
        ):
            with refused(StorageErrorCode.PATH_NOT_FOUND):
                attempt()
    with refused(StorageErrorCode.SOURCE_PATH_NOT_FOUND):
        linked.lake.copy(at, linked.at("g"))
    assert sorted(child.name for child in (tmp_path / "outside").rglob("*")) == ["T", "secret"]
    assert (tmp_path / "outside/T/secret").read_bytes() == b"secret"
    assert linked.read("f") == b"x"


@pytest.mark.parametrize("path", ["folder", "file", "folder/T/secret", "folder/new"])
def test_nothing_is_renamed_by_way_of_a_link(linked: Shore, tmp_path: Path, path: str) -> None:
    """Rule 9.5."""
    with pytest.raises(Exception, match="does not exist"):
        linked.rename(path, "g")
    with pytest.raises(Exception, match="does not exist"):
        linked.rename("f", path)
    assert sorted(child.name for child in (tmp_path / "outside").rglob("*")) == ["T", "secret"]
    assert linked.read("f") == b"x"


def test_a_workspace_or_item_that_is_a_link_is_not_there(linked: Shore) -> None:
    """Rule 9.5."""
    with refused(StorageErrorCode.WORKSPACE_NOT_FOUND):
        linked.raw("/space/T")
    with refused(StorageErrorCode.ARTIFACT_NOT_FOUND):
        linked.raw("/ws/item/T")
