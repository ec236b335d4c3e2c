"""A writer whose commits take until they are let go, and an engine whose cycles do not wait for them."""

from __future__ import annotations

import threading
from contextlib import contextmanager

from shop import NO_STOP, Shop

from mirror_engine.tables.dry_run.memory import MemoryDeltaWriter

SECONDS = 60.0


class HeldWriter(MemoryDeltaWriter):
    """Commits to tables that are held, and drops of them, wait."""

    def __init__(self):
        super().__init__()
        self._gates = {}
        self.blocked = set()

    def hold(self, table):
        self._gates.setdefault(table, threading.Event())

    def let_go(self, table):
        gate = self._gates.pop(table, None)
        if gate:
            gate.set()

    def let_all_go(self):
        for table in list(self._gates):
            self.let_go(table)

    def apply(self, table, batch, record, check=lambda: None):
        self._pass(table)
        return super().apply(table, batch, record, check)

    def drop(self, table, check=lambda: None):
        self._pass(table)
        super().drop(table, check)

    def _pass(self, table):
        gate = self._gates.get(table)
        if gate:
            self.blocked.add(table)
            assert gate.wait(SECONDS)
            self.blocked.discard(table)


class HeldShop(Shop):
    """A shop whose cycles end once nothing moves any more but what is held."""

    def __init__(self, root, **options):
        super().__init__(root, HeldWriter(), **options)

    @contextmanager
    def engine(self, **parts):
        """An engine; in the end nothing is held any more."""
        with super().engine(**parts) as running:
            try:
                yield running
            finally:
                self.writer.let_all_go()

    @contextmanager
    def at_work(self, **parts):
        """An engine; gives a function that runs a cycle."""
        with self.engine(**parts) as running:
            yield lambda: running.cycle(NO_STOP, None, self.stuck(running)) or running.last

    def settle(self, running):
        """One cycle, as an event calls for it, and those that the engine goes on with by itself."""
        while True:
            running.cycle(NO_STOP, None, self.stuck(running))
            if running.next_cycle_seconds(SECONDS) == SECONDS:
                return running.last

    def stuck(self, running):
        """Whether as many batches are held as can run, so that nothing moves any more."""
        workers = self.config.workers

        def is_stuck():
            busy = running.in_progress
            return bool(busy) and len(self.writer.blocked) == min(workers, len(busy))

        return is_stuck
