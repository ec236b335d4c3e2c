"""What an unmodified publisher needs in its environment to meet this endpoint instead of the real service."""

from __future__ import annotations

import os
import shlex
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from mirror_engine.endpoint.control import PATH as CONTROL_PATH
from mirror_engine.endpoint.hosts import DFS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from mirror_engine.endpoint.authority import Authority
    from mirror_engine.endpoint.items import Item

TENANT = "6d697272-6f72-4e67-a96e-652d74656e74"  # any would do: Entra's stub takes all
CLIENT = "6d697272-6f72-4e67-a96e-632d6c69656e"
ANY_SECRET = "x"  # noqa: S105 - any would do
DIRECT = "localhost,127.0.0.1"  # older clients stumble over ::1


@dataclass(frozen=True)
class Card:
    """A running server as a publisher sees it.

    Attributes:
        store: the folder that is served.
        pid: of the process that serves it.
        workspace, workspace_id, item, item_id: where a publisher that asked for nothing else publishes to.
        environment: variables to be set. `PATH` stands for what its `PATH` begins with.
        https, http: the endpoint by its own address.
        page: the one that shows how everything is.
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
        """Its landing zone as production would call it."""
        return f"https://onelake.{DFS}/{self.workspace_id}/{self.item_id}/Files/LandingZone"

    def to_json(self) -> dict[str, Any]:
        """As plain values; `of` reads them back."""
        return asdict(self) | {"landing_zone": self.landing_zone}

    @staticmethod
    def of(told: Mapping[str, Any]) -> Card:
        """The card that `to_json` told."""
        return Card(**{name: told[name] for name in Card.__dataclass_fields__})

    def exports(self) -> Sequence[str]:
        """Lines that a shell can run."""
        lines = [f"export {name}={shlex.quote(text)}" for name, text in self.environment.items() if name != "PATH"]
        return [*lines, f'export PATH={shlex.quote(self.environment["PATH"])}:"$PATH"']

    def around(self, environ: Mapping[str, str]) -> dict[str, str]:
        """An environment with these variables in it."""
        path = os.pathsep.join(filter(None, (self.environment["PATH"], environ.get("PATH"))))
        return {**environ, **self.environment, "PATH": path}

    def lines(self) -> Sequence[str]:
        """All of it, ready to paste into a shell."""
        return [
            *self.exports(),
            f"# workspace     {self.workspace}  {self.workspace_id}",
            f"# item          {self.item}  {self.item_id}",
            f"# landing zone  {self.landing_zone}",
            f"# page          {self.page}",
            f"# direct        {self.https} (tokens)  {self.http} (account key, SAS, none)",
        ]


def variables(proxy: str, authority: Authority, programs: Path, item: Item, secret: str | None) -> dict[str, str]:
    """The variables themselves.

    Args:
        proxy: the proxy's URL.
        authority: whose certificates clients must trust.
        programs: the folder with the stub of `az`.
        item: where to publish to.
        secret: which the endpoint asks for; None where any passes.
    """
    proxied = dict.fromkeys(("HTTPS_PROXY", "https_proxy"), proxy)  # some read only one, and one wins over the other
    direct = dict.fromkeys(("NO_PROXY", "no_proxy"), DIRECT)
    return {
        **proxied,
        **direct,
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


def control_variables(http: str, token: str) -> dict[str, str]:
    """What a test needs to switch faults while it runs.

    Args:
        http: the http listener's URL.
        token: of this run.
    """
    return {"MIRROR_ENGINE_CONTROL": f"{http}{CONTROL_PATH}", "MIRROR_ENGINE_CONTROL_TOKEN": token}
