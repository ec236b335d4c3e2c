"""The promise of `LocalStore`, held by every implementation."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from mirror_engine.onelake.store import LocalStore
from mirror_engine.storage.base import Kind

if TYPE_CHECKING:
    from pathlib import Path

    from mirror_engine.onelake.store import StagedFile
    from mirror_engine.storage.base import Entry

OUTSIDE = ["..", "../x", "a/..", "./a", "/a", "a//b", "a\0b", "\udcff"]
NOW = 1_700_000_000_123_456_789


@pytest.fixture
def storage(tmp_path: Path) -> LocalStore:
    return LocalStore(tmp_path / "root")


def staged(storage: LocalStore, content: bytes) -> StagedFile:
    file = storage.stage()
    file.write(content)
    return file


def put(storage: LocalStore, path: str, content: bytes) -> Entry:
    storage.make_folder(path.rpartition("/")[0])
    return storage.publish(staged(storage, content), path, NOW)


def read(storage: LocalStore, path: str) -> bytes:
    with storage.open(path) as file:
        return file.read()


def found(storage: LocalStore, path: str) -> Entry:
    entry = storage.stat(path)
    assert entry is not None
    return entry


def names(storage: LocalStore, folder: str) -> list[str]:
    return [entry.name for entry in storage.list(folder) or () if entry.name != ".mirror-engine"]


def test_a_folder_is_made_with_the_folders_on_its_way(storage: LocalStore) -> None:
    entry = storage.make_folder("a/b/c")
    assert (entry.name, entry.kind) == ("c", Kind.FOLDER)
    assert found(storage, "a/b/c") == entry
    assert storage.make_folder("").kind is Kind.FOLDER


def test_a_folder_made_again_is_left_alone(storage: LocalStore) -> None:
    before = storage.make_folder("a")
    put(storage, "a/f", b"x")
    assert storage.make_folder("a").identity == before.identity
    assert names(storage, "a") == ["f"]


@pytest.mark.parametrize("path", ["f", "f/below"])
def test_no_folder_replaces_a_file(storage: LocalStore, path: str) -> None:
    put(storage, "f", b"x")
    with pytest.raises(FileExistsError):
        storage.make_folder(path)
    assert read(storage, "f") == b"x"


def test_a_staged_file_can_be_read_closed_and_written_further(storage: LocalStore) -> None:
    file = staged(storage, b"abc")
    with file.open() as reader:
        file.write(b"def")
        assert reader.read(3) == b"abc"
    file.close()
    file.seal()
    file.write(b"ghi")
    with file.open() as reader:
        assert reader.read() == b"abcdefghi"


def test_a_discarded_file_is_gone_and_discarding_again_does_nothing(storage: LocalStore) -> None:
    file = staged(storage, b"abc")
    with file.open() as reader:
        file.discard()
        file.discard()
        assert reader.read() == b"abc"
    assert storage.list(".mirror-engine/staging") in (None, [])


def test_publishing_shows_the_file_with_the_time_it_is_given(storage: LocalStore) -> None:
    entry = put(storage, "a/f", b"abc")
    assert (entry.name, entry.kind, entry.size, entry.modified_ns) == ("f", Kind.FILE, 3, NOW)
    assert found(storage, "a/f") == entry
    assert storage.list("a") == [entry]


def test_discarding_what_was_published_does_nothing(storage: LocalStore) -> None:
    file = staged(storage, b"abc")
    storage.publish(file, "f", NOW)
    file.discard()
    assert read(storage, "f") == b"abc"


def test_publishing_makes_no_folders_and_replaces_none(storage: LocalStore) -> None:
    storage.make_folder("a")
    put(storage, "f", b"x")
    for path in ["b/f", "f/g", "", *OUTSIDE]:
        with pytest.raises(FileNotFoundError):
            storage.publish(staged(storage, b""), path, NOW)
    file = staged(storage, b"")
    with pytest.raises(IsADirectoryError):
        storage.publish(file, "a", NOW)
    assert names(storage, "") == ["a", "f"]
    file.discard()


def test_renaming_a_file_keeps_all_but_its_name_and_replaces_a_file(storage: LocalStore) -> None:
    before = put(storage, "a/_f", b"new")
    put(storage, "a/f", b"old")
    storage.rename("a/_f", "a/f")
    after = found(storage, "a/f")
    assert (after.identity, after.modified_ns) == (before.identity, before.modified_ns)
    assert names(storage, "a") == ["f"]
    assert read(storage, "a/f") == b"new"


def test_a_rename_needs_its_source_and_the_folder_of_its_target(storage: LocalStore) -> None:
    put(storage, "a/f", b"x")
    for source, target in [("a/g", "a/h"), ("a/f", "b/f"), ("a/f", "a/f/g"), ("b", "c"), ("", "b"), ("a/f", "")]:
        with pytest.raises(FileNotFoundError):
            storage.rename(source, target)
    for path in OUTSIDE:
        with pytest.raises(FileNotFoundError):
            storage.rename("a/f", path)
        with pytest.raises(FileNotFoundError):
            storage.rename(path, "a/g")
    assert names(storage, "a") == ["f"]


@pytest.mark.parametrize(("source", "target"), [("f", "a"), ("a", "f"), ("a", "empty"), ("a", "full"), ("f", "empty")])
def test_a_rename_never_replaces_a_folder_nor_a_file_by_a_folder(storage: LocalStore, source: str, target: str) -> None:
    put(storage, "f", b"x")
    put(storage, "full/g", b"y")
    storage.make_folder("a")
    storage.make_folder("empty")
    with pytest.raises(FileExistsError):
        storage.rename(source, target)
    assert names(storage, "") == ["a", "empty", "f", "full"]


def test_touching_a_file_sets_its_time_and_nothing_else(storage: LocalStore) -> None:
    before = put(storage, "a/f", b"x")
    storage.touch("a/f", NOW + 5)
    after = found(storage, "a/f")
    assert after.modified_ns == NOW + 5
    assert (after.identity, after.size) == (before.identity, before.size)
    for path in ["a", "a/g", "b/f", "", *OUTSIDE]:
        with pytest.raises(FileNotFoundError):
            storage.touch(path, NOW)


def test_what_is_taken_away_vanishes_at_once_and_is_deleted_later(storage: LocalStore) -> None:
    put(storage, "a/b/f", b"x")
    put(storage, "g", b"x")
    for path in ["a", "g"]:
        taken = storage.move_to_trash(path)
        assert storage.stat(path) is None
        taken.discard()
        taken.discard()
    assert names(storage, "") == []
    assert storage.list(".mirror-engine/staging") in (None, [])


def test_only_what_is_there_can_be_taken_away(storage: LocalStore) -> None:
    for path in ["a", "a/b", "", *OUTSIDE]:
        with pytest.raises(FileNotFoundError):
            storage.move_to_trash(path)


def test_sweeping_leaves_what_is_shown(storage: LocalStore) -> None:
    put(storage, "a/f", b"x")
    put(storage, "b/f", b"x")
    staged(storage, b"left by a process that died").close()
    storage.move_to_trash("b")
    storage.remove_stale()
    assert names(storage, "") == ["a"]
    assert storage.list(".mirror-engine/staging") in (None, [])
    assert put(storage, "c", b"y").size == 1
