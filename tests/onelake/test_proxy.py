"""The CONNECT proxy, attacked byte by byte: its closed list, and hosts passed through, which are all this machine."""

from __future__ import annotations

import asyncio
import socket
import struct
import threading
import time
from contextlib import closing, contextmanager

import pytest
from raw_http import ONELAKE, PATIENCE_SECONDS, connected, exchange, request, rest_of, running, status_of, tunnel, until
from starlette.responses import Response

from mirror_engine.errors import UsageError
from mirror_engine.onelake import proxy
from mirror_engine.onelake.hosts import FABRIC, LOGINS, PassedHost

pytestmark = pytest.mark.slow


async def named(scope, receive, send):
    """Answers with the host that was asked for."""
    await Response(dict(scope["headers"])[b"host"])(scope, receive, send)


@pytest.fixture(scope="module")
def proxied_server():
    with running(named) as started:
        yield started


def connect(target):
    return f"CONNECT {target} HTTP/1.1\r\nHost: {target}\r\nProxy-Connection: keep-alive\r\n\r\n".encode("latin-1")


@pytest.mark.parametrize("host", [ONELAKE, f"westus-{ONELAKE}", "onelake.blob.fabric.microsoft.com", FABRIC, *LOGINS])
def test_a_name_of_the_closed_list_ends_in_the_endpoint(proxied_server, host):
    with tunnel(proxied_server.proxy_port, host) as secure:
        secure.sendall(request(host=host))
        answer = rest_of(secure)
    assert status_of(answer) == 200
    assert answer.endswith(host.encode())


NOT_SERVED = (
    "example.com localhost 127.0.0.1 [::1] 169.254.169.254 microsoft.com fabric.microsoft.com app.fabric.microsoft.com "
    "evil.dfs.fabric.microsoft.com dfs.fabric.microsoft.com a.onelake.dfs.fabric.microsoft.com "
    "a-b-onelake.dfs.fabric.microsoft.com -onelake.dfs.fabric.microsoft.com login.microsoftonline.com.evil.example "
    f"xlogin.microsoftonline.com {ONELAKE}.evil.example {ONELAKE}. {ONELAKE.upper()} evil.example/{ONELAKE} "
    f"user@{ONELAKE} https://{ONELAKE} {ONELAKE}:443"
)
PORTS = [f"{ONELAKE}{port}" for port in (":80", ":4433", ":0443", ":", "")]


@pytest.mark.parametrize("target", [*(f"{host}:443" for host in NOT_SERVED.split()), *PORTS])
def test_every_other_target_is_refused_and_the_connection_closed(proxied_server, target):
    answer = exchange(proxied_server.proxy_port, connect(target))
    assert status_of(answer) in {400, 403}
    assert b"HTTPS_PROXY" in answer  # what the proxy is for


@pytest.mark.parametrize("method", ["GET", "POST", "HEAD"])
@pytest.mark.parametrize(
    "target", [f"http://{ONELAKE}/", f"{ONELAKE}:443", "http://example.com/", "http://127.0.0.1:22/", "/"]
)
def test_nothing_is_fetched_for_anybody(proxied_server, method, target):
    assert status_of(exchange(proxied_server.proxy_port, request(method, target, ONELAKE))) in {400, 403}


def test_no_name_is_resolved_and_no_connection_made(proxied_server, monkeypatch):
    def forbidden(*_, **__):
        raise AssertionError("the proxy went out")

    with connected(proxied_server.proxy_port) as refused, connected(proxied_server.proxy_port) as agreed:
        for name in ("getaddrinfo", "gethostbyname", "create_connection"):
            monkeypatch.setattr(socket, name, forbidden)
        monkeypatch.setattr(socket.socket, "connect", forbidden)
        monkeypatch.setattr(socket.socket, "connect_ex", forbidden)
        refused.sendall(connect("example.com:443"))
        assert status_of(rest_of(refused)) == 403
        agreed.sendall(connect(f"{ONELAKE}:443"))
        assert status_of(agreed.recv(65536)) == 200


@pytest.mark.parametrize(
    "rubbish",
    [
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",  # TLS to the port of the proxy
        b"\x00" * 100,
        b"CONNECT\r\n\r\n",
        b"CONNECT \r\n\r\n",
        f"CONNECT {ONELAKE}:443\r\n\r\n".encode(),
        f"CONNECT {ONELAKE}:443 HTTP/1.1\r\nA : b\r\n\r\n".encode(),
        b"SSH-2.0-x\r\n",
    ],
)
def test_what_is_no_http_is_refused(proxied_server, rubbish):
    with connected(proxied_server.proxy_port) as connection:
        connection.sendall(rubbish)  # and waits, as a client does
        assert status_of(rest_of(connection)) in {400, 403}


