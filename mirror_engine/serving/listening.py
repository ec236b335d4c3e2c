"""Where a server listens, and who may speak to it: beyond the loopback only on purpose and with a token."""

from __future__ import annotations

import re
from dataclasses import dataclass
from ipaddress import ip_address

from mirror_engine.errors import UsageError

LOOPBACK = "127.0.0.1"
LEAST_TOKEN_CHARACTERS = 16
_TOKEN = re.compile(r"[!-~]+")


@dataclass(frozen=True)
class Listening:
    """What a user asked for.

    Attributes:
        address: an IP address of this machine.
        token: which every request must carry; None where any passes.
        port: of the proxy; http, https and the page take the next three. 0 for any free ones.
        beyond_loopback: said on purpose.

    Raises:
        UsageError: the address is none, or others could reach it without intention and token.
    """

    address: str = LOOPBACK
    token: str | None = None
    port: int = 0
    beyond_loopback: bool = False

    def __post_init__(self) -> None:
        if self.token is not None and not _TOKEN.fullmatch(self.token):
            raise UsageError("--token: only printable ASCII without spaces can stand in a header", "Take another one.")
        try:
            is_loopback = ip_address(self.address).is_loopback
        except ValueError:
            raise UsageError(f"--listen: {self.address!r} is no IP address", f"Such as {LOOPBACK}.") from None
        if is_loopback:
            return
        if not self.beyond_loopback:
            raise UsageError(
                f"--listen {self.address}: others could reach that address",
                "Listen on the loopback; or, if others are to publish here, add --listen-anyway and a token.",
            )
        if self.token is None or len(self.token) < LEAST_TOKEN_CHARACTERS:
            raise UsageError(
                f"--listen-anyway: no token of {LEAST_TOKEN_CHARACTERS} characters or more",
                "Set MIRROR_ENGINE_TOKEN; whoever has it may read and write all of STORE.",
            )

    @property
    def page_port(self) -> int:
        """Of the page; 0 for any free one."""
        return self.port + 3 if self.port else 0

    @property
    def reached_at(self) -> str:
        """The address by which programs on this machine reach it."""
        address = ip_address(self.address)
        if not address.is_unspecified:
            return f"[{self.address}]" if address.version == 6 else self.address  # noqa: PLR2004 - IPv6
        return LOOPBACK if address.version == 4 else "[::1]"  # noqa: PLR2004 - IPv4
