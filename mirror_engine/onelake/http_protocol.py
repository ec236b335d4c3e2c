"""The emulator's HTTP protocol: bounds on what a client sends, and on how long the emulator waits for it."""

from __future__ import annotations

import asyncio
import math
import socket
from functools import partial
from types import SimpleNamespace
from typing import TYPE_CHECKING

import httptools
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from mirror_engine.onelake.hosts import host_of
from mirror_engine.onelake.middleware import RESET_EXTENSION

if TYPE_CHECKING:
    from collections.abc import Callable

    from uvicorn.protocols.http.httptools_impl import RequestResponseCycle

MAX_HEAD_BYTES = 16 * 1024
MAX_HEADERS = 100
MAX_PIPELINED = 16  # requests of a connection that wait for an earlier one
HEAD_SECONDS = 10.0  # for a head
UNREAD_SECONDS, UNREAD_BYTES = 60.0, 256 << 20  # for the rest of a body whose request is answered, and of it
REFUSED_SECONDS = 1.0  # for what a client still sends after a malformed request
READ_SECONDS = 600.0  # in which a client must read some megabytes of an answer: what the system buffers
SLOW_BYTES_PER_SECOND = 64 * 1024  # of a body: what a slower one lacks counts as silence
_QUICKACK = getattr(socket, "TCP_QUICKACK", None)  # Linux
MALFORMED = b"HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain\r\nConnection: close\r\nContent-Length: "


