"""The replayer: the table first, the ledger second, and nothing that was replaced while it was read."""

from __future__ import annotations

import shutil
import threading

import pytest
from scripted_faults import Failing, faulty
from shop import Shop, row

from mirror_engine.events import BatchCommitted, FileRead
from mirror_engine.landing_zone.names import TableName
from mirror_engine.tables.merge.memory import MemoryDeltaWriter

pytestmark = pytest.mark.usefixtures("no_pauses")

NO_STOP = threading.Event()
ORDERS = TableName("", "Orders")


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


def test_a_refused_commit_is_not_in_the_ledger_and_its_files_stay(tmp_path):
    shop = Shop(tmp_path, faulty(MemoryDeltaWriter(), Failing("apply", times=1)))
    orders = shop.orders()
    orders.insert(row(1))
    orders.insert(row(2))
    with shop.engine() as running:
        running.cycle(NO_STOP)
        assert running.context.ledger.progress(ORDERS).applied == {}
        running.cycle(NO_STOP)
    assert shop.ids() == [1, 2]


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


def test_a_file_replaced_after_it_was_read_is_read_again(tmp_path):
    shop = Shop(tmp_path)
    orders = shop.orders()
    file = shop.publisher.path / orders.insert(row(1))
    other = shop.publisher.path / orders.insert(row(2))
    other.rename(tmp_path / "other")
    shop.events = Meddling(lambda: (tmp_path / "other").replace(file))
    shop.sync()
    assert shop.ids() == [2]


def test_rows_read_from_a_folder_that_was_recreated_since_are_not_committed(tmp_path):
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
        assert not [event for event in shop.events if isinstance(event, BatchCommitted)]
        running.cycle(NO_STOP)
    assert shop.ids() == [1]
