"""A shop: ROOT with a publisher, an engine over the memory writer, and their events."""

from __future__ import annotations

import shutil
import threading
from contextlib import contextmanager
from dataclasses import replace

import pyarrow as pa
from obstore.store import LocalStore

from mirror_engine import Config, Mirror, RunResult
from mirror_engine.clock import Clock
from mirror_engine.events import DiagnosticRaised
from mirror_engine.landing_zone.layout import ENGINE, LEDGER
from mirror_engine.storage.object_store import ObjectStorage
from mirror_engine.storage.requests import Requests
from mirror_engine.storage.s3_store import S3Url
from mirror_engine.tables.dry_run.memory import MemoryDeltaWriter
from mirror_engine.tables.log.record import from_metadata
from mirror_engine.testing.landing_zone_writer import LandingZoneWriter
from mirror_engine.tools.trace.context import open_trace

TYPES = {"id": pa.int64(), "city": pa.string()}
NO_STOP = threading.Event()


class SharedMemoryWriter(MemoryDeltaWriter):
    """The memory writer, in whose tables another program commits, too: such commits carry no record."""

    def write_as_another(self, table, rows, operation="WRITE"):
        commits = self._tables[table]
        commits.append(replace(commits[-1], rows=tuple(rows), metadata="", operation=operation))

    def latest_external_change(self, table, since, columns=""):  # noqa: ARG002 - as declared
        states = [(each.rows, each.schema) for each in self._tables.get(table, ())]
        own = self._own(table)
        return max(
            (at for at in range(since + 1, len(states)) if at not in own and states[at] != states[at - 1]), default=-1
        )

    def snapshot(self, table):
        found, own = super().snapshot(table), self._own(table)
        return found and replace(found, record=own[max(own)], record_version=max(own))

    def _own(self, table):
        """Records by version."""
        return {
            at: from_metadata(each.metadata) for at, each in enumerate(self._tables.get(table, ())) if each.metadata
        }


class Shop:
    """A ROOT with a publisher; `engine` lends one engine that lives through several cycles."""

    def __init__(self, root, writer=None, **options):
        self.root = root
        self.writer = writer or SharedMemoryWriter()
        self.config = Config(**options)
        self.publisher = LandingZoneWriter(root)
        self.events = []
        self.now = 1_000_000.0
        self.clock = Clock(lambda: self.now, uptime=lambda: self.now)

    def mirror(self, **parts):
        return Mirror(
            self.root, self.config, writer=self.writer, listeners=[self.events.append], clock=self.clock, **parts
        )

    def without_folders(self):
        """ROOT as S3, GCS and Blob have it."""
        store = LocalStore(self.root, automatic_cleanup=True)
        return ObjectStorage(S3Url("bucket", ""), store, Requests())

    def sync(self, **parts):
        with self.mirror(**parts) as mirror:
            return mirror.sync()

    def engine(self, **parts):
        return self.mirror(**parts)._engine()

    def ids(self, table="Orders"):
        with self.mirror() as mirror:
            return sorted(mirror.read_table(table).column("id").to_pylist())

    def status(self, table="Orders"):
        with self.mirror() as mirror:
            return next(found for found in mirror._status().tables if found.name.table == table)

    def orders(self, name="Orders", **options):
        return self.publisher.table(name, keys=["id"], types=TYPES, **options)

    def land(self, *numbers, table="Orders", **options):
        """Land a file of one row for each number; returns the table's folder."""
        orders = self.orders(table, **options)
        for number in numbers:
            orders.insert(row(number), name=name(number))
        return orders

    def apply(self, *numbers, **options):
        """Land such files, and apply each before the next one lands."""
        for number in numbers:
            self.land(number, **options)
            assert self.sync().result is RunResult.CAUGHT_UP

    def lose_ledger(self):
        for file in self.root.glob(f"{LEDGER}*"):
            file.unlink()

    def lose_state(self):
        """Lose all that is not in the tables: ledger, history, lock."""
        shutil.rmtree(self.root / ENGINE)

    @contextmanager
    def trace(self, table="Orders"):
        with self.mirror() as mirror, mirror._snapshot() as look:
            yield open_trace(look, table)

    def lose(self, number, table="Orders", **options):
        """Remove an applied file for good, as a publisher may."""
        moved = self.publisher.path / table / "_FilesReadyToDelete" / name(number)
        moved.unlink(**options)

    def standing(self):
        """All diagnostics of the status."""
        with self.mirror() as mirror:
            status = mirror._status()
        return [*status.found, *(found for table in status.tables for found, _ in table.diagnostics)]

    def heard(self, *kinds):
        return [event for event in self.events if isinstance(event, kinds)]

    def said(self):
        return [event.diagnostic.code for event in self.heard(DiagnosticRaised)]


def cycles(running, times):
    for _ in range(times):
        running.cycle(NO_STOP)


def settle(running, maintained=None):
    """Cycles until nothing is left to do."""
    running.cycle(NO_STOP, maintained)
    while running.last.stale:
        running.cycle(NO_STOP, maintained)


def name(number):
    return f"{number:020d}.parquet"


def row(number):
    return {"id": number, "city": "Linz"}
