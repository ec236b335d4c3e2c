"""Keep checking a landing zone while a publisher writes: finds what a later check cannot (LZ-3.10, LZ-3.13)."""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from typing import TYPE_CHECKING

from mirror_engine.events import DiagnosticRaised, TableHalted
from mirror_engine.publisher.dry_run import DryRun
from mirror_engine.publisher.validate import report_of
from mirror_engine.tables.merge.keys_only import KeyWriter, keys_only

if TYPE_CHECKING:
    from collections.abc import Callable

    from mirror_engine.events import Event
    from mirror_engine.landing_zone.diagnostics import Diagnostic
    from mirror_engine.publisher.target import ValidationTarget
    from mirror_engine.publisher.validate import ValidationReport

TRANSIENT_CODES = frozenset({"ME008", "ME019", "ME067", "ME070"})  # true for a while: only the last check counts
MIN_PAUSE_SECONDS = 0.01  # a file may be empty under its final name for no longer


def watch(target: ValidationTarget, stop: threading.Event, found: Callable[[Diagnostic], None]) -> ValidationReport:
    """Check a target again and again until `stop` is set, then once more; the report has all diagnostics.

    Args:
        target: the files to check.
        stop: ends the watching.
        found: called with each diagnostic when it is raised first.

    Raises:
        TransientError: at the last check, something could not be read.
    """
    by_table: defaultdict[str, list[Diagnostic]] = defaultdict(list)

    def listen(event: Event) -> None:
        match event:
            case DiagnosticRaised(table, diagnostic) | TableHalted(table, diagnostic):
                raised = by_table[table.folder if table else ""]
                if diagnostic.code not in TRANSIENT_CODES and diagnostic not in raised:
                    raised.append(diagnostic)
                    found(diagnostic)
            case _:
                pass

    writer = KeyWriter()
    with DryRun(target.storage, target.config, writer, keys_only(None), listener=listen) as dry_run:
        while not stop.is_set():
            started = time.monotonic()
            dry_run.cycle(threading.Event())
            stop.wait(max(MIN_PAUSE_SECONDS, time.monotonic() - started))
        status = dry_run.run()
        zone = dry_run.poller.scan()
    return report_of(target, zone, status, writer, by_table)
