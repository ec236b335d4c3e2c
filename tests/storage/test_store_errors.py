"""What a user reads whose URL, credential or permission is wrong."""

from __future__ import annotations

import os
import time
from dataclasses import replace

import pytest

from mirror_engine.errors import MirrorError
from mirror_engine.landing_zone.layout import ZONE
from mirror_engine.storage import stores
from mirror_engine.storage.object_store import ObjectStorage
from mirror_engine.storage.remote import Requests
from mirror_engine.storage.stores import deltalake_options, object_store, open_storage

pytestmark = pytest.mark.slow

CALLS = {
    "list": lambda storage: storage.list(ZONE),
    "stat": lambda storage: storage.stat(ZONE),
    "open": lambda storage: storage.open(f"{ZONE}/1.csv"),
    "write": lambda storage: storage.write(f"{ZONE}/1.csv", b"x"),
    "scan": lambda storage: storage.scan(ZONE),
}


def check(message, call):
    """The call fails soon, in one line and with help."""
    begun = time.monotonic()
    with pytest.raises(MirrorError, match=message) as problem:
        call()
    assert "\n" not in problem.value.message
    assert problem.value.help
    assert time.monotonic() - begun < 5


@pytest.mark.parametrize("call", CALLS)
def test_onelake(onelake_server, call):
    with onelake_server.in_use():
        root = onelake_server.new_root()
        for url, message in [
            (replace(root, container="Nothing"), "^abfss://Nothing@onelake.*: there is no such workspace: Nothing\n"),
            (
                replace(root, path="Nothing.MountedRelationalDatabase"),
                "/Nothing.MountedRe.*: there is no such item: Nothing.Mounted.*\n",
            ),
            (replace(root, path=root.name.partition(".")[0]), "there is no such item: .*\n.*with its type"),
        ]:
            check(message, lambda url=url: CALLS[call](open_storage(url)))


def test_azure_without_a_credential(onelake_server, monkeypatch, capfd):
    with onelake_server.in_use():
        root = onelake_server.new_root()
        for name in tuple(os.environ):
            if name.startswith("AZURE_"):
                monkeypatch.delenv(name)
        monkeypatch.setenv("PATH", "")
        stores.azure_credential.cache_clear()
        message = f"^{root}: no credential was found\n  -> Run az login"
        check(message, lambda: open_storage(root).list(""))
        check(message, lambda: deltalake_options(root))
        check(message, lambda: ObjectStorage(root, object_store(root), Requests()).list(""))
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize(
    ("server", "environment", "change", "message"),
    [
        ("s3_server", {}, {"container": "nothing"}, "^s3://nothing/.*: there is no such bucket: nothing\n"),
        ("s3_server", {"AWS_SECRET_ACCESS_KEY": "wrong"}, {}, "the credential is not accepted|has no permission"),
        ("azurite", {}, {"container": "nothing"}, "^az://nothing@.*: there is no such container: nothing\n"),
        ("azurite", {"AZURE_STORAGE_KEY": "d3Jvbmc="}, {}, "check the key or SAS|has no permission"),
        ("azurite", {"AZURE_STORAGE_KEY": "no base 64"}, {}, "a wrong form"),
    ],
)
def test_other_stores(request, server, environment, change, message, call, monkeypatch):  # noqa: PLR0913, PLR0917
    server = request.getfixturevalue(server)
    with server.in_use():
        for name, text in environment.items():
            monkeypatch.setenv(name, text)
        check(message, lambda: CALLS[call](open_storage(replace(server.new_root(), **change))))


def test_a_store_that_is_not_there(s3_server, monkeypatch):
    monkeypatch.setattr(stores, "TIMEOUT", stores.TIMEOUT / 60)
    with s3_server.in_use():
        monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
        check("^s3://.*: the store cannot be reached\n", lambda: open_storage(s3_server.new_root()).list(""))
