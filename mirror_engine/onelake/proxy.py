"""The emulator's proxy: which requests are granted a tunnel."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import httptools

from mirror_engine.onelake.hosts import is_served
from mirror_engine.onelake.middleware import RejectedRequest

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable

MAX_HEAD_BYTES = 16 * 1024
CONNECT_SECONDS = 10.0
PROXY_ERROR = (
    "mirror-engine: this proxy connects to OneLake, Fabric's API and Entra on port 443 only.\n"
    "HTTPS_PROXY of the environment that `mirror-engine emulator` printed points to it.\n"
)


class _ConnectHead:
    """The head of a proxy request; callbacks of its parser."""

    def __init__(self) -> None:
        self.method = b""
        self.target = b""
        self._parser = httptools.HttpRequestParser(self)

    def on_url(self, url: bytes) -> None:
        self.target += url

    def on_headers_complete(self) -> None:
        self.method = self._parser.get_method()

    async def receive(self, connection: socket.socket) -> str | None:
        """Read it; the error status of a tunnel that is not granted, else None."""
        length = 0
        while not self.method:
            data = await asyncio.get_running_loop().sock_recv(connection, MAX_HEAD_BYTES)
            length += len(data)
            if length > MAX_HEAD_BYTES:
                return "431 Request Header Fields Too Large"
            try:
                self._parser.feed_data(data)
            except httptools.HttpParserUpgrade as upgrade:
                if upgrade.args[0] < len(data):  # data before the tunnel is granted
                    return "400 Bad Request"
            except httptools.HttpParserError:
                return "400 Bad Request"
            if not data:
                return "400 Bad Request"
        host, _, port = self.target.decode("latin-1").rpartition(":")
        is_tunnel = self.method == b"CONNECT" and self._parser.get_http_version() in {"1.0", "1.1"}
        return None if is_tunnel and port == "443" and is_served(host) else "403 Forbidden"


async def grant_tunnel(
    connection: socket.socket, on_rejected: Callable[[RejectedRequest], None] = lambda _: None
) -> bool:
    """Read and answer a proxy request; whether TLS may follow.

    Args:
        connection: non-blocking, left open; its request must arrive within `CONNECT_SECONDS`, or nothing is answered.
        on_rejected: gets each tunnel that is not granted.
    """
    head = _ConnectHead()
    try:
        status = await asyncio.wait_for(head.receive(connection), CONNECT_SECONDS)
    except asyncio.TimeoutError:
        return False
    answer = "HTTP/1.1 200 Connection established\r\n\r\n"
    if status is not None:
        is_tunnel = head.method == b"CONNECT"  # its host is logged, without a password; others may hold a signature
        host = head.target.decode("latin-1").rpartition("@")[2] if is_tunnel else ""
        on_rejected(RejectedRequest(head.method.decode("ascii"), host, "", int(status[:3]), ""))
        length = f"Content-Length: {len(PROXY_ERROR)}\r\nConnection: close"
        answer = f"HTTP/1.1 {status}\r\nContent-Type: text/plain\r\n{length}\r\n\r\n{PROXY_ERROR}"
    await asyncio.get_running_loop().sock_sendall(connection, answer.encode())
    return status is None
