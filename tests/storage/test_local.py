"""What only a real disk can show: links, pipes, odd names, failing calls, and how long an identity lasts."""

from __future__ import annotations

import ctypes
import errno
import inspect
import os
import socket
import stat
import struct
import sys
from functools import partial
from pathlib import Path

import pytest

from mirror_engine.errors import StorageUnavailable
from mirror_engine.landing_zone.listing import Kind
from mirror_engine.storage import local
from mirror_engine.storage.local import LocalStorage

linux = pytest.mark.skipif(sys.platform != "linux", reason="a Linux interface")


@pytest.fixture
def disk_root(tmp_path):
    folder = tmp_path / "root"
    folder.mkdir()
    return folder


@pytest.fixture
def on_disk(disk_root):
    return LocalStorage(disk_root)


def failing(code):
    def call(*_, **__):
        raise OSError(code, os.strerror(code))

    return call


def test_a_symbolic_link_is_seen_as_other_and_never_opened(disk_root, on_disk, outside):
    (disk_root / "file").symlink_to(outside / "secret")
    (disk_root / "folder").symlink_to(outside)
    (disk_root / "dangling").symlink_to("nowhere")
    assert {entry.name: entry.kind for entry in on_disk.list("")} == dict.fromkeys(
        ["dangling", "file", "folder"], Kind.OTHER
    )
    for name in ["file", "folder", "dangling", "folder/secret"]:
        with pytest.raises(FileNotFoundError):
            on_disk.open(name)
    assert on_disk.list("folder") is None
    assert on_disk.stat("folder/secret") is None


def test_nothing_is_changed_by_way_of_a_link(disk_root, on_disk, outside):
    for link in ("folder", "moved", "below/link"):
        (disk_root / link).parent.mkdir(exist_ok=True)
        (disk_root / link).symlink_to(outside)
    (disk_root / "over").symlink_to(outside / "secret")
    (disk_root / "file").write_bytes(b"file")
    on_disk.move("moved", "elsewhere")
    assert (disk_root / "moved").is_symlink()
    on_disk.delete("moved")
    on_disk.delete("below")
    on_disk.write("over", b"new")
    assert not (disk_root / "over").is_symlink()
    on_disk.delete("folder/secret")
    on_disk.move("folder/secret", "stolen")
    for attempt in (lambda: on_disk.write("folder/new", b""), lambda: on_disk.move("file", "folder/file")):
        with pytest.raises(StorageUnavailable, match=r"cannot (write|move) it") as problem:
            attempt()
        assert "link" in problem.value.help
    assert [(path.name, path.read_bytes()) for path in outside.iterdir()] == [("secret", b"secret")]
    assert sorted(path.name for path in disk_root.iterdir()) == ["file", "folder", "over"]


def test_root_may_be_reached_through_a_link(disk_root, tmp_path):
    (tmp_path / "link").symlink_to(disk_root)
    storage = LocalStorage(tmp_path / "link")
    storage.write("a/b", b"x")
    assert (disk_root / "a/b").read_bytes() == b"x"
    assert storage.stat("") == LocalStorage(disk_root).stat("")


def test_a_root_that_is_no_folder_is_absent_to_readers_and_unavailable_to_writers(tmp_path):
    (tmp_path / "file").write_bytes(b"")
    for root in [tmp_path / "file", tmp_path / "nothing"]:
        assert LocalStorage(root).list("") is None
        assert LocalStorage(root).stat("") is None
        LocalStorage(root).delete("a")
    with pytest.raises(StorageUnavailable):
        LocalStorage(tmp_path / "file").write("a", b"")


def test_pipes_and_sockets_are_other_and_never_opened(disk_root, on_disk):
    os.mkfifo(disk_root / "pipe")
    here = Path.cwd()
    with socket.socket(socket.AF_UNIX) as listener:
        os.chdir(disk_root)  # a socket's path must be short
        try:
            listener.bind("socket")
        finally:
            os.chdir(here)
    assert [entry.kind for entry in on_disk.list("")] == [Kind.OTHER, Kind.OTHER]
    for name in ["pipe", "socket"]:
        with pytest.raises(FileNotFoundError):
            on_disk.open(name)
        on_disk.move(name, "elsewhere")
        on_disk.delete(name)
    assert on_disk.list("") == []


