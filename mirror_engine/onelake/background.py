"""Detached emulators: found by their connection info, alive while they hold a lock."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from filelock import FileLock, Timeout

from mirror_engine.errors import SetupError, TransientError
from mirror_engine.landing_zone.layout import ENGINE
from mirror_engine.onelake.connection import ConnectionInfo

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

START_SECONDS = 60.0
STOP_SECONDS = 120.0  # an engine finishes its commit first
POLL_SECONDS = 0.05


@dataclass(frozen=True)
class StateFolder:
    """The private folder of a STORE: `STORE/.mirror-engine`."""

    path: Path

    @staticmethod
    def of(store: Path) -> StateFolder:
        """The one of a STORE; nothing is created."""
        return StateFolder(store.absolute() / ENGINE)

    def create(self) -> None:
        """Create it for its owner alone, and outside of version control."""
        self.path.mkdir(parents=True, exist_ok=True)
        self.path.chmod(0o700)
        (self.path / ".gitignore").write_text("*\n", encoding="ascii")

    @property
    def tls(self) -> Path:
        """Certificates and key."""
        return self.path / "tls"

    @property
    def programs(self) -> Path:
        """Prepended to a publisher's PATH."""
        return self.path / "bin"

    @property
    def lock(self) -> Path:
        """Held while an emulator runs."""
        return self.path / "emulator.lock"

    @property
    def log(self) -> Path:
        """The log of a detached emulator."""
        return self.path / "emulator.log"

    @property
    def info(self) -> Path:
        """Connection info; present while requests are answered."""
        return self.path / "emulator.json"

    def read_info(self) -> ConnectionInfo | None:
        """The connection info; None where there is none, or another version's."""
        try:
            return ConnectionInfo.of(json.loads(self.info.read_text(encoding="utf-8")))
        except (FileNotFoundError, ValueError, KeyError):
            return None

    def write_info(self, info: ConnectionInfo) -> None:
        """Write it in one step, for its owner alone: it may hold a token."""
        descriptor, name = tempfile.mkstemp(dir=self.path)
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            json.dump(info.to_json(), file)
        os.replace(name, self.info)  # noqa: PTH105 - the name is text


def running(store: Path) -> ConnectionInfo | None:
    """The emulator of a STORE, after waiting for one that is starting or ending; None where none runs.

    Raises:
        TransientError: a process has held the STORE for `START_SECONDS` without connection info.
    """
    state = StateFolder.of(store)
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


def start(store: Path, words: Sequence[str], environ: Mapping[str, str]) -> ConnectionInfo:
    """Start a detached emulator; returns once requests are answered.

    Args:
        store: the STORE.
        words: the command line.
        environ: the environment.

    Raises:
        SetupError: it ended, or is not ready after `START_SECONDS`; the help holds its log.
    """
    state = StateFolder.of(store)
    state.create()
    with state.log.open("wb") as log:
        state.log.chmod(0o600)
        child = subprocess.Popen(  # noqa: S603 - this very program
            [sys.executable, "-m", "mirror_engine.cli.main", *words],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,  # its environment may hold a token; `write_info` keeps it private
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
    raise SetupError(
        f"{store}: the emulator did not start", state.log.read_text(encoding="utf-8", errors="replace").strip()
    )


def stop(store: Path) -> ConnectionInfo | None:
    """Stop the emulator of a STORE and wait for its end; None where none runs.

    Raises:
        TransientError: it has not ended after `STOP_SECONDS`; else as `running`.
    """
    info = running(store)
    if info is None:
        return None
    os.kill(info.pid, signal.SIGTERM)
    try:
        with FileLock(StateFolder.of(store).lock, timeout=STOP_SECONDS, poll_interval=POLL_SECONDS):
            return info
    except Timeout:
        raise TransientError(f"{store}: process {info.pid} has not ended yet", "Try again later.") from None
