"""A machine on which an engine runs, dies and is started again, with its ledger and its clock."""

from __future__ import annotations

import sqlite3
from contextlib import ExitStack, contextmanager
from pathlib import Path

from mirror_engine.clock import Clock
from mirror_engine.engine.context import EngineContext
from mirror_engine.engine.cycle import Engine
from mirror_engine.engine.known_time import KNOWN_TIME, KnownTime
from mirror_engine.engine.ledger import Ledger
from mirror_engine.engine.maintenance import MaintenanceScheduler
from mirror_engine.engine.watcher import ZoneWatcher
from mirror_engine.errors import RootLocked, StorageUnavailable
from mirror_engine.landing_zone.names import TableName
from mirror_engine.monitoring.monitoring_files import MonitoringFiles, heartbeat
from mirror_engine.tables.reading.reader import ChangeFileReader
from mirror_engine.tables.reading.spill import all_rows
from simulation.faults import Fault, Port
from simulation.hub import Process
from simulation.lease import Memory
from simulation.stranger import needs_ledger

SCRATCH = Path("no-scratch")  # rows are few: all stay in memory


class Machine:
    """Starts an engine, and another one whenever it ended.

    Attributes:
        database: of the ledger, as the disk of this machine has it.
        skew: seconds by which its date is off.
        has_been_wrong: whether its date was ever off.
        restarts: how often it started anew.
        wrong_starts: when it did so after its date was off: each may shorten a wait by a day.
    """

    def __init__(self, world, name):
        self.world, self.name = world, name
        self.database, self.skew = copied(_empty()), 0.0
        self.process = self.engine = self.context = self._stop = None
        self.earlier = []  # what the ledger was at some moments
        self.memory = Memory()  # of its last lease
        self.starts = 0
        self.has_been_wrong, self.restarts, self.wrong_starts = False, 0, []
        self.clock = Clock(lambda: world.wall() + self.skew, lambda: world.hub.now, boot=f"{name} 0")

    def live(self):
        """Start engines until the world ends."""
        hub, chance = self.world.hub, self.world.chance
        while not self.world.is_over:
            self.starts += 1
            process = self.process = Process(f"{self.name}.{self.starts}", started=hub.now)
            hub.start(lambda process=process: self._main(process), "main", process)
            hub.wait(lambda process=process: process.is_dead or not process.tasks)
            if process.is_dead:
                hub.unwind(process)
            self.process = self.engine = self.context = self._stop = None
            if not self.world.weather.is_calm:
                self._lose_ledger()
                hub.sleep(chance.choice([0.0, 1.0, 60.0]))
            else:
                hub.sleep(1.0)

    def kill(self):
        """SIGKILL: what the ledger holds now is what the next engine finds."""
        process = self.process
        if process and not process.is_dead:
            self.database = copied(self.database)
            self.world.hub.kill(process)
            self.world.reached["engine killed"] += 1
            if self.world.chance.random() < 0.3:
                self.world.lose_power()
                self.restarts += 1
                self.clock.boot = f"{self.name} {self.restarts}"
                if self.has_been_wrong:
                    self.wrong_starts.append(self.world.wall())

    def stop(self):
        """SIGTERM."""
        if self._stop:
            self._stop.set()

    @property
    def has_seen_the_date(self):
        """Whether the ledger of the running engine keeps a date: one that is back is then known as wrong."""
        return self.context is not None and bool(self.context.ledger.get_property(KNOWN_TIME))

    def discard(self):
        """The ledger of a machine on which another one's engine has run since."""
        self.database, self.skew = copied(_empty()), 0.0  # a new ledger takes a wrong date for the right one
        self.world.tables.end_late()
        self.world.reached["ledger discarded: another engine had the lease"] += 1

    def knows(self, head):
        """Whether its engine runs, and its ledger has this record's batch."""
        if self.context is None or self.process is None or self.process.is_dead:
            return False
        known = self.context.ledger.progress(TableName.from_folder(head.folder))
        return known is not None and (known.generation, known.batch) == (head.progress.generation, head.progress.batch)

    def _lose_ledger(self):
        chance = self.world.chance.random()
        if not self.world.is_arrow and any(map(needs_ledger, self.world.tables.logs.values())):
            return
        if self.skew:  # a new ledger takes a wrong date for the right one
            return
        if chance < 0.1:
            self.database = copied(_empty())
            self.world.reached["ledger lost"] += 1
            self.world.reached["ledger lost while a number is missing"] += self.world.has_gap
            self.world.hub.trace("  ledger lost")
        elif chance < 0.2 and self.earlier:
            self.database = copied(self.world.chance.choice(self.earlier))
            self.world.reached["ledger older"] += 1
            self.world.hub.trace("  ledger older")

    def _main(self, process):
        world = self.world
        port = Port(world, self, process)
        storage, writer = world.storage(port), world.tables.writer(port)
        stop = self._stop = world.hub.event()
        with ExitStack() as stack:
            try:
                check_lock = stack.enter_context(world.held(self, port, stop))
                ledger = _PortedLedger(self.database, port, world.watch)
                if world.chance.random() < 0.3:
                    self.earlier = [*self.earlier[-3:], copied(self.database)]
                known_time = KnownTime(self.clock, ledger, is_stored=True)
                context = EngineContext(
                    storage,
                    writer,
                    ledger,
                    world.config,
                    self.clock,
                    lambda event: world.heard(self, event),
                    is_lasting=True,
                    check_lock=check_lock,
                    requests=world.requests(),
                    known_time=known_time,
                )
                files = MonitoringFiles(context)
                mode = all_rows(SCRATCH)
                engine = Engine(context, lambda: ChangeFileReader(storage, world.config, mode), None, files.write)
                self.engine, self.context = engine, context
                stack.callback(engine.close)
                stack.enter_context(heartbeat(context))
                if world.chance.random() < 0.3 and not world.weather.is_calm:
                    world.reached["sync"] += 1
                    engine.sync(stop)
                else:
                    with (
                        ZoneWatcher(None, stop, self.clock) as watcher,
                        MaintenanceScheduler(context, watcher.wake) as maintenance,
                    ):
                        self.maintenance = maintenance
                        engine.run(stop, watcher, maintenance)
            except (RootLocked, StorageUnavailable) as error:
                world.hub.trace(f"  ended: {error.message}")
                world.reached[f"engine ended: {type(error).__name__}"] += 1


class _PortedLedger(Ledger):
    """A ledger whose changes may fail, or be the last thing that its process does."""

    def __init__(self, connection, port, judge):
        self._port, self._judge = port, judge
        super().__init__(connection)

    def record(self, table, progress, *arguments, **options):
        self._judge.records(table, progress)
        super().record(table, progress, *arguments, **options)

    @contextmanager
    def _guarded(self, operation):
        if operation != "write":
            with super()._guarded(operation):
                yield
            return
        self._port.fails("ledger", Fault.REFUSED, Fault.CRASH_BEFORE)
        with super()._guarded(operation):
            yield
        self._port.fails("ledger", Fault.CRASH_AFTER)


_TEMPLATE = []


def _empty():
    if not _TEMPLATE:
        _TEMPLATE.append(Ledger.fresh()._connection)
    return _TEMPLATE[0]


def copied(database):
    """The same ledger on another connection."""
    copy = sqlite3.connect(":memory:", check_same_thread=False)
    database.backup(copy)
    return copy
