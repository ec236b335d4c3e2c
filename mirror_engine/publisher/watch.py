"""Judges a zone while a publisher writes into it: what a look afterwards no longer shows (LZ-3.10, LZ-3.13)."""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from typing import TYPE_CHECKING

from mirror_engine.events import DiagnosticRaised, TableHalted
from mirror_engine.publisher.dry_run import DryRun
from mirror_engine.publisher.validate import verdicts_of
from mirror_engine.tables.merge.keys_only import KeyWriter, keys_only

if TYPE_CHECKING:
    from collections.abc import Callable

    from mirror_engine.events import Event
    from mirror_engine.landing_zone.diagnostics import Diagnostic
    from mirror_engine.publisher.target import ValidationTarget
    from mirror_engine.publisher.validate import ValidationReport

STATES = frozenset({"ME008", "ME019", "ME067", "ME070"})  # true for a while only: what counts is the last look
MIN_PAUSE_SECONDS = 0.01  # a file is empty under its final name for as short as that


def watch(place: ValidationTarget, stop: threading.Event, say: Callable[[Diagnostic], None]) -> ValidationReport:
    """Judge a place again and again until `stop` is set; everything that was found on the way counts.

    Args:
        place: what is to be judged.
        stop: ends the watching; one last look follows.
        say: called with each diagnostic when it is found.

    Raises:
        TransientError: at the last look, something could not be read.
    """
    found = _Found(say)
    writer = KeyWriter()
    with DryRun(place.storage, place.config, writer, keys_only(None), tell=found) as rehearsal:
        while not stop.is_set():
            started = time.monotonic()
            rehearsal.cycle(threading.Event())
            stop.wait(max(MIN_PAUSE_SECONDS, time.monotonic() - started))
        status = rehearsal.play()
        zone = rehearsal.poller.look()
    return verdicts_of(place, zone, status, writer, found.by_table)


class _Found:
    """A listener that keeps each diagnostic once, by table folder."""

    def __init__(self, say: Callable[[Diagnostic], None]) -> None:
        self._say = say
        self.by_table: dict[str, list[Diagnostic]] = defaultdict(list)

    def __call__(self, event: Event) -> None:
        match event:
            case DiagnosticRaised(table, diagnostic) | TableHalted(table, diagnostic):
                if diagnostic.code not in STATES:
                    self._note(table.folder if table else "", diagnostic)
            case _:
                pass

    def _note(self, folder: str, diagnostic: Diagnostic) -> None:
        if diagnostic not in self.by_table[folder]:
            self.by_table[folder].append(diagnostic)
            self._say(diagnostic)
