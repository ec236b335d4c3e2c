"""A server that outlives the command that started it: found by its card, known to live by its lock."""

from __future__ import annotations

import argparse
import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from dataclasses import asdict, dataclass
from datetime import datetime
from ipaddress import ip_address
from typing import TYPE_CHECKING, Any

from filelock import FileLock, Timeout

from mirror_engine.errors import SetupError, TransientError, UsageError
from mirror_engine.landing_zone.layout import ENGINE
from mirror_engine.onelake.entra import LIFE_SECONDS, access_token
from mirror_engine.onelake.faults import PATH as CONTROL_PATH
from mirror_engine.onelake.requests import DFS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from mirror_engine.onelake.authority import Authority
    from mirror_engine.onelake.items import Item

TENANT = "6d697272-6f72-4e67-a96e-652d74656e74"  # any would do: Entra's stub takes all
CLIENT = "6d697272-6f72-4e67-a96e-632d6c69656e"
ANY_SECRET = "x"  # noqa: S105 - any would do
DIRECT = "localhost,127.0.0.1"  # older clients stumble over ::1


@dataclass(frozen=True)
class ConnectionInfo:
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
    def of(told: Mapping[str, Any]) -> ConnectionInfo:
        """The card that `to_json` told."""
        return ConnectionInfo(**{name: told[name] for name in ConnectionInfo.__dataclass_fields__})

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


@dataclass(frozen=True)
class Private:
    """The private folder of a STORE.

    Attributes:
        folder: `STORE/.mirror-engine`.
    """

    folder: Path

    @staticmethod
    def of(store: Path) -> Private:
        """The one of a STORE; nothing is made."""
        return Private(store / ENGINE)

    def make(self) -> None:
        """The folder itself, for its owner alone and outside of version control."""
        self.folder.mkdir(parents=True, exist_ok=True)
        self.folder.chmod(0o700)
        (self.folder / ".gitignore").write_text("*\n", encoding="ascii")

    @property
    def tls(self) -> Path:
        """The authority's certificates and the endpoint's key."""
        return self.folder / "tls"

    @property
    def programs(self) -> Path:
        """What a publisher's PATH begins with."""
        return self.folder / "bin"

    @property
    def lock(self) -> Path:
        """Held while somebody serves the STORE."""
        return self.folder / "serve.lock"

    @property
    def card(self) -> Path:
        """Who serves the STORE, and under what environment: there while requests are answered."""
        return self.folder / "serve.json"

    @property
    def log(self) -> Path:
        """What a server in the background wrote."""
        return self.folder / "serve.log"


START_SECONDS = 60.0
STOP_SECONDS = 120.0  # an engine finishes its commit first
LOOK_SECONDS = 0.05


def running(store: Path) -> ConnectionInfo | None:
    """Who serves a STORE now; None for nobody. One that is just starting or ending is waited for.

    Raises:
        TransientError: somebody has held the STORE for `START_SECONDS` and does not say who.
    """
    private = Private.of(store.absolute())
    ends = time.monotonic() + START_SECONDS
    while private.lock.exists():
        try:
            with FileLock(private.lock, timeout=0):
                return None
        except Timeout:
            if card := _card(private):
                return card
        if time.monotonic() > ends:
            raise TransientError(f"{store}: who serves it does not say how it is reached", "Try again in a while.")
        time.sleep(LOOK_SECONDS)
    return None


def start(store: Path, words: Sequence[str], environ: Mapping[str, str]) -> ConnectionInfo:
    """Start the program anew, on its own; returns once requests are answered.

    Args:
        store: the STORE that it serves.
        words: its command line.
        environ: its environment.

    Raises:
        SetupError: it ended, or is not ready after `START_SECONDS`; what it wrote is part of the help.
    """
    private = Private.of(store.absolute())
    private.make()
    with private.log.open("wb") as log:
        private.log.chmod(0o600)
        child = subprocess.Popen(  # noqa: S603 - this very program
            [sys.executable, "-m", "mirror_engine.cli.main", *words],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,  # its environment, in which a token may stand: the card tells it
            stderr=log,
            env=environ,
            start_new_session=True,
        )
    ends = time.monotonic() + START_SECONDS
    while child.poll() is None and time.monotonic() < ends:
        card = _card(private)
        if card and card.pid == child.pid:
            return card
        time.sleep(LOOK_SECONDS)
    if child.poll() is None:
        child.terminate()
    raise SetupError(
        f"{store}: the server did not start", private.log.read_text(encoding="utf-8", errors="replace").strip()
    )


