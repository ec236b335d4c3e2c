"""What a user reads whose URL, credential or permission is wrong."""

from __future__ import annotations

import os
import re
import tempfile
import threading
import time
from dataclasses import replace
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit

import pytest
from store_publisher import StorePublisher

from mirror_engine.cli.main import main
from mirror_engine.engine import run
from mirror_engine.errors import MirrorError
from mirror_engine.landing_zone.layout import ZONE
from mirror_engine.onelake.faults import parse_fault
from mirror_engine.storage import datalake, stores
from mirror_engine.storage.object_store import ObjectStorage
from mirror_engine.storage.remote import Requests
from mirror_engine.storage.store_url import StoreUrl
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


class Telling(BaseHTTPRequestHandler):
    """Passes requests on, but for those to `refused` paths: these are answered with all that the client sent."""

    protocol_version = "HTTP/1.1"
    target = refused = status = ""

    def answer(self):
        body = self.rfile.read(int(self.headers["Content-Length"] or 0))
        if re.search(self.refused, self.path):
            words = f"{self.requestline} {self.headers.as_string()}".replace("\r", "").replace("\n", " ")
            code, headers = self.status, {"x-ms-error-code": "AuthenticationFailed"}
            body = f"<Error><Code>AuthenticationFailed</Code><Message>{words}</Message></Error>".encode()
        else:
            connection = HTTPConnection(urlsplit(self.target).netloc)
            connection.request(self.command, self.path, body, dict(self.headers))
            found = connection.getresponse()
            code, headers, body = found.status, dict(found.getheaders()), found.read()
            connection.close()
        self.send_response(code)
        length = headers.pop("content-length", len(body)) if self.command == "HEAD" else len(body)
        for name, text in headers.items():
            if name.lower() not in {"content-length", "transfer-encoding", "connection", "date", "server"}:
                self.send_header(name, text)
        self.send_header("Content-Length", str(length))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    do_GET = do_HEAD = do_PUT = do_PATCH = do_POST = do_DELETE = answer  # noqa: N815 - as the base class wants it

    def log_message(self, *_):
        pass


@pytest.fixture
def telling(adls_server, monkeypatch):
    """The emulator behind a server that tells what it was sent."""
    with adls_server.in_use():
        handler = type("Handler", (Telling,), {"target": os.environ["AZURE_STORAGE_ENDPOINT"], "refused": "^$"})
        with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
            thread = threading.Thread(target=server.serve_forever)
            thread.start()
            monkeypatch.setenv("AZURE_STORAGE_ENDPOINT", f"http://127.0.0.1:{server.server_port}")
            yield handler
            server.shutdown()
            thread.join()


class Commands:
    """Commands with a planted credential, and what they printed."""

    def __init__(self, folder, capfd):
        self.printed, self._folder, self._capfd = "", folder, capfd

    def code(self, *words):
        code = main([*map(str, words), "-v"])
        self.printed += "".join(self._capfd.readouterr())
        return code

    def codes(self, root):
        return {
            self.code("sync", "--merge-engine", "deltalake", "-C", root),
            self.code("status", "-C", root),
            self.code("validate", root, "--json"),
            self.code("pull", root, self._folder / f"copy{len(self.printed)}"),
            self.code("compare", root, "--json"),
            self.code("history", "Orders", "-C", root),
        }


@pytest.fixture
def commands(tmp_path, adls_server, monkeypatch, capfd):
    """Runs commands; at the end no file and no output holds `planted`."""
    for folder in ("MIRROR_ENGINE_STATE", "MIRROR_ENGINE_CACHE", "HOME", "TMPDIR"):
        monkeypatch.setenv(folder, str(tmp_path / folder))
    (tmp_path / "TMPDIR").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", None)
    monkeypatch.setattr(stores, "TIMEOUT", stores.TIMEOUT / 60)
    monkeypatch.setattr(datalake, "RETRY_SECONDS", 0.5)
    monkeypatch.setattr(run, "MAX_SYNC_ATTEMPTS", 1)
    commands = Commands(tmp_path, capfd)
    yield commands
    assert "planted" not in commands.printed
    files = [path for folder in (tmp_path, adls_server.store) for path in folder.rglob("*") if path.is_file()]
    assert [path for path in files if b"planted" in path.read_bytes()] == []


def plant(server, monkeypatch, name, text):
    """A ROOT with a pending file, and a credential for it in the environment."""
    if name != "AZURE_CLIENT_SECRET":
        monkeypatch.delenv("AZURE_STORAGE_KEY", raising=False)
        monkeypatch.delenv("AZURE_CLIENT_SECRET", raising=False)
    monkeypatch.setenv(name, text)
    stores.azure_credential.cache_clear()
    root = server.new_root()
    orders = StorePublisher(root).table("Orders", keys=["Id"], types={"Id": "int64"})
    orders.upsert({"Id": 1})
    return root, orders


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("AZURE_STORAGE_SAS_TOKEN", "?sv=2024-11-04&ss=bf&srt=sco&sp=rwdlc&sig=plantedSas%2BplantedSas%3D"),
        ("AZURE_STORAGE_KEY", "plantedKeyplantedKeyplantedKeyplantedKey"),
    ],
)
def test_a_key_and_a_sas_are_in_requests_alone(request, commands, name, text, monkeypatch):
    telling, adls_server = request.getfixturevalue("telling"), request.getfixturevalue("adls_server")
    root, orders = plant(adls_server, monkeypatch, name, text)
    assert commands.codes(root) == {0}, commands.printed
    orders.upsert({"Id": 2})
    telling.refused, telling.status = r"_delta_log/\d+\.json", 404
    assert commands.code("compare", root) == 4, commands.printed
    telling.refused = ""
    for telling.status in (401, 403):
        assert commands.codes(root) == {4}, commands.printed
    monkeypatch.setenv("AZURE_STORAGE_ENDPOINT", "http://127.0.0.1:9")
    assert commands.code("status", "-C", root) == 4, commands.printed


@pytest.mark.parametrize(
    ("name", "text"), [("AZURE_STORAGE_TOKEN", "plantedToken"), ("AZURE_CLIENT_SECRET", "planted")]
)
def test_a_token_and_a_secret_are_in_requests_alone(request, commands, name, text, monkeypatch):
    emulator, onelake_server = request.getfixturevalue("emulator"), request.getfixturevalue("onelake_server")
    with onelake_server.in_use():
        root, _ = plant(onelake_server, monkeypatch, name, text)
        assert commands.codes(root) == {0}, commands.printed
        monkeypatch.setattr(emulator.plan.options, "faults", [parse_fault("token_expired count=all")])
        assert commands.codes(root) == {4}, commands.printed


def test_secrets_of_s3_are_in_requests_alone(telling, commands, monkeypatch):
    monkeypatch.setenv("AWS_ENDPOINT_URL", os.environ["AZURE_STORAGE_ENDPOINT"])
    monkeypatch.setenv("AWS_ALLOW_HTTP", "true")
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"):
        monkeypatch.setenv(name, "planted")
    telling.refused, telling.status = "", 403
    assert commands.codes(StoreUrl("s3", "bucket", "", "shop")) == {4}, commands.printed
