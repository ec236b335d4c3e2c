"""The page on the wire: for this machine's own eyes, live, and gone when it is reported to end."""

from __future__ import annotations

import base64
import contextlib
import time

import pytest
from shop_window import SHOP, shop
from wire import connected, exchange, request, rest_of, status_of

from mirror_engine.onelake.connection import Listening
from mirror_engine.onelake.page import web as web_live
from mirror_engine.onelake.page.web import Web

pytestmark = pytest.mark.slow

SECRET = "let-me-in-please-do"  # noqa: S105 - a test's own
ORDERS = f"/tables/{SHOP}/Sales.schema/Orders"


@contextlib.contextmanager
def served(window, **options):
    server = Web(window.items, on_error=pytest.fail, **options)
    server.start()
    try:
        yield server
    finally:
        server.stop()


@pytest.fixture(scope="module")
def window(tmp_path_factory):
    return shop(tmp_path_factory.mktemp("shop"))


@pytest.fixture(scope="module")
def server(window):
    with served(window) as started:
        yield started


@pytest.fixture(scope="module")
def locked(window):
    with served(window, listening=Listening(token=SECRET)) as started:
        yield started


@pytest.mark.parametrize("host", ["evil.example", "onelake.dfs.fabric.microsoft.com", "login.microsoftonline.com", ""])
@pytest.mark.parametrize("target", ["/", "/metrics", "/healthz", "/assets/page.js"])
def test_the_page_answers_to_loopback_names_only(server, locked, host, target):
    """DNS rebinding; and Entra's stub, which needs no token, does not stand here."""
    for each in (server, locked):
        assert status_of(exchange(each.port, request("GET", target, host))) == 421


def test_a_page_of_elsewhere_reads_no_stream(server):
    asked = request("GET", "/", "localhost:1", "Accept: text/event-stream", "Origin: http://localhost:2")
    assert status_of(exchange(server.port, asked)) == 403


@pytest.mark.parametrize("target", ["/", ORDERS, "/metrics", "/healthz", "/readyz", "/assets/page.js"])
def test_where_a_token_is_set_nothing_is_seen_without_it(locked, target):
    refused = exchange(locked.port, request("GET", target))
    assert status_of(refused) == 401
    assert b"Sales" not in refused
    password = base64.b64encode(f"anybody:{SECRET}".encode()).decode()
    for said in (f"Basic {password}", f"Bearer {SECRET}"):
        assert status_of(exchange(locked.port, request("GET", target, "localhost", f"Authorization: {said}"))) != 401


def test_nothing_but_the_loopback_is_listened_on(server):
    assert {each.getsockname()[0] for each in server._server.servers[0].sockets} == {"127.0.0.1"}


def test_a_body_is_not_read(server):
    asked = request("POST", "/", "localhost", "Content-Length: 2000")
    assert status_of(exchange(server.port, asked)) == 413


class Stream:
    """What a browser's script receives."""

    def __init__(self, port, target):
        self.connection = connected(port)
        self.connection.sendall(request("GET", target, "localhost", "Accept: text/event-stream"))
        self.received = b""

    def until(self, text):
        while text.encode() not in self.received:
            piece = self.connection.recv(65536)
            assert piece, self.received[-500:]
            self.received += piece
        return self.received.decode()


@contextlib.contextmanager
def streaming(port, target="/"):
    stream = Stream(port, target)
    with stream.connection:
        yield stream


def test_the_stream_sends_the_page_after_each_change(tmp_path):
    moving = shop(tmp_path)
    with served(moving) as server:
        read = exchange(server.port, request("GET", ORDERS)).decode()
        with streaming(server.port, ORDERS) as stream:
            before = stream.until("At most 20 rows")
            assert "content-type: text/event-stream" in before
            assert "is behind by 1 file" in before
            lines = [line.removeprefix("data: ") for line in before.splitlines() if line.startswith("data: <")]
            assert all(line in read for line in lines if "oldest for" not in line)
            moving.apply()
            assert "has caught up" in stream.until("at version 2")


def test_a_stream_without_changes_is_kept_alive(window, monkeypatch):
    monkeypatch.setattr(web_live, "REFRESH_SECONDS", 0.01)
    monkeypatch.setattr(web_live, "KEEP_ALIVE_REFRESHES", 1)
    with served(window) as server, streaming(server.port, "/tables/none/none") as stream:
        stream.until(": keep-alive")


def test_streams_are_counted_given_back_and_one_too_many_refused(window, monkeypatch):
    monkeypatch.setattr(web_live, "MAX_STREAMS", 1)
    monkeypatch.setattr(web_live, "REFRESH_SECONDS", 0.01)
    with served(window) as server:
        with streaming(server.port) as first:
            first.until("data: ")
            second = exchange(server.port, request("GET", "/", "localhost", "Accept: text/event-stream"))
            assert status_of(second) == 503
            assert b"retry-after: 60" in second
            assert status_of(exchange(server.port, request("GET", "/"))) == 200  # reading goes on
        ends = time.monotonic() + 10
        while server._stream_count:
            assert time.monotonic() < ends
            time.sleep(0.01)
        with streaming(server.port) as next_one:
            next_one.until("data: ")


def test_an_open_stream_does_not_keep_the_server_from_ending(window):
    with served(window) as server:
        with streaming(server.port) as stream:
            stream.until("data: ")
            began = time.monotonic()
            server.stop()
            assert rest_of(stream.connection).endswith(b"0\r\n\r\n")  # ended, not cut
        assert time.monotonic() - began < web_live.REFRESH_SECONDS + 2
