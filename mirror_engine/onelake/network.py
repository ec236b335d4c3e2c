"""The emulator's listeners: https, http and a CONNECT proxy, on one accept loop in a thread of its own.

A connection to the proxy becomes one to https once its tunnel to the emulator is granted. On a single port the first
byte of a connection says which of the three it is.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import re
import socket
import ssl
import threading
import warnings
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from fnmatch import fnmatchcase
from functools import partial
from ipaddress import IPv6Address, ip_address, ip_network
from socket import SOCK_STREAM
from types import SimpleNamespace
from typing import TYPE_CHECKING, Literal

import httptools
import uvicorn
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, pkcs12
from cryptography.utils import CryptographyDeprecationWarning
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from mirror_engine.errors import UsageError
from mirror_engine.onelake.connection import write_private
from mirror_engine.onelake.hosts import (
    BLOB,
    DFS,
    FABRIC,
    LOGINS,
    LOOPBACK,
    LOOPBACK_ADDRESSES,
    host_and_port,
    host_of,
    is_production,
    is_served,
)
from mirror_engine.onelake.middleware import RESET_EXTENSION, RejectedRequest

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from starlette.types import ASGIApp
    from uvicorn.protocols.http.httptools_impl import RequestResponseCycle

    from mirror_engine.onelake.connection import Listening
    from mirror_engine.onelake.hosts import PassedHost

MAX_HEAD_BYTES = 16 * 1024
CHUNK_BYTES = 64 * 1024
CONNECT_SECONDS = 10.0  # for the head, and for a connection to a host
TUNNEL_IDLE_SECONDS = 1800.0  # of a passed connection: pools of a database keep theirs for many minutes
GLOBAL_UNICAST = ip_network("2000::/3")
AZURE_HOST = ip_address("168.63.129.16")  # answers every machine of Azure, at a public address

GRANTED = b"HTTP/1.1 200 Connection established\r\n\r\n"
BAD_REQUEST = "400 Bad Request"
MALFORMED = f"HTTP/1.1 {BAD_REQUEST}\r\nContent-Type: text/plain\r\nConnection: close\r\nContent-Length: ".encode()
FORBIDDEN = "403 Forbidden by mirror-engine (emulator start --pass-through HOST)"  # most clients show no more than that
PRODUCTION = "403 Forbidden by mirror-engine (OneLake, Fabric, Entra: names that it serves, on port 443)"
TUNNELS_ONLY = "403 Forbidden by mirror-engine (HTTPS by CONNECT only: no HTTP through its proxy)"
UNREACHABLE = "502 Bad Gateway, mirror-engine cannot reach that host"
PROXY_ERROR = (
    "This is the proxy of mirror-engine's emulator, to which HTTPS_PROXY of its environment points. It connects\n"
    "OneLake, Fabric's API and Entra, on port 443, to the emulator; and other hosts where the emulator was started\n"
    "with --pass-through HOST, '*.DOMAIN' or all. Hosts on this machine or a private network must be named.\n"
)


class RefusedError(Exception):
    """A proxy request is not served, with the status line's code and reason."""


async def addresses(host: str, port: int, passed: Sequence[PassedHost]) -> Sequence[str]:
    """Where a host is reached, as far as it may be; RefusedError, OSError."""
    if is_production(host):
        raise RefusedError(PRODUCTION)
    matching = [each for each in passed if each.port in {None, port} and fnmatchcase(host, each.host)]
    if matching:
        found = await asyncio.get_running_loop().getaddrinfo(host, port, type=SOCK_STREAM)
        is_named = any("*" not in each.host for each in matching)
        if reached := [str(at[0]) for *_, at in found if is_named or _is_public(str(at[0]))]:
            return reached
    raise RefusedError(FORBIDDEN)


def _is_public(text: str) -> bool:
    """Whether an address is the Internet's, in no form one of this machine, its network or its cloud's host."""
    address = ip_address(text)
    if isinstance(address, IPv6Address):
        if address.ipv4_mapped:
            address = address.ipv4_mapped
        elif address not in GLOBAL_UNICAST or address.sixtofour or address.teredo:
            return False
    return address.is_global and not (address.is_multicast or address.is_reserved) and address != AZURE_HOST


