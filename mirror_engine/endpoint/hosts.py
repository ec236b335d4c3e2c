"""The closed list of host names that the endpoint answers to, and which one a request names."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

DFS = "dfs.fabric.microsoft.com"
BLOB = "blob.fabric.microsoft.com"
FABRIC = "api.fabric.microsoft.com"
LOGINS = ("login.microsoftonline.com", "login.microsoft.com")
LOOPBACK_NAMES = ("localhost",)
LOOPBACK_ADDRESSES = ("127.0.0.1", "::1")

_ONELAKE = re.compile(rf"(?:[a-z0-9]{{1,40}}-)?onelake\.(?:{re.escape(DFS)}|{re.escape(BLOB)})")


def is_served(host: str) -> bool:
    """Whether a name is one of the real service's that stand in the closed list: lower case, no dot at its end."""
    return host == FABRIC or host in LOGINS or _ONELAKE.fullmatch(host) is not None


def named_host(headers: Iterable[tuple[bytes, bytes]]) -> str | None:
    """The host of a request in lower case, without its port; None where it names none, or more than one."""
    named = [value for name, value in headers if name == b"host"]
    return without_port(named[0].decode("latin-1").lower()) if len(named) == 1 else None


def without_port(authority: str) -> str:
    """`localhost` of `localhost:8080`, `::1` of `[::1]:8080`."""
    if authority.startswith("["):
        return authority[1:].partition("]")[0]
    return authority.partition(":")[0]
