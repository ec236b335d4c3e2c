"""The contract of the storage port, for every implementation."""

from __future__ import annotations

import itertools
from contextlib import nullcontext

import pytest
from memory_storage import MemoryStorage, names, read
from scripted_faults import Fault, Script, faulty

from mirror_engine.errors import StorageUnavailable
from mirror_engine.landing_zone.layout import ZONE
from mirror_engine.landing_zone.listing import Kind
from mirror_engine.storage.base import NO_IDENTITY
from mirror_engine.storage.datalake import DatalakeStorage
from mirror_engine.storage.local import LocalStorage
from mirror_engine.storage.object_store import ObjectStorage
from mirror_engine.storage.stores import open_storage

STORES = ["onelake_server", "adls_server", "azurite", "s3_server"]


@pytest.fixture(
    params=[
        *("memory", "local"),
        *(pytest.param(name, marks=pytest.mark.slow) for name in STORES if name != "adls_server"),
        pytest.param("adls_server", marks=pytest.mark.nightly),  # as OneLake, with a key
    ]
)
def each_storage(request, tmp_path):
    if request.param in STORES:
        server = request.getfixturevalue(request.param)
        with server.in_use():
            yield open_storage(server.new_root() / ZONE)
    else:
        yield MemoryStorage() if request.param == "memory" else LocalStorage(tmp_path / "root")


def has_folders(storage):
    """False in S3, GCS and Azure Blob: a folder exists by the keys below it, and a file may have its path, too."""
    return not isinstance(storage, ObjectStorage)


def identity(storage, path):
    return storage.stat(path).identity


OUTSIDE = ["..", "../x", "a/../../x", "a/..", ".", "./a", "a/./b", "/a", "/etc/passwd", "a//b", "a/", "a\0b", "\udcff"]


def test_a_written_file_is_listed_and_read(each_storage):
    each_storage.write("Sales.schema/Stores/1.csv", b"abc")
    (entry,) = each_storage.list("Sales.schema/Stores")
    assert (entry.name, entry.kind, entry.size) == ("1.csv", Kind.FILE, 3)
    assert entry.modified_ns > 1_600_000_000 * 10**9
    assert not isinstance(each_storage, (DatalakeStorage, ObjectStorage)) or entry.modified_ns % 10**9 == 0
    assert each_storage.stat("Sales.schema/Stores/1.csv") == entry
    assert read(each_storage, "Sales.schema/Stores/1.csv") == b"abc"


def test_write_makes_the_folders_on_the_way(each_storage):
    each_storage.write("a/b/c/d", b"")
    folder = each_storage.stat("a/b")
    assert (folder.name, folder.kind, folder.size) == ("b", Kind.FOLDER, 0)
    assert names(each_storage, "") == ["a"]
    assert names(each_storage, "a/b") == ["c"]
    root = each_storage.stat("")
    assert (root.name, root.kind) == ("", Kind.FOLDER)


def test_a_listing_is_sorted_by_code_point(each_storage):
    for name in ["b", "B", "_", "a", "ä", "Z", "10", "9", "\U0001f600", "\uff5e"]:
        each_storage.write(name, b"")
    assert names(each_storage, "") == ["10", "9", "B", "Z", "_", "a", "b", "ä", "\uff5e", "\U0001f600"]


def test_list_stat_and_open_ignore_absent_and_other_kinds(each_storage):
    each_storage.write("a/file", b"")
    assert read(each_storage, "a/file") == b""
    for path in ["nothing", "nothing/below", "a/file/below", "x" * 300, "d/" * 3000 + "d"]:
        assert (each_storage.list(path), each_storage.stat(path)) == (None, None), path
    assert each_storage.list("a/file") is None
    for path in ["", "a", "nothing", "nothing/below", "a/file/below"]:
        with pytest.raises(FileNotFoundError):
            each_storage.open(path)


def test_names_are_kept_as_spelled(each_storage):
    is_local = not isinstance(each_storage, (DatalakeStorage, ObjectStorage))
    more = ["back\\slash", "line\nend", "tab\t"] if is_local else []  # stores refuse one or the other
    for name in ["with space", "a,b;{}()=", "$-%41", "é", "e\u0301", "..a", "...", *more]:
        each_storage.write(f"t/{name}", name.encode())
        assert read(each_storage, f"t/{name}") == name.encode()
        assert name in names(each_storage, "t")


def test_a_path_that_leaves_root_counts_as_absent(each_storage):
    each_storage.write("a/b", b"kept")
    for path in OUTSIDE:
        assert (each_storage.stat(path), each_storage.list(path)) == (None, None), ascii(path)
        with pytest.raises(FileNotFoundError):
            each_storage.open(path)
        each_storage.delete(path)
        each_storage.move(path, "c")
        assert (names(each_storage, ""), names(each_storage, "a")) == (["a"], ["b"]), ascii(path)


