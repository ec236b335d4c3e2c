"""What only a real disk can show of a writable storage: links, rights, failing calls, and what stays open."""

from __future__ import annotations

import errno
import os
import stat
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from mirror_engine.errors import StorageUnavailable
from mirror_engine.onelake import store
from mirror_engine.onelake.errors import StorageApiError
from mirror_engine.onelake.store import LocalStore, StagedFile

STAGING = ".mirror-engine/staging"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "root"


@pytest.fixture
def storage(root: Path) -> LocalStore:
    storage = LocalStore(root)
    storage.make_folder("T")
    return storage


@pytest.fixture
def outside(tmp_path: Path, root: Path, storage: LocalStore) -> Path:
    """A folder outside of ROOT, and links to it."""
    assert storage
    folder = tmp_path / "outside"
    folder.mkdir()
    (folder / "secret").write_bytes(b"secret")
    (root / "folder").symlink_to(folder)
    (root / "file").symlink_to(folder / "secret")
    return folder


def staged(storage: LocalStore, content: bytes = b"x") -> StagedFile:
    file = StagedFile(storage)
    file.write(content)
    return file


def test_nothing_is_done_by_way_of_a_link(storage: LocalStore, outside: Path) -> None:
    storage.publish(staged(storage), "T/f", 0)
    missing: list[Any] = [
        lambda: storage.publish(staged(storage), "folder/f", 0),
        lambda: storage.rename("T/f", "folder/f"),
        lambda: storage.rename("folder/secret", "T/stolen"),
        lambda: storage.rename("file", "T/link"),
        lambda: storage.touch("file", 0),
        lambda: storage.touch("folder/secret", 0),
        lambda: storage.move_to_trash("file"),
        lambda: storage.move_to_trash("folder"),
        lambda: storage.move_to_trash("folder/secret"),
    ]
    before = (outside / "secret").stat()
    for call in missing:
        with pytest.raises(StorageApiError):
            call()
    for path in ["folder", "folder/new", "file/new"]:
        with pytest.raises(StorageApiError):
            storage.make_folder(path)
    assert [path.name for path in outside.iterdir()] == ["secret"]
    assert (outside / "secret").stat() == before


def test_publishing_and_renaming_over_a_link_replace_the_link(root: Path, storage: LocalStore, outside: Path) -> None:
    storage.publish(staged(storage, b"new"), "file", 0)
    storage.publish(staged(storage, b"other"), "T/f", 0)
    storage.rename("T/f", "folder")
    assert ((root / "file").read_bytes(), (root / "folder").read_bytes()) == (b"new", b"other")
    assert (outside / "secret").read_bytes() == b"secret"


def test_a_folder_taken_away_takes_its_links_along_and_not_their_targets(
    root: Path, storage: LocalStore, outside: Path
) -> None:
    (root / "T/link").symlink_to(outside)
    storage.move_to_trash("T")()
    assert (outside / "secret").exists()
    assert not (root / "T").exists()


def test_only_its_owner_may_look_at_what_is_staged(root: Path, storage: LocalStore) -> None:
    staged(storage).seal()
    modes = [stat.S_IMODE((root / path).stat().st_mode) for path in [".mirror-engine", STAGING]]
    assert modes == [0o700, 0o700]


def test_a_staging_folder_that_is_a_link_is_not_followed(root: Path, storage: LocalStore, outside: Path) -> None:
    (root / ".mirror-engine").mkdir()
    (root / STAGING).symlink_to(outside)
    with pytest.raises(StorageUnavailable):
        staged(storage)
    assert [path.name for path in outside.iterdir()] == ["secret"]


def test_content_is_on_the_disk_before_its_name_is_shown(
    root: Path, storage: LocalStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced = []
    fsync = os.fsync

    def spied(opened: int) -> None:
        synced.append((stat.S_ISREG(os.fstat(opened).st_mode), (root / "T/f").exists()))
        fsync(opened)

    file = staged(storage)
    monkeypatch.setattr(os, "fsync", spied)
    storage.publish(file, "T/f", 0)
    assert synced == [(True, False)]


def test_a_failing_disk_is_unavailable_and_shows_nothing(
    root: Path, storage: LocalStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage.publish(staged(storage, b"old"), "T/f", 0)

    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    calls: dict[str, list[Any]] = {
        "fsync": [lambda: storage.publish(file, "T/f", 0), lambda: storage.make_folder("T/new")],
        "replace": [lambda: storage.publish(file, "T/f", 0)],
        "rename": [partial(storage.rename, "T/f", "T/g"), partial(storage.move_to_trash, "T")],
        "utime": [partial(storage.touch, "T/f", 1), lambda: storage.publish(file, "T/f", 0)],
        "open": [partial(storage.make_folder, "T"), lambda: staged(storage)],
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
    assert (root / "T/f").read_bytes() == b"old"
    assert list((root / STAGING).iterdir()) == []


def test_a_folders_inode_is_kept_until_the_clock_of_births_has_moved_on(
    root: Path, storage: LocalStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    waited: list[tuple[float, int]] = []
    monkeypatch.setattr(
        store.time, "sleep", lambda seconds: waited.append((seconds, len(list((root / STAGING).iterdir()))))
    )
    storage.move_to_trash("T")()
    assert waited == [(store.TICK_SECONDS, 1)]


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="a Linux interface")
def test_no_call_leaves_anything_open(storage: LocalStore, outside: Path) -> None:
    assert outside

    def everything() -> None:
        file = staged(storage)
        file.seal()
        file.open().close()
        storage.publish(file, "T/f", 0)
        dropped = staged(storage)
        dropped.discard()
        storage.rename("T/f", "T/g")
        storage.touch("T/g", 1)
        for path in ["folder/x", "T", "nothing/x"]:
            lost = staged(storage)
            lost.seal()
            with pytest.raises(StorageApiError):
                storage.publish(lost, path, 0)
            with pytest.raises(StorageApiError):
                storage.rename("T/g", path)
        for path in ["file/x", "T/g/x"]:
            with pytest.raises(StorageApiError):
                storage.make_folder(path)
        storage.move_to_trash("T")()
        storage.make_folder("T")

    everything()
    before = len(list(Path("/proc/self/fd").iterdir()))
    everything()
    assert len(list(Path("/proc/self/fd").iterdir())) == before
