"""Ctrl+C and SIGTERM: the first ends the work after the current commit, the second ends the process."""

from __future__ import annotations

import os
import signal
import sys
import threading
from typing import TYPE_CHECKING

from mirror_engine.cli import exits

if TYPE_CHECKING:
    from types import FrameType

    from typing_extensions import Self

CHECK_SECONDS = 0.5
NOTICE = b"\nStopping after the current commit. Press Ctrl+C again to stop immediately.\n"


class Stopping:
    """Context in which signals set an event.

    Attributes:
        stop: set by the first signal.
        interrupted: whether that was Ctrl+C, not SIGTERM.
    """

    def __init__(self) -> None:
        self.stop = threading.Event()
        self.interrupted = False
        self._is_stopping = False

    def __enter__(self) -> Self:
        self._before = {number: signal.signal(number, self._handle) for number in (signal.SIGINT, signal.SIGTERM)}
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def wait(self) -> None:
        """Wait for a signal. One that another thread took does not wake this one, so it checks now and then."""
        while not self.stop.wait(CHECK_SECONDS):
            pass

    def exit_code(self, otherwise: int) -> int:
        """130 after Ctrl+C, else the given one."""
        return exits.INTERRUPTED if self.interrupted else otherwise

    def _handle(self, number: int, _: FrameType | None) -> None:
        if self._is_stopping:
            os._exit(exits.INTERRUPTED)  # every commit is whole or absent: nothing to tidy up
        self.interrupted = number == signal.SIGINT
        self._is_stopping = True
        # this thread may be waiting for `stop`, and hold its lock
        threading.Thread(target=self.stop.set, name="stopping", daemon=True).start()
        if sys.stderr.isatty():
            os.write(2, NOTICE)
