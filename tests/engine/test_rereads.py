"""Delta logs that cannot be used are not read in each cycle, and are noticed once they can be used again."""

from __future__ import annotations

import shutil
from collections import Counter
from itertools import pairwise

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from lake import Lake
from shop import NO_STOP, cycles

from mirror_engine.landing_zone.states import Halted
from mirror_engine.tables.log import log_errors, record, snapshot
from mirror_engine.tables.log.tables_folder import TablesFolder

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("no_pauses")]


def without_record(root, files):
    """A table whose log has the transaction of a mirror, but no record, and no ledger knows it (ME081)."""
    lake = Lake(root, files=files)
    for number in range(files):
        append(lake.folder, number)
    table = DeltaTable(str(lake.folder))
    table.create_checkpoint()
    for commit in lake.log.glob("*.json"):
        if b"mirror_engine" in commit.read_bytes():
            commit.unlink()
    lake.lose_state()
    return lake


def in_the_way(root, files):
    """A table of another program where one of ours is to be (ME004)."""
    lake = Lake(root, files=1)
    shutil.rmtree(lake.folder)
    lake.lose_state()
    for number in range(files):
        append(lake.folder, number)
    lake.land()
    return lake


def cut_off(root, files):
    """A table whose newest commit was cut off (ME081)."""
    lake = Lake(root, files=files)
    lake.commit(files + 1).write_text("{", encoding="utf-8")
    return lake


UNUSABLE = {"without its record": without_record, "of another program": in_the_way, "cut off": cut_off}


def append(folder, number):
    write_deltalake(str(folder), pa.table({"id": [number], "city": ["x"]}), mode="append")


class Reads:
    """Counts what is read of logs: commits, and whole logs by deltalake."""

    def __init__(self, monkeypatch):
        self.count = Counter()
        for module in (log_errors, record, snapshot):
            monkeypatch.setattr(module, "read_commit", self.counted("commit", record.read_commit))
        monkeypatch.setattr(snapshot, "open_delta", self.counted("log", snapshot.open_delta))
        monkeypatch.setattr(snapshot, "_applications", self.counted("file", snapshot._applications))

    def counted(self, what, real):
        def call(*given):
            self.count[what] += 1
            return real(*given)

        return call

    def of(self, running):
        self.count.clear()
        running.cycle(NO_STOP)
        return sum(self.count.values())


def state(running):
    return next(iter(running.last.plans.values())).state


@pytest.mark.parametrize("make", UNUSABLE.values(), ids=UNUSABLE)
def test_unusable_log_is_not_read_in_each_cycle(tmp_path, monkeypatch, make):
    costs = []
    for files in (3, 30):
        lake = make(tmp_path / f"{files}", files)
        lake.begin()
        with lake.engine() as running:
            cycles(running, 3)
            with monkeypatch.context() as patch:
                reads = Reads(patch)
                costs.append([reads.of(running) for _ in range(5)])
            assert isinstance(state(running), Halted)
    assert costs == [[0] * 5] * 2


@pytest.mark.parametrize("make", UNUSABLE.values(), ids=UNUSABLE)
def test_unusable_log_is_read_again_after_a_growing_pause(tmp_path, monkeypatch, make):
    """As in a store, and where a change does not show."""
    lake = make(tmp_path, 3)
    lake.begin()
    with lake.engine() as running:
        cycles(running, 3)
        reads = Reads(monkeypatch)
        read_at = []
        for second in range(400):
            lake.clock.advance(seconds=1)
            if reads.of(running):
                read_at.append(second)
        pauses = [after - before for before, after in pairwise(read_at)]
        assert pauses[:3] == sorted(pauses[:3])
        assert len(read_at) < 12
        lake.clock.advance(seconds=300)
        assert reads.of(running)


def removed(lake):
    shutil.rmtree(lake.folder)


def restored(lake):
    lake.commit(4).unlink()


@pytest.mark.parametrize("in_store", [False, True])
@pytest.mark.parametrize(("make", "mend"), [(in_the_way, removed), (cut_off, restored)])
def test_log_that_can_be_used_again_is_noticed(tmp_path, monkeypatch, make, mend, in_store):
    if in_store:
        monkeypatch.setattr(TablesFolder, "needed_stamp", lambda *_: "")
    lake = make(tmp_path, 3)
    lake.begin()
    with lake.engine() as running:
        cycles(running, 4)
        mend(lake)
        if in_store:
            lake.clock.advance(seconds=300)
        cycles(running, 3)
        assert not isinstance(state(running), Halted)


def test_foreign_table_that_cannot_be_read_stays_foreign(tmp_path):
    lake = in_the_way(tmp_path, 3)
    lake.begin()
    with lake.engine() as running:
        running.cycle(NO_STOP)
        lake.commit(3).write_text("{", encoding="utf-8")
        for _ in range(2):
            running.cycle(NO_STOP)
            assert state(running).diagnostic.code == "ME004"
        shutil.rmtree(lake.folder)
        running.cycle(NO_STOP)
        assert not isinstance(state(running), Halted)


def test_log_of_a_table_in_progress_is_left_alone(tmp_path, monkeypatch):
    """Its task may be dropping it."""
    lake = cut_off(tmp_path, 3)
    lake.begin()
    with lake.engine() as running:
        running.cycle(NO_STOP)
        lake.clock.advance(seconds=300)
        reads = Reads(monkeypatch)
        (table,) = running.last.plans
        damaged = running._scan_delta_folders(running.last.zone, [table]).damaged
        assert ([*damaged], sum(reads.count.values())) == (["dbo/Orders"], 0)
        running._scan_delta_folders(running.last.zone, [])
        assert reads.count["log"]
