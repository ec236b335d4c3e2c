"""Dry runs: the engine over a landing zone that it only reads, into a writer of its own."""

from __future__ import annotations

import threading
from concurrent.futures import CancelledError
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from mirror_engine.clock import Clock
from mirror_engine.engine.context import EngineContext
from mirror_engine.engine.cycle import Engine, RunResult
from mirror_engine.engine.ledger import Ledger
from mirror_engine.landing_zone.detection import number_of
from mirror_engine.landing_zone.listing import partition_of
from mirror_engine.monitoring.status import mirror_status
from mirror_engine.storage.zone_view import ZoneView
from mirror_engine.tables.reading.reader import ChangeFileReader

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from mirror_engine.config import Config
    from mirror_engine.engine.poller import Poller
    from mirror_engine.events import Event
    from mirror_engine.monitoring.status import MirrorStatus
    from mirror_engine.storage.base import Storage
    from mirror_engine.tables.base import DeltaWriter
    from mirror_engine.tables.reading.spill import ReadMode


class DryRun(AbstractContextManager["DryRun"]):
    """An engine over a landing zone that it only reads, with a ledger in memory: no progress by default.

    `mode`, which says how thoroughly files are read and where their rows go, must suit the writer. Options about
    cleanup have no effect. What a `poller` has just listed is not listed again.
    """

    def __init__(  # noqa: PLR0913 - every part may be replaced
        self,
        storage: Storage,
        config: Config,
        writer: DeltaWriter,
        mode: ReadMode,
        *,
        listener: Callable[[Event], None] = lambda _: None,
        ledger: Ledger | None = None,
        poller: Poller | None = None,
    ) -> None:
        kept = type(config).delete_processed_after_seconds  # without effect beside it
        config = replace(config, cleanup="off", delete_processed_after_seconds=kept)
        storage = ZoneView(storage)
        self._ledger = ledger or Ledger.fresh()
        self._is_over = False

        def emit(event: Event) -> None:
            if self._is_over:  # Ctrl+C: the batch ends with the file that was being read
                raise CancelledError
            listener(event)

        self.context = EngineContext(storage, writer, self._ledger, config, Clock(), emit)
        self.engine = Engine(self.context, lambda: ChangeFileReader(storage, config, mode))
        self._is_listed = poller is not None
        self.engine.poller = poller or self.engine.poller

    def __exit__(self, *exception: object) -> None:
        self._is_over = True
        self.engine.close()
        self._ledger.close()

    def run(self) -> MirrorStatus:
        """Replay everything that can be applied, and return the status of every table; raises `TransientError`."""
        self.engine.sync(threading.Event(), final=[RunResult.FAILED], is_listed=self._is_listed)
        last = self.engine.last
        for failure in last.failures.values():
            raise failure
        zone = last.zone or self.engine.poller.scan()
        return mirror_status(Path(), self.context, zone, last.plans, engine_running=True)


def first_numbers(paths: Iterable[str]) -> Mapping[str, int]:
    """The lowest number of the files that have one, by partition."""
    lowest: dict[str, int] = {}
    for path in paths:
        if number := number_of(path):
            lowest[partition_of(path)] = min(number, lowest.get(partition_of(path), number))
    return lowest
