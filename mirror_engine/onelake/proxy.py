"""The emulator's CONNECT proxy: which hosts it connects to, and tunnels to them."""

from __future__ import annotations

import asyncio
import contextlib
import re
from fnmatch import fnmatchcase
from ipaddress import IPv6Address, ip_address, ip_network
from socket import SOCK_STREAM
from types import SimpleNamespace
from typing import TYPE_CHECKING

import httptools

from mirror_engine.onelake.hosts import host_and_port, is_production, is_served
from mirror_engine.onelake.http_protocol import MAX_HEAD_BYTES
from mirror_engine.onelake.middleware import RejectedRequest

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable, Sequence

    from mirror_engine.onelake.hosts import PassedHost

CHUNK_BYTES = 64 * 1024
CONNECT_SECONDS = 10.0  # for the head, and for a connection to a host
TUNNEL_IDLE_SECONDS = 1800.0  # of a passed connection: pools of a database keep theirs for many minutes
GLOBAL_UNICAST = ip_network("2000::/3")
AZURE_HOST = ip_address("168.63.129.16")  # answers every machine of Azure, at a public address

GRANTED = b"HTTP/1.1 200 Connection established\r\n\r\n"
BAD_REQUEST = "400 Bad Request"
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
    """Resolve a host to its permitted addresses; RefusedError, OSError."""
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
    """Whether an address is public: no form of an address of this machine, its network or its cloud's host."""
    address = ip_address(text)
    if isinstance(address, IPv6Address):
        if address.ipv4_mapped:
            address = address.ipv4_mapped
        elif address not in GLOBAL_UNICAST or address.sixtofour or address.teredo:
            return False
    return address.is_global and not (address.is_multicast or address.is_reserved) and address != AZURE_HOST


async def _receive(connection: socket.socket) -> tuple[str, str, bool]:
    """Read a request's method, target and whether its version has tunnels; RefusedError, also for further bytes."""
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
    except (TimeoutError, OSError, UnicodeError):  # the last is raised for names that DNS cannot have
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
    except TimeoutError:
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
