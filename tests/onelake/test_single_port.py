"""One port for everything: clients that are given an address, the proxy, and the page."""

from __future__ import annotations

import json
import ssl
import time
from urllib.parse import urlencode

import pytest
import requests
from azure.identity import ClientSecretCredential
from azure.storage.filedatalake import DataLakeServiceClient
from wire import ONELAKE, connected, exchange, request, rest_of, status_of

from mirror_engine.errors import UsageError
from mirror_engine.onelake import network
from mirror_engine.onelake.connection import Listening
from mirror_engine.onelake.options import ServerPlan
from mirror_engine.onelake.serving import CLIENT, TENANT, Server

pytestmark = pytest.mark.slow

TOKEN = "0123456789abcdef"  # noqa: S105 - a test's own
AUTHORIZED = f"Authorization: Bearer {TOKEN}"
ITEM = "Mirror.MountedRelationalDatabase"
STORAGE_VERSION = "x-ms-version: 2021-06-08"


class OnePort:
    """A running emulator with one port, and what a client needs to know of it."""

    def __init__(self, server, rejected):
        self.connection, self.rejected = server.connection, rejected
        self.http, self.https = server.connection.http, server.connection.https
        self.port = int(self.http.rpartition(":")[2])
        self.ca = server.connection.environment["NODE_EXTRA_CA_CERTS"]

    def asks(self, target, *headers, method="GET", host="localhost", body=b""):
        length = [f"Content-Length: {len(body)}"] if body else []
        return exchange(self.port, request(method, target, host, *headers, *length, body=body))

    def secure(self, plain, name):
        return ssl.create_default_context(cafile=self.ca).wrap_socket(plain, server_hostname=name)


def one_port(store, **listening):
    rejected = []
    plan = ServerPlan(store, has_engines=False, listening=Listening(is_single_port=True, **listening))
    return Server(plan, on_error=pytest.fail, on_rejected=rejected.append), rejected


@pytest.fixture(scope="module")
def emulator(tmp_path_factory):
    server, rejected = one_port(tmp_path_factory.mktemp("one"), names=("emulator", "ci.example.org"))
    with server:
        yield OnePort(server, rejected)


@pytest.fixture(scope="module")
def locked(tmp_path_factory):
    server, rejected = one_port(
        tmp_path_factory.mktemp("locked"),
        address="0.0.0.0",  # noqa: S104 - what is tested
        allow_remote=True,
        token=TOKEN,
    )
    with server:
        yield OnePort(server, rejected)


@pytest.fixture(scope="module")
def credential(emulator):
    return ClientSecretCredential(
        TENANT,
        CLIENT,
        "x",
        authority=emulator.https,
        disable_instance_discovery=True,
        connection_verify=emulator.ca,
    )


def test_a_storage_client_takes_the_address_and_entra_s(emulator, credential):
    lake = DataLakeServiceClient(emulator.https, credential, connection_verify=emulator.ca)
    file = lake.get_file_system_client("Workspace").get_file_client(f"{ITEM}/Files/LandingZone/T/1.csv")
    file.upload_data(b"a,b\r\n", overwrite=True)
    assert file.download_file().readall() == b"a,b\r\n"


def test_fabric_s_api_takes_the_address_and_its_operations_stay_there(emulator, credential):
    bearer = {"Authorization": f"Bearer {credential.get_token('https://api.fabric.microsoft.com/.default').token}"}
    base = f"{emulator.https}/v1/workspaces"
    session = requests.Session()
    session.verify, session.trust_env = emulator.ca, False
    workspace = session.get(base, headers=bearer, timeout=10).json()["value"][0]["id"]
    created = {"displayName": "Other", "type": "MirroredDatabase"}
    begun = session.post(f"{base}/{workspace}/items", json=created, headers=bearer, timeout=10)
    assert begun.status_code == 202
    assert begun.headers["Location"].startswith(f"{emulator.https}/v1/operations/")
    assert session.get(begun.headers["Location"], headers=bearer, timeout=10).json()["status"] == "Running"


def test_entra_names_its_own_address(emulator):
    answer = emulator.asks("/t/v2.0/.well-known/openid-configuration")
    document = json.loads(answer.partition(b"\r\n\r\n")[2])
    assert document["token_endpoint"] == "http://localhost/t/oauth2/v2.0/token"  # noqa: S105 - a URL
    answer = emulator.asks("/t/v2.0/.well-known/openid-configuration", host="login.microsoftonline.com")
    assert b"https://login.microsoftonline.com/t/oauth2/v2.0/token" in answer


@pytest.mark.parametrize(
    ("target", "marker"), [("/", b"<html"), ("/metrics", b"mirror_engine_"), ("/readyz", b"ready")]
)
def test_the_page_is_there(emulator, target, marker):
    answer = emulator.asks(target)
    assert status_of(answer) == 200
    assert marker in answer


def test_production_s_names_are_theirs_alone_whatever_the_path(emulator):
    token = urlencode({"grant_type": "client_credentials"}).encode()
    for host, target, body, status in (
        ("api.fabric.microsoft.com", "/v1/workspaces", b"", 200),
        ("api.fabric.microsoft.com", "/metrics", b"", 404),
        ("login.microsoft.com", "/t/oauth2/v2.0/token", token, 200),
        ("login.microsoft.com", "/v1/workspaces", b"", 404),
        (ONELAKE, "/metrics", b"", 404),
        (ONELAKE, "/v1/workspaces", b"", 404),
        (ONELAKE, "/t/oauth2/v2.0/token", token, 405),
    ):
        answer = emulator.asks(target, method="POST" if body else "GET", host=host, body=body)
        assert status_of(answer) == status, (host, target)


