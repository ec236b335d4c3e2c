"""The store's storage: staged files, publishing, rename, trash; links, failing calls, and what stays open."""

from __future__ import annotations

import errno
import os
import stat
from contextlib import suppress
from functools import partial
from pathlib import Path

import pytest
from lakes import refused

from mirror_engine.clock import Clock
from mirror_engine.errors import StorageUnavailable
from mirror_engine.landing_zone.listing import Kind
from mirror_engine.onelake import store
from mirror_engine.onelake.errors import StorageApiError
from mirror_engine.onelake.errors import StorageErrorCode as Code
from mirror_engine.onelake.store import LocalStore, StagedFile, Uploads

STAGING = ".mirror-engine/staging"
OUTSIDE = ["..", "../x", "a/..", "./a", "/a", "a//b", "a\0b", "\udcff"]
NOW = 1_700_000_000_123_456_789
FILLED = {"a": None, "a/f": b"abc", "empty": None, "f": b"x"}


@pytest.fixture
def outside(tmp_path):
    folder = tmp_path / "outside"
    folder.mkdir()
    (folder / "secret").write_bytes(b"secret")
    return folder


@pytest.fixture
def root(tmp_path, outside):
    """Holds what `FILLED` says, and the links `folder` and `file` that lead out of it."""
    root = tmp_path / "root"
    storage = LocalStore(root)
    for path in ("a", "empty"):
        storage.make_folder(path)
    for path, content in (("f", b"x"), ("a/f", b"abc")):
        storage.publish(staged(storage, content), path, NOW)
    (root / "folder").symlink_to(outside)
    (root / "file").symlink_to(outside / "secret")
    return root


@pytest.fixture
def storage(root):
    return LocalStore(root)


def staged(storage, content=b"x"):
    file = StagedFile(storage)
    file.write(content)
    return file


def tree(storage, folder=""):
    """Contents by path; None for a folder."""
    found = {}
    for entry in storage.list(folder) or ():
        path = f"{folder}/{entry.name}".strip("/")
        if entry.kind is Kind.FOLDER and entry.name != ".mirror-engine":
            found |= {path: None, **tree(storage, path)}
        elif entry.kind is Kind.FILE:
            with storage.open(path) as file:
                found[path] = file.read()
    return found


PARENT = Code.RenameDestinationParentPathNotFound
REJECTED = [
    (Code.PathConflict, lambda s, path: s.make_folder(path), ["f", "f/below"]),
    (Code.PathNotFound, lambda s, path: s.make_folder(path), ["folder", "folder/new", "file/new", *OUTSIDE]),
    (Code.PathConflict, lambda s, path: s.publish(staged(s), path, NOW), ["a"]),
    (Code.PathNotFound, lambda s, path: s.publish(staged(s), path, NOW), ["b/f", "f/g", "folder/f", "", *OUTSIDE]),
    (PARENT, lambda s, path: s.rename("a/f", path), ["b/f", "a/f/g", "folder/f", *OUTSIDE]),
    (Code.SourcePathNotFound, lambda s, path: s.rename(path, "g"), ["a/g", "b", "file", "folder/secret", "", *OUTSIDE]),
    (Code.PathConflict, lambda s, path: s.rename("f", path), ["a", "empty"]),
    (Code.PathConflict, lambda s, path: s.rename("a", path), ["f", "file"]),
    (Code.PathAlreadyExists, lambda s, path: s.rename("a", path), ["empty"]),
    (Code.PathAlreadyExists, lambda s, path: s.rename("empty", path), ["a"]),
    (Code.InvalidRenameSourcePath, lambda s, path: s.rename("a", path), ["a", "a/b"]),
    (Code.PathNotFound, lambda s, path: s.touch(path, NOW), ["a", "b/f", "file", "folder/secret", "", *OUTSIDE]),
    (Code.PathNotFound, lambda s, path: s.move_to_trash(path), ["b", "file", "folder", "folder/secret", "", *OUTSIDE]),
]


@pytest.mark.parametrize(("code", "attempt", "paths"), REJECTED)
def test_calls_that_fail_change_nothing_inside_or_behind_a_link(storage, outside, code, attempt, paths):
    before = (outside / "secret").stat()
    for path in paths:
        with refused(code):
            attempt(storage, path)
    assert tree(storage) == FILLED
    assert ([path.name for path in outside.iterdir()], (outside / "secret").stat()) == (["secret"], before)


def test_a_staged_file_is_read_once_it_is_sealed_even_after_it_is_discarded(storage):
    with staged(storage, b"abc") as file:
        file.write(memoryview(b"def"))
        file.seal()
        file.seal()
        reader = file.open()
    file.discard()
    with reader:
        assert (reader.read(), file.size) == (b"abcdef", 6)
    assert storage.list(STAGING) == []


