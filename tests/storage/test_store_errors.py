"""What a user reads whose URL, credential or permission is wrong."""

from __future__ import annotations

import gc
import tempfile
import threading
import time
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import product

import pytest
from store_publisher import StorePublisher
from store_servers import alone

from mirror_engine.cli.main import main
from mirror_engine.engine import cycle
from mirror_engine.errors import MirrorError
from mirror_engine.landing_zone.layout import ZONE
from mirror_engine.onelake.authority import create_authority
from mirror_engine.onelake.faults import parse_fault
from mirror_engine.storage import store_url
from mirror_engine.storage.object_store import ObjectStorage
from mirror_engine.storage.requests import Requests
from mirror_engine.storage.s3_store import S3Url
from mirror_engine.storage.stores import STORES, open_storage
from mirror_engine.tables.log.log_errors import reading_log
from mirror_engine.tables.log.table_path import StorePath

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
        alone(monkeypatch, PATH="")
        message = f"^{root}: no credential was found\n  -> Run az login"
        check(message, lambda: open_storage(root).list(""))
        check(message, root.deltalake_options)
        check(message, lambda: ObjectStorage(root, root.object_store(), Requests()).list(""))
        assert capfd.readouterr() == ("", "")
        assert [main([*words.split(), "-C", str(root)]) for words in ("sync --merge-engine arrow", "status")] == [1, 1]


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
def test_other_stores(request, server, environment, change, message, monkeypatch):  # noqa: PLR0913, PLR0917
    server = request.getfixturevalue(server)
    with server.in_use():
        for name, text in environment.items():
            monkeypatch.setenv(name, text)
        for call in CALLS.values() if server.name == "S3" and change else [CALLS["list"]]:
            check(message, lambda call=call: call(open_storage(replace(server.new_root(), **change))))


def test_a_store_that_is_not_there(s3_server, monkeypatch):
    monkeypatch.setattr(store_url, "TIMEOUT", store_url.TIMEOUT / 60)
    with s3_server.in_use():
        monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
        check("^s3://.*: the store cannot be reached\n", lambda: open_storage(s3_server.new_root()).list(""))


class Telling(BaseHTTPRequestHandler):
    """Refuses every request, and quotes it."""

    protocol_version = "HTTP/1.1"

    def answer(self):
        self.rfile.read(int(self.headers["Content-Length"] or 0))
        sent = " ".join(f"{self.requestline} {self.headers}".split())
        body = f"<Error><Code>AuthenticationFailed</Code><Message>{sent}</Message></Error>".encode()
        self.send_response(403)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(b"" if self.command == "HEAD" else body)

    def do_GET(self):
        self.answer()

    do_HEAD = do_PUT = do_PATCH = do_POST = do_DELETE = do_GET  # noqa: N815 - as the base class wants it

    def log_message(self, *_):
        pass


@pytest.fixture
def codes(tmp_path, emulator, monkeypatch, capfd, caplog):
    """Exit codes of commands; at the end no output, log, file of this machine or of the store holds `planted`."""
    for folder in ("MIRROR_ENGINE_STATE", "MIRROR_ENGINE_CACHE", "HOME", "TMPDIR"):
        monkeypatch.setenv(folder, str(tmp_path / folder))
    (tmp_path / "TMPDIR").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", None)
    monkeypatch.setattr(cycle, "MAX_SYNC_ATTEMPTS", 1)
    caplog.set_level("DEBUG", "urllib3")
    printed = ""

    def codes(root):
        nonlocal printed
        codes, pull, history = set(), f"pull {root} {tmp_path}/copy{len(printed)}", f"history Orders -C {root}"
        first = (f"sync --merge-engine arrow -C {root}", f"status -C {root}")
        for words in (*first, f"validate {root} --json", pull, f"compare {root} --json", history):
            codes.add(main([*words.split(), "-v"]))
            printed += "".join(capfd.readouterr()) + caplog.text
        return codes

    yield codes
    assert "planted" not in printed
    files = [path for folder in (tmp_path, emulator.plan.store) for path in folder.rglob("*") if path.is_file()]
    assert [path for path in files if b"planted" in path.read_bytes()] == []


