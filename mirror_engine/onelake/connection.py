"""How publishers reach a running emulator: listening address, environment variables, connection info."""

from __future__ import annotations

import os
import re
import shlex
from dataclasses import asdict, dataclass
from ipaddress import ip_address
from typing import TYPE_CHECKING, Any

from mirror_engine.errors import UsageError
from mirror_engine.onelake.hosts import DFS, LOOPBACK

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from mirror_engine.onelake.authority import Authority
    from mirror_engine.onelake.items import Item

TENANT = "6d697272-6f72-4e67-a96e-652d74656e74"  # the Entra stub accepts any
CLIENT = "6d697272-6f72-4e67-a96e-632d6c69656e"
ANY_SECRET = "x"  # noqa: S105 - any will do
NO_PROXY = "localhost,127.0.0.1"  # older clients fail on ::1
MIN_TOKEN_CHARACTERS = 16
_TOKEN = re.compile(r"[!-~]+")


@dataclass(frozen=True)
class Listening:
    """Where the emulator listens.

    Attributes:
        address: an IP address of this machine.
        token: which every request must carry; None where any passes.
        port: of the proxy; http, https and the page take the next three. 0 for any free ones.
        allow_remote: listen on an address that others can reach.

    Raises:
        UsageError: the address is not valid, or others could reach it without `allow_remote` and token.
    """

    address: str = LOOPBACK
    token: str | None = None
    port: int = 0
    allow_remote: bool = False

    def __post_init__(self) -> None:
        if self.token is not None and not _TOKEN.fullmatch(self.token):
            raise UsageError("--token: only printable ASCII without spaces fits in a header", "Use another token.")
        try:
            is_loopback = ip_address(self.address).is_loopback
        except ValueError:
            raise UsageError(f"--host: {self.address!r} is not an IP address", f"Example: {LOOPBACK}.") from None
        if is_loopback:
            return
        if not self.allow_remote:
            raise UsageError(
                f"--host {self.address}: others could reach that address",
                "Listen on loopback; or, if others are to publish here, add --allow-remote and a token.",
            )
        if self.token is None or len(self.token) < MIN_TOKEN_CHARACTERS:
            raise UsageError(
                f"--allow-remote requires a token of {MIN_TOKEN_CHARACTERS} characters or more",
                "Set MIRROR_ENGINE_TOKEN; everyone who has it can read and write all of STORE.",
            )

    @property
    def page_port(self) -> int:
        """Of the page; 0 for any free one."""
        return self.port + 3 if self.port else 0

    @property
    def reached_at(self) -> str:
        """The address for programs on this machine."""
        address = ip_address(self.address)
        if not address.is_unspecified:
            return f"[{self.address}]" if address.version == 6 else self.address  # noqa: PLR2004 - IPv6
        return LOOPBACK if address.version == 4 else "[::1]"  # noqa: PLR2004 - IPv4


@dataclass(frozen=True)
class ConnectionInfo:
    """A running emulator as a publisher sees it.

    Attributes:
        store: the served folder.
        pid: of the emulator's process.
        workspace, workspace_id, item, item_id: the default mirrored database.
        environment: variables to set; `PATH` holds what is to be prepended.
        https, http: the listeners' own URLs.
        page: the status page's URL.
    """

    store: str
    pid: int
    workspace: str
    workspace_id: str
    item: str
    item_id: str
    environment: Mapping[str, str]
    https: str
    http: str
    page: str

    @property
    def landing_zone(self) -> str:
        """The landing zone's production URL."""
        return f"https://onelake.{DFS}/{self.workspace_id}/{self.item_id}/Files/LandingZone"

    def to_json(self) -> dict[str, Any]:
        """As plain values."""
        return asdict(self) | {"landing_zone": self.landing_zone}

    @staticmethod
    def of(values: Mapping[str, Any]) -> ConnectionInfo:
        """From `to_json`'s values."""
        return ConnectionInfo(**{name: values[name] for name in ConnectionInfo.__dataclass_fields__})

    def exports(self) -> Sequence[str]:
        """Lines for a shell."""
        lines = [f"export {name}={shlex.quote(text)}" for name, text in self.environment.items() if name != "PATH"]
        return [*lines, f'export PATH={shlex.quote(self.environment["PATH"])}:"$PATH"']

    def around(self, environ: Mapping[str, str]) -> dict[str, str]:
        """An environment with these variables added."""
        path = os.pathsep.join(filter(None, (self.environment["PATH"], environ.get("PATH"))))
        return {**environ, **self.environment, "PATH": path}

    def lines(self) -> Sequence[str]:
        """Exports and, as comments, everything else."""
        return [
            *self.exports(),
            f"# workspace     {self.workspace}  {self.workspace_id}",
            f"# item          {self.item}  {self.item_id}",
            f"# landing zone  {self.landing_zone}",
            f"# page          {self.page}",
            f"# direct        {self.https} (tokens)  {self.http} (account key, SAS, none)",
        ]


def variables(proxy: str, authority: Authority, programs: Path, item: Item, secret: str | None) -> dict[str, str]:
    """The environment of a publisher.

    Args:
        proxy: the proxy's URL.
        authority: whose certificates clients must trust.
        programs: the folder of the stub `az`.
        item: the default mirrored database.
        secret: which the emulator demands; None where any passes.
    """
    return {
        **dict.fromkeys(("HTTPS_PROXY", "https_proxy"), proxy),  # some programs read only one, and one takes precedence
        **dict.fromkeys(("NO_PROXY", "no_proxy"), NO_PROXY),
        "REQUESTS_CA_BUNDLE": str(authority.bundle),
        "SSL_CERT_FILE": str(authority.bundle),
        "CURL_CA_BUNDLE": str(authority.bundle),
        "NODE_EXTRA_CA_CERTS": str(authority.ca),
        "NODE_USE_ENV_PROXY": "1",  # Node 22.21 and 24: fetch, too
        "AZURE_TENANT_ID": TENANT,
        "AZURE_CLIENT_ID": CLIENT,
        "AZURE_CLIENT_SECRET": secret or ANY_SECRET,
        "FABRIC_WORKSPACE_ID": item.workspace.id,
        "FABRIC_MIRRORED_DATABASE_ID": item.id,
        "PATH": str(programs),
    }
