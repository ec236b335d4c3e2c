"""The endpoint on the wire: https, http and the proxy, each on a port of its own, in a thread of its own.

All three are one accept loop: a connection to the proxy becomes one to https once the tunnel is agreed to.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import contextlib
import hmac
import logging
import socket
import threading
from dataclasses import dataclass
from ipaddress import ip_address
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import httptools
import uvicorn

from mirror_engine.errors import UsageError
from mirror_engine.onelake.entra import carries
from mirror_engine.onelake.error_responses import Refused, RejectedRequestLog, refuse
from mirror_engine.onelake.internal_error import InternalErrorMiddleware
from mirror_engine.onelake.limits import IDLE_SECONDS, MAX_CONNECTIONS, MAX_HEAD_BYTES, LimitedBodies, LimitedProtocol
from mirror_engine.onelake.requests import LOGINS, LOOPBACK_ADDRESSES, LOOPBACK_NAMES, is_served, named_host

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable

    from starlette.types import ASGIApp, Receive, Scope, Send

CONNECT_SECONDS = 10.0
PORT = "443"
_REFUSAL = (
    "mirror-engine: this proxy joins OneLake, Fabric's API and Entra on port 443, and nothing else.\n"
    "It stands in HTTPS_PROXY of the environment that `mirror-engine serve` printed.\n"
)


async def agrees(connection: socket.socket, tell: Callable[[Refused], None] = lambda _: None) -> bool:
    """Read what a client asks of the proxy and answer it; whether TLS to the endpoint may follow.

    Args:
        connection: not blocking; left open. Within `CONNECT_SECONDS` the whole request must be there, or nothing is
            answered.
        tell: is told of a tunnel that is refused.
    """
    head = _Head()
    try:
        status = await asyncio.wait_for(_asked(connection, head), CONNECT_SECONDS)
    except asyncio.TimeoutError:
        return False
    if status is not None:
        tell(Refused(head.method, head.host, "", int(status[:3]), ""))
    answer = b"HTTP/1.1 200 Connection established\r\n\r\n" if status is None else _refused(status)
    await asyncio.get_running_loop().sock_sendall(connection, answer)
    return status is None


async def _asked(connection: socket.socket, head: _Head) -> str | None:
    """Why a request is refused; None where it is not."""
    loop = asyncio.get_running_loop()
    parser = httptools.HttpRequestParser(head)
    read = 0
    while not head.is_whole:
        data = await loop.sock_recv(connection, MAX_HEAD_BYTES)
        read += len(data)
        if read > MAX_HEAD_BYTES:
            return "431 Request Header Fields Too Large"
        try:
            parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            if upgrade.args[0] < len(data):  # whoever speaks on before the answer knows nothing of tunnels
                return "400 Bad Request"
        except httptools.HttpParserError:
            return "400 Bad Request"
        if not data:
            return "400 Bad Request"
    head.method = parser.get_method().decode("ascii")
    is_tunnel = head.method == "CONNECT" and parser.get_http_version() in {"1.0", "1.1"}
    host, _, port = head.target.decode("latin-1").rpartition(":")
    return None if is_tunnel and port == PORT and is_served(host) else "403 Forbidden"


class _Head:
    """What the parser found so far."""

    def __init__(self) -> None:
        self.target = b""
        self.method = ""
        self.is_whole = False

    @property
    def host(self) -> str:
        """Where a tunnel was to lead, without a password; what else is asked of a proxy may hold a signature."""
        return self.target.decode("latin-1").rpartition("@")[2] if self.method == "CONNECT" else ""

    def on_url(self, url: bytes) -> None:
        self.target += url

    def on_headers_complete(self) -> None:
        self.is_whole = True


def _refused(status: str) -> bytes:
    body = _REFUSAL.encode()
    head = f"HTTP/1.1 {status}\r\nContent-Type: text/plain\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    return head.encode() + body


_ASKS_FOR = 'Bearer authorization_uri="https://login.microsoftonline.com/common", Basic realm="mirror-engine"'


class Guard:
    """An ASGI application behind its guard.

    Args:
        app: what is guarded.
        secret: where set, all but Entra's own requests must carry it: as a token that Entra's stub gave for it, as it
            stands, or as the password of a browser's form. Entra's stub asks for it as the client's secret.
        is_open: whether it listens beyond loopback, where hosts may have any name.
    """

    def __init__(self, app: ASGIApp, secret: str | None = None, *, is_open: bool = False) -> None:
        self._app = app
        self._secret = secret
        self._is_open = is_open

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request, or refuse it."""
        host = named_host(scope["headers"])
        if host is None:
            await refuse(scope, send, 400, "InvalidHeaderValue", "A request names one host.")
        elif not self._knows(host):
            await refuse(scope, send, 421, "InvalidUri", "This endpoint does not answer to that host name.")
        elif not self._is_from_here(scope):
            await refuse(scope, send, 403, "AuthorizationFailure", "Pages of other sites may not use this endpoint.")
        elif host not in LOGINS and not self._is_authorized(scope):
            challenge = {"www-authenticate": _ASKS_FOR}
            message = "This endpoint asks for the token it was started with."
            await refuse(scope, send, 401, "Unauthorized", message, headers=challenge)
        else:
            await self._app(scope, receive, send)

    def _knows(self, host: str) -> bool:
        return self._is_open or host in (*LOOPBACK_NAMES, *LOOPBACK_ADDRESSES) or is_served(host)

    def _is_from_here(self, scope: Scope) -> bool:
        """Whether a request comes from no page, or from one of the host it goes to."""
        origins = [value.decode("latin-1").lower() for name, value in scope["headers"] if name == b"origin"]
        hosts = [value.decode("latin-1").lower() for name, value in scope["headers"] if name == b"host"]
        return all(_authority(origin) in hosts for origin in origins)

    def _is_authorized(self, scope: Scope) -> bool:
        if self._secret is None:
            return True
        said = next((value for name, value in scope["headers"] if name == b"authorization"), b"")
        scheme, _, credentials = said.decode("latin-1").partition(" ")
        if scheme.lower() == "bearer":
            return carries(credentials.strip(), self._secret)
        return scheme.lower() == "basic" and hmac.compare_digest(_password(credentials), self._secret.encode())


class OwnGuard(Guard):
    """The guard of what stands behind no name of the real service's: every request must carry the secret."""

    def _knows(self, host: str) -> bool:
        return host in (*LOOPBACK_NAMES, *LOOPBACK_ADDRESSES)


def _authority(origin: str) -> str | None:
    try:
        return urlsplit(origin).netloc
    except ValueError:
        return None


def _password(credentials: str) -> bytes:
    try:
        return base64.b64decode(credentials, validate=True).partition(b":")[2]
    except binascii.Error:
        return b""


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
        tls: see `mirror_engine.onelake.authority`.
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
        self._app = RejectedRequestLog(
            Guard(LimitedBodies(InternalErrorMiddleware(app, tell)), secret, is_open=is_open), tell_refused
        )
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
            if len(self._connections) >= MAX_CONNECTIONS:
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
        listener = socket.create_server((address, port), family=family, backlog=MAX_CONNECTIONS)
    except (OSError, OverflowError) as error:
        why = getattr(error, "strerror", None) or str(error)
        raise UsageError(f"{address}, port {port}: {why}", "Name another port, or 0 for any.") from None
    listener.setblocking(False)
    return listener
