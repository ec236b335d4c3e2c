"""The engine without an audience: a zone is replayed into a writer of one's own, and nothing of it is changed."""

from __future__ import annotations

import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

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
    from mirror_engine.errors import TransientError
    from mirror_engine.events import Event
    from mirror_engine.landing_zone.listing import ZoneListing
    from mirror_engine.landing_zone.names import TableName
    from mirror_engine.monitoring.status import MirrorStatus
    from mirror_engine.storage.base import Storage
    from mirror_engine.tables.base import DeltaWriter
    from mirror_engine.tables.reading.spill import ReadMode

SECONDS_BETWEEN_TRIES = 0.2
MAX_TRY_SECONDS = 4.0


class DryRun:
    """An engine over a landing zone that it only reads, with a ledger in memory.

    Args:
        storage: door 1; whatever it is, nothing is written through it.
        config: all options; those about cleaning up do not count.
        writer: door 2, in memory.
        mode: how thoroughly files are read, and where their rows go: it must suit the writer.
        tell: called with every event.
        clock: seconds since 1970.
        ledger: how far every table is at the beginning; by default nothing is known. It is closed at the end.
    """

    def __init__(  # noqa: PLR0913 - every part may be replaced
        self,
        storage: Storage,
        config: Config,
        writer: DeltaWriter,
        mode: ReadMode,
        *,
        tell: Callable[[Event], None] = lambda _: None,
        clock: Callable[[], float] = time.time,
        ledger: Ledger | None = None,
    ) -> None:
        config = replace(config, cleanup="off")
        storage = ZoneView(storage)
        self._ledger = ledger or Ledger.fresh()
        self.context = EngineContext(storage, writer, self._ledger, config, clock, tell)
        self.poller = Poller(storage, config)
        self._reader = ChangeFileReader(storage, config, mode)
        reader = BatchReader(self._reader, config, tell, writer.prepare)
        self._engine = Engine(self.context, self.poller, reader, Janitor(storage, config, clock))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def cycle(self, stop: threading.Event) -> CycleResult:
        """One cycle of the engine."""
        return self._engine.cycle(stop)

    def play(self) -> MirrorStatus:
        """Replay all that can be replayed, and say how every table stands.

        Raises:
            TransientError: the zone, or a table of it, could not be read for a while.
        """
        deadline = time.monotonic() + MAX_TRY_SECONDS
        stop = threading.Event()
        reasons: dict[TableName | None, TransientError] = {}
        while True:
            result = self.cycle(stop)
            if not result.failures:
                return self.status(result)
            # a table put off only says so in later cycles: the first word on it tells why
            reasons = {table: reasons.get(table, failure) for table, failure in result.failures.items()}
            failure = next(iter(reasons.values()))
            if time.monotonic() > deadline or isinstance(failure, InternalError):
                raise failure
            stop.wait(SECONDS_BETWEEN_TRIES)

    def status(self, result: CycleResult) -> MirrorStatus:
        """How every table stands after a cycle that saw the zone."""
        zone: ZoneListing = result.zone or self.poller.look()
        return mirror_status(Path(), self.context, zone, result.plans, engine_running=True)

    def close(self) -> None:
        """End the workers, which read no further file; the ledger goes."""
        self._reader.close()
        self._engine.close()
        self._ledger.close()
