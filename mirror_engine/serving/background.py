"""A server that outlives the command that started it: found by its card, known to live by its lock."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING

from filelock import FileLock, Timeout

from mirror_engine.errors import SetupError, TransientError
from mirror_engine.serving.environment import Card
from mirror_engine.serving.layout import Private

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

START_SECONDS = 60.0
STOP_SECONDS = 120.0  # an engine finishes its commit first
LOOK_SECONDS = 0.05


def running(store: Path) -> Card | None:
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


def start(store: Path, words: Sequence[str], environ: Mapping[str, str]) -> Card:
    """Start the program anew, on its own; returns once requests are answered.

    Args:
        store: the STORE that it serves.
        words: its command line.
        environ: its environment.

    Raises:
        SetupError: it ended, or is not ready after `START_SECONDS`; what it wrote is part of the hint.
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


def stop(store: Path) -> Card | None:
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


def _card(private: Private) -> Card | None:
    try:
        return Card.of(json.loads(private.card.read_text(encoding="utf-8")))
    except (FileNotFoundError, ValueError, KeyError):  # or one that another version wrote, and left behind
        return None