def test_nothing_is_written_or_moved_out_of_root(each_storage, tmp_path):
    each_storage.write("a/b", b"kept")
    attempts = lambda path: (lambda: each_storage.write(path, b"x"), lambda: each_storage.move("a/b", path))  # noqa: E731 - twice
    for attempt in itertools.chain.from_iterable(map(attempts, ["", *OUTSIDE])):
        with pytest.raises(StorageUnavailable) as problem:
            attempt()
        assert problem.value.help
        assert str(problem.value).isprintable() or "\n  -> " in str(problem.value)
        assert read(each_storage, "a/b") == b"kept"
        assert names(each_storage, "") == ["a"]
        assert {path.name for path in tmp_path.iterdir()} <= {"root"}


def test_write_replaces_or_fails_and_changes_nothing(each_storage):
    for content in (b"long content", b"short", b"kept", b"kept"):
        each_storage.write("a/f", content)
        assert read(each_storage, "a/f") == content
    for path in ["a", "a/f/below"] if has_folders(each_storage) else []:
        with pytest.raises(StorageUnavailable) as problem:
            each_storage.write(path, b"x")
        assert problem.value.help
    assert names(each_storage, "a") == ["f"]
    assert read(each_storage, "a/f") == b"kept"


def test_a_reader_seeks_and_keeps_its_bytes_when_the_path_is_replaced_or_deleted(each_storage):
    each_storage.write("f", bytes(range(256)) * 100)
    with each_storage.open("f") as file:
        assert file.read(1) == b"\0"
        each_storage.write("f", b"second")
        each_storage.delete("f")
        assert file.seekable()
        assert file.seek(-2, 2) == 25_598
        assert file.read(1) == b"\xfe"
        assert file.tell() == 25_599
        file.seek(0)
        assert file.read() == bytes(range(256)) * 100


def test_open_of_one_version_opens_no_other(each_storage):
    each_storage.write("a/f", b"listed")
    listed = each_storage.stat("a/f")
    with each_storage.open("a/f", listed) as file:
        assert file.read() == b"listed"
    each_storage.delete("a/f")
    each_storage.write("a/f", b"another")
    with pytest.raises(FileNotFoundError):
        each_storage.open("a/f", listed)
    assert read(each_storage, "a/f") == b"another"


def test_move_renames_a_file_keeps_its_entry_and_may_be_repeated(each_storage):
    each_storage.write("T/1.csv", b"one")
    before = each_storage.stat("T/1.csv")
    for source in ("T/1.csv", "T/1.csv", "T/_FilesReadyToDelete/k=v/1.csv"):
        each_storage.move(source, "T/_FilesReadyToDelete/k=v/1.csv")
        after = each_storage.stat("T/_FilesReadyToDelete/k=v/1.csv")
        assert after == before if has_folders(each_storage) else (after.name, after.size) == (before.name, before.size)
        assert read(each_storage, "T/_FilesReadyToDelete/k=v/1.csv") == b"one"
    for absent in ("nothing", "nothing/below"):
        each_storage.move(absent, "nowhere")
    assert names(each_storage, "T") == ["_FilesReadyToDelete"]
    assert names(each_storage, "") == ["T"]


def test_a_move_of_one_version_leaves_every_other(each_storage):
    each_storage.write("a", b"first")
    first = each_storage.stat("a")
    each_storage.write("a", b"second")
    assert each_storage.move("a", "b/c", first) is False
    assert (read(each_storage, "a"), each_storage.stat("b/c")) == (b"second", None)
    second = each_storage.stat("a")
    assert [each_storage.move("a", "b/c", second) for _ in range(2)] == [True, True]
    assert (each_storage.stat("a"), read(each_storage, "b/c")) == (None, b"second")
    assert each_storage.move("nothing", "b/d", second) is False
    assert names(each_storage, "b") == ["c"]


def test_a_scan_lists_looks_up_and_opens_what_is_there(each_storage):
    paths = [
        "Z/S.schema/T/1.csv",
        "Z/S.schema/T/k=1/2.csv",
        "Z/T/1.csv",
        "Z/T/_FilesReadyToDelete/0.csv",
        "Z/_x",
        "Y/1",
    ]
    for path in paths:
        each_storage.write(path, path.encode())
    scan, folders = each_storage.scan("Z"), {path.rpartition("/")[0] for path in paths}
    for folder in ["", "Z/S.schema", "Z/none", *folders]:
        assert scan.list(folder) == each_storage.list(folder), folder
    for path in [*paths, *folders, "Z/none", "Z/T/none", "none"]:
        assert scan.stat(path) == each_storage.stat(path), path
    assert [read(scan, path) for path in paths] == [path.encode() for path in paths]
    each_storage.write("Z/T/1.csv", b"other")
    with pytest.raises(FileNotFoundError) if scan is not each_storage else nullcontext():
        scan.open("Z/T/1.csv").close()
    assert each_storage.scan("none").list("none") is None


