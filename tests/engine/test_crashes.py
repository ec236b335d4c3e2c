"""Exactly once, wherever it fails: every call of both ports refused, or done without an answer."""

from __future__ import annotations

import inspect
import shutil
from collections import Counter
from dataclasses import replace

import pytest
from eventful_zone import EventfulZone, check
from memory_storage import MemoryStorage
from scripted_faults import Fault, Script, faulty
from seed import SEED

from mirror_engine import Config, Mirror, RunResult
from mirror_engine.engine import segments
from mirror_engine.landing_zone.layout import LEDGER
from mirror_engine.landing_zone.listing import Kind
from mirror_engine.storage.base import NO_IDENTITY, Storage, joined
from mirror_engine.tables import passthrough
from mirror_engine.tables.base import DeltaWriter
from mirror_engine.tables.dry_run.memory import MemoryDeltaWriter
from mirror_engine.testing.landing_zone_writer import LandingZoneWriter

CONFIG = Config(max_batch_files=2, workers=1, delete_processed_after_seconds=0)  # what is moved away is deleted at once
MAX_CALLS = 400
# the first four serve commands, `close` never fails, `scan` is no call of its own in memory; `say_again` follows a
# clean-up by another program, where `test_foreign_writers` lets it fail; `take_back` follows a lost lease, and
# `is_mirrored` a log without a record: `test_root_in_store`, `test_slow_store`
UNUSED = {"row_count", "count_rows", "rows", "history", "needed_stamp", "maintain", "close", "scan", "say_again"}
UNUSED |= {"take_back", "is_mirrored"}


class FlatStorage:
    """A store without folders: one is there while a file is below, and has no identity."""

    def __init__(self, storage):
        self._storage = storage

    def __getattr__(self, name):
        return getattr(self._storage, name)

    def list(self, folder):
        entries = (self.stat(joined(folder, entry.name)) for entry in self._storage.list(folder) or ())
        return [entry for entry in entries if entry] or None

    def stat(self, path):
        entry = self._storage.stat(path)
        if entry and entry.kind is Kind.FOLDER:
            return replace(entry, identity=NO_IDENTITY, modified_ns=0) if self.list(path) else None
        return entry

    def scan(self, _):
        return self


@pytest.fixture(autouse=True)
def small_loads_are_added_unchanged_and_segments_written(monkeypatch, one_attempt):  # noqa: ARG001 - a run is short
    monkeypatch.setattr(passthrough, "MIN_BYTES", 1)
    monkeypatch.setattr(segments, "COMMITS_PER_SEGMENT", 1)


class World:
    """An eventful zone with both ports in memory, so that it is made once and copied for each position.

    `shape` is how the engine sees the storage: as it is, or without folders.
    """

    def __init__(self, root, storage, writer, shape=lambda storage: storage):
        self.root, self.storage, self.writer, self.shape = root, storage, writer, shape

    @classmethod
    def made(cls, root, *shape):
        landed = root / "landed"
        landed.mkdir()
        zone = EventfulZone(LandingZoneWriter(landed))
        world = cls(root / "made", MemoryStorage(), MemoryDeltaWriter(), *shape)
        world.root.mkdir()
        world.storage.put("Tables/.known", b"")  # so that ROOT has an identity
        known = world.take(landed, ())
        world.sync()
        zone.go_on()
        for dropped in ("Gone", "Again"):
            world.storage.delete(f"Files/LandingZone/{dropped}")
        world.take(landed, {path for path in known if "Again/" not in path})
        return world

    def take(self, landed, known):
        """Copy the landed files that are new; returns all paths."""
        paths = {file.relative_to(landed).as_posix(): file for file in landed.rglob("*") if file.is_file()}
        for path in sorted(paths.keys() - known):
            self.storage.put(path, paths[path].read_bytes())
        return set(paths)

    def copy(self, root):
        shutil.copytree(self.root, root)
        storage, writer = self.storage.copy(), MemoryDeltaWriter()
        writer._tables = {table: list(commits) for table, commits in self.writer._tables.items()}
        writer._segments = dict(self.writer._segments)
        return World(root, storage, writer, self.shape)

    def sync(self, *, storage=None, writer=None):
        with Mirror(
            self.root, CONFIG, writer=writer or self.writer, storage=storage or self.shape(self.storage)
        ) as mirror:
            return mirror.sync()

    def sync_with_faults(self, port, script):
        if port == "storage":
            return self.sync(storage=faulty(self.shape(self.storage), script))
        return self.sync(writer=faulty(self.writer, script))

    def check(self):
        with Mirror(self.root, CONFIG, writer=self.writer, storage=self.shape(self.storage)) as mirror:
            check(mirror)

    def lose_ledger(self):
        for file in (self.root / LEDGER).parent.glob("ledger.sqlite*"):
            file.unlink()


def calls_of(made, root, port, ledger):
    """The calls of a run in which nothing fails."""
    world = made.copy(root)
    if ledger == "lost before":
        world.lose_ledger()
    script = Script()
    world.sync_with_faults(port, script)
    world.check()
    return script.calls


def methods_of(port):
    return {name for name, value in inspect.getmembers(port, inspect.isfunction) if name[0] != "_"}


@pytest.mark.slow
def test_every_method_of_both_ports_is_among_the_failing_calls(ram):
    made = World.made(ram)
    for port, promise in (("storage", Storage), ("writer", DeltaWriter)):
        runs = [calls_of(made, ram / f"{port}-{ledger}", port, ledger) for ledger in ("kept", "lost before")]
        called = Counter(call.partition(" ")[0] for run in runs for call in run)
        print(f"{port}: {[len(run) for run in runs]} positions, each refused and its answer lost: {dict(called)}")
        assert set(called) == methods_of(promise) - UNUSED


@pytest.mark.slow
@pytest.mark.parametrize("step", [pytest.param(1, marks=pytest.mark.nightly), 3])
@pytest.mark.parametrize("fault", [Fault.LOST_ANSWER, pytest.param(Fault.REFUSED, marks=pytest.mark.nightly)])
@pytest.mark.parametrize(
    "case",
    [
        pytest.param(("storage", "kept"), id="storage"),
        pytest.param(("storage", "kept", FlatStorage), id="storage without folders", marks=pytest.mark.nightly),
        pytest.param(("writer", "kept"), id="writer"),
        pytest.param(("writer", "lost before"), id="writer without a ledger", marks=pytest.mark.nightly),
    ],
)
def test_failed_call_loses_and_doubles_nothing(ram, case, fault, step):
    """LZ-4.18: at every call by night, by day at a third of them, of which chance says where they begin."""
    print(f"MIRROR_TEST_SEED={SEED}")
    port, before, *shape = case
    made = World.made(ram, *shape)
    total = len(calls_of(made, ram / "counting", port, before))
    assert 10 < total < MAX_CALLS
    for number in range(1 + SEED % step, total + 1, step):
        failed = made.copy(ram / str(number))
        if before == "lost before":
            failed.lose_ledger()
        failed.sync_with_faults(port, Script({number: fault}))
        for ledger in ["kept", "lost"] if before == "kept" else ["kept"]:
            world = failed.copy(ram / f"{number}-{ledger}")
            if ledger == "lost":
                world.lose_ledger()
            assert any(world.sync().result is RunResult.CAUGHT_UP for _ in range(2))
            world.check()
