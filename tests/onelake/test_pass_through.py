"""Hosts that the proxy passes through: which, and what arrives there. All of them are this machine."""

from __future__ import annotations

import asyncio
import socket
import struct
import threading
import time
from contextlib import closing, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from starlette.responses import Response
from wire import ONELAKE, PATIENCE_SECONDS, connected, exchange, request, rest_of, running, status_of, trusting, until

from mirror_engine.errors import UsageError
from mirror_engine.onelake import network
from mirror_engine.onelake.connection import Listening
from mirror_engine.onelake.hosts import PassedHost

pytestmark = pytest.mark.slow

LOCALHOST = (PassedHost.parse("localhost"),)


class Echo(BaseHTTPRequestHandler):
    """Answers with the request as it arrived."""

    protocol_version = "HTTP/1.1"

    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        text = f"{self.requestline}\n{self.headers}".encode() + body
        self.send_response(200)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, *_):
        pass


@pytest.fixture(scope="module")
def elsewhere():
    """The port of a server that is not the emulator."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), Echo)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield server.server_port
    server.shutdown()
    server.server_close()


@contextmanager
def passing(*patterns):
    rejected = []
    hosts = tuple(map(PassedHost.parse, patterns))
    with running(Response("emulator"), pass_through=hosts, on_rejected=rejected.append) as emulator:
        yield emulator, rejected


def connect(target):
    return f"CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n\r\n".encode()


def test_a_tunnel_carries_bytes_both_ways_and_ends_with_the_host(elsewhere):
    with passing("localhost") as (emulator, _), connected(emulator.proxy_port) as tunnel:
        tunnel.sendall(connect(f"LOCALHOST.:{elsewhere}"))
        assert status_of(tunnel.recv(65536)) == 200
        body = b"x" * 1_000_000
        tunnel.sendall(request("POST", "/a", "localhost", f"Content-Length: {len(body)}", body=body))
        answer = rest_of(tunnel)
    assert answer.endswith(body)
    assert b"POST /a HTTP/1.1" in answer


@pytest.mark.parametrize("pattern", ["localhost:1", "127.0.0.1", "*.localhost", "local*", "all", "example.org"])
def test_what_is_not_named_is_refused_and_the_refusal_names_the_product_and_the_option(elsewhere, pattern):
    with passing(pattern) as (emulator, rejected):
        answer = exchange(emulator.proxy_port, connect(f"localhost:{elsewhere}"))
    status, _, text = answer.decode().partition("\r\n")
    assert status.startswith("HTTP/1.1 403 ")
    assert "mirror-engine" in status  # all that most clients show
    assert "--pass-through" in status
    assert "--pass-through" in text
    logged = [(each.host, each.status, each.allowed_by) for each in rejected]
    assert logged == [(f"localhost:{elsewhere}", 403, "--pass-through")]


def test_a_request_that_asks_for_no_tunnel_is_refused_and_none_of_its_path_is_logged(elsewhere):
    with passing("localhost") as (emulator, rejected):
        answer = exchange(emulator.proxy_port, request("GET", f"http://user:pw@localhost:{elsewhere}/?sig=hush"))
    assert answer.startswith(b"HTTP/1.1 403 Forbidden by mirror-engine (HTTPS by CONNECT only")
    assert [(each.host, each.status, each.allowed_by) for each in rejected] == [(f"localhost:{elsewhere}", 403, "")]


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
    with passing("all", ONELAKE) as (emulator, _), connected(emulator.proxy_port) as plain:
        plain.sendall(connect(f"{ONELAKE}:443"))
        assert status_of(plain.recv(65536)) == 200
        with trusting().wrap_socket(plain, server_hostname=ONELAKE) as secure:
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
        return await network.addresses(host, 5432, tuple(map(PassedHost.parse, patterns)))

    if expected is None:
        with pytest.raises(network.RefusedError, match="403"):
            asyncio.run(found())
    else:
        assert asyncio.run(found()) == expected


@contextmanager
def tunnelled():
    """A client of the proxy that has a tunnel to a host, the host's side of it, and the emulator."""
    with closing(socket.create_server(("127.0.0.1", 0))) as server, passing("localhost") as (emulator, _):
        server.settimeout(PATIENCE_SECONDS)
        with connected(emulator.proxy_port) as client:
            client.sendall(connect(f"localhost:{server.getsockname()[1]}"))
            upstream, _ = server.accept()
            upstream.settimeout(PATIENCE_SECONDS)
            assert status_of(client.recv(65536)) == 200
            with upstream:
                yield client, upstream, emulator


def test_a_tunnel_whose_client_has_sent_all_still_gets_the_answer():
    with tunnelled() as (client, upstream, _):
        client.sendall(b"question")
        client.shutdown(socket.SHUT_WR)
        assert rest_of(upstream) == b"question"
        upstream.sendall(b"answer")
        upstream.close()
        assert rest_of(client) == b"answer"


def test_a_client_that_resets_ends_its_tunnel():
    with tunnelled() as (client, upstream, emulator):
        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        client.close()
        assert rest_of(upstream) == b""
        until(lambda: not emulator._connections)  # though the host keeps its side open


def test_a_tunnel_that_is_silent_both_ways_ends(monkeypatch):
    monkeypatch.setattr(network, "TUNNEL_IDLE_SECONDS", 0.5)
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


def test_nothing_is_passed_through_for_others():
    with pytest.raises(UsageError, match="--pass-through"):
        Listening("192.0.2.1", allow_remote=True, token="0123456789abcdef", pass_through=LOCALHOST)  # noqa: S106 - a test's own
