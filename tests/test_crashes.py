"""Exactly once, wherever it fails: every call of both doors refused, or done without an answer."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

import pyarrow as pa
import pytest

import mirror_engine.engine
import mirror_engine.mirror
from mirror_engine import Config, Mirror
from mirror_engine.delta.memory import MemoryDeltaWriter
from mirror_engine.landing_zone.layout import LEDGER
from mirror_engine.storage.local import LocalStorage
from mirror_engine.testing.faults import Fault, Script, faulty
from mirror_engine.testing.publisher import Publisher

CONFIG = Config(files_per_commit=2, workers=1)
MOST_CALLS = 400


@pytest.fixture
def ram():
    """A folder in memory where the machine has one: this test syncs ten thousand files to disk otherwise."""
    memory_disk = Path("/dev/shm")  # noqa: S108 - a private folder is made in it
    with TemporaryDirectory(dir=memory_disk if memory_disk.is_dir() else None) as folder:
        yield Path(folder)


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch):
    monkeypatch.setattr(mirror_engine.engine, "FIRST_PAUSE_SECONDS", 0.0)


class World:
    """A zone with a history behind it and work ahead of it: appends, changes, duplicates, a drop and a recreate."""

    def __init__(self, root):
        self.root = root
        self.writer = MemoryDeltaWriter()
        self.publisher = Publisher(root)
        orders = self.publisher.table("Sales.Orders", keys=["id"], types={"id": pa.int64(), "city": pa.string()})
        orders.load({"id": 1, "city": "Linz"}, {"id": 2, "city": "Wels"})
        gone = self.publisher.table("Gone", keys=["id"])
        gone.load({"id": 1})
        again = self.publisher.table("Again", keys=["id"])
        again.load({"id": 1}, {"id": 2})
        self.once()
        orders.insert({"id": 3, "city": "Graz"})
        orders.insert({"id": 3, "city": "Graz again"})
        orders.update({"id": 1, "city": "Steyr"})
        orders.delete({"id": 2, "city": None})
        orders.upsert({"id": 4, "city": "Enns"})
        gone.drop()
        again.drop()
        self.publisher.table("Again", keys=["id"]).load({"id": 9})
        self.publisher.table("New").load({"n": 1})

    def once(self, *, storage=None, writer=None):
        with Mirror(
            self.root, CONFIG, writer=writer or self.writer, storage=storage or LocalStorage(self.root)
        ) as mirror:
            return mirror.once()

    def once_faulty(self, door, script):
        if door == "storage":
            return self.once(storage=faulty(LocalStorage(self.root), script))
        return self.once(writer=faulty(self.writer, script))

    def check(self):
        with Mirror(self.root, CONFIG, writer=self.writer) as mirror:
            assert mirror.tables() == ["Sales/Orders", "dbo/Again", "dbo/New"]
            rows = sorted((row["id"], row["city"]) for row in mirror.rows("Orders").to_pylist())
            assert rows == [(1, "Steyr"), (3, "Graz"), (3, "Graz again"), (4, "Enns")]
            assert mirror.rows("Again").to_pylist() == [{"id": 9}]
            assert mirror.rows("New").to_pylist() == [{"n": 1}]
            status = {table.name.normalized: table for table in mirror.status().tables}
            assert status["Sales.Orders"].rows_processed == 7
            assert status["Sales.Orders"].watermarks == {"": 6}
            assert all(not table.waiting for table in status.values())


def count_calls(folder, door):
    world = World(folder / "counting")
    script = Script()
    world.once_faulty(door, script)
    world.check()
    return len(script.calls)


@pytest.mark.slow
@pytest.mark.parametrize("fault", list(Fault))
@pytest.mark.parametrize("ledger", ["kept", "lost"])
@pytest.mark.parametrize("door", ["storage", "writer"])
def test_a_failure_at_any_call_loses_nothing_and_doubles_nothing(ram, monkeypatch, door, ledger, fault):
    monkeypatch.setattr(mirror_engine.mirror, "TRIES_OF_ONCE", 1)
    total = count_calls(ram, door)
    assert 10 < total < MOST_CALLS
    for number in range(1, total + 1):
        world = World(ram / str(number))
        world.once_faulty(door, Script({number: fault}))
        if ledger == "lost":
            for file in (world.root / LEDGER).parent.glob("ledger.sqlite*"):
                file.unlink()
        world.once()
        world.once()
        world.check()
