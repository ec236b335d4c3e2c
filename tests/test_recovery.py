"""Recovery: the ledger is made to agree with the Delta log, and keeps what it knows better."""

from __future__ import annotations

from contextlib import contextmanager

from shop import Shop, row

from mirror_engine.errors import StorageUnavailable
from mirror_engine.landing_zone.layout import LEDGER
from mirror_engine.landing_zone.names import TableName
from mirror_engine.ledger import Ledger
from mirror_engine.recovery import recover

ORDERS = TableName("", "Orders")


@contextmanager
def ledger_of(shop):
    ledger = Ledger.open(shop.root / LEDGER)
    try:
        yield ledger
    finally:
        ledger.close()


def test_a_ledger_one_batch_behind_keeps_what_it_knows_of_files_that_were_moved_away(tmp_path):
    shop = Shop(tmp_path)
    orders = shop.orders()
    for number in (1, 2, 3):
        with ledger_of(shop) as ledger:
            behind = ledger.progress(ORDERS)
        orders.insert(row(number))
        shop.once()
    with ledger_of(shop) as ledger:
        before = ledger.progress(ORDERS)
        ledger.record(ORDERS, behind)
    shop.once()
    with ledger_of(shop) as ledger:
        after = ledger.progress(ORDERS)
    assert after.batch == before.batch == 3
    assert after.applied == before.applied


def test_a_table_that_cannot_be_read_just_now_is_not_forgotten(tmp_path, monkeypatch):
    shop = Shop(tmp_path)
    shop.orders().load(row(1))
    shop.once()

    def state(folder):
        raise StorageUnavailable(folder, "Try again.")

    with shop.engine() as running:
        before = running.doors.ledger.progress(ORDERS)
        monkeypatch.setattr(shop.writer, "state", state)
        assert recover(running.doors) == frozenset()
        assert running.doors.ledger.progress(ORDERS) == before
