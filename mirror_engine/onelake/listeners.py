"""The emulator's listeners: https, http and a CONNECT proxy, on one accept loop in a thread of its own.

A connection to the proxy becomes one to https once its tunnel to the emulator is granted. On a single port the first
byte of a connection says which of the three it is.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import threading
from contextlib import suppress
from dataclasses import dataclass
from ipaddress import ip_address
from typing import TYPE_CHECKING, Literal

import uvicorn

from mirror_engine.errors import UsageError
from mirror_engine.onelake.hosts import LOOPBACK
from mirror_engine.onelake.http_protocol import LimitedProtocol
from mirror_engine.onelake.proxy import grant_tunnel

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable, Sequence

    from starlette.types import ASGIApp

    from mirror_engine.onelake.connection import Listening
    from mirror_engine.onelake.middleware import RejectedRequest

ListenerKind = Literal["proxy", "http", "https"]  # in the order of their ports
MAX_CONNECTIONS = 256
MAX_WAITING = 1024  # connections that are not accepted yet
FIRST_BYTE_SECONDS = 10.0  # of a connection
ROOM_SECONDS = 2.0  # that a connection waits for room; those behind it wait, too
SLOW_SECONDS = 1.0  # of silence, after which a connection may be ended when there are too many
HANDSHAKE_SECONDS = 10.0
IDLE_SECONDS = 120  # between two requests of a connection
SHUTDOWN_SECONDS = 3  # for responses in progress
_HANDSHAKE, _CONNECT = b"\x16", b"C"  # no other method that is served begins so

logging.getLogger("uvicorn").addHandler(logging.NullHandler())  # the emulator logs for itself


@dataclass
class _Connection:
    """An accepted connection."""

    socket: socket.socket
    since: float  # by the loop's clock
    protocol: LimitedProtocol | None = None  # once HTTP has begun
    is_relayed: bool = False  # to a passed host: such a tunnel may be silent for longer

    def rank(self, now: float) -> tuple[bool, bool, float]:
        """The highest makes room for others: idle ones first, then those without progress for the longest."""
        if self.is_relayed:
            return False, False, 0.0
        seconds = self.protocol.waiting_seconds if self.protocol else now - self.since
        return seconds >= SLOW_SECONDS, self.protocol is not None and self.protocol.is_idle, seconds

    def relay(self) -> None:
        self.is_relayed = True

    def end(self) -> None:
        if self.protocol:
            self.protocol.transport.abort()
        else:
            with suppress(OSError):  # the client has gone
                self.socket.shutdown(socket.SHUT_RDWR)


class Listeners:
    """An ASGI application, which gets no lifespan events, on https, http and behind the proxy; http stays on loopback.

    Attributes:
        https_port: for clients with tokens that address the emulator directly; known once started, as the others.
        http_port: for all other credentials, and for browsers.
        proxy_port: for clients with production URLs.
    """

    def __init__(
        self,
        app: ASGIApp,
        tls: ssl.SSLContext,
        listening: Listening,
        on_rejected: Callable[[RejectedRequest], None] = lambda _: None,
    ) -> None:
        self._app, self._tls, self._listening, self._on_rejected = app, tls, listening, on_rejected
        self._connections: dict[asyncio.Task[None], _Connection] = {}
        self._ready = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve()), name="emulator", daemon=True)

    def start(self) -> None:
        """Listen; returns when requests are answered. UsageError where a port or the address cannot be used."""
        address, port, is_single_port = self._listening.address, self._listening.port, self._listening.is_single_port
        with contextlib.ExitStack() as opened:
            # tokens in the clear stay on this machine, but where one port was asked for
            addresses = [address] if is_single_port else [address, LOOPBACK, address]
            self._listeners = [
                opened.enter_context(_listening_socket(address, port + place if port else 0))
                for place, address in enumerate(addresses)
            ]
            opened.pop_all()
        ports = [each.getsockname()[1] for each in self._listeners]
        self.proxy_port, self.http_port, self.https_port = ports * 3 if is_single_port else ports
        self._thread.start()
        self._ready.wait()

    def stop(self) -> None:
        """Stop; returns when nothing is answered any more."""
        self._server.should_exit = True
        self._thread.join()

    async def _serve(self) -> None:
        self._server = uvicorn.Server(
            uvicorn.Config(
                self._app,
                loop="asyncio",
                http=LimitedProtocol,
                ws="none",
                lifespan="off",
                log_config=None,
                proxy_headers=False,
                server_header=False,
                timeout_keep_alive=IDLE_SECONDS,
                timeout_graceful_shutdown=SHUTDOWN_SECONDS,
            )
        )
        serving = asyncio.create_task(self._server.serve(sockets=[]))
        while not self._server.started:  # noqa: ASYNC110 - it has no event for that
            await asyncio.sleep(0.001)
        kinds: Sequence[ListenerKind | None] = (None,) if self._listening.is_single_port else ("proxy", "http", "https")
        accepting = [
            asyncio.create_task(self._accept(listener, kind))
            for listener, kind in zip(self._listeners, kinds, strict=True)
        ]
        self._ready.set()
        await serving
        for connection in list(self._server.server_state.connections):
            connection.transport.abort()
        for task in [*accepting, *self._connections]:
            task.cancel()
        for listener in self._listeners:
            listener.close()

    async def _accept(self, listener: socket.socket, kind: ListenerKind | None) -> None:
        loop = asyncio.get_running_loop()
        while not self._server.should_exit:
            try:
                connection, _ = await loop.sock_accept(listener)
            except OSError:  # no descriptors left, or the client has disconnected already
                await asyncio.sleep(0.05)
                continue
            if not await self._has_room():
                connection.close()
                continue
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # a body waits for no acknowledgement
            state = _Connection(connection, loop.time())
            task = loop.create_task(self._connect(connection, kind, state))
            self._connections[task] = state
            task.add_done_callback(lambda task: self._connections.pop(task, None))

    async def _has_room(self) -> bool:
        """Whether there is room for one more connection, or another one makes it within `ROOM_SECONDS`."""
        loop = asyncio.get_running_loop()
        ends = loop.time() + ROOM_SECONDS
        while self._is_full() and not self._end_slowest():
            if loop.time() > ends:
                return False
            await asyncio.sleep(0.01)
        return True

    def _is_full(self) -> bool:
        return len(self._connections) >= MAX_CONNECTIONS

    def _end_slowest(self) -> bool:
        """End an idle connection, or else the one without progress for the longest; False if none waits a second."""
        now = asyncio.get_running_loop().time()
        task, state = max(self._connections.items(), key=lambda each: each[1].rank(now))
        is_slow, *_ = state.rank(now)
        if not is_slow:
            return False
        del self._connections[task]
        state.end()
        return True

    async def _connect(self, connection: socket.socket, kind: ListenerKind | None, state: _Connection) -> None:
        loop = asyncio.get_running_loop()
        with contextlib.suppress(OSError), contextlib.closing(connection):  # clients may disconnect at any time
            kind = kind or await _kind_of(connection)
            proxied = connection, self._on_rejected, self._listening.pass_through, state.relay
            if kind == "proxy" and not await grant_tunnel(*proxied):
                return
            tls = None if kind == "http" else self._tls
            protocol = LimitedProtocol(self._server.config, self._server.server_state, {})
            protocol.is_crowded = self._is_full
            handshake = HANDSHAKE_SECONDS if tls else None
            await loop.connect_accepted_socket(lambda: protocol, connection, ssl=tls, ssl_handshake_timeout=handshake)
            state.protocol = protocol
            await protocol.lost.wait()


async def _kind_of(connection: socket.socket) -> ListenerKind:
    """What a client speaks, by its first byte, which stays unread; ConnectionError where none comes in time."""
    loop, has_begun = asyncio.get_running_loop(), asyncio.Event()
    loop.add_reader(connection, has_begun.set)
    try:
        await asyncio.wait_for(has_begun.wait(), FIRST_BYTE_SECONDS)
    except TimeoutError:
        raise ConnectionAbortedError from None
    finally:
        loop.remove_reader(connection)
    first = connection.recv(1, socket.MSG_PEEK)
    return "https" if first == _HANDSHAKE else "proxy" if first == _CONNECT else "http"


def _listening_socket(address: str, port: int) -> socket.socket:
    """A non-blocking socket that listens; UsageError where the port or address cannot be used."""
    family = socket.AF_INET6 if ip_address(address).version == 6 else socket.AF_INET  # noqa: PLR2004 - IPv6
    try:
        listener = socket.create_server((address, port), family=family, backlog=MAX_WAITING)
    except (OSError, OverflowError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise UsageError(f"{address}, port {port}: {reason}", "Use another port, or 0 for any.") from None
    listener.setblocking(False)
    return listener
