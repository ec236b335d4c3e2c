"""Peers: each engine in a process of its own that stays up, takes a command a line and answers a line, as JSON."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from typing_extensions import Self

HOME = Path(__file__).parents[1]
END_SECONDS = 60


class PeerFailed(Exception):
    """A peer could not do what it was asked."""


def environment() -> dict[str, str]:
    """What a process of ours finds: these modules, and the product of this checkout."""
    path = os.pathsep.join(filter(None, [str(HOME), str(HOME.parent), os.environ.get("PYTHONPATH")]))
    return {**os.environ, "PYTHONPATH": path}


class Peers(Protocol):
    """Every engine by name."""

    def ask(self, peer: str, command: str, **given: Any) -> dict[str, Any]:  # noqa: ANN401 - any JSON value
        """What a peer answers to a command.

        Raises:
            PeerFailed: it could not do it.
        """


class Processes:
    """Peers in processes of their own, started when first asked; a context manager that ends them.

    Args:
        logs: a folder for what they print.
    """

    def __init__(self, logs: Path) -> None:
        self._logs = logs
        self._running: dict[str, subprocess.Popen[str]] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.end()

    def ask(self, peer: str, command: str, **given: Any) -> dict[str, Any]:  # noqa: ANN401 - any JSON value
        """See `Peers`."""
        process = self._running.get(peer) or self._start(peer)
        assert process.stdin
        assert process.stdout
        try:
            process.stdin.write(json.dumps({"command": command, "given": given}) + "\n")
            process.stdin.flush()
            told: dict[str, Any] = json.loads(process.stdout.readline())
        except (OSError, ValueError):
            raise PeerFailed(f"{peer} is gone; what it said last:\n{self._last_words(peer)}") from None
        if "error" in told:
            raise PeerFailed(f"{peer}, {command}: {told['error']}")
        return told

    def end(self) -> None:
        """End them all; who is asked again begins anew."""
        while self._running:
            _, process = self._running.popitem()
            process.communicate(timeout=END_SECONDS)

    def _start(self, peer: str) -> subprocess.Popen[str]:
        self._logs.mkdir(parents=True, exist_ok=True)
        with self._log(peer).open("ab") as log:
            self._running[peer] = subprocess.Popen(  # noqa: S603 - our own program
                [sys.executable, "-m", "speed.child", peer],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                env=environment(),
                text=True,
            )
        return self._running[peer]

    def _log(self, peer: str) -> Path:
        return self._logs / f"{peer}.log"

    def _last_words(self, peer: str) -> str:
        return self._log(peer).read_text(encoding="utf-8", errors="replace")[-2000:]


class Here:
    """Peers in this process: for tests, which have one JVM for all."""

    def __init__(self, **engines: Any) -> None:  # noqa: ANN401 - each has commands of its own
        self._engines = engines

    def ask(self, peer: str, command: str, **given: Any) -> dict[str, Any]:  # noqa: ANN401 - any JSON value
        """See `Peers`."""
        told: dict[str, Any] = getattr(self._engines[peer.replace("-", "_")], command)(**given)
        return told
