"""The CONNECT proxy, attacked byte by byte: it agrees to a closed list and does nothing else."""

from __future__ import annotations

import socket
import time

import pytest
from starlette.responses import Response
from wire import ONELAKE, connected, exchange, request, rest_of, running, status_of, tunnel

from mirror_engine.onelake import network
from mirror_engine.onelake.hosts import FABRIC, LOGINS

pytestmark = pytest.mark.slow


async def named(scope, receive, send):
    """Answers with the host that was asked for."""
    await Response(dict(scope["headers"])[b"host"])(scope, receive, send)


@pytest.fixture(scope="module")
def emulator():
    with running(named) as started:
        yield started


def connect(target):
    return f"CONNECT {target} HTTP/1.1\r\nHost: {target}\r\nProxy-Connection: keep-alive\r\n\r\n".encode("latin-1")


@pytest.mark.parametrize("host", [ONELAKE, f"westus-{ONELAKE}", "onelake.blob.fabric.microsoft.com", FABRIC, *LOGINS])
def test_a_name_of_the_closed_list_ends_in_the_endpoint(emulator, host):
    with tunnel(emulator.proxy_port, host) as secure:
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
def test_every_other_target_is_refused_and_the_connection_closed(emulator, target):
    answer = exchange(emulator.proxy_port, connect(target))
    assert status_of(answer) in {400, 403}
    assert b"HTTPS_PROXY" in answer  # what the proxy is for


@pytest.mark.parametrize("method", ["GET", "POST", "HEAD"])
@pytest.mark.parametrize(
    "target", [f"http://{ONELAKE}/", f"{ONELAKE}:443", "http://example.com/", "http://127.0.0.1:22/", "/"]
)
def test_nothing_is_fetched_for_anybody(emulator, method, target):
    assert status_of(exchange(emulator.proxy_port, request(method, target, ONELAKE))) in {400, 403}


def test_no_name_is_resolved_and_no_connection_made(emulator, monkeypatch):
    def forbidden(*_, **__):
        raise AssertionError("the proxy went out")

    with connected(emulator.proxy_port) as refused, connected(emulator.proxy_port) as agreed:
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
def test_what_is_no_http_is_refused(emulator, rubbish):
    with connected(emulator.proxy_port) as connection:
        connection.sendall(rubbish)  # and waits, as a client does
        assert status_of(rest_of(connection)) in {400, 403}


def test_data_before_the_tunnel_is_granted_is_rejected(emulator):
    answer = exchange(emulator.proxy_port, connect(f"{ONELAKE}:443") + b"GET / HTTP/1.1\r\n\r\n")
    assert status_of(answer) == 400


@pytest.mark.parametrize("flood", [b"X-A: b\r\n" * 4000, b"X-A: " + b"b" * 40_000, b"A" * 40_000])
def test_a_flood_of_headers_is_refused(emulator, flood):
    answer = exchange(emulator.proxy_port, connect(f"{ONELAKE}:443")[:-2], flood)
    assert status_of(answer) in {0, 431}  # 0: the answer was lost with what was still on its way
    assert len(answer) < 1000


def test_a_connect_that_dribbles_is_closed_in_time_without_an_answer(emulator, monkeypatch):
    monkeypatch.setattr(network, "CONNECT_SECONDS", 0.2)
    started = time.monotonic()
    for begun in (b"", b"CONNECT one", b"\r\n\r\n" + connect(f"{ONELAKE}:443")[:-2]):
        with connected(emulator.proxy_port) as slow:
            slow.sendall(begun)
            assert rest_of(slow) == b""
    assert time.monotonic() - started < 5


def test_a_tunnel_in_which_no_tls_begins_is_answered_nothing(emulator):
    with connected(emulator.proxy_port) as connection:
        connection.sendall(connect(f"{ONELAKE}:443"))
        assert status_of(connection.recv(65536)) == 200
        connection.sendall(request(host=ONELAKE))
        assert b"HTTP" not in rest_of(connection)
