"""When Delta logs that cannot be used are read again: not in each cycle, as that takes as long as they are."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from mirror_engine.engine.scheduler import Backoff
from mirror_engine.engine.turns import FIRST_PAUSE_SECONDS, MAX_PAUSE_SECONDS

if TYPE_CHECKING:
    from mirror_engine.engine.context import EngineContext


class Rereads:
    """Says whether the log of a damaged or foreign table is due to be read again.

    It is once files of it have changed that a reader needs. Not every change shows in them, in a store none does: so it
    is due after a pause, too, each twice as long as the last.
    """

    def __init__(self, context: EngineContext) -> None:
        self._context = context
        self._stamps: dict[str, str] = {}
        self._pauses: defaultdict[str, Backoff] = defaultdict(
            lambda: Backoff(FIRST_PAUSE_SECONDS, MAX_PAUSE_SECONDS, context.clock)
        )

    def is_due(self, folder: str) -> bool:
        """Whether to read the log of a Delta folder again; once it is due, the next pause begins."""
        stamp, pause = self._context.delta.needed_stamp(folder), self._pauses[folder]
        if stamp != self._stamps.get(folder):
            pause.succeeded()
        elif pause.is_waiting:
            return False
        pause.failed()
        self._stamps[folder] = stamp
        return True
