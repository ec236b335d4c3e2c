"""A running emulator: default item, locking, connection info."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import shlex
import stat
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from filelock import FileLock
from wire import connected, exchange, request, rest_of, status_of

from mirror_engine.errors import RootLocked, TransientError, UsageError
from mirror_engine.landing_zone.layout import ZONE
from mirror_engine.onelake import connection
from mirror_engine.onelake.connection import Listening, StateFolder
from mirror_engine.onelake.options import ServerPlan
from mirror_engine.onelake.serving import Server

pytestmark = pytest.mark.slow

TOKEN = "0123456789abcdef"  # noqa: S105 - a test's own


def served(store, **options):
    return Server(ServerPlan(store, has_engines=False, **options), on_error=pytest.fail)


def port_of(url):
    return int(url.rstrip("/").rpartition(":")[2])


def asked(url, target="/", *headers):
    return exchange(port_of(url), request("GET", target, "localhost", *headers))


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
    [(ZONE, ZONE), (f"Mirror/{ZONE}", ZONE), ("venv/lib/python3", "venv/lib is no mirrored database")],
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
        assert status_of(asked(first.connection.http)) != 0
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
        script = "\n".join([*server.connection.lines(), "env -0"])
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
        page = server.connection.page
        assert page == f"{server.connection.http}/"
        shown = asked(page).decode()
        assert "Sales" in shown
        assert "no engine is running, never ran here" in shown
        assert status_of(asked(server.connection.http, "/absent/x")) == 404
        assert b'requests_total{method="GET",status="404"} 1.0' in asked(page, "/metrics")
        assert status_of(asked(page, "/readyz")) == 200  # nothing is to be mirrored


def test_an_open_page_is_ended_with_the_emulator_and_not_cut(tmp_path):
    with contextlib.ExitStack() as later:
        with served(tmp_path) as server:
            page = later.enter_context(connected(port_of(server.connection.page)))
            page.sendall(request("GET", "/", "localhost", "Accept: text/event-stream"))
            assert page.recv(1)
        assert rest_of(page).endswith(b"0\r\n\r\n")


def test_a_second_answer_on_a_connection_waits_for_no_acknowledgement(tmp_path):
    client = http.client.HTTPConnection("127.0.0.1", 0)
    seconds = []
    with served(tmp_path / "store") as server, contextlib.closing(client):
        client.port = int(server.connection.http.rpartition(":")[2])
        for _ in range(10):
            begun = time.perf_counter()
            client.request("GET", "/Workspace?resource=filesystem&recursive=false")
            client.getresponse().read()
            seconds.append(time.perf_counter() - begun)
    assert min(seconds[1:]) < 0.03  # the client's system acknowledges after 0.04
