"""An emulator on free ports, and what goes over the wire to it byte by byte."""

from __future__ import annotations

import contextlib
import socket
import ssl
import tempfile
import time
from functools import cache
from pathlib import Path

from mirror_engine.onelake.authority import create_authority
from mirror_engine.onelake.connection import Listening
from mirror_engine.onelake.hosts import LOGINS, host_of
from mirror_engine.onelake.listeners import Listeners
from mirror_engine.onelake.middleware import Gate

ONELAKE = "onelake.dfs.fabric.microsoft.com"
PATIENCE_SECONDS = 10


@cache
def shared_authority():
    return create_authority(Path(tempfile.mkdtemp()) / "tls")


@contextlib.contextmanager
def running(app, on_error=lambda _: None, on_rejected=lambda _: None, **listening):
    """The emulator that serves an application, until left."""
    where = Listening(**listening)
    gate = Gate(
        app, where, lambda scope: host_of(scope["headers"]) in LOGINS, on_error=on_error, on_rejected=on_rejected
    )
    emulator = Listeners(gate, shared_authority().context(), where, on_rejected)
    emulator.start()
    try:
        yield emulator
    finally:
        emulator.stop()


def until(holds, seen=lambda: "", patience=20.0):
    """Wait until something holds; `seen` is what was there instead."""
    ends = time.monotonic() + patience
    while not holds():
        assert time.monotonic() < ends, seen()
        time.sleep(0.02)


def connected(port, address="127.0.0.1"):
    return socket.create_connection((address, port), timeout=PATIENCE_SECONDS)


def exchange(port, *pieces):
    """Send pieces one after the other; all that comes back until the other side closes."""
    with connected(port) as connection:
        with contextlib.suppress(ConnectionError):
            for piece in pieces:
                connection.sendall(piece)
        return rest_of(connection)


def rest_of(connection):
    received = b""
    with contextlib.suppress(ConnectionError):
        while piece := connection.recv(65536):
            received += piece
    return received


def status_of(answer):
    """The status of an HTTP answer; 0 where nothing was answered."""
    return int(answer.split(b" ", 2)[1]) if answer else 0


def request(method="GET", target="/", host="localhost", *headers, body=b""):
    lines = [f"{method} {target} HTTP/1.1", f"Host: {host}", "Connection: close", *headers, "", ""]
    return "\r\n".join(lines).encode("latin-1") + body


def trusting(*, checks_name=True):
    """A client that trusts the emulator's authority alone, as strictly as Python can be."""
    context = ssl.create_default_context(cafile=str(shared_authority().ca))
    context.verify_flags |= ssl.VERIFY_X509_STRICT
    context.check_hostname = checks_name
    return context


def tunnel(proxy_port, host=ONELAKE):
    """TLS to a real name, through the proxy."""
    plain = connected(proxy_port)
    plain.sendall(f"CONNECT {host}:443 HTTP/1.1\r\nHost: {host}:443\r\n\r\n".encode())
    assert plain.recv(65536) == b"HTTP/1.1 200 Connection established\r\n\r\n"
    return trusting().wrap_socket(plain, server_hostname=host)
