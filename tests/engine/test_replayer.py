"""The replayer: commits that are refused again and again, and tables that are recreated or forgotten meanwhile."""

from __future__ import annotations

import os
import shutil
from unittest.mock import Mock

import pytest
from scripted_faults import Failing, faulty
from shop import NO_STOP, Shop, cycles, name, row

from mirror_engine.engine.cycle import RunResult
from mirror_engine.errors import CommitFailed
from mirror_engine.events import BatchCommitted, FileRead, TableHalted, TableResumed
from mirror_engine.landing_zone.names import TableName
from mirror_engine.landing_zone.states import Halted
from mirror_engine.storage.local import LocalStorage
from mirror_engine.tables import passthrough
from mirror_engine.tables.dry_run.memory import MemoryDeltaWriter

pytestmark = pytest.mark.usefixtures("no_pauses")

ORDERS = TableName("", "Orders")


def test_a_table_that_cannot_be_dropped_just_now_is_dropped_in_a_later_cycle(tmp_path):
    shop = Shop(tmp_path, faulty(MemoryDeltaWriter(), Failing("drop", times=1)))
    orders = shop.orders()
    orders.insert(row(1))
    with shop.engine() as running:
        running.cycle(NO_STOP)
        orders.drop()
        running.cycle(NO_STOP)
        assert shop.writer.tables() == ["dbo/Orders"]
        running.cycle(NO_STOP)
        assert shop.writer.tables() == []


def test_a_table_forgotten_since_its_plan_is_not_recorded_again(tmp_path, monkeypatch):
    shop = Shop(tmp_path, drop_delay_seconds=60.0)
    orders = shop.orders()
    orders.insert(row(1))
    with shop.engine() as running:
        ledger = running.context.ledger
        running.cycle(NO_STOP)
        orders.drop()
        monkeypatch.setattr(running, "_publish", lambda _: ledger.forget(ORDERS))
        running.cycle(NO_STOP)
        assert ledger.progress(ORDERS) is None


def test_large_file_that_cannot_be_opened_now_is_committed_after_those_before_it(tmp_path, monkeypatch):
    monkeypatch.setattr(passthrough, "MIN_BYTES", 1)
    shop = Shop(tmp_path)
    for number in (1, 2, 3):
        shop.orders().initial_load(row(number), name=name(number))
    with shop.engine(storage=faulty(LocalStorage(tmp_path), Failing(f"open .*{name(2)}", times=1))) as running:
        running.cycle(NO_STOP)
        assert running.applied.commits == 2
    assert [(entry.applied_by, len(entry.files)) for entry in shop.writer.history("dbo/Orders")] == [
        ("passthrough", 2),
        ("passthrough", 1),
    ]
    assert shop.ids() == [1, 2, 3]


class Refusing(MemoryDeltaWriter):
    """A merge engine that refuses the commit of some file, in words with a number that varies."""

    def __init__(self, *refused):
        super().__init__()
        self.refused, self.tries = refused, 0

    def apply(self, table, batch, record, check=lambda: None):
        if any(file.endswith(refused) for file in record.files for refused in self.refused):
            self.tries += 1
            raise CommitFailed(f"{table}: commit failed in Spark: [SOME_CONDITION] in job {self.tries}", "Do it.")
        return super().apply(table, batch, record, check)


def refused_at(shop, number):
    (halted,) = (found for found in [shop.status()] if isinstance(found.state, Halted))
    diagnostic = halted.state.diagnostic
    assert (diagnostic.code, diagnostic.path) == ("ME086", f"Orders/{name(number)}")
    return diagnostic


def test_commit_refused_three_times_halts_its_table(tmp_path):
    """LZ-4.20: those before it are applied, all other tables go on, and everybody is told why."""
    shop = Shop(tmp_path, Refusing("3.parquet"))
    shop.land(*range(1, 6))
    shop.land(1, table="Others")
    assert shop.sync().result is RunResult.NEEDS_ATTENTION
    assert (shop.ids(), shop.ids("Others")) == ([1, 2], [1])
    assert refused_at(shop, 3).message == (
        "the commit was refused 3 times in the same words: commit failed in Spark: [SOME_CONDITION] in job 4"
    )
    assert "SOME_CONDITION" in (tmp_path / "Files/Monitoring/tables.json").read_text(encoding="utf-8")