@pytest.mark.parametrize(
    ("target", "headers"),
    [
        ("/metrics?resource=filesystem&recursive=false", ()),
        ("/tables/x", (STORAGE_VERSION,)),
        ("/?comp=list", ()),
        ("/assets?restype=container", ()),
    ],
)
def test_storage_requests_are_no_page_s(emulator, target, headers):
    assert b"x-ms-request-id" in emulator.asks(target, *headers)
    assert b"x-ms-request-id" in emulator.asks(target.partition("?")[0], method="DELETE")  # the page is for reading


def test_the_proxy_is_there(emulator):
    plain = connected(emulator.port)
    plain.sendall(f"CONNECT {ONELAKE}:443 HTTP/1.1\r\nHost: {ONELAKE}:443\r\n\r\n".encode())
    assert status_of(plain.recv(65536)) == 200
    with emulator.secure(plain, ONELAKE) as secure:
        secure.sendall(request("HEAD", f"/Workspace/{ITEM}/Files/LandingZone", ONELAKE))
        assert status_of(rest_of(secure)) == 200
    refused = exchange(emulator.port, b"CONNECT example.com:443 HTTP/1.1\r\nHost: example.com:443\r\n\r\n")
    assert status_of(refused) == 403


@pytest.mark.parametrize("name", ["localhost", "127.0.0.1", "emulator", "ci.example.org", ONELAKE])
def test_the_certificate_has_the_names_that_were_given(emulator, name):
    with emulator.secure(connected(emulator.port), name) as secure:
        assert secure.version()


@pytest.mark.parametrize("name", ["", "two words", "-x", "a_b", "*.example.org", "a" * 64, "example.org:443"])
def test_what_is_no_host_name_is_refused(name):
    with pytest.raises(UsageError, match="not a host name"):
        Listening(names=(name,))


def test_a_connection_that_says_nothing_is_closed_and_one_that_dribbles_is_understood(emulator, monkeypatch):
    with connected(emulator.port) as slow:
        for byte in request("GET", "/healthz"):
            slow.sendall(bytes([byte]))
        assert status_of(rest_of(slow)) == 200
    monkeypatch.setattr(network, "HEAD_SECONDS", 0.2)
    started = time.monotonic()
    with connected(emulator.port) as silent:
        assert rest_of(silent) == b""
    assert time.monotonic() - started < 5
    with connected(emulator.port):
        pass  # and one that says nothing at all
    assert status_of(emulator.asks("/healthz")) == 200


def test_a_token_is_asked_for_by_all_but_entra(locked):
    for target in ("/", "/metrics", "/readyz", "/v1/workspaces", f"/Workspace/{ITEM}/Files", "/t/oauth2/v2.0"):
        assert status_of(locked.asks(target)) == 401, target
        assert status_of(locked.asks(target, AUTHORIZED)) in {200, 400, 404}, target
    for secret, status in ((TOKEN, 200), ("x", 401)):
        body = urlencode({"grant_type": "client_credentials", "client_secret": secret}).encode()
        answer = locked.asks("/t/oauth2/v2.0/token", method="POST", body=body)
        assert status_of(answer) == status


@pytest.mark.parametrize(
    "target",
    [
        f"/Workspace/{ITEM}/Files/LandingZone/oauth2/token",
        "/Workspace%2Foauth2%2Ftoken/x",
        "/Workspace/oauth2/token/",
        "/Workspace/v2.0/.well-known/openid-configuration/x",
        "/common/discovery/instance/..%2f..%2fWorkspace",
    ],
)
@pytest.mark.parametrize("method", ["GET", "PUT", "POST", "DELETE"])
def test_entra_s_paths_open_nothing_but_entra(locked, target, method):
    answer = locked.asks(target, method=method)
    assert status_of(answer) in {400, 401, 404, 405, 307}
    assert b"x-ms-request-id" not in answer or status_of(answer) == 401


def test_http_leaves_the_loopback_with_the_token_only(locked):
    """Linux takes all of 127/8 for its own."""
    for header, status in (("X: nothing", 401), (AUTHORIZED, 200)):
        with connected(locked.port, "127.0.0.2") as connection:
            connection.sendall(request("GET", "/metrics", "builder:1", header))
            assert status_of(rest_of(connection)) == status


def test_without_it_paths_are_onelake_s_but_for_the_page_s_on_http(tmp_path):
    with Server(ServerPlan(tmp_path, has_engines=False), on_error=pytest.fail) as server:
        port = int(server.connection.http.rpartition(":")[2])
        for target in ("/v1/workspaces", "/t/oauth2/v2.0/token", "/metrics?comp=list", "*"):
            assert b"x-ms-request-id" in exchange(port, request("GET", target))
        ca = server.connection.environment["NODE_EXTRA_CA_CERTS"]
        assert "x-ms-request-id" in requests.get(f"{server.connection.https}/metrics", verify=ca, timeout=10).headers
