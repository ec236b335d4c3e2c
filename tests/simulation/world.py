"""One simulated world: a seed, a disk, tables, publishers and engines."""

from __future__ import annotations

import os
import random
import uuid
from collections import Counter
from contextlib import closing, contextmanager
from unittest import mock

from mirror_engine.config import Config
from mirror_engine.engine import segments
from mirror_engine.events import CycleEnded, DiagnosticRaised, RetryScheduled, TableHalted
from mirror_engine.landing_zone.layout import TABLES, ZONE
from mirror_engine.storage.lease import hold_lease
from mirror_engine.storage.requests import Requests
from mirror_engine.threads import use_threads
from simulation.arrow import ArrowTables
from simulation.disk import Disk, DiskStorage, StoreStorage
from simulation.faults import Fault, Weather
from simulation.hub import Crashed, Hub, Process
from simulation.judge import Judge
from simulation.lease import Lease, LeaseFile
from simulation.machine import Machine
from simulation.publishers import Publisher
from simulation.stranger import Stranger
from simulation.tables import Tables

BEGIN = 1_790_000_000.0  # seconds since 1970
SKEWS = [0.0, 0.0, -50.0, -40_000.0, -1_000_000.0, 50_000.0, 3_000_000.0]  # by which a machine's date is off
SHORT_SECONDS = 1200.0
STOPPED_SECONDS = 600.0
QUIET_SECONDS = 1500.0  # until all has caught up, once nothing fails any more
FOLDERS = ["Orders", "Sales.schema/Items", "Sales.schema/Orders", "Lines"]


