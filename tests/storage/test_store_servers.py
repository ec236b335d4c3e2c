"""What the engine needs of a store, against each server: conditional PUTs, lists, and commits to Delta tables."""

from __future__ import annotations

import contextlib
import itertools
import time

import pytest
from obstore.exceptions import AlreadyExistsError, PreconditionError

from mirror_engine.errors import StorageUnavailable
from mirror_engine.landing_zone.layout import TABLES, ZONE
from mirror_engine.storage import stores
from mirror_engine.storage.base import REQUESTS, at_once
from mirror_engine.tables.log.commit import put_commit
from mirror_engine.tables.log.table_path import StorePath
from mirror_engine.tables.log.tables_folder import TablesFolder

pytestmark = pytest.mark.slow


def test_a_put_may_ask_that_nothing_is_there_or_that_nothing_has_changed(store):
    client = (store.new_root() / ZONE).object_store()
    first = client.put("lease", b"1", mode="create")
    with pytest.raises(AlreadyExistsError):
        client.put("lease", b"2", mode="create")
    second = client.put("lease", b"2", mode={"e_tag": first["e_tag"]})
    with pytest.raises(PreconditionError):
        client.put("lease", b"3", mode={"e_tag": first["e_tag"]})
    assert (client.head("lease")["e_tag"], bytes(client.get("lease").bytes())) == (second["e_tag"], b"2")


def test_a_list_is_whole_and_may_start_after_a_name(store):
    client = (store.new_root() / ZONE).object_store()
    names = [f"T/{number:020}.csv" for number in range(1, 6)]
    for name in names:
        client.put(name, b"x")
    listed = [found["path"] for page in client.list() for found in page if found["path"].endswith(".csv")]
    assert listed == names
    after = {found["path"] for page in client.list(offset=names[2]) for found in page}
    assert after >= set(names[3:])
    assert not after & set(names[:3]) or store.name == "Azure Blob"


def test_a_deletion_may_name_the_file_that_it_means(store):
    storage, client = stores.open_storage(root := store.new_root()), root.object_store()
    name = f"{ZONE}/T/ä %23#?&+='(1)~.csv"
    etags = [client.put(name, content)["e_tag"].strip('"') for content in (b"old", b"new")]
    with pytest.raises(StorageUnavailable, match="was replaced meanwhile"):
        storage.remove(name, etags[0])
    assert client.get(name).bytes() == b"new"
    again = client.put(name, b"new")["e_tag"].strip('"')
    assert (again == etags[1]) == (store.name == "S3")  # there, it is of the bytes
    storage.remove(name, again)
    assert storage.stat(name) is None


def test_a_deletion_of_a_drop_that_arrives_late_leaves_the_next_table(store, tmp_path, monkeypatch):
    """Each in turn waits until the next engine has ended the drop, and made the table again."""
    remove = StorePath.remove
    for late in range(4):  # two commits, that of the drop, and its mark
        tables, count = TablesFolder(store.new_root() / TABLES, tmp_path), itertools.count()
        folder = tables.path("T")

        def delayed(path, late=late, tables=tables, folder=folder, count=count):
            if next(count) == late:
                with monkeypatch.context() as next_engine:
                    next_engine.setattr(StorePath, "remove", remove)
                    tables.finish_drop("T")
                    for version in range(3):
                        put_commit(folder, version, [{"of": "the second"}])
            remove(path)

        for version in range(2):
            put_commit(folder, version, [{"of": "the first"}])
        with monkeypatch.context() as dying:
            dying.setattr(StorePath, "remove", delayed)
            with contextlib.suppress(StorageUnavailable):
                tables.drop("T")
        assert next(count) > late
        assert tables.log_stamp("T", 0).startswith("2 ")


def test_proxy_sends_a_body_without_waiting_for_an_ack(onelake_server):
    """urllib3 holds it back until the head is acknowledged, which the emulator's system may do after 0.04 s."""

    def seconds(number):
        begun = time.perf_counter()
        storage.write(f"{ZONE}/T/{number}", b"x" * 1000)
        return time.perf_counter() - begun

    with onelake_server.in_use():
        storage = stores.open_storage(onelake_server.new_root())
        for number in range(10):
            seconds(number)
        assert any(seconds(number) < 0.03 for number in range(200))


def test_requests_at_once_keep_their_connections(store, caplog):
    storage = stores.open_storage(store.new_root())
    storage.write("Files/a", b"x")
    for _ in range(2):
        assert all(at_once(storage, storage.stat, ["Files/a"] * 4 * REQUESTS))
    assert not [record for record in caplog.records if "pool" in record.getMessage()]


def test_moves_at_once_into_a_new_folder_lose_no_file(store):
    storage = stores.open_storage(store.new_root())
    paths = [f"Files/T/{number:03}.csv" for number in range(2 * REQUESTS)]
    for _ in at_once(storage, lambda path: storage.write(path, path.encode()), paths):
        pass
    archived = [path.replace("/T/", "/T/archive/") for path in paths]
    assert all(at_once(storage, lambda names: storage.move(*names), zip(paths, archived, strict=True)))
    assert [entry.size for entry in storage.list("Files/T/archive")] == [len(path) for path in paths]
    assert [entry.name for entry in storage.list("Files/T")] == ["archive"]
