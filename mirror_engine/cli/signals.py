"""Ctrl+C and SIGTERM: the first ends the work after the commit at hand, the second ends the process."""

from __future__ import annotations

import os
import signal
import sys
import threading
from typing import TYPE_CHECKING

from mirror_engine.cli import exit_codes

if TYPE_CHECKING:
    from types import FrameType

LOOK_SECONDS = 0.5
SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Stopping:
    """While entered, turns signals into an event; `interrupted` tells Ctrl+C from an orderly SIGTERM.

    Attributes:
        stop: set by the first signal.
        interrupted: whether that was Ctrl+C.
    """

    def __init__(self) -> None:
        self.stop = threading.Event()
        self.interrupted = False
        self._is_met = False
        self._before: dict[signal.Signals, object] = {}

    def __enter__(self) -> Stopping:  # noqa: PYI034 - final in all but name
        self._before = {number: signal.signal(number, self._met) for number in SIGNALS}
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)  # type: ignore[arg-type]  # as signal.signal itself gave it

    def wait(self) -> None:
        """Until a signal. One that another thread took does not wake this one: so it looks up now and then."""
        while not self.stop.wait(LOOK_SECONDS):
            pass

    def exit_code(self, otherwise: int) -> int:
        """130 after Ctrl+C, else the given one."""
        return exit_codes.INTERRUPTED if self.interrupted else otherwise

    def _met(self, number: int, _: FrameType | None) -> None:
        if self._is_met:
            # every commit is whole or absent, so there is nothing to tidy up
            os._exit(exit_codes.INTERRUPTED)
        self.interrupted = number == signal.SIGINT
        self._is_met = True
        # this thread may be in the midst of waiting for `stop`, with its lock in hand
        threading.Thread(target=self.stop.set, name="stopping", daemon=True).start()
        if sys.stderr.isatty():
            os.write(2, b"\nstopping after the commit at hand; again to stop at once\n")
