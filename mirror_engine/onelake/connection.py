"""A STORE's emulator from outside: where it listens, how publishers reach it, and how it runs detached."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPException
from ipaddress import ip_address
from typing import TYPE_CHECKING, Annotated, Self
from urllib.parse import urlsplit

from filelock import FileLock, Timeout
from msgspec import Meta

from mirror_engine.display import Verbatim
from mirror_engine.errors import SetupError, TransientError, UsageError
from mirror_engine.landing_zone.layout import ENGINE
from mirror_engine.monitoring.wait_conditions import UnmetCondition
from mirror_engine.onelake.hosts import LOOPBACK
from mirror_engine.results import Count, Result

if TYPE_CHECKING:
    from pathlib import Path

    from mirror_engine.display import Lines
    from mirror_engine.onelake.hosts import PassedHost

START_SECONDS = 60.0
STOP_SECONDS = 120.0  # an engine finishes its commit first
POLL_SECONDS = 0.05
ANSWER_SECONDS = 60.0  # a large store is looked at for a while
UNFINISHED_PATH = f"/{ENGINE}/unfinished"  # clients' paths never begin so
MIN_TOKEN_CHARACTERS = 16
CA_VARIABLES = ("REQUESTS_CA_BUNDLE", "SSL_CERT_FILE", "CURL_CA_BUNDLE", "CURL_CA_INFO")  # the last is DuckDB's
VARIABLES = (  # of a publisher, but PATH; some programs read only one spelling of a name
    *("HTTPS_PROXY", "https_proxy", "NO_PROXY", "no_proxy", *CA_VARIABLES, "NODE_EXTRA_CA_CERTS", "NODE_USE_ENV_PROXY"),
    "MIRROR_ENGINE_JAVA_OPTIONS",
    *("AZURE_TENANT_ID", "AZURE_CLIENT_ID", "AZURE_CLIENT_SECRET"),
    *("FABRIC_WORKSPACE_ID", "FABRIC_MIRRORED_DATABASE_ID"),
    *("MIRROR_ENGINE_FAULT_API", "MIRROR_ENGINE_FAULT_API_TOKEN"),
)
Guid = Annotated[str, Meta(extra_json_schema={"format": "uuid"})]
_TOKEN = re.compile(r"[!-~]+")
_LABEL = r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?"
_HOST_NAME = re.compile(rf"(?=.{{1,253}}$){_LABEL}(\.{_LABEL})*")


@dataclass(frozen=True)
class Listening:
    """Where the emulator listens.

    UsageError where others could reach it without `allow_remote` and a token, or through it other hosts.
    """

    address: str = LOOPBACK  # an IP address of this machine
    token: str | None = None  # which every request must carry; None where any passes
    port: int = 0  # of the proxy; http and https take the next two. 0 for any free ones
    allow_remote: bool = False  # listen on an address that others can reach
    # other hosts that the proxy connects to; only on loopback, as it asks for no token
    pass_through: Sequence[PassedHost] = ()
    # proxy, http, https and the page share `port`, and OneLake's, Entra's, Fabric's and the page's paths the address;
    # http leaves loopback, too
    is_single_port: bool = False
    names: Sequence[str] = ()  # of this machine, for which https has a certificate

    def __post_init__(self) -> None:
        if self.token is not None and not _TOKEN.fullmatch(self.token):
            raise UsageError("--token: only printable ASCII without spaces fits in a header", "Use another token.")
        for name in self.names:
            if not _HOST_NAME.fullmatch(name):
                raise UsageError(f"--host-name: {name!r} is not a host name", "Example: emulator, or ci.example.org.")
        try:
            is_remote = self.is_remote
        except ValueError:
            raise UsageError(f"--host: {self.address!r} is not an IP address", f"Example: {LOOPBACK}.") from None
        if not is_remote:
            if self.allow_remote:
                raise UsageError(f"--allow-remote: no effect, --host {self.address} is loopback", "Leave it out.")
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
        if self.pass_through:
            raise UsageError(
                f"--pass-through with --host {self.address}: others could reach those hosts through this machine",
                "Listen on loopback.",
            )

    @property
    def is_remote(self) -> bool:
        """Whether other machines can reach the address."""
        return not ip_address(self.address).is_loopback

    @property
    def reached_at(self) -> str:
        """The address for programs on this machine."""
        address = ip_address(self.address)
        text = {4: LOOPBACK, 6: "::1"}[address.version] if address.is_unspecified else self.address
        return f"[{text}]" if ":" in text else text


class ConnectionInfo(Result, frozen=True):
    """The running emulator, as a publisher sees it.

    Attributes:
        store: the served folder
        pid: of the emulator's process
        workspace: of the default mirrored database
        item: the default mirrored database
        environment: variables of a publisher; `PATH` is to be prepended
        https: for clients with tokens
        http: for keys, SAS or nothing
        page: of the tables
        has_engines: false: only the storage
        landing_zone: production's URL
    """

    store: str
    pid: Count
    workspace: str
    workspace_id: Guid
    item: str
    item_id: Guid
    environment: Mapping[str, str]
    https: str
    http: str
    page: str
    has_engines: bool
    landing_zone: str

    @property
    def token(self) -> str:
        """The token that requests must carry, if the emulator was started with one; else any text."""
        return self.environment["AZURE_CLIENT_SECRET"]

    def exports(self) -> Sequence[str]:
        """The environment as lines for a shell."""
        lines = [f"export {name}={shlex.quote(text)}" for name, text in self.environment.items() if name != "PATH"]
        return [*lines, f'export PATH={shlex.quote(self.environment["PATH"])}:"$PATH"']

    def around(self, environ: Mapping[str, str]) -> dict[str, str]:
        """An environment with the emulator's variables."""
        path = os.pathsep.join(filter(None, (self.environment["PATH"], environ.get("PATH"))))
        return {**environ, **self.environment, "PATH": path}

    def text(self) -> Lines:
        yield from map(Verbatim, self.exports())
        yield Verbatim(f"# workspace     {self.workspace}  {self.workspace_id}")
        yield Verbatim(f"# item          {self.item}  {self.item_id}")
        yield Verbatim(f"# landing zone  {self.landing_zone}")
        yield Verbatim(f"# page          {self.page}")
        yield Verbatim(f"# direct        {self.https} (tokens)  {self.http} (account key, SAS, none)")
        yield Verbatim('# Java          export JAVA_TOOL_OPTIONS="$MIRROR_ENGINE_JAVA_OPTIONS"')