@pytest.mark.slow
def test_refused_commit_is_retried_after_a_change_and_at_start(tmp_path):
    shop = Shop(tmp_path, Refusing("1.parquet"))
    shop.land(1)
    with shop.engine() as running:
        for tries, touched in ((3, name(1)), (6, "_metadata.json"), (9, name(1))):
            cycles(running, 9)
            assert shop.writer.tries == tries
            refused_at(shop, 1)
            os.utime(shop.publisher.path / "Orders" / touched, (1, tries))
    shop.writer.refused = ()
    assert shop.sync().result is RunResult.CAUGHT_UP
    assert shop.ids() == [1]


@pytest.mark.slow
def test_repeated_refusal_is_one_halt_in_the_history(tmp_path):
    shop = Shop(tmp_path, Refusing("1.parquet"))
    shop.orders().insert(row(1))
    for _ in range(3):
        assert shop.sync().result is RunResult.NEEDS_ATTENTION
        refused_at(shop, 1)
    assert [type(event) for event in shop.heard(TableHalted, TableResumed)] == [TableHalted]
    with shop.mirror() as mirror:
        assert [change.change for change in mirror.history().changes] == ["halted"]
    shop.writer.refused = ()
    for _ in range(2):
        assert shop.sync().result is RunResult.CAUGHT_UP
    assert [type(event) for event in shop.heard(TableHalted, TableResumed)] == [TableHalted, TableResumed]
    with shop.mirror() as mirror:
        assert [change.change for change in mirror.history().changes] == ["resumed", "halted"]


def test_refused_batch_alone_is_committed_file_by_file(tmp_path):
    shop = Shop(tmp_path, Refusing("2.parquet"), max_batch_files=3)
    shop.land(*range(1, 10))
    with shop.engine() as running:
        while shop.writer.tries < 2:
            running.cycle(NO_STOP)
        assert list(running.last.failures) == [ORDERS]
        assert not running.last.failures[ORDERS].__traceback__
        shop.writer.refused = ()
        while shop.ids() != [*range(1, 10)]:
            running.cycle(NO_STOP)
        running.cycle(NO_STOP)
        assert not running.last.failures
        assert not running.context.ledger.failures()
    commits = [len(entry.files) for entry in reversed(shop.writer.history("dbo/Orders")) if entry.files]
    assert commits == [1, 1, 1, 3, 3]


def test_a_file_that_cannot_be_read_now_is_no_refused_commit(tmp_path):
    shop = Shop(tmp_path)
    shop.orders().insert(row(1))
    with shop.engine() as running:
        failure = CommitFailed("dbo/Orders: reading failed in Spark: X")
        running._replayer._batches.read = Mock(side_effect=failure)
        for _ in range(9):
            running.cycle(NO_STOP)
            assert set(running.last.failures) == {ORDERS}


def test_other_words_each_time_are_no_lasting_refusal(tmp_path):
    shop = Shop(tmp_path, Refusing("1.parquet"))
    shop.orders().insert(row(1))
    shop.writer.apply = Mock(side_effect=[CommitFailed(f"dbo/Orders: {word}") for word in "xyxyxyxyx"])
    with shop.engine() as running:
        for _ in range(9):
            running.cycle(NO_STOP)
            assert set(running.last.failures) == {ORDERS}


class Meddling(list):
    """Events; once, as soon as a change file was read, the publisher does something."""

    def __init__(self, meddle):
        super().__init__()
        self._meddle = meddle

    def append(self, event):
        super().append(event)
        if isinstance(event, FileRead) and self._meddle:
            meddle, self._meddle = self._meddle, None
            meddle()


def test_rows_of_a_recreated_folder_are_not_committed(tmp_path):
    shop = Shop(tmp_path)
    shop.orders().insert(row(1))
    folder = shop.publisher.path / "Orders"

    def recreate():
        """The files themselves stay the same: only the folder reports."""
        folder.rename(tmp_path / "before")
        folder.mkdir()
        for file in (tmp_path / "before").iterdir():
            file.rename(folder / file.name)
        shutil.rmtree(tmp_path / "before")

    shop.events = Meddling(recreate)
    with shop.engine() as running:
        running.cycle(NO_STOP)
        assert not shop.heard(BatchCommitted)
        running.cycle(NO_STOP)
    assert shop.ids() == [1]