class Portal(Telling):
    """Answers every request as the login page of a network does."""

    def answer(self):
        self.rfile.read(int(self.headers["Content-Length"] or 0))
        self.send_response(200)
        self.send_header("Content-Length", "6")
        self.end_headers()
        self.wfile.write(b"" if self.command == "HEAD" else b"<html>")


@pytest.fixture
def telling(request):
    """The address of a server that quotes what it refuses, or of another."""
    with ThreadingHTTPServer(("127.0.0.1", 0), getattr(request, "param", Telling)) as server:
        thread = threading.Thread(target=server.serve_forever, args=[0.01])
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()
    gc.collect()  # closes connections of clients that are gone


@pytest.mark.parametrize(
    "planted",
    [
        (
            "adls_server",
            "AZURE_STORAGE_SAS_TOKEN",
            "?sv=2024-11-04&ss=bf&srt=sco&sp=rwdlc&sig=plantedSas%2BplantedS%3D",
        ),
        ("adls_server", "AZURE_STORAGE_KEY", "plantedKeyplantedKeyplantedKeyplantedKey"),
        ("onelake_server", "AZURE_STORAGE_TOKEN", "plantedToken"),
        ("onelake_server", "AZURE_CLIENT_SECRET", "planted"),
    ],
)
def test_a_credential_of_azure_is_in_requests_alone(request, emulator, codes, planted, monkeypatch):
    server, name, text = planted
    server, telling = request.getfixturevalue(server), request.getfixturevalue("telling")
    with server.in_use():
        monkeypatch.delenv("AZURE_STORAGE_KEY", raising=False)
        monkeypatch.setenv(name, text)
        root = server.new_root()
        StorePublisher(root).table("Orders", keys=["Id"], types={"Id": "int64"}).upsert({"Id": 1})
        assert codes(root) == {0}
        if server.name == "OneLake":
            monkeypatch.setattr(emulator.plan.options, "faults", [parse_fault("token_expired count=all")])
        else:
            monkeypatch.setenv("AZURE_STORAGE_ENDPOINT", telling)
        assert codes(root) == {1}


@pytest.fixture
def telling_s3(telling, monkeypatch):
    monkeypatch.setenv("AWS_ENDPOINT_URL", telling)
    monkeypatch.setenv("AWS_ALLOW_HTTP", "true")
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"):
        monkeypatch.setenv(name, "planted")
    return S3Url("bucket", "", "shop")


@pytest.fixture
def deletions(monkeypatch):
    """Makes the telling server answer each deletion so: status, code, or nothing; gives their conditions."""

    def play(*answers):
        def answer(self):
            status, code = answers[min(len(asked), len(answers) - 1)]
            asked.append(self.headers["If-Match"])
            if not status:
                self.close_connection = True
                return
            body = b"" if status == 204 else f"<Error><Code>{code}</Code></Error>".encode()
            self.send_response(status)
            for name, text in (("Location", "/login"), ("Retry-After", "60"), ("Content-Length", str(len(body)))):
                self.send_header(name, text)
            self.end_headers()
            self.wfile.write(body)

        monkeypatch.setattr(Telling, "do_DELETE", answer)
        return asked

    asked = []
    return play


def test_a_credential_of_s3_is_in_requests_alone(telling_s3, codes):
    assert codes(telling_s3) == {1}


@pytest.mark.parametrize(
    ("status", "code", "message"),
    [
        (403, "AuthenticationFailed", "^s3://.*: the credential is not accepted"),
        (404, "NoSuchBucket", "^s3://.*: there is no such bucket: bucket"),
        (301, "PermanentRedirect", "^s3://.*: the bucket is in another region"),
        (302, "", "^1.csv: cannot delete it: the store answers 302"),
        (200, "", "^1.csv: cannot delete it: the store answers 200"),  # a login page
        (0, "", "^s3://.*: the store cannot be reached"),
    ],
)
def test_a_deletion_in_s3_that_is_refused_says_why(telling_s3, deletions, status, code, message):
    asked = deletions((status, code), (status, code), (status, code), (204, ""))
    check(message, lambda: open_storage(telling_s3).remove("1.csv", "etag"))
    assert asked == ['"etag"'] * (1 if status else 3)


def test_delete_in_s3_store_without_conditional_deletes(telling_s3, deletions):
    asked = deletions((501, "NotImplemented"), (204, ""))
    open_storage(telling_s3).remove("1.csv", "etag")
    assert asked == ['"etag"', None]


