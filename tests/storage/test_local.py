"""What only a real disk can show: links, pipes, odd names, failing calls, and how long an identity lasts."""

from __future__ import annotations

import ctypes
import errno
import os
import socket
import stat
import sys
import tempfile
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from mirror_engine.errors import StorageUnavailable
from mirror_engine.storage import local
from mirror_engine.storage.base import Kind
from mirror_engine.storage.local import LocalStorage

if TYPE_CHECKING:
    from collections.abc import Iterator

linux = pytest.mark.skipif(sys.platform != "linux", reason="a Linux interface")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    folder = tmp_path / "root"
    folder.mkdir()
    return folder


@pytest.fixture
def storage(root: Path) -> LocalStorage:
    return LocalStorage(root)


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    """A folder next to ROOT that nothing may touch."""
    folder = tmp_path / "outside"
    folder.mkdir()
    (folder / "secret").write_bytes(b"secret")
    return folder


def failing(code: int) -> Any:
    def call(*_: object, **__: object) -> None:
        raise OSError(code, os.strerror(code))

    return call


def test_a_symbolic_link_is_seen_as_other_and_never_opened(root: Path, storage: LocalStorage, outside: Path) -> None:
    (root / "file").symlink_to(outside / "secret")
    (root / "folder").symlink_to(outside)
    (root / "dangling").symlink_to("nowhere")
    assert {entry.name: entry.kind for entry in storage.list("") or ()} == dict.fromkeys(
        ["dangling", "file", "folder"], Kind.OTHER
    )
    for name in ["file", "folder", "dangling", "folder/secret"]:
        with pytest.raises(FileNotFoundError):
            storage.open(name)
    assert storage.list("folder") is None
    assert storage.stat("folder/secret") is None


def test_nothing_is_changed_by_way_of_a_link(root: Path, storage: LocalStorage, outside: Path) -> None:
    (root / "folder").symlink_to(outside)
    (root / "file").write_bytes(b"file")
    storage.delete("folder/secret")
    storage.move("folder/secret", "stolen")
    for attempt in (lambda: storage.write("folder/new", b""), lambda: storage.move("file", "folder/file")):
        with pytest.raises(StorageUnavailable, match=r"cannot (write|move) it") as problem:
            attempt()
        assert "link" in problem.value.help
    assert [path.name for path in outside.iterdir()] == ["secret"]
    assert sorted(path.name for path in root.iterdir()) == ["file", "folder"]


def test_writing_over_a_link_replaces_the_link(root: Path, storage: LocalStorage, outside: Path) -> None:
    (root / "link").symlink_to(outside / "secret")
    storage.write("link", b"new")
    assert (outside / "secret").read_bytes() == b"secret"
    assert not (root / "link").is_symlink()


def test_a_link_is_not_moved_and_is_deleted_without_its_target(
    root: Path, storage: LocalStorage, outside: Path
) -> None:
    for name in ["a", "folder/inside"]:
        (root / name).parent.mkdir(exist_ok=True)
        (root / name).symlink_to(outside)
    storage.move("a", "b")
    assert (root / "a").is_symlink()
    storage.delete("a")
    storage.delete("folder")
    assert list(root.iterdir()) == []
    assert (outside / "secret").read_bytes() == b"secret"