def test_move_replaces_its_target_with_the_moved_identity(each_storage):
    each_storage.write("old", b"old")
    each_storage.write("new", b"new")
    old, new = identity(each_storage, "old"), identity(each_storage, "new")
    each_storage.move("new", "old")
    assert names(each_storage, "") == ["old"]
    assert read(each_storage, "old") == b"new"
    assert new != old
    assert identity(each_storage, "old") == new or not has_folders(each_storage)


def test_move_moves_files_only_and_never_onto_a_folder(each_storage):
    each_storage.write("folder/f", b"kept")
    each_storage.write("file", b"file")
    each_storage.move("folder", "elsewhere")
    assert each_storage.stat("elsewhere") is None
    for target in ["folder", "folder/f/below"] if has_folders(each_storage) else []:
        with pytest.raises(StorageUnavailable):
            each_storage.move("file", target)
    assert read(each_storage, "file") == b"file"
    assert read(each_storage, "folder/f") == b"kept"


def test_delete_removes_a_file_or_a_whole_folder_and_absent_is_no_error(each_storage):
    for path in ["a/b/1", "a/b/c/2", "a/b/c/d/3", "a/4", "e"]:
        each_storage.write(path, b"")
    each_storage.delete("a/b")
    assert names(each_storage, "a") == ["4"]
    each_storage.delete("e")
    for path in ["a/b", "e", "nothing", "a/4/below", "nothing/below"]:
        each_storage.delete(path)
    assert names(each_storage, "") == ["a"]
    each_storage.delete("a/4")
    assert each_storage.list("a") == ([] if has_folders(each_storage) else None)
    each_storage.write("a/5", b"")
    each_storage.delete("")  # ROOT itself is never deleted
    assert names(each_storage, "") == ["a"]
    each_storage.delete("a")
    assert names(each_storage, "") == []


def test_a_file_or_folder_deleted_and_written_again_is_another_one(each_storage):
    seen = set()
    folders = []
    times = 5 if isinstance(each_storage, (DatalakeStorage, ObjectStorage)) else 20  # a disk gives inodes out again
    for _ in range(times):
        each_storage.write("T/f", b"same")
        seen.add(identity(each_storage, "T/f"))
        folders.append(identity(each_storage, "T"))
        each_storage.delete("T")
    if has_folders(each_storage):
        assert len(seen) == times
        assert all(before != after for before, after in itertools.pairwise(folders))
    else:
        assert set(folders) == {NO_IDENTITY}


def test_changes_inside_a_folder_never_change_its_identity(each_storage):
    each_storage.write("S/T/first", b"")
    before = identity(each_storage, "S/T"), identity(each_storage, "S"), identity(each_storage, "")
    for number in range(6):
        each_storage.write(f"S/T/{number}", b"x")
        each_storage.move(f"S/T/{number}", f"S/T/done/{number}")
        if number % 3 == 0:
            each_storage.delete(f"S/T/done/{number}")
        assert (identity(each_storage, "S/T"), identity(each_storage, "S"), identity(each_storage, "")) == before


class Repeated:
    """A storage whose calls are made again after a failure."""

    def __init__(self, storage):
        self.storage = storage

    def __getattr__(self, name):
        def call(*arguments):
            try:
                return getattr(self.storage, name)(*arguments)
            except StorageUnavailable:
                return getattr(self.storage, name)(*arguments)

        return call


@pytest.mark.parametrize("fault", Fault)
def test_every_call_may_be_repeated_after_a_fault(each_storage, fault):
    def work(called):
        called.write("T/1", b"one")
        called.write("T/2", b"two")
        called.move("T/1", "T/done/1")
        called.delete("T/2")
        assert called.stat("T/done/1") is not None
        return names(called, "T"), read(called, "T/done/1")

    counting = Script()
    expected = work(faulty(each_storage, counting))
    for number in range(1, len(counting.calls) + 1):
        each_storage.delete("T")
        script = Script({number: fault})
        assert work(Repeated(faulty(each_storage, script))) == expected, counting.calls[number - 1]
        assert len(script.calls) == len(counting.calls) + 1