async def _receive(connection: socket.socket) -> tuple[str, str, bool]:
    """A request's method and target, and whether its version has tunnels; RefusedError where more follows the head."""
    target, is_complete, size = bytearray(), asyncio.Event(), 0
    parser = httptools.HttpRequestParser(SimpleNamespace(on_url=target.extend, on_headers_complete=is_complete.set))
    while not is_complete.is_set():
        data = await asyncio.get_running_loop().sock_recv(connection, MAX_HEAD_BYTES)
        size += len(data)
        if size > MAX_HEAD_BYTES:
            raise RefusedError("431 Request Header Fields Too Large")
        try:
            parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            if upgrade.args[0] < len(data):  # data before the tunnel is granted
                raise RefusedError(BAD_REQUEST) from None
        except httptools.HttpParserError:
            raise RefusedError(BAD_REQUEST) from None
        if not data:
            raise RefusedError(BAD_REQUEST)
    return parser.get_method().decode(), target.decode("latin-1"), parser.get_http_version() in {"1.0", "1.1"}


async def grant_tunnel(
    connection: socket.socket,
    on_rejected: Callable[[RejectedRequest], None] = lambda _: None,
    passed: Sequence[PassedHost] = (),
    on_relay: Callable[[], None] = lambda: None,
) -> bool:
    """Read and answer a proxy request; whether TLS to the emulator may follow.

    A tunnel to a passed host is served until either side has ended it. The connection is non-blocking and left open;
    what does not arrive within `CONNECT_SECONDS` is not answered.
    """
    method = target = ""
    try:
        method, target, has_tunnels = await asyncio.wait_for(_receive(connection), CONNECT_SECONDS)
        host, _, port = target.rpartition(":")
        is_granted = has_tunnels and (method, port) == ("CONNECT", "443") and is_served(host)
        upstream = None if is_granted else await asyncio.wait_for(_connect(method, target, passed), CONNECT_SECONDS)
    except RefusedError as refused:
        status = str(refused)
    except (asyncio.TimeoutError, OSError, UnicodeError):  # the last is raised for names that DNS cannot have
        if not method:
            return False
        status = UNREACHABLE
    else:
        if upstream:
            on_relay()
            await _relay(connection, *upstream)
        else:
            await asyncio.get_running_loop().sock_sendall(connection, GRANTED)
        return is_granted
    host = re.split("[/?#]", target.removeprefix("http://"))[0].rpartition("@")[2]  # the rest may hold a signature
    allowed_by = "--pass-through" if status == FORBIDDEN else ""
    on_rejected(RejectedRequest(method, host, "", int(status[:3]), "", allowed_by))
    length = f"Content-Length: {len(PROXY_ERROR)}\r\nConnection: close"
    answer = f"HTTP/1.1 {status}\r\nContent-Type: text/plain\r\n{length}\r\n\r\n{PROXY_ERROR}"
    await asyncio.get_running_loop().sock_sendall(connection, answer.encode())
    return False


_Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


async def _connect(method: str, target: str, passed: Sequence[PassedHost]) -> _Streams:
    """A connection to the first address that accepts one; RefusedError, OSError."""
    if method != "CONNECT":
        raise RefusedError(TUNNELS_ONLY)
    try:
        host, port = host_and_port(target)
    except ValueError:
        port = None
    if port is None:
        raise RefusedError(BAD_REQUEST)
    *others, last = await addresses(host, port, passed)
    for address in others:
        with contextlib.suppress(OSError):
            return await asyncio.open_connection(address, port)
    return await asyncio.open_connection(last, port)