def test_root_may_be_reached_through_a_link(root: Path, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(root)
    storage = LocalStorage(tmp_path / "link")
    storage.write("a/b", b"x")
    assert (root / "a/b").read_bytes() == b"x"
    assert storage.stat("") == LocalStorage(root).stat("")


def test_a_root_that_is_no_folder_is_absent_to_readers_and_unavailable_to_writers(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    for root in [tmp_path / "file", tmp_path / "nothing"]:
        assert LocalStorage(root).list("") is None
        assert LocalStorage(root).stat("") is None
        LocalStorage(root).delete("a")
    with pytest.raises(StorageUnavailable):
        LocalStorage(tmp_path / "file").write("a", b"")


def test_pipes_and_sockets_are_other_and_never_opened(root: Path, storage: LocalStorage) -> None:
    os.mkfifo(root / "pipe")
    here = Path.cwd()
    with socket.socket(socket.AF_UNIX) as listener:
        os.chdir(root)  # a socket's path must be short
        try:
            listener.bind("socket")
        finally:
            os.chdir(here)
    assert [entry.kind for entry in storage.list("") or ()] == [Kind.OTHER, Kind.OTHER]
    for name in ["pipe", "socket"]:
        with pytest.raises(FileNotFoundError):
            storage.open(name)
        storage.move(name, "elsewhere")
        storage.delete(name)
    assert storage.list("") == []


@linux
def test_names_that_are_no_text_are_listed_as_other_with_their_bytes_spelled(root: Path, storage: LocalStorage) -> None:
    (root / "T").mkdir()
    os.close(os.open(os.fsencode(root) + b"/T/caf\xe9.csv", os.O_CREAT | os.O_WRONLY))
    (root / "T" / "é").write_bytes(b"")
    odd, good = storage.list("T") or ()
    assert (odd.name, odd.kind) == ("caf\\xe9.csv", Kind.OTHER)
    assert (good.name, good.kind) == ("é", Kind.FILE)
    assert storage.stat("T/caf\udce9.csv") is None
    storage.delete("T")
    assert storage.list("") == []


def test_a_failed_write_keeps_the_old_file_and_leaves_nothing_behind(
    root: Path, storage: LocalStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage.write("a/f", b"old")
    for call in ["replace", "fsync"]:
        with monkeypatch.context() as patched:
            patched.setattr(os, call, failing(errno.ENOSPC))
            with pytest.raises(StorageUnavailable, match=r"^a/f: cannot write it: ") as problem:
                storage.write("a/f", b"new")
        assert problem.value.help == "Free space on the disk."
        assert os.listdir(root / "a") == ["f"]  # noqa: PTH208 - the raw names
        assert (root / "a/f").read_bytes() == b"old"


def test_a_file_being_written_has_a_name_the_protocol_skips(
    root: Path, storage: LocalStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[str] = []
    replace = os.replace

    def spied(source: str, target: str, **folders: int) -> None:
        seen.extend(path.name for path in (root / "a").iterdir())
        replace(source, target, **folders)

    monkeypatch.setattr(os, "replace", spied)
    storage.write("a/f", b"x")
    assert len(seen) == 1
    assert seen[0].startswith(".")


def test_folders_are_made_durable_after_each_change(storage: LocalStorage, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[str] = []
    fsync = os.fsync

    def spied(opened: int) -> None:
        synced.append("folder" if stat.S_ISDIR(os.fstat(opened).st_mode) else "file")
        fsync(opened)

    monkeypatch.setattr(os, "fsync", spied)
    emitted = []
    for change in (
        partial(storage.write, "f", b"x"),
        partial(storage.move, "f", "a/f"),
        partial(storage.move, "a/f", "a/g"),
        partial(storage.delete, "a/g"),
        partial(storage.delete, "a"),
    ):
        synced.clear()
        change()
        emitted.append(synced.copy())
    assert emitted == [["file", "folder"], ["folder"] * 3, ["folder"] * 2, ["folder"], ["folder"]]


def test_an_entry_that_cannot_be_looked_at_fails_the_listing_and_one_that_vanished_is_left_out(
    storage: LocalStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage.write("a/f", b"x")
    monkeypatch.setattr("mirror_engine.storage.local.stat_entry", failing(errno.ENOENT))
    assert storage.list("a") == []
    monkeypatch.setattr("mirror_engine.storage.local.stat_entry", failing(errno.EIO))
    with pytest.raises(StorageUnavailable, match=r"^a: cannot list it"):
        storage.list("a")


@pytest.mark.parametrize("code", [errno.EACCES, errno.EIO, errno.ESTALE, errno.EMFILE])
def test_a_failing_disk_is_unavailable_never_empty(
    storage: LocalStorage, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    storage.write("a/f", b"x")
    monkeypatch.setattr(os, "open", failing(code))
    calls: list[Any] = [
        partial(storage.list, "a"),
        partial(storage.stat, "a/f"),
        partial(storage.open, "a/f"),
        partial(storage.write, "a/f", b""),
        partial(storage.move, "a/f", "b"),
        partial(storage.delete, "a/f"),
    ]
    for call in calls:
        with pytest.raises(StorageUnavailable) as problem:
            call()
        assert problem.value.help


@linux
def test_a_read_that_fails_is_the_storages_fault() -> None:
    with LocalStorage(Path("/proc/self")).open("mem") as file:  # its first page cannot be read
        for read in (file.read, partial(file.read, 1)):
            with pytest.raises(StorageUnavailable, match="mem: cannot read it"):
                read()


@linux
def test_no_call_leaves_a_folder_open(root: Path, storage: LocalStorage, outside: Path) -> None:
    def everything() -> None:
        storage.write("a/b/f", b"x")
        storage.open("a/b/f").close()
        (root / "link").unlink(missing_ok=True)
        (root / "link").symlink_to(outside)
        for path in ["", "a", "a/b/f", "link", "nothing", "a/b/f/below", "link/below"]:
            storage.list(path)
            storage.stat(path)
            with pytest.raises(FileNotFoundError):
                storage.open(f"{path}/no")
            storage.move(f"{path}/no", "c")
            with pytest.raises(StorageUnavailable):
                storage.write(f"a/b/f/{path}", b"")
        storage.move("a/b/f", "c/d/f")
        storage.delete("a")
        storage.delete("c")

    everything()
    before = len(list(Path("/proc/self/fd").iterdir()))
    everything()
    assert len(list(Path("/proc/self/fd").iterdir())) == before


def test_an_in_place_write_keeps_the_identity_and_a_rename_over_it_changes_it(
    root: Path, storage: LocalStorage
) -> None:
    (root / "f").write_bytes(b"one")
    first = storage.stat("f")
    with (root / "f").open("r+b") as file:
        file.write(b"two, and longer")
    second = storage.stat("f")
    (root / "_f").write_bytes(b"three")
    (root / "_f").rename(root / "f")
    third = storage.stat("f")
    assert first is not None
    assert second is not None
    assert third is not None
    assert first.identity == second.identity != third.identity
    assert (first.size, second.size) == (3, 15)


def test_an_inode_given_out_again_is_another_folder_by_its_time_of_birth() -> None:
    assert local._identity(7, 1) != local._identity(7, 2)
    assert local._identity(7, 1) != local._identity(8, 1)


@pytest.fixture(params=["disk", "/dev/shm"])  # noqa: S108 - a place known to be tmpfs, where there is one
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Path]:
    if request.param == "disk":
        yield tmp_path
        return
    if not Path(request.param).is_dir():
        pytest.skip(f"no {request.param} here")
    with tempfile.TemporaryDirectory(dir=request.param) as folder:
        yield Path(folder)


@pytest.mark.slow
def test_ten_thousand_changes_in_a_folder_keep_its_identity(place: Path) -> None:
    (place / "T").mkdir()
    storage = LocalStorage(place)
    before = storage.stat("T")
    for number in range(10_000):
        (place / "T" / f"{number % 100}").touch()
        if number % 100 == 99:
            (place / "T" / "0").rename(place / "T" / "moved")
            os.utime(place / "T", ns=(number, number))
    after = storage.stat("T")
    assert before is not None
    assert after is not None
    assert before.identity == after.identity
    assert before.modified_ns != after.modified_ns


@linux
@pytest.mark.parametrize("libc", ["without statx", "forbidden"])
def test_without_statx_the_inode_is_the_identity(
    storage: LocalStorage, root: Path, monkeypatch: pytest.MonkeyPatch, libc: str
) -> None:
    class Forbidden:
        @staticmethod
        def statx(*_: object) -> int:
            ctypes.set_errno(errno.ENOSYS)
            return -1

    storage.write("f", b"abc")
    known = storage.stat("f")
    monkeypatch.setattr(local, "_LIBC", Forbidden if libc == "forbidden" else object())
    found = storage.stat("f")
    assert known is not None
    assert found is not None
    assert found.identity == f"{(root / 'f').stat().st_ino:x}"
    assert (found.kind, found.size, found.modified_ns) == (known.kind, known.size, known.modified_ns)


@pytest.mark.slow
def test_a_folder_deeper_than_any_stack_can_be_deleted(storage: LocalStorage) -> None:
    limit = sys.getrecursionlimit()
    storage.write("d/" * 400 + "f", b"")
    sys.setrecursionlimit(350)  # fewer frames than folders; with the usual 1000 the test takes many seconds
    try:
        storage.delete("d")
    finally:
        sys.setrecursionlimit(limit)
    assert storage.list("") == []
