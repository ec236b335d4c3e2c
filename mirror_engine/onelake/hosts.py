"""Host names of OneLake, its table APIs, Entra ID and Fabric's API that the emulator serves."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from mirror_engine.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable

DFS = "dfs.fabric.microsoft.com"
BLOB = "blob.fabric.microsoft.com"
TABLE = "table.fabric.microsoft.com"
ONELAKE = (DFS, BLOB, TABLE)  # each with `onelake.` or `REGION-onelake.` before it
FABRIC = "api.fabric.microsoft.com"
LOGINS = ("login.microsoftonline.com", "login.microsoft.com")
ENTRA = (*LOGINS, "login.windows.net", "sts.windows.net")  # its older names are not served
LOOPBACK = "127.0.0.1"
LOOPBACK_ADDRESSES = (LOOPBACK, "::1")
LOOPBACK_HOSTS = ("localhost", *LOOPBACK_ADDRESSES)

MAX_PORT = 65535
_AUTHORITY = re.compile(r"(?P<host>[a-z0-9*_.-]+|\[[0-9a-f:.]+\])(?::(?P<port>[0-9]{1,5}))?")
_ONELAKE = re.compile(rf"(?:[a-z0-9]{{1,40}}-)?onelake\.(?:{'|'.join(map(re.escape, ONELAKE))})")


def is_served(host: str) -> bool:
    """Whether a production host name is served here; lower case, no trailing dot."""
    return host == FABRIC or host in LOGINS or _ONELAKE.fullmatch(host) is not None


def is_production(host: str) -> bool:
    """Whether a host is OneLake's, Fabric's or Entra's, served here or not; lower case, no trailing dot."""
    return f".{host}".endswith(tuple(f".{domain}" for domain in (FABRIC.partition(".")[2], *ENTRA)))


def host_of(headers: Iterable[tuple[bytes, bytes]]) -> str | None:
    """The request's host in lower case without its port; None unless there is exactly one `Host` header."""
    hosts = [value for name, value in headers if name == b"host"]
    if len(hosts) != 1:
        return None
    host = hosts[0].decode("latin-1").lower()
    return host[1:].partition("]")[0] if host.startswith("[") else host.partition(":")[0]


def host_and_port(authority: str) -> tuple[str, int | None]:
    """A host in lower case without a trailing dot, and its port where one is named; ValueError."""
    found = _AUTHORITY.fullmatch(authority.lower())
    port = int(found["port"]) if found and found["port"] else None
    if found is None or port == 0 or (port or 0) > MAX_PORT:
        raise ValueError(authority)
    return found["host"].strip("[]").rstrip("."), port


@dataclass(frozen=True)
class PassedHost:
    """A host that the proxy connects to, or several."""

    host: str  # a name or an address; or a pattern with `*`, which means public addresses only
    port: int | None = None  # None for all

    @staticmethod
    def parse(text: str) -> PassedHost:
        """Read `HOST`, `HOST:PORT`, `*.DOMAIN` or `all`; UsageError."""
        try:
            return PassedHost(*host_and_port("*" if text == "all" else text))
        except ValueError:
            message = f"--pass-through: {text!r} is not a host"
            raise UsageError(message, "Examples: api.example.org, '*.example.org', localhost:5432, all.") from None