async def _relay(connection: socket.socket, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Carry bytes both ways until the host has ended its side, a side has failed or both are silent."""
    from_client, to_client = await asyncio.open_connection(sock=connection)
    to_client.write(GRANTED)
    moved = asyncio.Event()
    sending = asyncio.create_task(_copy(from_client, writer, moved))
    receiving = asyncio.create_task(_copy(reader, to_client, moved))
    receiving.add_done_callback(lambda _: moved.set())
    try:
        while not receiving.done():
            moved.clear()
            await asyncio.wait_for(moved.wait(), TUNNEL_IDLE_SECONDS)
        to_client.close()
        await asyncio.wait_for(to_client.wait_closed(), TUNNEL_IDLE_SECONDS)
    except asyncio.TimeoutError:
        pass
    finally:
        for copying, to in ((sending, writer), (receiving, to_client)):
            copying.cancel()
            to.transport.abort()


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, moved: asyncio.Event) -> None:
    """Copy bytes and their end; where either side fails, abort, which ends the other direction, too."""
    try:
        while piece := await reader.read(CHUNK_BYTES):
            moved.set()
            writer.write(piece)
            await writer.drain()
        writer.write_eof()
    except OSError:
        writer.transport.abort()


ListenerKind = Literal["proxy", "http", "https"]  # in the order of their ports
MAX_HEADERS = 100
MAX_CONNECTIONS = 256
MAX_WAITING = 1024  # connections that are not accepted yet
MAX_PIPELINED = 16  # requests of a connection that wait for an earlier one
HEAD_SECONDS = 10.0  # for a head
UNREAD_SECONDS, UNREAD_BYTES = 60.0, 256 << 20  # for the rest of a body whose request is answered, and of it
REFUSED_SECONDS = 1.0  # for what a client still sends after a malformed request
READ_SECONDS = 600.0  # in which a client must read some megabytes of an answer: what the system buffers
SLOW_BYTES_PER_SECOND = 64 * 1024  # of a body: what a slower one lacks counts as silence
ROOM_SECONDS = 2.0  # that a connection waits for room; those behind it wait, too
SLOW_SECONDS = 1.0  # of silence, after which a connection may be ended when there are too many
HANDSHAKE_SECONDS = 10.0
IDLE_SECONDS = 120  # between two requests of a connection
SHUTDOWN_SECONDS = 3  # for responses in progress
_QUICKACK = getattr(socket, "TCP_QUICKACK", None)  # Linux
_HANDSHAKE, _CONNECT = b"\x16", b"C"  # no other method that is served begins so

logging.getLogger("uvicorn").addHandler(logging.NullHandler())  # the emulator logs for itself


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
        self.transport.close()  # Python 3.10's TLS transport needs it
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
        """For how long the client has made no progress; 0 where it waits for an answer, endless after its last one."""
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
        """Answer 400; where another answer is on its way, or this request's has begun, end the connection alone.

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
        """Close the connection after an answer; while the body is arriving, once it has: else it would be reset."""
        is_arriving = not (self._is_complete or self._is_in_head)
        if is_arriving and cycle is self.cycle and cycle.response_complete:
            self._is_ending = True
            self._end_writing()
        else:
            self.transport.close()

    def _end_writing(self) -> None:
        """Let the client see that nothing more comes; TLS cannot."""
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
        await asyncio.wait_for(has_begun.wait(), HEAD_SECONDS)
    except asyncio.TimeoutError:
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


LIFETIME = timedelta(days=30)
CLOCK_SKEW = timedelta(minutes=5)
ISSUER = "mirror-engine local authority"


@dataclass(frozen=True)
class Authority:
    """The emulator's certificate files."""

    ca: Path  # the authority's certificate alone, for programs that add it to their own roots
    bundle: Path  # it and this machine's roots, for programs that replace theirs
    java: Path  # the bundle as a trust store for Java: PKCS#12 without a password
    leaf: Path  # the emulator's certificate and key, readable by its owner alone

    def context(self) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.set_alpn_protocols(["http/1.1"])
        context.load_cert_chain(self.leaf)
        return context


def create_authority(
    folder: Path, address: str = LOOPBACK, own_names: Sequence[str] = (), *, now: datetime | None = None
) -> Authority:
    """Create an authority and the emulator's certificate in a folder for its owner alone, replacing earlier ones.

    The certificate names the address and these host names of this machine besides those of loopback and production.
    """
    begins = (now or datetime.now(timezone.utc)) - CLOCK_SKEW
    folder.mkdir(parents=True, exist_ok=True)
    folder.chmod(0o700)
    addresses = sorted({*LOOPBACK_ADDRESSES, *([] if ip_address(address).is_unspecified else [address])})
    ca_key, leaf_key = (ec.generate_private_key(ec.SECP256R1()) for _ in range(2))
    # name-constrained, and a permitted name includes its subdomains: a publisher trusts it for these alone
    own, others = ("localhost", *own_names), (FABRIC, *LOGINS)
    permitted: list[x509.GeneralName] = [x509.DNSName(name) for name in (*own, DFS, BLOB, *others)]
    permitted += [x509.IPAddress(ip_network(address)) for address in addresses]
    ca = (
        _certificate(ISSUER, ca_key, begins, is_ca=True)
        .add_extension(x509.NameConstraints(permitted, excluded_subtrees=None), critical=True)
        .sign(ca_key, hashes.SHA256())
    )
    names: list[x509.GeneralName] = [x509.DNSName(name) for name in (*own, f"*.{DFS}", f"*.{BLOB}", *others)]
    names += [x509.IPAddress(ip_address(address)) for address in addresses]
    issuer_key = x509.AuthorityKeyIdentifier.from_issuer_public_key(ca_key.public_key())
    leaf = (
        _certificate("mirror-engine emulator", leaf_key, begins, is_ca=False)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .add_extension(issuer_key, critical=False)
        .sign(ca_key, hashes.SHA256())
    )
    ca_text = ca.public_bytes(Encoding.PEM)
    key_text = leaf_key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    roots = _machine_roots()
    created = Authority(folder / "ca.pem", folder / "bundle.pem", folder / "java.p12", folder / "emulator.pem")
    write_private(created.ca, ca_text)
    write_private(created.bundle, ca_text + "".join(map(ssl.DER_cert_to_PEM_cert, roots)).encode("ascii"))
    write_private(created.java, _trust_store(ca, roots))
    write_private(created.leaf, leaf.public_bytes(Encoding.PEM) + key_text)
    return created


def _certificate(
    common_name: str, key: ec.EllipticCurvePrivateKey, begins: datetime, *, is_ca: bool
) -> x509.CertificateBuilder:
    """What both certificates have; issued by `ISSUER`."""
    subject, issuer = (x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)]) for name in (common_name, ISSUER))
    others = ("content_commitment", "key_encipherment", "data_encipherment", "key_agreement")
    unused = dict.fromkeys((*others, "encipher_only", "decipher_only"), False)
    usage = x509.KeyUsage(digital_signature=not is_ca, key_cert_sign=is_ca, crl_sign=is_ca, **unused)
    return (
        x509.CertificateBuilder(issuer, subject, key.public_key(), x509.random_serial_number())
        .not_valid_before(begins)
        .not_valid_after(begins + LIFETIME)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(x509.BasicConstraints(ca=is_ca, path_length=0 if is_ca else None), critical=True)
        .add_extension(usage, critical=True)
    )


def _machine_roots() -> list[bytes]:
    """This machine's trusted roots as DER, without other STOREs' authorities."""
    roots = ssl.create_default_context().get_ca_certs(binary_form=True)
    return [root for root in roots if ISSUER.encode() not in root]


def _trust_store(authority: x509.Certificate, roots: Sequence[bytes]) -> bytes:
    """PKCS#12 with Java's mark of a trusted certificate, unencrypted: Java reads that with any password or none.

    Roots of another form than X.509 version 3, or 1, demands are left out.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CryptographyDeprecationWarning)  # an old root has the serial number 0
        trusted = [authority]
        for root in roots:
            with suppress(ValueError, x509.InvalidVersion):  # OpenSSL accepts more
                trusted.append(x509.load_der_x509_certificate(root))
    entries = [pkcs12.PKCS12Certificate(each, b"%d" % place) for place, each in enumerate(trusted)]
    return pkcs12.serialize_java_truststore(entries, NoEncryption())