def stop(store: Path) -> ConnectionInfo | None:
    """End whoever serves a STORE, and wait for it; what it was, None where there was nobody.

    Raises:
        TransientError: it has not ended after `STOP_SECONDS`; else as `running`.
    """
    card = running(store)
    if card is None:
        return None
    os.kill(card.pid, signal.SIGTERM)
    try:
        with FileLock(Private.of(store.absolute()).lock, timeout=STOP_SECONDS, poll_interval=LOOK_SECONDS):
            return card
    except Timeout:
        raise TransientError(f"{store}: process {card.pid} has not ended yet", "Try again in a while.") from None


def _card(private: Private) -> ConnectionInfo | None:
    try:
        return ConnectionInfo.of(json.loads(private.card.read_text(encoding="utf-8")))
    except (FileNotFoundError, ValueError, KeyError):  # or one that another version wrote, and left behind
        return None


LOOPBACK = "127.0.0.1"
MIN_TOKEN_CHARACTERS = 16
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
        if self.token is None or len(self.token) < MIN_TOKEN_CHARACTERS:
            raise UsageError(
                f"--listen-anyway: no token of {MIN_TOKEN_CHARACTERS} characters or more",
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


SUBSCRIPTION = "6d697272-6f72-4e67-a96e-737562736372"
STORAGE = "https://storage.azure.com"


def install(folder: Path) -> None:
    """Put `az` into a folder."""
    folder.mkdir(exist_ok=True)
    package = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))  # noqa: PTH100, PTH120 - text
    # isolated: neither the publisher's folder nor its PYTHONPATH takes part
    code = (
        f"import sys; sys.path.insert(0, {package!r}); "
        "from mirror_engine.onelake.background import main; sys.exit(main(sys.argv[1:]))"
    )
    script = folder / "az"
    script.write_text(
        f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -I -c {shlex.quote(code)} "$@"\n', encoding="utf-8"
    )
    script.chmod(0o755)


def main(words: Sequence[str]) -> int:
    """`account get-access-token`, as AzureCliCredential asks for it; anything else is refused with 2."""
    if words[:2] != ["account", "get-access-token"]:
        sys.stderr.write("ERROR: this az belongs to mirror-engine and knows `account get-access-token` only.\n")
        return 2
    said = _parser().parse_args(words[2:])
    token = _token(said.scope or said.resource or STORAGE, said.tenant or os.environ.get("AZURE_TENANT_ID", ""))
    sys.stdout.write((token["accessToken"] if said.output == "tsv" else json.dumps(token, indent=2)) + "\n")
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="az account get-access-token")
    parser.add_argument("--output", "-o", default="json")
    parser.add_argument("--query")
    parser.add_argument("--scope", "--scopes")
    parser.add_argument("--resource")
    parser.add_argument("--resource-type")
    parser.add_argument("--subscription", "-s", "--name", "-n")
    parser.add_argument("--tenant", "-t")
    return parser


def _token(audience: str, tenant: str) -> dict[str, Any]:
    ends = time.time() + LIFE_SECONDS
    client, secret = os.environ.get("AZURE_CLIENT_ID", ""), os.environ.get("AZURE_CLIENT_SECRET")
    return {
        "accessToken": access_token(tenant, client, audience.removesuffix("/.default"), secret),
        "expiresOn": f"{datetime.fromtimestamp(ends):%Y-%m-%d %H:%M:%S.%f}",  # noqa: DTZ006 - local time, as az has it
        "expires_on": int(ends),
        "subscription": SUBSCRIPTION,
        "tenant": tenant,
        "tokenType": "Bearer",
    }
