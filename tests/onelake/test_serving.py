"""A running emulator: default item, locking, connection info; on one port for everything, too."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import shlex
import ssl
import stat
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from urllib.parse import urlencode

import pytest
import requests
from azure.identity import ClientSecretCredential
from azure.storage.filedatalake import DataLakeServiceClient
from filelock import FileLock
from raw_http import ONELAKE, connected, exchange, request, rest_of, status_of

from mirror_engine.errors import RootLocked, TransientError, UsageError
from mirror_engine.landing_zone.layout import ZONE
from mirror_engine.onelake import connection, listeners
from mirror_engine.onelake.connection import Listening, StateFolder
from mirror_engine.onelake.options import ServerPlan
from mirror_engine.onelake.serving import CLIENT, TENANT, Server

pytestmark = pytest.mark.slow

TOKEN = "0123456789abcdef"  # noqa: S105 - a test's own


def served(store, **options):
    return Server(ServerPlan(store, has_engines=False, **options), on_error=pytest.fail)


class At:
    """What a client needs to know of a running emulator."""

    def __init__(self, server):
        self.https = server.connection.https
        self.port = int(server.connection.http.rpartition(":")[2])
        self.ca = server.connection.environment["NODE_EXTRA_CA_CERTS"]

    def asks(self, target="/", *headers, method="GET", host="localhost", body=b""):
        length = [f"Content-Length: {len(body)}"] if body else []
        return exchange(self.port, request(method, target, host, *headers, *length, body=body))

    def secure(self, plain, name):
        return ssl.create_default_context(cafile=self.ca).wrap_socket(plain, server_hostname=name)


def test_the_first_item_is_made_and_keeps_its_guids(tmp_path):
    store = tmp_path / "new" / "store"
    with served(store) as first:
        info = first.connection
    assert (store / "Workspace/Mirror" / ZONE).is_dir()
    (store / "Workspace/Other/folder").mkdir(parents=True)  # of a STORE that is known
    with served(store) as again:
        assert (again.connection.workspace_id, again.connection.item_id) == (info.workspace_id, info.item_id)
    with served(store, workspace="Sales", item="Orders") as other:
        assert (other.connection.workspace, other.connection.item) == ("Sales", "Orders")
        assert other.connection.item_id != info.item_id
    with served(store) as first:
        assert first.connection.workspace == "Sales"  # the first by name; no other item was created
    assert sorted(path.name for path in store.iterdir() if not path.name.startswith(".")) == ["Sales", "Workspace"]


def test_a_name_in_use_or_that_no_folder_may_have_is_a_usage_error(tmp_path):
    (tmp_path / "shop/orders").mkdir(parents=True)
    (tmp_path / "notes").write_text("no workspace")
    (tmp_path / "shop/list").write_text("no item")
    (tmp_path / "elsewhere").symlink_to(tmp_path / "shop")
    in_use = (("shop", "ORDERS"), ("Shop", "orders"), ("notes", "x"), ("shop", "list"), ("elsewhere", "orders"))
    names = [*in_use, *(("W", name) for name in (" ", ".", "..", "a/b", "a\\b", ".mirror-engine"))]
    for workspace, item in names:
        expected = "in use" if (workspace, item) in in_use else "--workspace"
        with pytest.raises(UsageError, match=expected), served(tmp_path, workspace=workspace, item=item):
            pass
    assert {path.name for path in tmp_path.iterdir()} == {"shop", "notes", "elsewhere", ".mirror-engine"}
    assert connection.running(tmp_path) is None  # and the STORE is free again


@pytest.mark.parametrize(
    ("folder", "named"),
    [(ZONE, ZONE), (f"Mirror/{ZONE}", ZONE), ("venv/lib/python3", "venv/lib is not a mirrored database")],
    ids=["a ROOT", "a workspace", "a project"],
)
def test_a_folder_that_is_no_store_is_left_alone(tmp_path, folder, named):
    (tmp_path / folder).mkdir(parents=True)
    with pytest.raises(UsageError, match=named), served(tmp_path):
        pass
    assert not (tmp_path / ".mirror-engine").exists()


def test_one_process_serves_a_store(tmp_path):
    with served(tmp_path) as first:
        with pytest.raises(RootLocked, match="already running"), served(tmp_path):
            pass
        assert connection.running(tmp_path) == first.connection
        assert status_of(At(first).asks()) != 0
    assert connection.running(tmp_path) is None
    assert not StateFolder(tmp_path).info.exists()


def test_what_is_private_is_its_owner_s_alone_and_outside_of_version_control(tmp_path):
    private = StateFolder(tmp_path)
    private.path.mkdir(mode=0o755)
    with served(tmp_path, listening=Listening(token=TOKEN)) as server:
        assert server.connection.environment["AZURE_CLIENT_SECRET"] == TOKEN
        reported = [private.path, private.tls, private.tls / "emulator.pem", private.info, private.exports]
        modes = [oct(stat.S_IMODE(path.stat().st_mode)) for path in reported]
        assert modes == ["0o700", "0o700", "0o600", "0o600", "0o600"]
    assert not private.exports.exists()
    assert (private.path / ".gitignore").read_text() == "*\n"


def test_an_emulator_without_connection_info_is_a_temporary_error(tmp_path, monkeypatch):
    monkeypatch.setattr(connection, "START_SECONDS", 0.1)
    with served(tmp_path):
        for left in ("{", '{"pid": 1}'):
            StateFolder(tmp_path).info.write_text(left)
            for ask in (connection.running, connection.stop):
                with pytest.raises(TransientError, match="connection info"):
                    ask(tmp_path)


def test_a_server_that_is_just_starting_or_ending_is_waited_for(tmp_path):
    with served(tmp_path) as server:
        info = json.dumps(server.connection.to_json())
    private = StateFolder(tmp_path)
    with ThreadPoolExecutor(1) as pool:
        with FileLock(private.lock):
            starting = pool.submit(connection.running, tmp_path)
            time.sleep(0.2)
            assert not starting.done()
            private.info.write_text(info)
            assert starting.result(10) == server.connection
            private.info.unlink()
            ending = pool.submit(connection.running, tmp_path)
            time.sleep(0.2)
            assert not ending.done()
        assert ending.result(10) is None


def test_a_shell_understands_the_lines_though_the_store_has_an_awkward_name(tmp_path):
    store = tmp_path / 'it\'s $HOME; "a store"'
    with served(store, has_fault_api=True) as server:
        script = "\n".join([str(server.connection), "env -0"])
        done = subprocess.run(
            ["/bin/sh", "-eu"], input=script.encode(), env={"PATH": "/usr/bin:/bin"}, capture_output=True, check=True
        )
        pasted = dict(pair.split("=", 1) for pair in done.stdout.decode().split("\0") if pair)
        around = server.connection.around({"PATH": "/usr/bin:/bin"})
        assert StateFolder(store).exports.read_text() == "".join(f"{each}\n" for each in server.connection.exports())
    assert {name: pasted[name] for name in around} == around
    assert around["PATH"] == os.pathsep.join([str(store / ".mirror-engine/bin"), "/usr/bin:/bin"])
    assert around["HTTPS_PROXY"] == around["https_proxy"]
    assert around["NO_PROXY"] == around["no_proxy"] == "localhost,127.0.0.1"
    bundles = {around[name] for name in ("REQUESTS_CA_BUNDLE", "SSL_CERT_FILE", "CURL_CA_BUNDLE")}
    assert bundles == {str(store / ".mirror-engine/tls/bundle.pem")}
    assert around["NODE_EXTRA_CA_CERTS"] == str(store / ".mirror-engine/tls/ca.pem")
    java = shlex.split(around["MIRROR_ENGINE_JAVA_OPTIONS"])
    assert java[-1] == f"-Djavax.net.ssl.trustStore={store}/.mirror-engine/tls/java.p12"
    assert around["AZURE_CLIENT_SECRET"] == "x"  # noqa: S105 - as documented
    assert {*connection.VARIABLES, "PATH"} == set(around)  # and `env --unset` removes them all


def test_the_page_is_at_the_address_of_http_and_counts_requests(tmp_path):
    with served(tmp_path, workspace="Sales", item="Orders") as server:
        assert server.connection.page == f"{server.connection.http}/"
        assert "/assets/page.js" in At(server).asks().decode()
        shown = json.loads(At(server).asks("/", "Accept: application/json").partition(b"\r\n\r\n")[2])["items"][0]
        assert [shown["workspace"], shown["mirror"]["last_heartbeat_at"]] == ["Sales", None]
        assert status_of(At(server).asks("/absent/x")) == 404
        assert b'requests_total{method="GET",status="404"} 1.0' in At(server).asks("/metrics")
        assert status_of(At(server).asks("/readyz")) == 200  # nothing is to be mirrored


def test_a_second_answer_on_a_connection_waits_for_no_acknowledgement(tmp_path):
    client = http.client.HTTPConnection("127.0.0.1", 0)

    def seconds():
        begun = time.perf_counter()
        client.request("GET", "/Workspace?resource=filesystem&recursive=false")
        client.getresponse().read()
        return time.perf_counter() - begun

    with served(tmp_path / "store") as server, contextlib.closing(client):
        client.port = At(server).port
        seconds()
        assert any(seconds() < 0.03 for _ in range(200))  # the client's system acknowledges after 0.04


AUTHORIZED = f"Authorization: Bearer {TOKEN}"
ITEM = "Mirror.MountedRelationalDatabase"
STORAGE_VERSION = "x-ms-version: 2021-06-08"


def one_port(folder, **listening):
    return served(folder, listening=Listening(is_single_port=True, **listening))


@pytest.fixture(scope="module")
def shared_port(tmp_path_factory):
    with one_port(tmp_path_factory.mktemp("one"), names=("emulator", "ci.example.org")) as server:
        yield At(server)


@pytest.fixture(scope="module")
def locked_port(tmp_path_factory):
    folder = tmp_path_factory.mktemp("locked")
    with one_port(folder, address="0.0.0.0", allow_remote=True, token=TOKEN) as server:  # noqa: S104 - what is tested
        yield At(server)


@pytest.fixture(scope="module")
def credential(shared_port):
    return ClientSecretCredential(
        TENANT,
        CLIENT,
        "x",
        authority=shared_port.https,
        disable_instance_discovery=True,
        connection_verify=shared_port.ca,
    )


def test_a_storage_client_takes_the_address_and_entra_s(shared_port, credential):
    lake = DataLakeServiceClient(shared_port.https, credential, connection_verify=shared_port.ca)
    file = lake.get_file_system_client("Workspace").get_file_client(f"{ITEM}/Files/LandingZone/T/1.csv")
    file.upload_data(b"a,b\r\n", overwrite=True)
    assert file.download_file().readall() == b"a,b\r\n"


def test_fabric_s_api_takes_the_address_and_its_operations_stay_there(shared_port, credential):
    bearer = {"Authorization": f"Bearer {credential.get_token('https://api.fabric.microsoft.com/.default').token}"}
    base = f"{shared_port.https}/v1/workspaces"
    session = requests.Session()
    session.verify, session.trust_env = shared_port.ca, False
    workspace = session.get(base, headers=bearer, timeout=10).json()["value"][0]["id"]
    created = {"displayName": "Other", "type": "MirroredDatabase"}
    begun = session.post(f"{base}/{workspace}/items", json=created, headers=bearer, timeout=10)
    assert begun.status_code == 202
    assert begun.headers["Location"].startswith(f"{shared_port.https}/v1/operations/")
    assert session.get(begun.headers["Location"], headers=bearer, timeout=10).json()["status"] == "Running"


def test_entra_names_its_own_address(shared_port):
    answer = shared_port.asks("/t/v2.0/.well-known/openid-configuration")
    document = json.loads(answer.partition(b"\r\n\r\n")[2])
    assert document["token_endpoint"] == "http://localhost/t/oauth2/v2.0/token"  # noqa: S105 - a URL
    answer = shared_port.asks("/t/v2.0/.well-known/openid-configuration", host="login.microsoftonline.com")
    assert b"https://login.microsoftonline.com/t/oauth2/v2.0/token" in answer


@pytest.mark.parametrize(
    ("target", "status", "marker"),
    [
        ("/", 200, b"<html"),
        ("/metrics", 200, b"mirror_engine_"),
        ("/readyz", 200, b"ready"),
        ("/iceberg/v1/config", 400, b"BadRequestException"),
        ("/delta/a/b/api/2.1/unity-catalog/schemas", 404, b"NOT_FOUND"),
    ],
)
def test_the_page_and_the_table_apis_are_there(shared_port, target, status, marker):
    answer = shared_port.asks(target)
    assert (status_of(answer), marker in answer) == (status, True)


def test_production_s_names_are_theirs_alone_whatever_the_path(shared_port):
    token = urlencode({"grant_type": "client_credentials"}).encode()
    for host, target, body, status in (
        ("api.fabric.microsoft.com", "/v1/workspaces", b"", 200),
        ("api.fabric.microsoft.com", "/metrics", b"", 404),
        ("login.microsoft.com", "/t/oauth2/v2.0/token", token, 200),
        ("login.microsoft.com", "/v1/workspaces", b"", 404),
        (ONELAKE, "/metrics", b"", 404),
        (ONELAKE, "/iceberg/v1/config", b"", 404),
        ("onelake.table.fabric.microsoft.com", "/iceberg/v1/config", b"", 400),
        ("westeurope-onelake.table.fabric.microsoft.com", "/v1/workspaces", b"", 404),
        (ONELAKE, "/v1/workspaces", b"", 404),
        (ONELAKE, "/t/oauth2/v2.0/token", token, 405),
    ):
        answer = shared_port.asks(target, method="POST" if body else "GET", host=host, body=body)
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
def test_storage_requests_are_no_page_s(shared_port, target, headers):
    assert b"x-ms-request-id" in shared_port.asks(target, *headers)
    assert b"x-ms-request-id" in shared_port.asks(target.partition("?")[0], method="DELETE")  # the page is for reading


def test_the_proxy_is_there(shared_port):
    plain = connected(shared_port.port)
    plain.sendall(f"CONNECT {ONELAKE}:443 HTTP/1.1\r\nHost: {ONELAKE}:443\r\n\r\n".encode())
    assert status_of(plain.recv(65536)) == 200
    with shared_port.secure(plain, ONELAKE) as secure:
        secure.sendall(request("HEAD", f"/Workspace/{ITEM}/Files/LandingZone", ONELAKE))
        assert status_of(rest_of(secure)) == 200
    refused = exchange(shared_port.port, b"CONNECT example.com:443 HTTP/1.1\r\nHost: example.com:443\r\n\r\n")
    assert status_of(refused) == 403


@pytest.mark.parametrize("name", ["localhost", "127.0.0.1", "emulator", "ci.example.org", ONELAKE])
def test_the_certificate_has_the_names_that_were_given(shared_port, name):
    with shared_port.secure(connected(shared_port.port), name) as secure:
        assert secure.version()


def test_a_connection_that_says_nothing_is_closed_and_one_that_dribbles_is_understood(shared_port, monkeypatch):
    with connected(shared_port.port) as slow:
        for byte in request("GET", "/healthz"):
            slow.sendall(bytes([byte]))
        assert status_of(rest_of(slow)) == 200
    monkeypatch.setattr(listeners, "FIRST_BYTE_SECONDS", 0.2)
    started = time.monotonic()
    with connected(shared_port.port) as silent:
        assert rest_of(silent) == b""
    assert time.monotonic() - started < 5
    with connected(shared_port.port):
        pass  # and one that says nothing at all
    assert status_of(shared_port.asks("/healthz")) == 200


def test_a_token_is_asked_for_by_all_but_entra(locked_port):
    for target in ("/", "/metrics", "/readyz", "/v1/workspaces", f"/Workspace/{ITEM}/Files", "/t/oauth2/v2.0"):
        assert status_of(locked_port.asks(target)) == 401, target
        assert status_of(locked_port.asks(target, AUTHORIZED)) in {200, 400, 404}, target
    for secret, status in ((TOKEN, 200), ("x", 401)):
        body = urlencode({"grant_type": "client_credentials", "client_secret": secret}).encode()
        answer = locked_port.asks("/t/oauth2/v2.0/token", method="POST", body=body)
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
def test_entra_s_paths_open_nothing_but_entra(locked_port, target, method):
    answer = locked_port.asks(target, method=method)
    assert status_of(answer) in {400, 401, 404, 405, 307}
    assert b"x-ms-request-id" not in answer or status_of(answer) == 401


def test_http_leaves_the_loopback_with_the_token_only(locked_port):
    """Linux takes all of 127/8 for its own."""
    for header, status in (("X: nothing", 401), (AUTHORIZED, 200)):
        with connected(locked_port.port, "127.0.0.2") as connection:
            connection.sendall(request("GET", "/metrics", "builder:1", header))
            assert status_of(rest_of(connection)) == status


def test_without_it_paths_are_onelake_s_but_for_the_page_s_on_http(tmp_path):
    with served(tmp_path) as server:
        emulator = At(server)
        for target in ("/v1/workspaces", "/t/oauth2/v2.0/token", "/metrics?comp=list", "*"):
            assert b"x-ms-request-id" in emulator.asks(target)
        assert "x-ms-request-id" in requests.get(f"{emulator.https}/metrics", verify=emulator.ca, timeout=10).headers
