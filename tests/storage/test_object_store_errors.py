"""What object stores answer between two requests of one call: only a call that asks for a condition loses one."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from obstore.exceptions import AlreadyExistsError, GenericError, PreconditionError
from obstore.store import MemoryStore

from mirror_engine.errors import StorageUnavailable
from mirror_engine.storage.object_store import ConditionalFile, ObjectStorage
from mirror_engine.storage.requests import Requests
from mirror_engine.storage.s3_store import S3Url

URL = S3Url("bucket", "", "root")
TEXT = "Error performing PUT http://127.0.0.1/a - Server returned non-2xx status code: 409 Conflict: "


def storage(**calls):
    """A storage whose store has one file, and some calls of its own."""
    memory = MemoryStore()
    memory.put("a/1", b"x")
    names = ("put", "get", "head", "copy", "delete", "list", "list_with_delimiter")
    store = SimpleNamespace(**{name: getattr(memory, name) for name in names} | calls)
    return ObjectStorage(URL, store, Requests())


def refused(error):
    def call(*_, **__):
        raise error

    return call


@pytest.mark.parametrize("error", [AlreadyExistsError(TEXT), PreconditionError(TEXT)])
@pytest.mark.parametrize(
    ("name", "call"),
    [
        ("put", lambda store: store.write("a/1", b"y")),
        ("head", lambda store: store.stat("a/1")),
        ("copy", lambda store: store.move("a/1", "b/1")),
        ("list_with_delimiter", lambda store: store.list("a")),
    ],
)
def test_a_conflict_of_a_call_without_a_condition_is_the_stores(name, call, error):
    with pytest.raises(StorageUnavailable):
        call(storage(**{name: refused(error)}))


def test_a_place_that_is_absent_cannot_be_written():
    with pytest.raises(StorageUnavailable):
        storage(put=refused(FileNotFoundError(TEXT))).write("a/1", b"y")


def test_a_source_that_goes_while_it_is_moved_was_moved_or_removed():
    store = storage(copy=refused(FileNotFoundError("404")))
    entry = store.stat("a/1")
    assert store.move("a/1", "b/1")
    assert not store.move("a/1", "b/1", entry)
    store.write("b/1", b"x")
    assert store.move("a/1", "b/1", entry)


def test_a_list_that_breaks_off_is_not_taken_for_whole():
    def pages(*_, **__):
        yield MemoryStore().list_with_delimiter()["objects"]
        raise FileNotFoundError("404")

    with pytest.raises(StorageUnavailable):
        list(storage(list=pages).pages("a", ""))


def test_conditional_write_that_fails_is_no_lost_condition():
    failed = SimpleNamespace(put=refused(GenericError("Error performing PUT - connection closed")))
    with pytest.raises(StorageUnavailable):
        ConditionalFile(failed, "lease", URL).write(b"1", None)
    other = SimpleNamespace(put=refused(AlreadyExistsError(TEXT)))
    assert ConditionalFile(other, "lease", URL).write(b"1", None) is None
