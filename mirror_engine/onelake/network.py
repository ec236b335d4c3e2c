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
from ipaddress import ip_address
from typing import TYPE_CHECKING, Literal

import httptools
import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from mirror_engine.errors import UsageError
from mirror_engine.onelake.errors import RESET_EXTENSION
from mirror_engine.onelake.hosts import LOOPBACK, host_of
from mirror_engine.onelake.middleware import bounded, guarded, is_entra, logged
from mirror_engine.onelake.proxy import MAX_HEAD_BYTES, grant_tunnel

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable, Sequence

    from starlette.types import ASGIApp, Scope

    from mirror_engine.onelake.middleware import RejectedRequest
    from mirror_engine.onelake.proxy import PassedHost

Kind = Literal["proxy", "http", "https"]  # in the order of their ports
MAX_HEADERS = 100
MAX_CONNECTIONS = 256
HEAD_SECONDS = 10.0
HANDSHAKE_SECONDS = 10.0
IDLE_SECONDS = 120  # between two requests of a connection
SHUTDOWN_SECONDS = 3  # for responses in progress
_QUICKACK = getattr(socket, "TCP_QUICKACK", None)  # Linux
_HANDSHAKE, _CONNECT = b"\x16", b"C"  # no other method that is served begins so

logging.getLogger("uvicorn").addHandler(logging.NullHandler())  # the emulator logs for itself


class LimitedProtocol(HttpToolsProtocol):
    """HTTP with heads of bounded length and time, whose target names no other host; else 400, as IIS answers.

    Attributes:
        lost: set when the connection has ended.
    """

    _head_bytes = 0
    _is_in_head = True
    _head_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.access_log = False  # it would write queries, which may hold signatures
        self.lost = asyncio.Event()
        self._start_head()

    def connection_lost(self, exc: Exception | None) -> None:
        self._end_head()
        super().connection_lost(exc)
        self.transport.close()  # Python 3.10's TLS transport needs it
        self.lost.set()

    def shutdown(self) -> None:
        """End the connection; an idle one at once, as a client that is gone does not end its TLS."""
        is_idle = self.cycle is None or self.cycle.response_complete
        if is_idle and not self.transport.get_write_buffer_size():
            self.transport.abort()
        else:
            super().shutdown()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self._is_in_head:  # it may never end
            self._head_bytes += len(data)
            if self._head_bytes > MAX_HEAD_BYTES and not self.transport.is_closing():
                self.send_400_response("The request's head is too long.")

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self.scope["extensions"] = {RESET_EXTENSION: {"now": self.transport.abort}}
        self._start_head()

    def on_headers_complete(self) -> None:
        self._end_head()
        if _QUICKACK:  # urllib3 sends no body to a proxy before the head is acknowledged, which may take 40 ms
            self.transport.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, _QUICKACK, 1)
        length = len(self.url) + sum(len(name) + len(value) + 4 for name, value in self.headers)
        authority = httptools.parse_url(self.url).host  # of an absolute-form target
        is_foreign = authority is not None and authority.decode("latin-1").lower() != host_of(self.headers)
        if is_foreign or length > MAX_HEAD_BYTES or len(self.headers) > MAX_HEADERS:
            raise ValueError(length)  # the parser's caller answers 400
        super().on_headers_complete()

    def _start_head(self) -> None:
        self._is_in_head, self._head_bytes = True, 0
        if self._head_timer is None:
            self._head_timer = self.loop.call_later(HEAD_SECONDS, self.transport.abort)

    def _end_head(self) -> None:
        self._is_in_head = False
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None


