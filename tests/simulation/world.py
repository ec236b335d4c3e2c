"""One simulated world: a seed, a disk, tables, publishers and engines."""

from __future__ import annotations

import random
import uuid
from collections import Counter
from contextlib import contextmanager
from unittest import mock

from mirror_engine.config import Config
from mirror_engine.engine import segments
from mirror_engine.events import DiagnosticRaised, RetryScheduled, TableHalted
from mirror_engine.landing_zone.layout import TABLES, ZONE
from mirror_engine.threads import use_threads
from simulation.disk import Disk, DiskStorage
from simulation.faults import Weather
from simulation.hub import Crashed, Hub, Process
from simulation.judge import Judge
from simulation.machine import Machine
from simulation.publishers import Publisher
from simulation.tables import Tables

BEGIN = 1_790_000_000.0  # seconds since 1970
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
        cleanup = self.chance.choice(["ready", "ready", "processed", "both", "off"])
        kept = {} if cleanup == "off" else {"delete_processed_after_seconds": self.chance.choice([3600.0, 604_800.0])}
        self.config = Config(
            cleanup=cleanup,
            max_batch_files=self.chance.choice([1, 2, 1000]),
            workers=self.chance.choice([1, 2, 4]),
            poll_interval_seconds=self.chance.choice([0.5, 5.0]),
            **kept,
            auto_maintain=self.chance.choice(["off", 2, 5]),
        )
        self.disk = Disk(self.wall)
        self.judge = Judge(self)
        self.watch = _Watched(self.hub, self.judge)
        self.tables = Tables(self.watch)
        self.disk.make_folder(ZONE)
        self.disk.make_folder(TABLES)
        count = self.chance.choice([1, 2, 3])
        folders = self.chance.sample(FOLDERS, count)
        self.publishers = [Publisher(self, folder, random.Random(self.chance.random())) for folder in folders]
        self.machines = [Machine(self, "one")]

    def run(self):
        """Let it all happen; AssertionError where something is wrong."""
        ids = random.Random(self.seed)

        def unique_id():
            return uuid.UUID(int=ids.getrandbits(128), version=4)

        unique = mock.patch.object(uuid, "uuid4", unique_id)
        often = mock.patch.object(segments, "COMMITS_PER_SEGMENT", self.chance.choice([2, 5, 50]))
        with unique, often, use_threads(self.hub):
            self.hub.run(Process("world"), self._live, "world")

    def _live(self):
        hub = self.hub
        for machine in self.machines:
            hub.start(machine.live, "machine", Process(f"machine {machine.name}"))
        for publisher in self.publishers:
            hub.start(publisher.live, "publisher", Process(publisher.folder))
        hub.start(self._change, "time", Process("fate"))
        hub.wait(lambda: self.is_ending and all(publisher.is_quiet for publisher in self.publishers))
        quiet_since = hub.now
        while left := self.judge.left():
            assert hub.now - quiet_since < QUIET_SECONDS, f"quiet for long, but: {'; '.join(left)}"
            hub.sleep(5.0)
        self.reached["caught up in the end"] += 1
        self.is_over = True
        for machine in self.machines:
            if machine.process:
                machine.stop()

    def _change(self):
        """What comes over a world now and then."""
        while not self.is_ending:
            self.hub.sleep(self.chance.choice([5.0, 30.0, 100.0]))
            if self.is_ending:
                break
            change = self.chance.choice(["days pass", "stop", "clock", "nothing", "nothing"])
            machine = self.chance.choice(self.machines)
            self.reached[f"fate: {change}"] += 1
            self.hub.step(change)
            if change == "days pass":
                self.hub.now += self.chance.choice([3_000.0, 100_000.0, 700_000.0])
            elif change == "stop" and machine.process:
                machine.stop()
            elif change == "clock":  # it is behind, or right again
                machine.skew = self.chance.choice([0.0, 0.0, -50.0, -40_000.0, -1_000_000.0])
        for machine in self.machines:
            machine.skew = 0.0

    def _before_step(self, _):
        if not self.is_ending and self.hub.steps >= self.limit:
            self.is_ending = self.weather.is_calm = True
            self.lines.append("  calm")

    def wall(self):
        """The true date, in seconds since 1970."""
        return BEGIN + self.hub.now

    def storage(self, port):
        return DiskStorage(self.disk, port, self.watch)

    def requests(self):
        return None

    @contextmanager
    def held(self, machine, port, stop):  # noqa: ARG002 - one machine on a disk
        yield lambda: None

    def heard(self, machine, event):
        """An event of an engine."""
        self.hub.trace(f"  {machine.name}: {event}")
        self.reached[type(event).__name__] += 1
        if isinstance(event, RetryScheduled) and event.message.startswith("unforeseen"):
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
