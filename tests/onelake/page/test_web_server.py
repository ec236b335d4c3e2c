"""The page on the wire: live, and gone when it is told to end."""

from __future__ import annotations

import contextlib

import pytest
from shop_window import SHOP, served
from wire import connected, exchange, request, status_of, until

from mirror_engine.onelake.page import web as web_live

pytestmark = pytest.mark.slow

ORDERS = f"/tables/{SHOP}/Sales.schema/Orders"


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


def test_the_stream_sends_the_page_after_each_change(window):
    with served(window) as server:
        read = exchange(server.port, request("GET", ORDERS)).decode()
        with streaming(server.port, ORDERS) as stream:
            before = stream.until("At most 20 rows")
            assert "content-type: text/event-stream" in before
            assert "is behind by 1 file" in before
            lines = [line.removeprefix("data: ") for line in before.splitlines() if line.startswith("data: <")]
            assert all(line in read for line in lines if "oldest for" not in line)
            window.apply()
            assert "has caught up" in stream.until("at version 2")


def test_a_stream_without_changes_is_kept_alive(still, monkeypatch):
    monkeypatch.setattr(web_live, "REFRESH_SECONDS", 0.01)
    monkeypatch.setattr(web_live, "KEEP_ALIVE_REFRESHES", 1)
    with served(still) as server, streaming(server.port, "/tables/none/none") as stream:
        stream.until(": keep-alive")


def test_streams_are_counted_given_back_and_one_too_many_refused(still, monkeypatch):
    monkeypatch.setattr(web_live, "MAX_STREAMS", 1)
    monkeypatch.setattr(web_live, "REFRESH_SECONDS", 0.01)
    with served(still) as server:
        with streaming(server.port) as first:
            first.until("data: ")
            second = exchange(server.port, request("GET", "/", "localhost", "Accept: text/event-stream"))
            assert status_of(second) == 503
            assert b"retry-after: 60" in second
            assert status_of(exchange(server.port, request("GET", "/"))) == 200  # reading goes on
        until(lambda: not server._stream_count)
        with streaming(server.port) as next_one:
            next_one.until("data: ")
