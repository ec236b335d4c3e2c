"""Host names of OneLake, Entra ID and Fabric's API that the emulator serves."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

DFS = "dfs.fabric.microsoft.com"
BLOB = "blob.fabric.microsoft.com"
FABRIC = "api.fabric.microsoft.com"
LOGINS = ("login.microsoftonline.com", "login.microsoft.com")
ENTRA = (*LOGINS, "login.windows.net", "sts.windows.net")  # its older names are not served
LOOPBACK = "127.0.0.1"
LOOPBACK_ADDRESSES = (LOOPBACK, "::1")
LOOPBACK_HOSTS = ("localhost", *LOOPBACK_ADDRESSES)

_ONELAKE = re.compile(rf"(?:[a-z0-9]{{1,40}}-)?onelake\.(?:{re.escape(DFS)}|{re.escape(BLOB)})")


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