def test_a_deletion_in_s3_is_asked_again_soon_and_no_log_has_its_signature(telling_s3, deletions, caplog):
    caplog.set_level("DEBUG")
    begun = time.monotonic()
    asked = deletions((0, ""), (503, "SlowDown"), (409, "ConditionalRequestConflict"), (204, ""))
    open_storage(telling_s3).remove("1.csv", "etag")
    assert len(asked) == 4
    assert time.monotonic() - begun < 5
    assert "planted" not in caplog.text


def test_without_a_credential_nothing_is_signed(telling_s3, monkeypatch):
    def answer(self):
        asked.append(self.path)
        self.answer()

    asked = []
    monkeypatch.setattr(Telling, "do_POST", answer)
    monkeypatch.setenv("AWS_SKIP_SIGNATURE", "true")
    with pytest.raises(MirrorError):
        open_storage(telling_s3).remove("1.csv", "etag")
    assert asked == ["/bucket?delete"]


def test_a_deletion_in_s3_trusts_the_authorities_that_all_requests_trust(telling_s3, deletions, tmp_path, monkeypatch):
    authority = create_authority(tmp_path / "authority")
    monkeypatch.setenv("SSL_CERT_FILE", str(authority.ca))
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(tmp_path / "of another program"))
    asked = deletions((204, ""))
    with ThreadingHTTPServer(("127.0.0.1", 0), Telling) as server:
        server.socket = authority.context().wrap_socket(server.socket, server_side=True)
        thread = threading.Thread(target=server.serve_forever, args=[0.01])
        thread.start()
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"https://127.0.0.1:{server.server_port}")
        try:
            check("the credential is not accepted", lambda: open_storage(telling_s3).list(""))
            open_storage(telling_s3).remove("1.csv", "etag")
        finally:
            server.shutdown()
            thread.join()
    assert asked == ['"etag"']


@pytest.mark.filterwarnings("ignore:.*<socket:pytest.PytestUnraisableExceptionWarning")  # Azure's library leaves one
@pytest.mark.parametrize("telling", [Portal], indirect=True)
@pytest.mark.parametrize(  # obstore reads whatever it is as an empty list of S3
    ("scheme", "call"), sorted({*product(["abfss", "az", "s3"], CALLS)} - {("s3", "list"), ("s3", "scan")})
)
def test_what_answers_without_the_headers_of_a_store_is_none(telling, scheme, call, monkeypatch):
    monkeypatch.setattr(store_url, "TIMEOUT", store_url.TIMEOUT / 60)
    azure = {"AZURE_STORAGE_ENDPOINT": telling, "AZURE_SKIP_SIGNATURE": "true"}
    alone(monkeypatch, **azure, AWS_ENDPOINT_URL=telling, AWS_SKIP_SIGNATURE="true")
    url = STORES[scheme]("c", "" if scheme == "s3" else "account.blob.core.windows.net", "shop")
    check("the store cannot be reached|answers 200", lambda: CALLS[call](open_storage(url)))


def test_a_credential_that_lacks_a_part(monkeypatch):
    alone(monkeypatch, AWS_SECRET_ACCESS_KEY="planted")  # noqa: S106 - it is none
    check("the credential .* has a wrong form or lacks a part", lambda: open_storage(S3Url("bucket", "")))


@pytest.mark.parametrize("scheme", ["abfss", "az"])
@pytest.mark.parametrize("token", ["", "planted"])
def test_a_token_is_sent_to_no_server_without_tls(scheme, token, monkeypatch):
    alone(monkeypatch, AZURE_STORAGE_ENDPOINT="http://127.0.0.1:9", AZURE_STORAGE_TOKEN=token)
    root = STORES[scheme]("c", "account.dfs.core.windows.net", "shop")
    for call in (open_storage, type(root).deltalake_options):
        check("http://127.0.0.1:9 has no TLS", lambda call=call: call(root))


def test_what_a_store_answered_to_deltalake_is_no_part_of_a_message():
    answer = "Object at location T not found: Error performing GET REDACTED - <Message>GET /T?sig=planted</Message>"
    with (
        pytest.raises(MirrorError, match="location T not found\n"),
        reading_log(StorePath(S3Url("b", ""), "T", None, None)),
    ):
        raise FileNotFoundError(answer)
