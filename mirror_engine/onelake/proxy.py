"""The emulator's proxy: tunnels to the emulator, and connections to the hosts that it passes through."""

from __future__ import annotations

import asyncio
import contextlib
import re
from dataclasses import dataclass
from fnmatch import fnmatchcase
from ipaddress import IPv6Address, ip_address, ip_network
from socket import SOCK_STREAM
from typing import TYPE_CHECKING

import httptools

from mirror_engine.errors import UsageError
from mirror_engine.onelake.hosts import is_production, is_served
from mirror_engine.onelake.middleware import RejectedRequest

if TYPE_CHECKING:
    import socket
    from collections.abc import AsyncIterator, Callable, Sequence

MAX_HEAD_BYTES = 16 * 1024
CHUNK_BYTES = 64 * 1024
CONNECT_SECONDS = 10.0  # for the head, and for a connection to a host
IDLE_SECONDS = 1800.0  # of a passed connection: pools of a database keep theirs for many minutes
MAX_PORT = 65535
GLOBAL_UNICAST = ip_network("2000::/3")
AZURE_HOST = ip_address("168.63.129.16")  # answers every machine of Azure, at a public address

GRANTED = b"HTTP/1.1 200 Connection established\r\n\r\n"
BAD_REQUEST = "400 Bad Request"
FORBIDDEN = "403 Forbidden by mirror-engine (emulator start --pass-through HOST)"  # most clients show no more than that
PRODUCTION = "403 Forbidden by mirror-engine (OneLake, Fabric, Entra: names that it serves, on port 443)"
UNREACHABLE = "502 Bad Gateway, mirror-engine cannot reach that host"
PROXY_ERROR = (
    "This is the proxy of mirror-engine's emulator, to which HTTPS_PROXY of its environment points. It connects\n"
    "OneLake, Fabric's API and Entra, on port 443, to the emulator; and other hosts where the emulator was started\n"
    "with --pass-through HOST, '*.DOMAIN' or all. Hosts on this machine or a private network must be named.\n"
)
_AUTHORITY = re.compile(r"(?P<host>[a-z0-9*_.-]+|\[[0-9a-f:.]+\])(?::(?P<port>[0-9]{1,5}))?")
_PLAIN = re.compile(rb"http://([^/?#]*)")  # a target in absolute form
_OF_THE_PROXY = frozenset({b"connection", b"host", b"keep-alive", b"proxy-authorization", b"proxy-connection"})


class RefusedError(Exception):
    """A proxy request is not served, with the status line's code and reason."""


def _host_and_port(authority: str) -> tuple[str, int | None]:
    """A host in lower case without a trailing dot, and its port where one is named; ValueError."""
    found = _AUTHORITY.fullmatch(authority.lower())
    port = int(found["port"]) if found and found["port"] else None
    if found is None or port == 0 or (port or 0) > MAX_PORT:
        raise ValueError(authority)
    return found["host"].strip("[]").rstrip("."), port


@dataclass(frozen=True)
class PassedHost:
    """A host that the proxy connects to, or several.

    Attributes:
        host: a name or an address; or a pattern with `*`, which means public addresses only.
        port: None for all.
    """

    host: str
    port: int | None = None

    @staticmethod
    def parse(text: str) -> PassedHost:
        """Read `HOST`, `HOST:PORT`, `*.DOMAIN` or `all`; UsageError."""
        try:
            return PassedHost(*_host_and_port("*" if text == "all" else text))
        except ValueError:
            message = f"--pass-through: {text!r} is not a host"
            raise UsageError(message, "Examples: api.example.org, '*.example.org', localhost:5432, all.") from None


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


class _ProxyRequest:
    """The head of a proxy request; callbacks of its parser.

    Attributes:
        method: as sent; empty until the head is complete.
        target: as sent.
        body: what has arrived of it.
        is_complete: whether all of it has arrived.
    """

    def __init__(self) -> None:
        self.method = self.target = self.body = b""
        self.is_complete = False
        self._headers: list[tuple[bytes, bytes]] = []
        self._parser = httptools.HttpRequestParser(self)

    def on_message_begin(self) -> None:
        if self.is_complete:
            raise ValueError  # another request, which may be for another host; the parser's caller refuses it

    def on_url(self, url: bytes) -> None:
        self.target += url

    def on_header(self, name: bytes, value: bytes) -> None:
        self._headers.append((name, value))

    def on_headers_complete(self) -> None:
        self.method = self._parser.get_method()

    def on_message_complete(self) -> None:
        self.is_complete = True

    def parse(self, data: bytes) -> None:
        """Take what follows of it; RefusedError where more than that follows."""
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            if upgrade.args[0] < len(data):  # data before the tunnel is granted
                raise RefusedError(BAD_REQUEST) from None
        except httptools.HttpParserError:
            raise RefusedError(BAD_REQUEST) from None

    async def receive(self, connection: socket.socket) -> None:
        """Read it; RefusedError."""
        received = b""
        while not self.method:
            data = await asyncio.get_running_loop().sock_recv(connection, MAX_HEAD_BYTES)
            received += data
            if len(received) > MAX_HEAD_BYTES:
                raise RefusedError("431 Request Header Fields Too Large")
            self.parse(data)
            if not data:
                raise RefusedError(BAD_REQUEST)
        self.body = received.lstrip(b"\r\n").partition(b"\r\n\r\n")[2]

    @property
    def is_tunnel(self) -> bool:
        return self.method == b"CONNECT"

    @property
    def authority(self) -> str:
        """The host and port that it names, without user and password; `""` for a target that names none."""
        plain = _PLAIN.match(self.target)
        named = self.target if self.is_tunnel else plain[1] if plain else b""
        return named.rpartition(b"@")[2].decode("latin-1")

    def is_to_emulator(self) -> bool:
        """Whether it asks for a tunnel to a host name that the emulator serves."""
        host, _, port = self.target.decode("latin-1").rpartition(":")
        is_tunnel = self.is_tunnel and self._parser.get_http_version() in {"1.0", "1.1"}
        return is_tunnel and port == "443" and is_served(host)

    def place(self) -> tuple[str, int]:
        """The host and port of another server that it asks for; RefusedError."""
        with contextlib.suppress(ValueError):
            host, port = _host_and_port(self.target.decode("latin-1") if self.is_tunnel else self.authority)
            if port or not self.is_tunnel:
                return host, port or 80
        raise RefusedError(FORBIDDEN)

    def forwarded(self) -> bytes:
        """A plain request as its host gets it, for one answer per connection, with what has arrived of the body."""
        path = _PLAIN.sub(b"", self.target, count=1)
        own = [(b"Host", self.authority.encode("latin-1")), (b"Connection", b"close")]
        kept = [(name, value) for name, value in self._headers if name.lower() not in _OF_THE_PROXY]
        first = b"%s /%s HTTP/%s" % (self.method, path.removeprefix(b"/"), self._parser.get_http_version().encode())
        return b"\r\n".join([first, *(b"%s: %s" % header for header in [*kept, *own]), b"", self.body])


