"""The endpoint on the wire: https, http and the proxy, each on a port of its own, in a thread of its own.

All three are one accept loop: a connection to the proxy becomes one to https once the tunnel is agreed to.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import threading
from dataclasses import dataclass
from ipaddress import ip_address
from typing import TYPE_CHECKING

import uvicorn

from mirror_engine.endpoint.guard import Guard
from mirror_engine.endpoint.limits import IDLE_SECONDS, MOST_CONNECTIONS, LimitedBodies, LimitedProtocol
from mirror_engine.endpoint.proxy import agrees
from mirror_engine.endpoint.refused import RefusalsTold, Refused
from mirror_engine.endpoint.unforeseen import Unforeseen
from mirror_engine.errors import UsageError

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable

    from starlette.types import ASGIApp

logging.getLogger("uvicorn").addHandler(logging.NullHandler())  # what matters is told in words of our own

LOOPBACK = "127.0.0.1"
HANDSHAKE_SECONDS = 10.0
GOODBYE_SECONDS = 3  # for answers that are on their way when the endpoint stops


@dataclass(frozen=True)
class Ports:
    """Where the three listen; 0 for any free port."""

    proxy: int = 0
    http: int = 0
    https: int = 0

    @staticmethod
    def from_first(port: int) -> Ports:
        """Three in a row; any three for 0."""
        return Ports(port, port + 1, port + 2) if port else Ports()


class Endpoint:
    """An ASGI application on https, http and behind the proxy, guarded and limited.

    Args:
        app: speaks all dialects, told apart by `Host`; gets no lifespan events.
        tls: see `mirror_engine.endpoint.authority`.
        listen: an address of this machine; http stays on the loopback.
        ports: asked for; `https_port`, `http_port` and `proxy_port` tell what was got.
        secret: see `Guard`.
        tell: is told of faults of the program, in words without anything a client sent.
        tell_refused: is told of each refused request and tunnel.
    """

    def __init__(  # noqa: PLR0913 - every part may be replaced
        self,
        app: ASGIApp,
        tls: ssl.SSLContext,
        *,
        listen: str = LOOPBACK,
        ports: Ports | None = None,
        secret: str | None = None,
        tell: Callable[[str], None] = lambda _: None,
        tell_refused: Callable[[Refused], None] = lambda _: None,
    ) -> None:
        is_open = not ip_address(listen).is_loopback
        self._app = RefusalsTold(Guard(LimitedBodies(Unforeseen(app, tell)), secret, is_open=is_open), tell_refused)
        self._tell_refused = tell_refused
        self._tls = tls
        self._listen = listen
        self._wanted = ports or Ports()
        self._connections: set[asyncio.Task[None]] = set()
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._run, name="endpoint", daemon=True)

    def start(self) -> None:
        """Listen; returns when requests are answered.

        Raises:
            UsageError: a port or the address cannot be had.
        """
        with contextlib.ExitStack() as opened:
            self._https, self._http, self._proxy = (
                opened.enter_context(bound(address, port))
                for address, port in (
                    (self._listen, self._wanted.https),
                    (LOOPBACK, self._wanted.http),  # in the clear, tokens go nowhere else
                    (self._listen, self._wanted.proxy),
                )
            )
            opened.pop_all()
        self._thread.start()
        self._ready.wait()

    def stop(self) -> None:
        """End; returns when nothing is answered any more. Answers on their way get a moment."""
        self._server.should_exit = True
        self._thread.join()

    @property
    def https_port(self) -> int:
        """For clients with tokens that name the endpoint themselves."""
        return int(self._https.getsockname()[1])

    @property
    def http_port(self) -> int:
        """For all other credentials, and for browsers."""
        return int(self._http.getsockname()[1])

    @property
    def proxy_port(self) -> int:
        """For clients that name the real service."""
        return int(self._proxy.getsockname()[1])

    def _run(self) -> None:
        asyncio.run(self._serve())

    async def _serve(self) -> None:
        self._server = uvicorn.Server(limited_http(self._app))
        serving = asyncio.create_task(self._server.serve(sockets=[]))
        while not self._server.started:  # noqa: ASYNC110 - it has no event for that
            await asyncio.sleep(0.001)
        listening = [
            asyncio.create_task(self._accept(self._https, self._tls)),
            asyncio.create_task(self._accept(self._http, None)),
            asyncio.create_task(self._accept(self._proxy, self._tls, is_proxy=True)),
        ]
        self._ready.set()
        await serving
        for left in list(self._server.server_state.connections):
            left.transport.abort()
        for task in [*listening, *self._connections]:
            task.cancel()
        for listener in (self._https, self._http, self._proxy):
            listener.close()

    async def _accept(self, listener: socket.socket, tls: ssl.SSLContext | None, *, is_proxy: bool = False) -> None:
        loop = asyncio.get_running_loop()
        while not self._server.should_exit:
            try:
                connection, _ = await loop.sock_accept(listener)
            except OSError:  # no descriptors left, or the client has gone already
                await asyncio.sleep(0.05)
                continue
            if len(self._connections) >= MOST_CONNECTIONS:
                connection.close()
                continue
            task = loop.create_task(self._talk(connection, tls, is_proxy=is_proxy))
            self._connections.add(task)
            task.add_done_callback(self._connections.discard)

    async def _talk(self, connection: socket.socket, tls: ssl.SSLContext | None, *, is_proxy: bool) -> None:
        """One connection, from its first byte to its end."""
        loop = asyncio.get_running_loop()
        with contextlib.suppress(OSError), contextlib.closing(connection):  # clients may go whenever they like
            if is_proxy and not await agrees(connection, self._tell_refused):
                return
            protocol = LimitedProtocol(self._server.config, self._server.server_state, {})
            handshake = HANDSHAKE_SECONDS if tls else None
            await loop.connect_accepted_socket(lambda: protocol, connection, ssl=tls, ssl_handshake_timeout=handshake)
            await protocol.lost.wait()


def limited_http(app: ASGIApp, *, idle_seconds: int = IDLE_SECONDS, most_at_once: int | None = None) -> uvicorn.Config:
    """How an application is served: within limits, and nothing of a request in any log.

    Args:
        app: gets no lifespan events.
        idle_seconds: between two requests on one connection.
        most_at_once: connections and answers on their way; None where the caller counts them.
    """
    return uvicorn.Config(
        app,
        loop="asyncio",
        http=LimitedProtocol,
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        proxy_headers=False,
        server_header=False,
        limit_concurrency=most_at_once,
        timeout_keep_alive=idle_seconds,
        timeout_graceful_shutdown=GOODBYE_SECONDS,
    )


def bound(address: str, port: int) -> socket.socket:
    """A socket that listens and does not block.

    Raises:
        UsageError: the port or the address cannot be had.
    """
    family = socket.AF_INET6 if ip_address(address).version == 6 else socket.AF_INET  # noqa: PLR2004 - IPv6
    try:
        listener = socket.create_server((address, port), family=family, backlog=MOST_CONNECTIONS)
    except (OSError, OverflowError) as error:
        why = getattr(error, "strerror", None) or str(error)
        raise UsageError(f"{address}, port {port}: {why}", "Name another port, or 0 for any.") from None
    listener.setblocking(False)
    return listener
