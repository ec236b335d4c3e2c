"""A store that throttles, loses answers, shows new names late and lets tokens expire."""

from __future__ import annotations

import contextlib
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import timedelta
from fnmatch import fnmatchcase
from unittest.mock import patch

import pytest
from faulty_onelake import ZONE, faulty
from memory_storage import read
from store_servers import alone

from mirror_engine.errors import StorageUnavailable
from mirror_engine.onelake.store import LocalStore
from mirror_engine.storage import store_url
from mirror_engine.storage.azure_stores import BlobUrl, DatalakeUrl
from mirror_engine.storage.remote import FIRST_BYTES
from mirror_engine.storage.requests import Requests
from mirror_engine.storage.stores import open_storage

pytestmark = pytest.mark.slow


@contextmanager
def late_lists(matching):
    """Within it, the emulator's lists show no file written in it whose path in the store matches."""
    begun, list_entries = time.time_ns(), LocalStore.entries

    def entries(self, folder, is_due):
        def is_shown(entry):
            return entry.modified_ns < begun or not fnmatchcase(f"{folder}/{entry.name}", matching)

        found = list_entries(self, folder, is_due)
        return found and filter(is_shown, found)

    with patch.object(LocalStore, "entries", entries):
        yield


DFS = DatalakeUrl("shop", "onelake.dfs.fabric.microsoft.com", "orders/Files/LandingZone")
BLOB = BlobUrl("shop", "onelake.blob.core.windows.net", "orders/Files/LandingZone")


@pytest.fixture(params=[DFS, BLOB], ids=["DFS", "Blob"])
def failing_store(request, tmp_path, monkeypatch):
    """Opens a storage on an emulator with faults; its requests are counted."""
    with contextlib.ExitStack() as opened:

        def make(*faults):
            client = opened.enter_context(faulty(tmp_path, *faults))
            client.lake.options.blob_batch = "accept"
            address = f"http://127.0.0.1:{client.port}"
            alone(monkeypatch, AZURE_STORAGE_ENDPOINT=address, AZURE_SKIP_SIGNATURE="true")
            requests, client.url = Requests(), request.param
            return open_storage(request.param, requests), client, requests

        yield make


def work(storage):
    storage.write("T/1", b"one")
    storage.write("T/1", b"ONE")
    storage.write("T/2", b"two")
    assert storage.move("T/1", "T/done/1", storage.stat("T/1"))
    storage.delete("T/2")
    return (
        [entry.name for entry in storage.list("T")],
        read(storage, "T/done/1"),
        storage.scan("T").list("T/done")[0].name,
    )


CHANGES, READS = ("put", "copy", "rename", "delete", "folder"), ("list", "read", "head")
FAULTS = [
    *(("lost_response", operation) for operation in CHANGES),
    *(("lost_request", each) for each in (*CHANGES, *READS)),
    *(("throttle retry-after=1", each) for each in ("put", "list")),
]


@pytest.mark.parametrize(("fault", "operation"), FAULTS)
def test_a_request_that_fails_is_repeated(failing_store, operation, fault):
    storage, _, _ = failing_store(f"{fault} operation={operation} nth=1")
    assert work(storage) == (["done"], b"ONE", "1")


@pytest.mark.parametrize("status", [429, 503])
def test_azure_is_asked_again_when_it_says(failing_store, status):
    storage, client, requests = failing_store(f"throttle status={status} retry-after=2 operation=list count=1")
    if storage.__class__.__name__ == "ObjectStorage":
        pytest.skip("obstore does not read Retry-After; it waits longer from try to try")
    begun = time.monotonic()
    assert [entry.name for entry in storage.list("")] == ["Orders"]
    assert time.monotonic() - begun >= 2
    assert (requests.by_kind(), len(client.reported)) == ({"list": 2}, 1)


def test_a_store_that_stays_busy_is_said_to_be(failing_store, monkeypatch):
    monkeypatch.setattr(store_url, "TIMEOUT", timedelta(seconds=1))
    for status, words in ((503, "busy"), (429, "fewer requests")):
        storage, _, _ = failing_store(f"throttle status={status} retry-after=1 count=all")
        with pytest.raises(StorageUnavailable, match=f"Orders: cannot list it: the store .*{words}"):
            storage.list("Orders")


def test_a_token_that_expired_is_one_line(failing_store):
    storage, _, _ = failing_store("token_expired operation=list count=1")
    with pytest.raises(StorageUnavailable, match="the credential is not accepted"):
        storage.list("Orders")
    assert storage.list("Orders") is not None or storage.list("") is not None


def test_a_new_name_that_lists_show_late_is_listed_later(failing_store):
    storage, _, _ = failing_store()
    with late_lists("*/2.csv"):
        for number in (1, 2, 3):
            storage.write(f"Orders/{number}.csv", b"x")
        assert [entry.name for entry in storage.scan("Orders").list("Orders")] == ["1.csv", "3.csv"]
    assert [entry.name for entry in storage.scan("Orders").list("Orders")] == ["1.csv", "2.csv", "3.csv"]


def test_a_file_that_is_replaced_while_it_is_read_is_never_mixed(failing_store):
    storage, client, _ = failing_store()
    content = bytes(3 * FIRST_BYTES)
    storage.write("Orders/1.csv", content)
    with storage.open("Orders/1.csv") as file:
        assert file.read(10) == content[:10]
        client.upload(f"{ZONE}/Orders/1.csv", b"other" * FIRST_BYTES)
        file.seek(2 * FIRST_BYTES)
        with pytest.raises(StorageUnavailable, match="replaced meanwhile"):
            file.read(10)
    with storage.open("Orders/1.csv") as file:
        storage.delete("Orders/1.csv")
        file.seek(2 * FIRST_BYTES)
        with pytest.raises(StorageUnavailable, match="replaced meanwhile"):
            file.read(10)


def test_a_deletion_that_ends_a_move_leaves_what_replaced_the_file(failing_store):
    storage, _, _ = failing_store("slow_delete seconds=1 path=*/1.csv")
    storage.write("Orders/1.csv", b"old")
    with ThreadPoolExecutor(1) as moving:
        moving.submit(storage.move, "Orders/1.csv", "Orders/2.csv")
        time.sleep(0.5)  # it was copied
        storage.write("Orders/1.csv", b"new")
    assert read(storage, "Orders/1.csv") == b"new"