def test_a_published_file_has_the_given_time_and_outlives_its_staged_file(storage):
    with staged(storage, b"new") as file:
        entry = storage.publish(file, "a/g", NOW)
    assert (entry.name, entry.kind, entry.size, entry.modified_ns) == ("g", Kind.FILE, 3, NOW)
    assert storage.stat("a/g") == entry
    assert tree(storage) == {**FILLED, "a/g": b"new"}


def test_publishing_and_renaming_over_a_link_replace_the_link(storage, outside):
    storage.publish(staged(storage, b"new"), "file", 0)
    storage.rename("f", "folder")
    assert tree(storage) == {"a": None, "a/f": b"abc", "empty": None, "file": b"new", "folder": b"x"}
    assert (outside / "secret").read_bytes() == b"secret"


def test_trash_disappears_at_once_and_is_removed_later_but_for_what_its_links_lead_to(root, storage, outside):
    (root / "a/link").symlink_to(outside)
    for path in ("a", "f"):
        discard = storage.move_to_trash(path)
        assert storage.stat(path) is None
        discard()
        discard()
    staged(storage, b"of a process that died").seal()
    storage.move_to_trash("empty")
    storage.remove_stale()
    assert tree(storage) == {}
    assert storage.list(STAGING) is None
    assert (outside / "secret").exists()


def test_only_its_owner_may_look_at_what_is_staged(root):
    modes = [stat.S_IMODE((root / path).stat().st_mode) for path in [".mirror-engine", STAGING]]
    assert modes == [0o700, 0o700]


def test_a_staging_folder_that_is_a_link_is_not_followed(root, storage, outside):
    storage.remove_stale()
    (root / STAGING).symlink_to(outside)
    with pytest.raises(StorageUnavailable):
        staged(storage)
    assert [path.name for path in outside.iterdir()] == ["secret"]


def test_content_is_on_the_disk_before_its_name_is_shown(root, storage, monkeypatch):
    synced = []
    fsync = os.fsync

    def spied(opened):
        synced.append((stat.S_ISREG(os.fstat(opened).st_mode), (root / "new").exists()))
        fsync(opened)

    monkeypatch.setattr(os, "fsync", spied)
    storage.publish(staged(storage), "new", 0)
    assert synced == [(True, False)]


def test_a_failing_disk_is_unavailable_and_shows_nothing(root, storage, monkeypatch):
    def full(*_, **__):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    calls = {
        "fsync": [lambda: storage.publish(file, "f", 0), lambda: storage.make_folder("new")],
        "replace": [lambda: storage.publish(file, "f", 0)],
        "rename": [partial(storage.rename, "f", "g"), partial(storage.move_to_trash, "a")],
        "utime": [partial(storage.touch, "f", 1), lambda: storage.publish(file, "f", 0)],
        "open": [partial(storage.make_folder, "a"), lambda: staged(storage)],
    }
    for name, attempts in calls.items():
        for attempt in attempts:
            file = staged(storage, b"new")
            with monkeypatch.context() as patched:
                patched.setattr(os, name, full)
                with pytest.raises(StorageUnavailable, match="No space") as problem:
                    attempt()
            assert problem.value.help == "Free space on the disk."
            file.discard()
    assert (root / "f").read_bytes() == b"x"
    assert list((root / STAGING).iterdir()) == []


def test_a_folders_inode_is_kept_until_the_clock_of_births_has_moved_on(root, storage, monkeypatch):
    waited = []
    monkeypatch.setattr(
        store.time, "sleep", lambda seconds: waited.append((seconds, len(list((root / STAGING).iterdir()))))
    )
    storage.move_to_trash("a")()
    assert waited == [(store.TICK_SECONDS, 1)]


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="a Linux interface")
def test_no_call_leaves_anything_open(storage):
    def everything():
        with staged(storage) as file:
            file.seal()
            file.open().close()
            storage.publish(file, "a/f", 0)
        storage.touch("a/f", 1)
        for _, attempt, paths in REJECTED:
            for path in paths:
                with suppress(StorageApiError):
                    attempt(storage, path)
        storage.move_to_trash("a")()
        storage.make_folder("a")

    def opened():
        return len(list(Path("/proc/self/fd").iterdir()))

    everything()
    before = opened()
    everything()
    assert opened() == before


def test_one_more_block_is_compared_with_one_other(storage, monkeypatch):
    """A file may have 50,000 blocks: each compared with all would take hours."""
    compared = []
    monkeypatch.setattr(store, "_length", lambda block_id: compared.append(block_id) or len(block_id))
    uploads = Uploads(storage, Clock())
    for number in range(50):
        body = staged(storage)
        body.seal()
        uploads.keep("Items/f", f"{number:04}", body)
    assert len(compared) <= 2 * 50
