"""The contract of the storage port, for every implementation."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import pytest
from memory_storage import MemoryStorage
from scripted_faults import Fault, Script, faulty

from mirror_engine.errors import StorageUnavailable
from mirror_engine.storage.base import Kind
from mirror_engine.storage.local import LocalStorage
from mirror_engine.storage.retrying import RetryingStorage

if TYPE_CHECKING:
    from pathlib import Path

    from mirror_engine.storage.base import Storage


@pytest.fixture(params=["memory", "local", "retrying"])
def storage(request: pytest.FixtureRequest, tmp_path: Path) -> Storage:
    storages: dict[str, Storage] = {
        "memory": MemoryStorage(),
        "local": LocalStorage(tmp_path / "root"),
        "retrying": RetryingStorage(LocalStorage(tmp_path / "root"), sleep=lambda _: None),
    }
    return storages[request.param]


def names(storage: Storage, folder: str) -> list[str]:
    entries = storage.list(folder)
    assert entries is not None
    return [entry.name for entry in entries]


def read(storage: Storage, path: str) -> bytes:
    with storage.open(path) as file:
        return file.read()


def identity(storage: Storage, path: str) -> str:
    entry = storage.stat(path)
    assert entry is not None
    return entry.identity


OUTSIDE = ["..", "../x", "a/../../x", "a/..", ".", "./a", "a/./b", "/a", "/etc/passwd", "a//b", "a/", "a\0b", "\udcff"]


def test_a_written_file_is_listed_and_read(storage: Storage) -> None:
    storage.write("Sales.schema/Stores/1.csv", b"abc")
    (entry,) = storage.list("Sales.schema/Stores") or ()
    assert (entry.name, entry.kind, entry.size) == ("1.csv", Kind.FILE, 3)
    assert entry.modified_ns > 1_600_000_000 * 10**9
    assert storage.stat("Sales.schema/Stores/1.csv") == entry
    assert read(storage, "Sales.schema/Stores/1.csv") == b"abc"


def test_write_makes_the_folders_on_the_way(storage: Storage) -> None:
    storage.write("a/b/c/d", b"")
    folder = storage.stat("a/b")
    assert folder is not None
    assert (folder.name, folder.kind, folder.size) == ("b", Kind.FOLDER, 0)
    assert names(storage, "") == ["a"]
    assert names(storage, "a/b") == ["c"]


def test_root_is_a_folder_without_a_name_once_it_holds_something(storage: Storage) -> None:
    storage.write("a", b"")
    root = storage.stat("")
    assert root is not None
    assert (root.name, root.kind) == ("", Kind.FOLDER)


def test_a_listing_is_sorted_by_code_point(storage: Storage) -> None:
    for name in ["b", "B", "_", "a", "ä", "Z", "10", "9", "\U0001f600", "\uff5e"]:
        storage.write(name, b"")
    assert names(storage, "") == ["10", "9", "B", "Z", "_", "a", "b", "ä", "\uff5e", "\U0001f600"]


def test_a_path_that_is_no_folder_lists_as_none(storage: Storage) -> None:
    storage.write("file", b"")
    for folder in ["nothing", "nothing/below", "file", "file/below", "x" * 300, "d/" * 3000 + "d"]:
        assert storage.list(folder) is None, folder


def test_an_absent_path_has_no_stat(storage: Storage) -> None:
    storage.write("file", b"")
    for path in ["nothing", "nothing/below", "file/below", "x" * 300]:
        assert storage.stat(path) is None, path


def test_opening_anything_but_a_file_raises(storage: Storage) -> None:
    storage.write("a/file", b"")
    for path in ["", "a", "nothing", "nothing/below", "a/file/below"]:
        with pytest.raises(FileNotFoundError):
            storage.open(path)


def test_names_are_kept_as_spelled(storage: Storage) -> None:
    for name in ["with space", "a,b;{}()=", "line\nend", "tab\t", "$-%41", "é", "e\u0301", "back\\slash", "..a", "..."]:
        storage.write(f"t/{name}", name.encode())
        assert read(storage, f"t/{name}") == name.encode()
        assert name in names(storage, "t")


@pytest.mark.parametrize("path", OUTSIDE, ids=ascii)
def test_a_path_that_leaves_root_counts_as_absent(storage: Storage, path: str) -> None:
    storage.write("a/b", b"kept")
    assert storage.stat(path) is None
    assert storage.list(path) is None
    with pytest.raises(FileNotFoundError):
        storage.open(path)
    storage.delete(path)
    storage.move(path, "c")
    assert names(storage, "") == ["a"]
    assert names(storage, "a") == ["b"]


@pytest.mark.parametrize("path", ["", *OUTSIDE], ids=ascii)
def test_nothing_is_written_or_moved_out_of_root(storage: Storage, tmp_path: Path, path: str) -> None:
    storage.write("a/b", b"kept")
    for attempt in (lambda: storage.write(path, b"x"), lambda: storage.move("a/b", path)):
        with pytest.raises(StorageUnavailable) as problem:
            attempt()
        assert problem.value.help
        assert str(problem.value).isprintable() or "\n  -> " in str(problem.value)
    assert read(storage, "a/b") == b"kept"
    assert names(storage, "") == ["a"]
    assert {path.name for path in tmp_path.iterdir()} <= {"root"}


def test_write_replaces_or_fails_and_changes_nothing(storage: Storage) -> None:
    for content in (b"long content", b"short", b"kept", b"kept"):
        storage.write("a/f", content)
        assert read(storage, "a/f") == content
    for path in ["a", "a/f/below"]:
        with pytest.raises(StorageUnavailable) as problem:
            storage.write(path, b"x")
        assert problem.value.help
    assert names(storage, "a") == ["f"]
    assert read(storage, "a/f") == b"kept"


def test_an_open_file_keeps_its_bytes_when_the_path_is_replaced_or_deleted(storage: Storage) -> None:
    storage.write("f", b"first" * 10_000)
    with storage.open("f") as file:
        assert file.read(5) == b"first"
        storage.write("f", b"second")
        storage.delete("f")
        file.seek(0)
        assert file.read() == b"first" * 10_000


def test_a_reader_can_seek(storage: Storage) -> None:
    storage.write("f", bytes(range(256)))
    with storage.open("f") as file:
        assert file.seekable()
        assert file.seek(-2, 2) == 254
        assert file.read(1) == b"\xfe"
        assert file.tell() == 255
        assert file.seek(10) == 10
        assert file.read(2) == b"\x0a\x0b"


def test_move_renames_a_file_and_keeps_its_entry(storage: Storage) -> None:
    storage.write("T/1.csv", b"one")
    before = storage.stat("T/1.csv")
    storage.move("T/1.csv", "T/_FilesReadyToDelete/k=v/1.csv")
    assert storage.stat("T/_FilesReadyToDelete/k=v/1.csv") == before
    assert read(storage, "T/_FilesReadyToDelete/k=v/1.csv") == b"one"
    assert names(storage, "T") == ["_FilesReadyToDelete"]


def test_move_replaces_its_target_with_the_moved_identity(storage: Storage) -> None:
    storage.write("old", b"old")
    storage.write("new", b"new")
    old, new = identity(storage, "old"), identity(storage, "new")
    storage.move("new", "old")
    assert names(storage, "") == ["old"]
    assert read(storage, "old") == b"new"
    assert identity(storage, "old") == new != old


def test_move_may_be_repeated_and_an_absent_source_is_no_error(storage: Storage) -> None:
    storage.write("a/f", b"x")
    for source in ("a/f", "a/f", "b/f"):
        storage.move(source, "b/f")
        assert read(storage, "b/f") == b"x"
    storage.move("nothing", "nowhere")
    storage.move("nothing/below", "nowhere")
    assert names(storage, "") == ["a", "b"]


def test_move_moves_files_only_and_never_onto_a_folder(storage: Storage) -> None:
    storage.write("folder/f", b"kept")
    storage.write("file", b"file")
    storage.move("folder", "elsewhere")
    assert storage.stat("elsewhere") is None
    for target in ["folder", "folder/f/below"]:
        with pytest.raises(StorageUnavailable):
            storage.move("file", target)
    assert read(storage, "file") == b"file"
    assert read(storage, "folder/f") == b"kept"


def test_delete_removes_a_file_or_a_whole_folder_and_absent_is_no_error(storage: Storage) -> None:
    for path in ["a/b/1", "a/b/c/2", "a/b/c/d/3", "a/4", "e"]:
        storage.write(path, b"")
    storage.delete("a/b")
    assert names(storage, "a") == ["4"]
    storage.delete("e")
    for path in ["a/b", "e", "nothing", "a/4/below", "nothing/below"]:
        storage.delete(path)
    assert names(storage, "") == ["a"]
    storage.delete("a/4")
    assert storage.list("a") == []
    storage.delete("")  # ROOT itself is never deleted
    assert names(storage, "") == ["a"]
    storage.delete("a")
    assert names(storage, "") == []


def test_a_file_or_folder_deleted_and_written_again_is_another_one(storage: Storage) -> None:
    seen = set()
    folders = []
    for _ in range(20):
        storage.write("T/f", b"same")
        seen.add(identity(storage, "T/f"))
        folders.append(identity(storage, "T"))
        storage.delete("T")
    assert len(seen) == 20
    assert all(before != after for before, after in itertools.pairwise(folders))


def test_changes_inside_a_folder_never_change_its_identity(storage: Storage) -> None:
    storage.write("S/T/first", b"")
    before = identity(storage, "S/T"), identity(storage, "S"), identity(storage, "")
    for number in range(30):
        storage.write(f"S/T/{number}", b"x")
        storage.move(f"S/T/{number}", f"S/T/done/{number}")
        if number % 3 == 0:
            storage.delete(f"S/T/done/{number}")
        assert (identity(storage, "S/T"), identity(storage, "S"), identity(storage, "")) == before


def test_list_and_stat_agree(storage: Storage) -> None:
    for path in ["T/f", "T/sub/f", "T/g"]:
        storage.write(path, path.encode())
    assert [storage.stat(f"T/{name}") for name in names(storage, "T")] == list(storage.list("T") or ())


@pytest.mark.parametrize("fault", Fault)
def test_every_call_may_be_repeated_after_a_fault(storage: Storage, fault: Fault) -> None:
    def work(called: Storage) -> tuple[list[str], bytes]:
        called.write("T/1", b"one")
        called.write("T/2", b"two")
        called.move("T/1", "T/done/1")
        called.delete("T/2")
        assert called.stat("T/done/1") is not None
        return names(called, "T"), read(called, "T/done/1")

    counting = Script()
    expected = work(faulty(storage, counting))
    for number in range(1, len(counting.calls) + 1):
        storage.delete("T")
        script = Script({number: fault})
        retrying = RetryingStorage(faulty(storage, script), [0], sleep=lambda _: None)
        assert work(retrying) == expected, counting.calls[number - 1]
        assert len(script.calls) == len(counting.calls) + 1