def test_data_before_the_tunnel_is_granted_is_rejected(proxied_server):
    answer = exchange(proxied_server.proxy_port, connect(f"{ONELAKE}:443") + b"GET / HTTP/1.1\r\n\r\n")
    assert status_of(answer) == 400


@pytest.mark.parametrize("flood", [b"X-A: b\r\n" * 4000, b"X-A: " + b"b" * 40_000, b"A" * 40_000])
def test_a_flood_of_headers_is_refused(proxied_server, flood):
    answer = exchange(proxied_server.proxy_port, connect(f"{ONELAKE}:443")[:-2], flood)
    assert status_of(answer) in {0, 431}  # 0: the answer was lost with what was still on its way
    assert len(answer) < 1000


def test_a_connect_that_dribbles_is_closed_in_time_without_an_answer(proxied_server, monkeypatch):
    monkeypatch.setattr(proxy, "CONNECT_SECONDS", 0.2)
    started = time.monotonic()
    for begun in (b"", b"CONNECT one", b"\r\n\r\n" + connect(f"{ONELAKE}:443")[:-2]):
        with connected(proxied_server.proxy_port) as slow:
            slow.sendall(begun)
            assert rest_of(slow) == b""
    assert time.monotonic() - started < 5


def test_a_tunnel_in_which_no_tls_begins_is_answered_nothing(proxied_server):
    with connected(proxied_server.proxy_port) as connection:
        connection.sendall(connect(f"{ONELAKE}:443"))
        assert status_of(connection.recv(65536)) == 200
        connection.sendall(request(host=ONELAKE))
        assert b"HTTP" not in rest_of(connection)


@contextmanager
def passing(*patterns):
    rejected = []
    hosts = tuple(map(PassedHost.parse, patterns))
    with running(Response("emulator"), pass_through=hosts, on_rejected=rejected.append) as emulator:
        yield emulator, rejected


@pytest.mark.parametrize("pattern", ["localhost:1", "127.0.0.1", "*.localhost", "local*", "all", "example.org"])
def test_pass_through_refuses_unnamed_hosts_and_names_the_option(pattern):
    with passing(pattern) as (emulator, rejected):
        answer = exchange(emulator.proxy_port, connect("localhost:5432"))
    status, _, text = answer.decode().partition("\r\n")
    assert status.startswith("HTTP/1.1 403 ")
    assert "mirror-engine" in status  # all that most clients show
    assert "--pass-through" in status
    assert "--pass-through" in text
    logged = [(each.host, each.status, each.allowed_by) for each in rejected]
    assert logged == [("localhost:5432", 403, "--pass-through")]


def test_a_request_that_asks_for_no_tunnel_is_refused_and_none_of_its_path_is_logged():
    with passing("localhost") as (emulator, rejected):
        answer = exchange(emulator.proxy_port, request("GET", "http://user:pw@localhost:5432/?sig=hush"))
    assert answer.startswith(b"HTTP/1.1 403 Forbidden by mirror-engine (HTTPS by CONNECT only")
    assert [(each.host, each.status, each.allowed_by) for each in rejected] == [("localhost:5432", 403, "")]


@pytest.mark.parametrize(
    "host", [ONELAKE.upper(), f"{ONELAKE}.", "evil.dfs.fabric.microsoft.com", "login.windows.net", "sts.windows.net"]
)
@pytest.mark.parametrize("port", [80, 443, 4433])
def test_production_is_never_reached(host, port, monkeypatch):
    monkeypatch.setattr(asyncio.BaseEventLoop, "getaddrinfo", None)  # its address is not asked for
    with passing("all", "*.microsoft.com", host.lower()) as (emulator, rejected):
        for asked in (connect(f"{host}:{port}"), request("GET", f"http://{host}:{port}/")):
            answer = exchange(emulator.proxy_port, asked)
            assert status_of(answer) == 403
            assert b"--pass-through" not in answer.partition(b"\r\n")[0]  # it would not help
    assert {each.allowed_by for each in rejected} == {""}


def test_the_emulator_s_own_names_stay_its_own():
    with passing("all", ONELAKE) as (emulator, _), tunnel(emulator.proxy_port) as secure:
        secure.sendall(request(host=ONELAKE))
        assert rest_of(secure).endswith(b"emulator")


