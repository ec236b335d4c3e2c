"""The store's storage: staged files, publishing, rename, trash; what the lake's own tests cannot see."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from lakes import refused

from mirror_engine.onelake.errors import StorageErrorCode as Code
from mirror_engine.onelake.store import LocalStore, StagedFile
from mirror_engine.storage.base import Kind

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from mirror_engine.storage.base import Entry

OUTSIDE = ["..", "../x", "a/..", "./a", "/a", "a//b", "a\0b", "\udcff"]
NOW = 1_700_000_000_123_456_789


@pytest.fixture
def storage(tmp_path: Path) -> LocalStore:
    """The file f, the folders a (with a file f), empty."""
    storage = LocalStore(tmp_path / "root")
    put(storage, "f", b"x")
    put(storage, "a/f", b"abc")
    storage.make_folder("empty")
    return storage


def staged(storage: LocalStore, content: bytes) -> StagedFile:
    file = StagedFile(storage)
    file.write(content)
    return file


def put(storage: LocalStore, path: str, content: bytes) -> Entry:
    storage.make_folder(path.rpartition("/")[0])
    return storage.publish(staged(storage, content), path, NOW)


def tree(storage: LocalStore, folder: str = "") -> dict[str, bytes | None]:
    """Contents by path; None for a folder."""
    found: dict[str, bytes | None] = {}
    for entry in storage.list(folder) or ():
        path = f"{folder}/{entry.name}".strip("/")
        if entry.kind is Kind.FOLDER and entry.name != ".mirror-engine":
            found |= {path: None, **tree(storage, path)}
        elif entry.kind is Kind.FILE:
            with storage.open(path) as file:
                found[path] = file.read()
    return found


FILLED = {"a": None, "a/f": b"abc", "empty": None, "f": b"x"}
REJECTED: list[tuple[Code, Callable[[LocalStore, str], Any], list[str]]] = [
    (Code.PathConflict, lambda s, path: s.make_folder(path), ["f", "f/below"]),
    (Code.PathConflict, lambda s, path: s.publish(staged(s, b""), path, NOW), ["a"]),
    (Code.PathNotFound, lambda s, path: s.publish(staged(s, b""), path, NOW), ["b/f", "f/g", "", *OUTSIDE]),
    (Code.RenameDestinationParentPathNotFound, lambda s, path: s.rename("a/f", path), ["b/f", "a/f/g", *OUTSIDE]),
    (Code.SourcePathNotFound, lambda s, path: s.rename(path, "a/g"), ["a/g", "b", "", *OUTSIDE]),
    (Code.PathConflict, lambda s, path: s.rename("f", path), ["a", "empty"]),
    (Code.PathConflict, lambda s, path: s.rename("a", path), ["f"]),
    (Code.PathAlreadyExists, lambda s, path: s.rename("a", path), ["empty"]),
    (Code.PathAlreadyExists, lambda s, path: s.rename("empty", path), ["a"]),
    (Code.InvalidRenameSourcePath, lambda s, path: s.rename("a", path), ["a", "a/b"]),
    (Code.PathNotFound, lambda s, path: s.touch(path, NOW), ["a", "a/g", "b/f", "", *OUTSIDE]),
    (Code.PathNotFound, lambda s, path: s.move_to_trash(path), ["b", "a/b", "", *OUTSIDE]),
]


@pytest.mark.parametrize(("code", "attempt", "paths"), REJECTED)
def test_calls_that_fail_change_nothing(
    storage: LocalStore, code: Code, attempt: Callable[[LocalStore, str], Any], paths: list[str]
) -> None:
    for path in paths:
        with refused(code):
            attempt(storage, path)
    assert tree(storage) == FILLED


def test_a_folder_is_created_with_its_parents_and_keeps_its_identity(storage: LocalStore) -> None:
    entry = storage.make_folder("x/y/z")
    assert (entry.name, entry.kind) == ("z", Kind.FOLDER)
    assert storage.make_folder("x/y/z") == storage.stat("x/y/z") == entry
    assert storage.make_folder("").kind is Kind.FOLDER


def test_a_staged_file_is_read_once_it_is_sealed_even_after_it_is_discarded(storage: LocalStore) -> None:
    with staged(storage, b"abc") as file:
        file.write(memoryview(b"def"))
        file.seal()
        file.seal()
        reader = file.open()
    file.discard()
    with reader:
        assert (reader.read(), file.size) == (b"abcdef", 6)
    assert storage.list(".mirror-engine/staging") in (None, [])


def test_a_published_file_has_the_given_time_and_outlives_its_staged_file(storage: LocalStore) -> None:
    file = staged(storage, b"new")
    entry = storage.publish(file, "a/g", NOW)
    assert (entry.name, entry.kind, entry.size, entry.modified_ns) == ("g", Kind.FILE, 3, NOW)
    assert storage.stat("a/g") == entry
    file.discard()
    assert tree(storage) == {**FILLED, "a/g": b"new"}


def test_rename_and_touch_keep_the_identity(storage: LocalStore) -> None:
    before, folder = storage.stat("a/f"), storage.stat("a")
    assert before is not None
    assert folder is not None
    storage.rename("a/f", "f")
    storage.touch("f", NOW + 5)
    storage.rename("a", "empty/b")
    after, moved = storage.stat("f"), storage.stat("empty/b")
    assert after is not None
    assert moved is not None
    assert (after.identity, after.modified_ns, moved.identity) == (before.identity, NOW + 5, folder.identity)
    assert tree(storage) == {"empty": None, "empty/b": None, "f": b"abc"}


def test_trash_disappears_at_once_and_is_removed_later(storage: LocalStore) -> None:
    for path in ("a", "f"):
        discard = storage.move_to_trash(path)
        assert storage.stat(path) is None
        discard()
        discard()
    staged(storage, b"of a process that died").seal()
    storage.move_to_trash("empty")
    storage.remove_stale()
    assert tree(storage) == {}
    assert storage.list(".mirror-engine/staging") in (None, [])
    assert put(storage, "c", b"y").size == 1