class Listeners:
    """An ASGI application on https, http and behind the proxy, guarded and limited.

    Args:
        app: speaks all dialects, selected by `Host`; gets no lifespan events.
        tls: see `authority`.
        listen: an address of this machine; http stays on loopback.
        port: of the proxy; http and https take the next two. 0 for any free ones.
        is_single_port: all three share one port, on `listen`.
        secret, is_public: see `guarded`.
        pass_through: other hosts that the proxy connects to.
        on_error: gets internal errors, without request content.
        on_answered: gets every answer's method and status.
        on_rejected: gets each rejected request and tunnel.

    Attributes:
        https_port: for clients with tokens that address the emulator directly; known once started, as the others.
        http_port: for all other credentials, and for browsers.
        proxy_port: for clients with production URLs.
    """

    def __init__(  # noqa: PLR0913 - the settings of a server
        self,
        app: ASGIApp,
        tls: ssl.SSLContext,
        *,
        listen: str = LOOPBACK,
        port: int = 0,
        is_single_port: bool = False,
        secret: str | None = None,
        is_public: Callable[[Scope], bool] = is_entra,
        pass_through: Sequence[PassedHost] = (),
        on_error: Callable[[str], None] = lambda _: None,
        on_answered: Callable[[str, int], None] = lambda *_: None,
        on_rejected: Callable[[RejectedRequest], None] = lambda _: None,
    ) -> None:
        allows_any_host = not ip_address(listen).is_loopback
        guard = guarded(bounded(app, on_error), secret, allows_any_host=allows_any_host, is_public=is_public)
        self._app = logged(guard, on_rejected, on_answered)
        self._on_rejected = on_rejected
        self._pass_through = pass_through
        self._tls = tls
        self._listen = listen
        self._port = port
        self._is_single_port = is_single_port
        self._connections: set[asyncio.Task[None]] = set()
        self._ready = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve()), name="emulator", daemon=True)

    def start(self) -> None:
        """Listen; returns when requests are answered. UsageError where a port or the address cannot be used."""
        with contextlib.ExitStack() as opened:
            # tokens in the clear stay on this machine, but where one port was asked for
            addresses = [self._listen] if self._is_single_port else [self._listen, LOOPBACK, self._listen]
            self._listeners = [
                opened.enter_context(listening_socket(address, self._port + place if self._port else 0))
                for place, address in enumerate(addresses)
            ]
            opened.pop_all()
        ports = [each.getsockname()[1] for each in self._listeners]
        self.proxy_port, self.http_port, self.https_port = ports * 3 if self._is_single_port else ports
        self._thread.start()
        self._ready.wait()

    def stop(self) -> None:
        """Stop; returns when nothing is answered any more."""
        self._server.should_exit = True
        self._thread.join()

    async def _serve(self) -> None:
        self._server = uvicorn.Server(http_config(self._app))
        serving = asyncio.create_task(self._server.serve(sockets=[]))
        while not self._server.started:  # noqa: ASYNC110 - it has no event for that
            await asyncio.sleep(0.001)
        kinds: Sequence[Kind | None] = (None,) if self._is_single_port else ("proxy", "http", "https")
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

    async def _accept(self, listener: socket.socket, kind: Kind | None) -> None:
        loop = asyncio.get_running_loop()
        while not self._server.should_exit:
            try:
                connection, _ = await loop.sock_accept(listener)
            except OSError:  # no descriptors left, or the client has disconnected already
                await asyncio.sleep(0.05)
                continue
            if len(self._connections) >= MAX_CONNECTIONS:
                connection.close()
                continue
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # a body waits for no acknowledgement
            task = loop.create_task(self._connect(connection, kind))
            self._connections.add(task)
            task.add_done_callback(self._connections.discard)

    async def _connect(self, connection: socket.socket, kind: Kind | None) -> None:
        """Serve one connection until it ends."""
        loop = asyncio.get_running_loop()
        with contextlib.suppress(OSError), contextlib.closing(connection):  # clients may disconnect at any time
            kind = kind or await _kind_of(connection)
            if kind == "proxy" and not await grant_tunnel(connection, self._on_rejected, self._pass_through):
                return
            tls = None if kind == "http" else self._tls
            protocol = LimitedProtocol(self._server.config, self._server.server_state, {})
            handshake = HANDSHAKE_SECONDS if tls else None
            await loop.connect_accepted_socket(lambda: protocol, connection, ssl=tls, ssl_handshake_timeout=handshake)
            await protocol.lost.wait()


async def _kind_of(connection: socket.socket) -> Kind:
    """What a client speaks, by its first byte, which stays unread; ConnectionError where none comes in time."""
    loop, has_begun = asyncio.get_running_loop(), asyncio.Event()
    loop.add_reader(connection, has_begun.set)
    try:
        await asyncio.wait_for(has_begun.wait(), HEAD_SECONDS)
    except asyncio.TimeoutError:
        raise ConnectionAbortedError from None
    finally:
        loop.remove_reader(connection)
    first = connection.recv(1, socket.MSG_PEEK)
    return "https" if first == _HANDSHAKE else "proxy" if first == _CONNECT else "http"


def http_config(
    app: ASGIApp, *, idle_seconds: int = IDLE_SECONDS, max_concurrency: int | None = None
) -> uvicorn.Config:
    """Serve an application within limits, and log nothing of a request.

    Args:
        app: gets no lifespan events.
        idle_seconds: between two requests of a connection.
        max_concurrency: connections and responses in progress; None where the caller counts them.
    """
    return uvicorn.Config(
        app,
        loop="asyncio",
        http=LimitedProtocol,
        ws="none",
        lifespan="off",
        log_config=None,
        proxy_headers=False,
        server_header=False,
        limit_concurrency=max_concurrency,
        timeout_keep_alive=idle_seconds,
        timeout_graceful_shutdown=SHUTDOWN_SECONDS,
    )


def listening_socket(address: str, port: int) -> socket.socket:
    """A non-blocking socket that listens; UsageError where the port or address cannot be used."""
    family = socket.AF_INET6 if ip_address(address).version == 6 else socket.AF_INET  # noqa: PLR2004 - IPv6
    try:
        listener = socket.create_server((address, port), family=family, backlog=MAX_CONNECTIONS)
    except (OSError, OverflowError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise UsageError(f"{address}, port {port}: {reason}", "Use another port, or 0 for any.") from None
    listener.setblocking(False)
    return listener