@linux
def test_names_that_are_no_text_are_listed_as_other_with_their_bytes_spelled(disk_root, on_disk):
    (disk_root / "T").mkdir()
    os.close(os.open(os.fsencode(disk_root) + b"/T/caf\xe9.csv", os.O_CREAT | os.O_WRONLY))
    (disk_root / "T" / "é").write_bytes(b"")
    odd, good = on_disk.list("T")
    assert (odd.name, odd.kind) == ("caf\\xe9.csv", Kind.OTHER)
    assert (good.name, good.kind) == ("é", Kind.FILE)
    assert on_disk.stat("T/caf\udce9.csv") is None
    on_disk.delete("T")
    assert on_disk.list("") == []


def test_a_failed_write_keeps_the_old_file_and_leaves_nothing_behind(disk_root, on_disk, monkeypatch):
    on_disk.write("a/f", b"old")
    refuse = failing(errno.ENOSPC)

    def refuse_and_look(temporary, *_, **__):
        assert temporary.startswith(".")  # a name that the protocol skips
        assert sorted(os.listdir(disk_root / "a")) == [temporary, "f"]  # noqa: PTH208 - the raw names
        refuse()

    monkeypatch.setattr(os, "replace", refuse_and_look)
    with pytest.raises(StorageUnavailable, match=r"^a/f: cannot write it: ") as problem:
        on_disk.write("a/f", b"new")
    assert problem.value.help == "Free space on the disk."
    assert os.listdir(disk_root / "a") == ["f"]  # noqa: PTH208 - the raw names
    assert (disk_root / "a/f").read_bytes() == b"old"


def test_only_a_new_folder_waits_for_the_disk(on_disk, monkeypatch):
    synced = []
    fsync = os.fsync

    def spied(opened):
        synced.append("folder" if stat.S_ISDIR(os.fstat(opened).st_mode) else "file")
        fsync(opened)

    monkeypatch.setattr(os, "fsync", spied)
    emitted = []
    for change in (
        partial(on_disk.write, "f", b"x"),
        partial(on_disk.move, "f", "a/f"),
        partial(on_disk.move, "a/f", "a/g"),
        partial(on_disk.delete, "a/g"),
        partial(on_disk.delete, "a"),
    ):
        synced.clear()
        change()
        emitted.append(synced.copy())
    assert emitted == [[], ["folder"], [], [], []]


def test_list_fails_on_unreadable_entry_and_skips_vanished(on_disk, monkeypatch):
    on_disk.write("a/f", b"x")
    monkeypatch.setattr("mirror_engine.storage.local.stat_entry", failing(errno.ENOENT))
    assert on_disk.list("a") == []
    monkeypatch.setattr("mirror_engine.storage.local.stat_entry", failing(errno.EIO))
    with pytest.raises(StorageUnavailable, match=r"^a: cannot list it"):
        on_disk.list("a")


@pytest.mark.parametrize("code", [errno.EACCES, errno.EIO, errno.ESTALE, errno.EMFILE])
def test_a_failing_disk_is_unavailable_never_empty(on_disk, monkeypatch, code):
    on_disk.write("a/f", b"x")
    monkeypatch.setattr(os, "open", failing(code))
    calls = [
        partial(on_disk.list, "a"),
        partial(on_disk.stat, "a/f"),
        partial(on_disk.open, "a/f"),
        partial(on_disk.write, "a/f", b""),
        partial(on_disk.move, "a/f", "b"),
        partial(on_disk.delete, "a/f"),
    ]
    for call in calls:
        with pytest.raises(StorageUnavailable) as problem:
            call()
        assert problem.value.help


@linux
def test_a_read_that_fails_is_the_storages_fault():
    with LocalStorage(Path("/proc/self")).open("mem") as file:  # its first page cannot be read
        for read in (file.read, partial(file.read, 1)):
            with pytest.raises(StorageUnavailable, match="mem: cannot read it"):
                read()


