"""What one request may ask of the endpoint: how long its head, how large its body, how slow both."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from mirror_engine.onelake.error_responses import Answer, refuse
from mirror_engine.onelake.errors import EXTENSION
from mirror_engine.onelake.uploads import LIMITS

if TYPE_CHECKING:
    import uvicorn
    from starlette.types import ASGIApp, Message, Receive, Scope, Send
    from uvicorn.server import ServerState

MAX_HEAD_BYTES = 16 * 1024
MAX_HEADERS = 100
MAX_TEXT_BYTES = 4 * 1024**2  # of a body that is read as a whole: XML, JSON, batches
MAX_CONNECTIONS = 256
READ_BYTES = 1024**2  # from a connection at once
PIECE_BYTES = READ_BYTES // 2  # of a body, handed on at once
PIECE_SECONDS = 0.1  # after which less of it is handed on, too
HEAD_SECONDS = 10.0
BODY_SECONDS = 60.0  # between two pieces of a body
IDLE_SECONDS = 120  # between two requests on one connection


class HeadTooLarge(ValueError):
    """The head of a request is longer than the endpoint reads."""


class LimitedProtocol(HttpToolsProtocol):
    """HTTP whose requests have heads of bounded length, sent in bounded time; else 400, as IIS answers.

    Attributes:
        lost: set when the connection has ended.
    """

    _head_bytes = 0
    _is_in_head = True
    _head_timer: asyncio.TimerHandle | None = None

    def __init__(
        self,
        config: uvicorn.Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        self.access_log = False  # it would write queries, in which signatures stand
        self.lost = asyncio.Event()

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """A head is awaited from the start."""
        super().connection_made(transport)
        transport.max_size = READ_BYTES  # type: ignore[attr-defined] # of a plain one, which would read a quarter of it
        self._await_head()

    def connection_lost(self, exc: Exception | None) -> None:
        """Nothing is awaited any more; `lost` is set."""
        self._head_came()
        super().connection_lost(exc)
        self.transport.close()  # a TLS transport of Python 3.10 wants to hear it
        self.lost.set()

    def data_received(self, data: bytes) -> None:
        """What belongs to a head is counted, also where it never ends."""
        super().data_received(data)
        if self._is_in_head:
            self._head_bytes += len(data)
            if self._head_bytes > MAX_HEAD_BYTES and not self.transport.is_closing():
                self.send_400_response("The request's head is too long.")

    def on_message_begin(self) -> None:
        """The next request of this connection."""
        super().on_message_begin()
        self.scope["extensions"] = {EXTENSION: {"now": self.transport.abort}}
        self._await_head()

    def on_headers_complete(self) -> None:
        """The head is there as a whole."""
        self._head_came()
        length = len(self.url) + sum(len(name) + len(value) + 4 for name, value in self.headers)
        if length > MAX_HEAD_BYTES or len(self.headers) > MAX_HEADERS:
            raise HeadTooLarge  # answered with 400 by what called the parser
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        """Bodies are handed on in large pieces, as each costs turns of the loop and of a thread."""
        cycle = self.cycle
        if cycle.response_complete:
            return
        if cycle.body or len(body) < PIECE_BYTES:
            if not cycle.body:
                self.loop.call_later(PIECE_SECONDS, cycle.message_event.set)
            cycle.body += body
        else:
            cycle.body = body  # type: ignore[assignment] # as it came: uvicorn makes bytes of it, which copies none
        if len(cycle.body) >= PIECE_BYTES:
            self.flow.pause_reading()
            cycle.message_event.set()

    def _await_head(self) -> None:
        self._is_in_head, self._head_bytes = True, 0
        if self._head_timer is None:
            self._head_timer = self.loop.call_later(HEAD_SECONDS, self.transport.abort)

    def _head_came(self) -> None:
        self._is_in_head = False
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None


class BodyTooLarge(Exception):
    """More bytes of a body came than the endpoint takes."""


class LimitedBodies:
    """An ASGI application whose requests have bodies of bounded size, sent without long pauses."""

    def __init__(self, app: ASGIApp, most_bytes: int = LIMITS.body_bytes, pause_seconds: float = BODY_SECONDS) -> None:
        self._app = app
        self._most_bytes = most_bytes
        self._pause_seconds = pause_seconds

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request; 413 where its body is too large, 408 where it does not go on."""
        if scope["type"] != "http":
            return
        if _told_length(scope) > self._most_bytes:
            await refuse(scope, send, 413, "RequestBodyTooLarge", "The request's body is too large.")
            return
        answer = Answer(send)
        try:
            await self._app(scope, _Body(receive, self._most_bytes, self._pause_seconds), answer)
        except BodyTooLarge:
            if answer.has_begun:
                raise
            await refuse(scope, send, 413, "RequestBodyTooLarge", "The request's body is too large.")
        except asyncio.TimeoutError:
            if answer.has_begun:
                raise
            await refuse(scope, send, 408, "OperationTimedOut", "The request's body did not go on.")


class _Body:
    """What is received of one request, counted and timed until its body has ended."""

    def __init__(self, receive: Receive, most_bytes: int, pause_seconds: float) -> None:
        self._receive = receive
        self._left = most_bytes
        self._pause_seconds = pause_seconds
        self._goes_on = True

    async def __call__(self) -> Message:
        if not self._goes_on:
            return await self._receive()
        message = await asyncio.wait_for(self._receive(), self._pause_seconds)
        self._left -= len(message.get("body", b""))
        self._goes_on = message.get("more_body", False)
        if self._left < 0:
            raise BodyTooLarge
        return message


def _told_length(scope: Scope) -> int:
    told = next((value for name, value in scope["headers"] if name == b"content-length"), b"0")
    return int(told)  # digits alone, or the parser had refused it
