"""The store's storage: staged files, publishing, rename, trash; links, failing calls, and what stays open."""

from __future__ import annotations

import errno
import os
import stat
from contextlib import suppress
from functools import partial
from pathlib import Path

import pytest
from zone_client import refused

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
def full_root(tmp_path, outside):
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
def full_store(full_root):
    return LocalStore(full_root)


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
def test_calls_that_fail_change_nothing_inside_or_behind_a_link(full_store, outside, code, attempt, paths):
    before = (outside / "secret").stat()
    for path in paths:
        with refused(code):
            attempt(full_store, path)
    assert tree(full_store) == FILLED
    assert ([path.name for path in outside.iterdir()], (outside / "secret").stat()) == (["secret"], before)


def test_a_staged_file_is_read_once_it_is_sealed_even_after_it_is_discarded(full_store):
    with staged(full_store, b"abc") as file:
        file.write(memoryview(b"def"))
        file.seal()
        file.seal()
        reader = file.open()
    file.discard()
    with reader:
        assert (reader.read(), file.size) == (b"abcdef", 6)
    assert full_store.list(STAGING) == []


def test_publishing_and_renaming_over_a_link_replace_the_link(full_store, outside):
    full_store.publish(staged(full_store, b"new"), "file", 0)
    full_store.rename("f", "folder")
    assert tree(full_store) == {"a": None, "a/f": b"abc", "empty": None, "file": b"new", "folder": b"x"}
    assert (outside / "secret").read_bytes() == b"secret"


def test_trash_disappears_at_once_and_is_removed_later_but_for_what_its_links_lead_to(full_root, full_store, outside):
    (full_root / "a/link").symlink_to(outside)
    for path in ("a", "f"):
        discard = full_store.move_to_trash(path)
        assert full_store.stat(path) is None
        discard()
        discard()
    staged(full_store, b"of a process that died").seal()
    full_store.move_to_trash("empty")
    full_store.remove_stale()
    assert tree(full_store) == {}
    assert full_store.list(STAGING) is None
    assert (outside / "secret").exists()


def test_only_its_owner_may_look_at_what_is_staged(full_root):
    modes = [stat.S_IMODE((full_root / path).stat().st_mode) for path in [".mirror-engine", STAGING]]
    assert modes == [0o700, 0o700]


def test_a_staging_folder_that_is_a_link_is_not_followed(full_root, full_store, outside):
    full_store.remove_stale()
    (full_root / STAGING).symlink_to(outside)
    with pytest.raises(StorageUnavailable):
        staged(full_store)
    assert [path.name for path in outside.iterdir()] == ["secret"]


def test_content_is_on_the_disk_before_its_name_is_shown(full_root, full_store, monkeypatch):
    synced = []
    fsync = os.fsync

    def spied(opened):
        synced.append((stat.S_ISREG(os.fstat(opened).st_mode), (full_root / "new").exists()))
        fsync(opened)

    monkeypatch.setattr(os, "fsync", spied)
    full_store.publish(staged(full_store), "new", 0)
    assert synced == [(True, False)]


def test_a_failing_disk_is_unavailable_and_shows_nothing(full_root, full_store, monkeypatch):
    def full(*_, **__):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    calls = {
        "fsync": [lambda: full_store.publish(file, "f", 0), lambda: full_store.make_folder("new")],
        "replace": [lambda: full_store.publish(file, "f", 0)],
        "rename": [partial(full_store.rename, "f", "g"), partial(full_store.move_to_trash, "a")],
        "utime": [partial(full_store.touch, "f", 1), lambda: full_store.publish(file, "f", 0)],
        "open": [partial(full_store.make_folder, "a"), lambda: staged(full_store)],
    }
    for name, attempts in calls.items():
        for attempt in attempts:
            file = staged(full_store, b"new")
            with monkeypatch.context() as patched:
                patched.setattr(os, name, full)
                with pytest.raises(StorageUnavailable, match="No space") as problem:
                    attempt()
            assert problem.value.help == "Free space on the disk."
            file.discard()
    assert (full_root / "f").read_bytes() == b"x"
    assert list((full_root / STAGING).iterdir()) == []


def test_a_folders_inode_is_kept_until_the_clock_of_births_has_moved_on(full_root, full_store, monkeypatch):
    waited = []
    monkeypatch.setattr(
        store.time, "sleep", lambda seconds: waited.append((seconds, len(list((full_root / STAGING).iterdir()))))
    )
    full_store.move_to_trash("a")()
    assert waited == [(store.TICK_SECONDS, 1)]


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="a Linux interface")
def test_no_call_leaves_anything_open(full_store):
    def everything():
        with staged(full_store) as file:
            file.seal()
            file.open().close()
            full_store.publish(file, "a/f", 0)
        full_store.touch("a/f", 1)
        for _, attempt, paths in REJECTED:
            for path in paths:
                with suppress(StorageApiError):
                    attempt(full_store, path)
        full_store.move_to_trash("a")()
        full_store.make_folder("a")

    def opened():
        return len(list(Path("/proc/self/fd").iterdir()))

    everything()
    before = opened()
    everything()
    assert opened() == before


def test_one_more_block_is_compared_with_one_other(full_store, monkeypatch):
    """A file may have 50,000 blocks: each compared with all would take hours."""
    compared = []
    monkeypatch.setattr(store, "_length", lambda block_id: compared.append(block_id) or len(block_id))
    uploads = Uploads(full_store, Clock())
    for number in range(50):
        body = staged(full_store)
        body.seal()
        uploads.keep("Items/f", f"{number:04}", body)
    assert len(compared) <= 2 * 50