class World:
    """Everything that one seed makes.

    Args:
        seed: of all chance.
        steps: after so many, nothing fails any more, publishers put right what they did wrong, and all must catch up.
    """

    def __init__(self, seed, steps):
        self.seed, self.limit = seed, steps
        self.chance = random.Random(seed)
        self.lines, self.reached = [], Counter()
        self.hub = Hub(random.Random(self.chance.random()), self.lines.append)
        self.hub.before_step = self._before_step
        self.weather = Weather.drawn(self.chance)
        self.is_ending = self.is_over = False
        self.leaps = []  # when days passed at once, and how many seconds
        self.refusals = 1_030 if self.chance.random() < 0.002 else 0  # of reading change files, that are still to come
        if self.refusals:
            self.weather.is_calm = True
        cleanup = self.chance.choice(["ready", "ready", "processed", "both", "off"])
        kept = {} if cleanup == "off" else {"delete_processed_after_seconds": self.chance.choice([3600.0, 604_800.0])}
        self.config = Config(
            cleanup=cleanup,
            max_batch_files=self.chance.choice([1, 2, 1000]),
            workers=self.chance.choice([1, 2, 4]),
            poll_interval_seconds=300.0 if self.refusals else self.chance.choice([0.5, 5.0]),
            **kept,
            auto_maintain=self.chance.choice(["off", 2, 5]),
        )
        self.is_store = self.chance.random() < 0.25 and not self.refusals
        own = random.Random(f"{seed}, folders of a store")  # so that other worlds stay as they are
        self.has_folders = not self.is_store or own.random() < 0.5  # with an identity, as those of a data lake
        self.unwanted_acts = {"replace", "overwrite", "rekey"} if self.is_store else set()
        self.unwanted_acts |= set() if self.has_folders else {"drop"}  # LZ-7.3
        self.to_recreate = set()  # Delta folders whose engine is stopped at a commit
        self.stopped = None  # that engine's process, the folder, its log and the version of it
        if self.is_store:
            self.weather.rates[Fault.PAUSE] = self.chance.choice([0, 0.003, 0.01])
            self.weather.rates[Fault.PAUSE] += 0.01 if self.has_folders else 0.0
        self.lease, self.checked = Lease(self.wall), {}
        self.disk = Disk(self.wall, is_store=self.is_store, has_folders=self.has_folders)
        self.judge = Judge(self)
        self.watch = _Watched(self.hub, self.judge)
        self.is_arrow = not self.is_store and not self.refusals and self.chance.random() < 0.01
        if self.is_arrow:
            self.tables = ArrowTables(self.watch, self.chance)
        else:
            self.tables = Tables(self.watch, self.wall, is_store=self.is_store)
        for folder in (ZONE, TABLES) if self.has_folders else ():
            self.disk.make_folder(folder)
        count = 1 if self.refusals else self.chance.choice([1, 2, 3])
        folders = self.chance.sample(FOLDERS, count)
        self.publishers = [Publisher(self, folder, random.Random(self.chance.random())) for folder in folders]
        self.machines = [Machine(self, name) for name in (("one", "two") if self.is_store else ("one",))]
        has_stranger = self.chance.random() < 0.2 and not self.is_arrow
        self.stranger = Stranger(self, random.Random(self.chance.random())) if has_stranger else None

    def run(self):
        """Let it all happen; AssertionError where something is wrong."""
        ids = random.Random(self.seed)

        def unique_id():
            return uuid.UUID(int=ids.getrandbits(128), version=4)

        unique = mock.patch.object(uuid, "uuid4", unique_id)
        often = mock.patch.object(segments, "COMMITS_PER_SEGMENT", self.chance.choice([2, 5, 50]))
        own = random.Random(f"{self.seed}, names")  # so that other worlds stay as they are
        forgetful = mock.patch.object(segments, "KEPT_SECONDS", own.choice([segments.KEPT_SECONDS, 3_000.0, 100.0]))
        process = mock.patch.object(os, "getpid", return_value=1)
        with closing(self.tables), unique, often, forgetful, process, use_threads(self.hub):
            self.hub.run(Process("world"), self._live, "world")
        assert self.is_over, "the world ended before its time"

    def _live(self):
        hub = self.hub
        for machine in self.machines:
            hub.start(machine.live, "machine", Process(f"machine {machine.name}"))
        for publisher in self.publishers:
            hub.start(publisher.live, "publisher", Process(publisher.folder))
        hub.start(self._change, "time", Process("fate"))
        if self.stranger:
            hub.start(self.stranger.live, "stranger", Process("stranger"))
        hub.wait(lambda: self.is_ending and all(publisher.is_quiet for publisher in self.publishers))
        quiet_since = hub.now
        while left := self.judge.left():
            assert hub.now - quiet_since < QUIET_SECONDS, f"quiet for long, but: {'; '.join(left)}"
            if left == self.judge.made_late():
                self.reached["table made late dropped by the next start"] += 1
                for machine in self.machines:
                    machine.stop()
            hub.sleep(5.0)
        self.reached["caught up in the end"] += 1
        self.reached["halted in the end"] += 0 < len(self.judge.halted) < len(self.publishers)
        self.is_over = True
        for machine in self.machines:
            if machine.process:
                machine.stop()

    def _change(self):
        """What comes over a world now and then."""
        while not self.is_ending:
            self.hub.sleep(self.chance.choice([5.0, 30.0, 100.0]))
            if not self.is_landing:
                break
            if self.refusals:
                continue
            change = self.chance.choice(["days pass", "stop", "clock", "nothing", "nothing"])
            machine = self.chance.choice(self.machines)
            self.reached[f"fate: {change}"] += 1
            self.hub.step(change)
            if change == "days pass":
                days = self.chance.choice([3_000.0, 100_000.0, 700_000.0])
                self.leaps.append((self.hub.now, days))
                self.hub.now += days
            elif change == "stop" and machine.process:
                machine.stop()
            elif change == "clock" and (machine.skew or machine.has_seen_the_date):  # it is off, or right again
                machine.skew, machine.has_been_wrong = self.chance.choice(SKEWS), True
                self.hub.trace(f"  {machine.name} is off by {machine.skew:.0f} s")
        for machine in self.machines:
            machine.skew = 0.0

    @property
    def is_landing(self):
        """Whether publishers go on."""
        return self.hub.steps < self.limit

    def refuses(self, words):
        """Whether a call is one of those that are refused for days."""
        if self.refusals and words.startswith("open ") and "/0000" in words:
            self.refusals -= 1
            if self.refusals == 0:
                self.reached["refused more than a thousand times"] += 1
            return True
        return False

    def _before_step(self, _):
        if self.stopped:
            self._goes_on()
        if not self.is_ending and not self.is_landing and not self.refusals:
            self.is_ending = self.weather.is_calm = True
            self.lines.append("  calm")

    def wall(self):
        """The true date, in seconds since 1970."""
        return BEGIN + self.hub.now

    def wall_before_leaps(self):
        """The date, but for days that passed at once a short time ago: a process may have been in the middle."""
        now, back = self.hub.now, 0.0
        for at, seconds in reversed(self.leaps):
            if now - seconds - at > SHORT_SECONDS:
                break
            now, back = now - seconds, back + seconds
        return self.wall() - back

    def storage(self, port):
        return (StoreStorage if self.is_store else DiskStorage)(self.disk, port, self.watch)

    def lose_power(self):
        """The machine with the disk and the tables loses power: what was not synced may be gone."""
        if not self.is_store and not self.is_arrow:
            self.hub.trace("  power cut")
            self.reached["power cut"] += 1
            self.disk.lose_power(self.chance)
            self.tables.lose_power(self.chance)

    def requests(self):
        return Requests() if self.is_store else None

    @property
    def has_gap(self):
        """Whether a number is missing anywhere."""
        return any(publisher.gaps for publisher in self.publishers)

    def notes_drop(self, folder):
        """A publisher begins to drop a folder."""
        engines = [machine.engine for machine in self.machines if machine.engine]
        if any(table.folder == folder for engine in engines for table in engine.in_progress):
            self.reached["drop while a batch is in progress"] += 1

    def stops_at(self, process, words):
        """A process is stopped at a call. At a commit its folder may be made anew, and the new table get as far."""
        seconds = self.chance.choice([20.0, 45.0, 200.0, 200.0])
        kind, _, table = words.partition(" ")
        log = self.tables.logs.get(table)
        if kind == "commit" and self.is_store and self.has_folders and log:
            self.to_recreate.add(table)
            self.stopped, seconds = (process, table, log, log.version), STOPPED_SECONDS
        process.paused_until = self.hub.now + seconds

    def _goes_on(self):
        process, table, log, version = self.stopped
        made = self.tables.logs.get(table)
        if process.is_dead:
            self.stopped = None
        elif made and made is not log and made.version >= version:
            process.paused_until, self.stopped = self.hub.now, None

    def holds_lease(self, machine):
        """Whether nobody else has taken the lease since."""
        return not self.is_store or self.lease.holder in {None, machine.memory.text}

    @contextmanager
    def held(self, machine, port, stop):
        """Hold ROOT for a machine's engine; on a disk there is one machine."""
        if not self.is_store:
            yield lambda: None
            return

        def heard(event):
            self.hub.trace(f"  {machine.name}: {event}")

        file = LeaseFile(self.lease, port)
        with hold_lease(file, machine.memory, machine.discard, heard, stop=stop, clock=machine.clock) as lease:
            self.reached["lease taken"] += 1

            def check():
                lease.check()
                self.checked[self.hub.current] = True

            yield check

    def heard(self, machine, event):
        """An event of an engine."""
        self.hub.trace(f"  {machine.name}: {event}")
        self.reached[type(event).__name__] += 1
        if isinstance(event, CycleEnded):
            self.watch.keeps(machine.engine)
        if isinstance(event, RetryScheduled) and event.message.startswith("internal error"):
            self.hub.fail(AssertionError(event.message))
            raise Crashed
        if isinstance(event, DiagnosticRaised | TableHalted):
            self.reached[event.diagnostic.code] += 1


class _Watched:
    """The judge, whose verdict ends the world: an engine would take it for an error of its own."""

    def __init__(self, hub, judge):
        self._hub, self._judge = hub, judge

    def __getattr__(self, name):
        method = getattr(self._judge, name)

        def judged(*arguments):
            try:
                return method(*arguments)
            except Exception as fault:
                self._hub.fail(fault)
                raise Crashed from fault

        return judged


__all__ = ["Crashed", "World"]
