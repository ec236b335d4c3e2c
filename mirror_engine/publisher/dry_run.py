"""Dry run: replay a landing zone into a writer of its own without modifying the zone."""

from __future__ import annotations

import threading
import time
from concurrent.futures import CancelledError
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from mirror_engine.clock import Clock
from mirror_engine.engine.batch_reader import BatchReader
from mirror_engine.engine.context import EngineContext
from mirror_engine.engine.cycle import Engine
from mirror_engine.engine.janitor import Janitor
from mirror_engine.engine.ledger import Ledger
from mirror_engine.engine.poller import Poller
from mirror_engine.errors import InternalError
from mirror_engine.monitoring.status import mirror_status
from mirror_engine.storage.zone_view import ZoneView
from mirror_engine.tables.reading.reader import ChangeFileReader

if TYPE_CHECKING:
    from collections.abc import Callable

    from typing_extensions import Self

    from mirror_engine.config import Config
    from mirror_engine.engine.cycle import CycleResult
    from mirror_engine.events import Event
    from mirror_engine.monitoring.status import MirrorStatus
    from mirror_engine.storage.base import Storage
    from mirror_engine.tables.base import DeltaWriter
    from mirror_engine.tables.reading.spill import ReadMode

RETRY_SECONDS = 0.2
MAX_RETRY_SECONDS = 4.0


class DryRun:
    """An engine over a landing zone that it only reads, with a ledger in memory: no progress by default.

    `mode`, which says how thoroughly files are read and where their rows go, must suit the writer. Options about
    cleanup have no effect.
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
    ) -> None:
        config = replace(config, cleanup="off")
        storage = ZoneView(storage)
        self._ledger = ledger or Ledger.fresh()
        clock = Clock()
        self.context = EngineContext(storage, writer, self._ledger, config, clock, listener)
        self.poller = Poller(storage, config)
        self._is_over = False

        def emit(event: Event) -> None:
            if self._is_over:  # Ctrl+C: the batch ends with the file that was being read
                raise CancelledError
            listener(event)

        reader = BatchReader(ChangeFileReader(storage, config, mode), config, emit, writer.prepare)
        self._engine = Engine(self.context, self.poller, reader, Janitor(storage, config, clock))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self._is_over = True
        self._engine.close()
        self._ledger.close()

    def cycle(self, stop: threading.Event) -> CycleResult:
        return self._engine.cycle(stop)

    def run(self) -> MirrorStatus:
        """Replay all that can be replayed, and return the status of every table; raises `TransientError`."""
        deadline = time.monotonic() + MAX_RETRY_SECONDS
        stop = threading.Event()
        while True:
            result = self.cycle(stop)
            if result.outdated:
                continue
            if not result.failures:
                zone = result.zone or self.poller.scan()
                return mirror_status(Path(), self.context, zone, result.plans, engine_running=True)
            failure = next(iter(result.failures.values()))
            if time.monotonic() > deadline or isinstance(failure, InternalError):
                raise failure
            stop.wait(RETRY_SECONDS)
