"""A month on the virtual clock, without faults: what does a change cost on its last day, and on an earlier one?

`python -m simulation.month --days 30 --changes 1000` prints a line a day.
"""

from __future__ import annotations

import argparse
from contextlib import closing
from dataclasses import dataclass
from random import Random

from mirror_engine.config import Config
from simulation.disk import DiskStorage
from simulation.publishers import Publisher
from simulation.runner import quiet
from simulation.world import World

DAY_SECONDS = 86_400.0
SEED = 1  # of a world on a disk


@dataclass
class Day:
    """What one day cost.

    Attributes:
        calls: of ports, for a change.
        written: bytes of files, for a change.
        rows: of the ledger, in the end.
        commits: that the log keeps, in the end.
    """

    calls: float
    written: float
    rows: int
    commits: int


class Month(World):
    """One table whose changes land evenly; retention, log clean-up and maintenance as they come."""

    def __init__(self, days, changes):
        super().__init__(SEED, 0)
        assert not self.is_store
        assert not self.is_arrow
        self.weather.is_calm, self.stranger, self.is_done = True, None, False
        self.config = Config(
            poll_interval_seconds=DAY_SECONDS / changes,
            auto_maintain=20,
            delete_processed_after_seconds=7 * DAY_SECONDS,
        )
        self.publishers = [Steady(self, days, changes)]
        self.written, self.days = 0, []

    @property
    def is_landing(self):
        return not self.is_done

    def _change(self):
        """Nothing comes over this world."""

    def storage(self, port):
        return CountingStorage(self, port)

    def ledger_rows(self):
        with closing(self.machines[0].database.cursor()) as cursor:
            tables = [name for (name,) in cursor.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
            return sum(cursor.execute(f"SELECT count(*) FROM {name}").fetchone()[0] for name in tables)  # noqa: S608


class CountingStorage(DiskStorage):
    """Adds up the bytes that are written."""

    def __init__(self, world, port):
        super().__init__(world.disk, port, world.watch)
        self._world = world

    def write(self, path, content):
        self._world.written += len(content)
        super().write(path, content)


class Steady(Publisher):
    """Lands so many change files a day."""

    def __init__(self, world, days, changes):
        super().__init__(world, "Orders", Random(SEED))
        self._days, self._changes = days, changes
        self.is_text, self.keys, self.leaves = False, ["id"], [""]
        self._begin()

    def live(self):
        world = self.world
        for _ in range(self._days):
            self._describe()
            before = world.hub.steps, world.written
            for _ in range(self._changes):
                self._land()
                world.hub.sleep(DAY_SECONDS / self._changes)
            calls, written = (now - then for now, then in zip((world.hub.steps, world.written), before, strict=True))
            log = world.tables.logs["dbo/Orders"]
            kept = log.version - log.first
            world.days.append(Day(calls / self._changes, written / self._changes, world.ledger_rows(), kept))
        world.is_done = True
        world.hub.wait(lambda: world.is_ending)
        self.is_quiet = True


def month(days, changes):
    """Play a month; returns its days."""
    world = Month(days, changes)
    with quiet():
        world.run()
    return world.days


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m simulation.month", description=__doc__)
    parser.add_argument("--days", type=int, default=30)
    parser.add_argument("--changes", type=int, default=1000, help="a day")
    asked = parser.parse_args()
    for number, day in enumerate(month(asked.days, asked.changes), 1):
        print(number, day)