class LimitedProtocol(HttpToolsProtocol):
    """HTTP in which all that a client sends is bounded, and whose target names no other host; else 400, as IIS answers.

    Bounded are heads, trailers and what frames a body, in length, number and time; requests that wait for the answer
    to an earlier one; and how long an answer waits for its reader. `Gate` bounds bodies that are read.
    """

    is_crowded: Callable[[], bool] = staticmethod(lambda: False)  # whether others wait: an answer ends its connection
    _is_refused = False  # what comes is malformed, and not parsed any more
    _is_ending = False  # the connection ends with the request's body
    _unread_bytes = 0  # of the body, after the answer
    _framing_bytes = 0  # since the last part of a message began: of a head, of trailers, between two chunks
    _has_begun_part = False
    _header_count = _header_bytes = 0  # of a head, then of the trailers
    _is_in_head = True
    _is_complete = True  # the last request has come whole
    _timer: asyncio.TimerHandle | None = None  # of a head, or of a body that nobody reads
    _write_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.access_log = False  # it would write queries, which may hold signatures
        self.lost = asyncio.Event()  # set when the connection has ended
        self._since = self.loop.time()  # the client's last progress
        self._start_timer(HEAD_SECONDS)

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_timer()
        self.resume_writing()
        super().connection_lost(exc)
        self.lost.set()

    def shutdown(self) -> None:
        """End the connection; an idle one at once, as a client that is gone does not end its TLS."""
        is_idle = self.cycle is None or self.cycle.response_complete
        if is_idle and not self.transport.get_write_buffer_size():
            self.transport.abort()
        else:
            super().shutdown()

    @property
    def is_idle(self) -> bool:
        """Whether no request is in progress: such a connection may end at any time."""
        is_answered = self.cycle is None or self.cycle.response_complete
        return self._is_complete and is_answered and not self.transport.get_write_buffer_size()

    @property
    def waiting_seconds(self) -> float:
        """Seconds without progress of the client: 0 while it waits for an answer, infinite after its last one."""
        if self._is_refused or self._is_ending:
            return math.inf
        is_in_body = not self._is_complete and not self._is_in_head
        is_answered = self.cycle is None or self.cycle.response_complete
        is_waiting = not (is_in_body or is_answered or self._write_timer)
        return 0.0 if is_waiting else self.loop.time() - self._since

    def data_received(self, data: bytes) -> None:
        if self._is_refused:
            return
        self._has_begun_part = False
        super().data_received(data)
        self._framing_bytes = 0 if self._has_begun_part else self._framing_bytes + len(data)
        if self._framing_bytes > MAX_HEAD_BYTES and not self.transport.is_closing():  # it may never end
            self.send_400_response("The request's head or trailers are too long.")

    def send_400_response(self, msg: str) -> None:
        """Answer 400. If an answer is already in progress, only close the connection.

        What the client still sends is dropped for a moment: a reset would take the answer from it.
        """
        is_answering = self.cycle is not None and self.cycle.response_started and not self.cycle.response_complete
        if self._is_refused or self.transport.is_closing():
            return
        if is_answering or self.pipeline or (not self._is_in_head and self.cycle and self.cycle.response_started):
            self.transport.abort()
            return
        self._is_refused = True
        self.transport.write(b"%s%d\r\n\r\n%s" % (MALFORMED, len(msg), msg.encode("ascii")))
        self._end_writing()
        self._start_timer(REFUSED_SECONDS, self.transport.close)

    def _close(self, cycle: RequestResponseCycle) -> None:
        """Close the connection after an answer; if a body is still arriving, wait for its end to avoid a reset."""
        is_arriving = not (self._is_complete or self._is_in_head)
        if is_arriving and cycle is self.cycle and cycle.response_complete:
            self._is_ending = True
            self._end_writing()
        else:
            self.transport.close()

    def _end_writing(self) -> None:
        """Signal the end of the output to the client; TLS cannot."""
        if self.transport.can_write_eof():
            self.transport.write_eof()

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self.scope["extensions"] = {RESET_EXTENSION: {"now": self.transport.abort}}
        self._has_begun_part = True
        self._is_in_head, self._is_complete = True, False
        self._header_count = self._header_bytes = self._unread_bytes = 0
        self._since = self.loop.time()
        if self._timer is None:
            self._start_timer(HEAD_SECONDS)

    def on_header(self, name: bytes, value: bytes) -> None:
        self._header_count += 1
        self._header_bytes += len(name) + len(value) + 4
        if self._header_count > MAX_HEADERS or self._header_bytes > MAX_HEAD_BYTES:
            raise ValueError(self._header_bytes)  # the parser's caller answers 400
        if self._is_in_head:  # trailers are of no use
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        self._stop_timer()
        if _QUICKACK:  # urllib3 sends no body to a proxy before the head is acknowledged, which may take 40 ms
            self.transport.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, _QUICKACK, 1)
        length = len(self.url) + self._header_bytes
        authority = httptools.parse_url(self.url).host  # of an absolute-form target
        is_foreign = authority is not None and authority.decode("latin-1").lower() != host_of(self.headers)
        is_too_much = length > MAX_HEAD_BYTES or len(self.pipeline) >= MAX_PIPELINED
        if is_foreign or is_too_much or self.transport.is_closing():
            raise ValueError(length)
        super().on_headers_complete()
        self.cycle.keep_alive = self.cycle.keep_alive and not self.is_crowded()
        to = self.transport  # the answer's own, as it may end before its request
        own = SimpleNamespace(write=to.write, is_closing=to.is_closing, close=partial(self._close, self.cycle))
        self.cycle.transport = own  # type: ignore[assignment]
        self._has_begun_part, self._is_in_head = True, False
        self._header_count = self._header_bytes = 0
        self._since = self.loop.time()

    def on_chunk_header(self) -> None:
        self._has_begun_part = True

    def on_body(self, body: bytes) -> None:
        self._has_begun_part = True
        self._since = min(self._since + len(body) / SLOW_BYTES_PER_SECOND, self.loop.time())
        if self.cycle.response_complete:
            self._unread_bytes += len(body)
            if self._unread_bytes > UNREAD_BYTES:
                self.transport.abort()
        super().on_body(body)

    def on_message_complete(self) -> None:
        super().on_message_complete()
        self._stop_timer()
        self._has_begun_part = self._is_complete = True
        self._since = self.loop.time()
        if self._is_ending:
            self.transport.close()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._since = self.loop.time()
        if self.cycle.response_complete and not self._is_complete:  # nobody reads the rest of its body
            self._start_timer(UNREAD_SECONDS)

    def pause_writing(self) -> None:
        super().pause_writing()
        self._since = self.loop.time()
        self._write_timer = self.loop.call_later(READ_SECONDS, self.transport.abort)

    def resume_writing(self) -> None:
        if self._write_timer is not None:
            self._write_timer.cancel()
            self._write_timer = None
        super().resume_writing()

    def _start_timer(self, seconds: float, end: Callable[[], None] | None = None) -> None:
        self._stop_timer()
        self._timer = self.loop.call_later(seconds, end or self.transport.abort)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