@linux
def test_no_call_leaves_a_folder_open(disk_root, on_disk, outside):
    def everything():
        on_disk.write("a/b/f", b"x")
        on_disk.open("a/b/f").close()
        (disk_root / "link").unlink(missing_ok=True)
        (disk_root / "link").symlink_to(outside)
        for path in ["", "a", "a/b/f", "link", "nothing", "a/b/f/below", "link/below"]:
            on_disk.list(path)
            on_disk.stat(path)
            with pytest.raises(FileNotFoundError):
                on_disk.open(f"{path}/no")
            on_disk.move(f"{path}/no", "c")
            with pytest.raises(StorageUnavailable):
                on_disk.write(f"a/b/f/{path}", b"")
        on_disk.move("a/b/f", "c/d/f")
        on_disk.delete("a")
        on_disk.delete("c")

    everything()
    before = len(list(Path("/proc/self/fd").iterdir()))
    everything()
    assert len(list(Path("/proc/self/fd").iterdir())) == before


def test_an_in_place_write_keeps_the_identity_and_a_rename_over_it_changes_it(disk_root, on_disk):
    (disk_root / "f").write_bytes(b"one")
    first = on_disk.stat("f")
    with (disk_root / "f").open("r+b") as file:
        file.write(b"two, and longer")
    second = on_disk.stat("f")
    (disk_root / "_f").write_bytes(b"three")
    (disk_root / "_f").rename(disk_root / "f")
    third = on_disk.stat("f")
    assert first.identity == second.identity != third.identity
    assert (first.size, second.size) == (3, 15)


def test_an_inode_given_out_again_is_another_folder_by_its_time_of_birth():
    assert local._identity(7, 1) != local._identity(7, 2)
    assert local._identity(7, 1) != local._identity(8, 1)


@linux
@pytest.mark.parametrize("knows_mounts", [True, False])
def test_mount_is_known_to_older_kernels_by_its_device(monkeypatch, knows_mounts):
    """Before Linux 5.8, statx has no attribute for it: its mask of known attributes says so."""
    real = local._LIBC

    class Older:
        @staticmethod
        def statx(folder, name, flags, mask, buffer):
            result = real.statx(folder, name, flags, mask, buffer)
            for at in (8, 56):  # attributes, and which are known
                (bits,) = struct.unpack_from("=Q", buffer, at)
                struct.pack_into("=Q", buffer, at, bits & ~local._STATX_MOUNT_ROOT)
            return result

    if not knows_mounts:
        monkeypatch.setattr(local, "_LIBC", Older)
    machine = LocalStorage(Path("/"))
    assert (machine.stat("proc").is_mount, machine.stat("usr/lib").is_mount) == (True, False)


@linux
@pytest.mark.parametrize("libc", ["without statx", "forbidden"])
def test_without_statx_the_inode_is_the_identity(on_disk, disk_root, monkeypatch, libc):
    class Forbidden:
        @staticmethod
        def statx(*_):
            ctypes.set_errno(errno.ENOSYS)
            return -1

    on_disk.write("f", b"abc")
    known = on_disk.stat("f")
    monkeypatch.setattr(local, "_LIBC", Forbidden if libc == "forbidden" else object())
    found = on_disk.stat("f")
    assert found.identity == f"{(disk_root / 'f').stat().st_ino:x}"
    assert (found.kind, found.size, found.modified_ns) == (known.kind, known.size, known.modified_ns)


@pytest.mark.slow
def test_a_folder_deeper_than_any_stack_can_be_deleted(disk_root, on_disk):
    limit = sys.getrecursionlimit()
    (disk_root / ("d/" * 150)).mkdir(parents=True)
    sys.setrecursionlimit(len(inspect.stack(0)) + 100)  # fewer frames than folders
    try:
        on_disk.delete("d")
    finally:
        sys.setrecursionlimit(limit)
    assert on_disk.list("") == []
