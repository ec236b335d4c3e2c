"""The CONNECT proxy: agrees to tunnels to the endpoint's own names and refuses everything else.

It opens no connection and asks no name server: a tunnel that was agreed to ends in this process.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import httptools

from mirror_engine.endpoint.hosts import is_served
from mirror_engine.endpoint.limits import MOST_HEAD_BYTES
from mirror_engine.endpoint.refused import Refused

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable

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
        data = await loop.sock_recv(connection, MOST_HEAD_BYTES)
        read += len(data)
        if read > MOST_HEAD_BYTES:
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