class UndoLines(Result, frozen=True):
    """Lines for a shell that remove the emulator's variables again, with `--unset`."""

    store: str
    lines: Sequence[str]

    @classmethod
    def of(cls, store: Path, path: str) -> Self:
        """Make the lines for a STORE, for a shell with that PATH."""
        kept = [folder for folder in path.split(os.pathsep) if folder != str(StateFolder(store).programs)]
        unset = (f"unset {name}" for name in VARIABLES)
        return cls(str(store), [*unset, f"export PATH={shlex.quote(os.pathsep.join(kept))}"])

    def text(self) -> Lines:
        yield from map(Verbatim, self.lines)


class StateFolder:
    """The private folder of a STORE, `.mirror-engine`; nothing is created."""

    def __init__(self, store: Path) -> None:
        self.path = store.absolute() / ENGINE
        self.tls = self.path / "tls"  # certificates and key
        self.programs = self.path / "bin"  # prepended to a publisher's PATH
        self.lock = self.path / "emulator.lock"  # held while an emulator runs
        self.log = self.path / "emulator.log"  # of a detached emulator
        self.options = self.path / "options.json"  # of its engines, but for what items have of their own
        self.info = self.path / "emulator.json"  # connection info; present while requests are answered
        self.exports = self.path / "emulator.sh"  # its environment for a shell, `. FILE`; present as long

    def create(self) -> None:
        """Create it for its owner alone, and outside of version control."""
        self.path.mkdir(parents=True, exist_ok=True)
        self.path.chmod(0o700)
        (self.path / ".gitignore").write_text("*\n", encoding="ascii")

    def read_info(self) -> ConnectionInfo | None:
        """The connection info; None where there is none, or another version's."""
        try:
            values = json.loads(self.info.read_text(encoding="utf-8"))
            return ConnectionInfo(**{name: values[name] for name in ConnectionInfo.__struct_fields__})
        except (FileNotFoundError, ValueError, KeyError):
            return None


def running(store: Path) -> ConnectionInfo | None:
    """Return the emulator of a STORE, waiting while it starts or stops; None if none is running.

    TransientError where a process has held the STORE for `START_SECONDS` without connection info.
    """
    state = StateFolder(store)
    ends = time.monotonic() + START_SECONDS
    while state.lock.exists():
        try:
            with FileLock(state.lock, timeout=0):
                return None
        except Timeout:
            if info := state.read_info():
                return info
        if time.monotonic() > ends:
            raise TransientError(f"{store}: an emulator is running but wrote no connection info", "Try again later.")
        time.sleep(POLL_SECONDS)
    return None


def unfinished(store: Path, info: ConnectionInfo) -> list[tuple[str, UnmetCondition]]:
    """What each item of a running emulator waits for, by its path; TransientError once it has ended."""
    at = urlsplit(info.http)
    connection = HTTPConnection(at.hostname or "", at.port, timeout=ANSWER_SECONDS)
    try:
        connection.request("GET", UNFINISHED_PATH, headers={"Authorization": f"Bearer {info.token}"})
        return [(path, UnmetCondition(**unmet)) for path, unmet in json.loads(connection.getresponse().read())]
    except (OSError, HTTPException, ValueError, TypeError) as error:
        if running(store) != info:
            raise TransientError(f"{store}: the emulator has ended", "Run the command again.") from error
        return [(str(store), UnmetCondition("", "", "the emulator does not answer"))]
    finally:
        connection.close()


def start_detached(store: Path, words: Sequence[str], environ: Mapping[str, str]) -> ConnectionInfo:
    """Start a detached emulator with a command line and environment; returns once requests are answered.

    SetupError, with its log as help, where it ended, or is not ready after `START_SECONDS`.
    """
    state = StateFolder(store)
    state.create()
    with state.log.open("wb") as log:
        state.log.chmod(0o600)
        child = subprocess.Popen(  # noqa: S603 - this very program
            [sys.executable, "-m", "mirror_engine.cli.main", *words],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,  # its environment may hold a token; the info file keeps it private
            stderr=log,
            env=environ,
            start_new_session=True,
        )
    ends = time.monotonic() + START_SECONDS
    while child.poll() is None and time.monotonic() < ends:
        info = state.read_info()
        if info and info.pid == child.pid:
            return info
        time.sleep(POLL_SECONDS)
    if child.poll() is None:
        child.terminate()
    log_text = state.log.read_text(encoding="utf-8", errors="replace").strip()
    raise SetupError(f"{store}: the emulator did not start", log_text)


def stop(store: Path) -> ConnectionInfo | None:
    """Stop the emulator of a STORE and wait for its end; None where none runs. TransientError after `STOP_SECONDS`."""
    info = running(store)
    if info is None:
        return None
    os.kill(info.pid, signal.SIGTERM)
    try:
        with FileLock(StateFolder(store).lock, timeout=STOP_SECONDS, poll_interval=POLL_SECONDS):
            return info
    except Timeout:
        raise TransientError(f"{store}: process {info.pid} has not ended yet", "Try again later.") from None