async def grant_tunnel(
    connection: socket.socket,
    on_rejected: Callable[[RejectedRequest], None] = lambda _: None,
    passed: Sequence[PassedHost] = (),
) -> bool:
    """Read and answer a proxy request; whether TLS to the emulator may follow.

    A request to a passed host is served until either side has ended it.

    Args:
        connection: non-blocking, left open; its request must arrive within `CONNECT_SECONDS`, or nothing is answered.
        on_rejected: gets each request that is not served.
        passed: other hosts that may be reached.
    """
    request = _ProxyRequest()
    try:
        await asyncio.wait_for(request.receive(connection), CONNECT_SECONDS)
        is_granted = request.is_to_emulator()
        upstream = None if is_granted else await asyncio.wait_for(_connect(*request.place(), passed), CONNECT_SECONDS)
    except RefusedError as refused:
        status = str(refused)
    except (asyncio.TimeoutError, OSError, UnicodeError):  # the last is raised for names that DNS cannot have
        if not request.method:
            return False
        status = UNREACHABLE
    else:
        if upstream:
            await _relay(connection, request, *upstream)
        else:
            await asyncio.get_running_loop().sock_sendall(connection, GRANTED)
        return is_granted
    host = request.authority  # the rest may hold a signature
    allowed_by = "--pass-through" if status == FORBIDDEN else ""
    on_rejected(RejectedRequest(request.method.decode("ascii"), host, "", int(status[:3]), "", allowed_by))
    length = f"Content-Length: {len(PROXY_ERROR)}\r\nConnection: close"
    answer = f"HTTP/1.1 {status}\r\nContent-Type: text/plain\r\n{length}\r\n\r\n{PROXY_ERROR}"
    await asyncio.get_running_loop().sock_sendall(connection, answer.encode())
    return False


_Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


async def _connect(host: str, port: int, passed: Sequence[PassedHost]) -> _Streams:
    """A connection to the first address that accepts one; RefusedError, OSError."""
    *others, last = await addresses(host, port, passed)
    for address in others:
        with contextlib.suppress(OSError):
            return await asyncio.open_connection(address, port)
    return await asyncio.open_connection(last, port)


async def _relay(
    connection: socket.socket, request: _ProxyRequest, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> None:
    """Carry bytes both ways until the host has ended its side, a side has failed or both are silent."""
    from_client, to_client = await asyncio.open_connection(sock=connection)
    (to_client if request.is_tunnel else writer).write(GRANTED if request.is_tunnel else request.forwarded())
    moved = asyncio.Event()
    sending = asyncio.create_task(_copy(_pieces(from_client, moved, request), writer))
    receiving = asyncio.create_task(_copy(_pieces(reader, moved), to_client))
    receiving.add_done_callback(lambda _: moved.set())
    try:
        while not receiving.done():
            moved.clear()
            await asyncio.wait_for(moved.wait(), IDLE_SECONDS)
        to_client.close()
        await asyncio.wait_for(to_client.wait_closed(), IDLE_SECONDS)
    except asyncio.TimeoutError:
        pass
    finally:
        for copying, to in ((sending, writer), (receiving, to_client)):
            copying.cancel()
            to.transport.abort()


async def _pieces(
    reader: asyncio.StreamReader, moved: asyncio.Event, request: _ProxyRequest | None = None
) -> AsyncIterator[bytes]:
    """What arrives, of a plain request's client its body alone; RefusedError, OSError."""
    while piece := await reader.read(CHUNK_BYTES):
        moved.set()
        if request is None or request.is_tunnel:
            yield piece
        elif not request.is_complete:
            request.parse(piece)
            yield piece


async def _copy(pieces: AsyncIterator[bytes], writer: asyncio.StreamWriter) -> None:
    """Write pieces and their end; where either side fails, abort, which ends the other direction, too."""
    try:
        async for piece in pieces:
            writer.write(piece)
            await writer.drain()
        writer.write_eof()
    except (OSError, RefusedError):
        writer.transport.abort()