PUBLIC = ["8.8.8.8", "2001:4860:4860::8888", "::ffff:8.8.8.8"]
NOT_PUBLIC = (
    "127.0.0.1 ::1 10.1.2.3 192.168.0.1 169.254.169.254 fe80::1 fe80::1%lo fd00::1 fec0::1 0.0.0.0 240.0.0.1 "
    "224.0.0.1 ff0e::1 ::127.0.0.1 ::ffff:127.0.0.1 ::ffff:100.100.100.200 64:ff9b::a00:1 2002:7f00:1:: "
    "2001:0:7f00:1:: 168.63.129.16"
)
PRIVATE = NOT_PUBLIC.split()


@pytest.mark.parametrize(
    ("patterns", "host", "expected"),
    [
        (["all"], "db.example.org", PUBLIC),
        (["*.example.org"], "db.example.org", PUBLIC),
        (["*.example.org:5432"], "db.example.org", PUBLIC),
        (["db.example.org"], "db.example.org", PRIVATE + PUBLIC),
        (["all", "DB.Example.org.:5432"], "db.example.org", PRIVATE + PUBLIC),
        (["*.example.org:443", "example.org", "db.*.com"], "db.example.org", None),
    ],
)
def test_patterns_reach_public_addresses_and_only_names_the_others(patterns, host, expected, monkeypatch):
    async def resolved(*_, **__):
        return [(0, 0, 0, "", (address, 5432)) for address in PRIVATE + PUBLIC]

    async def found():
        monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", resolved)
        return await proxy.addresses(host, 5432, tuple(map(PassedHost.parse, patterns)))

    if expected is None:
        with pytest.raises(proxy.RefusedError, match="403"):
            asyncio.run(found())
    else:
        assert asyncio.run(found()) == expected


@contextmanager
def tunnelled():
    """A client of the proxy that has a tunnel to a host, the host's side of it, and the emulator."""
    with closing(socket.create_server(("127.0.0.1", 0))) as server, passing("localhost") as (emulator, _):
        server.settimeout(PATIENCE_SECONDS)
        with connected(emulator.proxy_port) as client:
            client.sendall(connect(f"LOCALHOST.:{server.getsockname()[1]}"))
            upstream, _ = server.accept()
            upstream.settimeout(PATIENCE_SECONDS)
            assert status_of(client.recv(65536)) == 200
            with upstream:
                yield client, upstream, emulator


def test_half_closed_tunnel_still_relays_the_answer():
    much = b"x" * 1_000_000
    with tunnelled() as (client, upstream, _):
        for sender, receiver, end in ((client, upstream, client.shutdown), (upstream, client, upstream.shutdown)):
            sending = threading.Thread(target=lambda: (sender.sendall(much), end(socket.SHUT_WR)))  # noqa: B023 - joined
            sending.start()
            assert rest_of(receiver) == much
            sending.join()


def test_a_client_that_resets_ends_its_tunnel():
    with tunnelled() as (client, upstream, emulator):
        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        client.close()
        assert rest_of(upstream) == b""
        until(lambda: not emulator._connections)  # though the host keeps its side open


def test_a_tunnel_that_is_silent_both_ways_ends(monkeypatch):
    monkeypatch.setattr(proxy, "TUNNEL_IDLE_SECONDS", 0.5)
    with tunnelled() as (client, upstream, emulator):
        for _ in range(4):
            time.sleep(0.2)
            upstream.sendall(b"x")
        assert (rest_of(client), rest_of(upstream)) == (b"xxxx", b"")
        until(lambda: not emulator._connections)


def test_a_host_that_cannot_be_reached_is_a_bad_gateway():
    with closing(socket.socket()) as unused:
        unused.bind(("127.0.0.1", 0))  # and does not listen
        with passing("all", "localhost") as (emulator, rejected):
            nowhere = f"{'a' * 64}.invalid:443"
            for host in (f"localhost:{unused.getsockname()[1]}", nowhere):
                assert status_of(exchange(emulator.proxy_port, connect(host))) == 502
    assert {each.status for each in rejected} == {502}


@pytest.mark.parametrize(
    "text", ["", "*:x", "https://example.org", "a,b", "example.org:0", "example.org:65536", "[::1", "a b"]
)
def test_what_is_no_host_is_a_usage_error(text):
    with pytest.raises(UsageError, match="--pass-through"):
        PassedHost.parse(text)
