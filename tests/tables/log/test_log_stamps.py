"""A start reads no log whose newest commit is the one that the ledger noted, and every other."""

from __future__ import annotations

import pytest
from deltalake import DeltaTable
from lake import Lake
from shop import Shop

from mirror_engine.engine.ledger import Ledger
from mirror_engine.errors import StorageUnavailable
from mirror_engine.landing_zone.layout import LEDGER, TABLES
from mirror_engine.tables.deferred import DeferredWriter

pytestmark = pytest.mark.slow  # each with a table on the disk

ORDERS = "dbo/Orders"


class LogRead(Exception):
    pass


def refuse():
    raise LogRead


def start(lake):
    """A sync of another process, which cannot read a log."""
    lake.writer = DeferredWriter(lake.root / TABLES, refuse)
    return Shop.sync(lake)


def test_a_caught_up_table_is_not_read(lake):
    assert start(lake).commits == 0


RETAINED = {"delta.logRetentionDuration": "interval 9 days"}
CHANGES = {
    "a commit": lambda lake: DeltaTable(str(lake.folder)).alter.set_table_properties(RETAINED),
    "the newest is rewritten": lambda lake: lake.commit(2).write_bytes(lake.commit(2).read_bytes() + b"\n"),
    "the newest is gone": lambda lake: lake.commit(2).unlink(),
    "the ledger is lost": lambda lake: (lake.root / LEDGER).unlink(),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_log_with_another_newest_commit_is_read(lake, monkeypatch, change):
    CHANGES[change](lake)
    monkeypatch.setattr("mirror_engine.mirror.note_logs", lambda _: None)  # it reads changed logs, too, but at the end
    with pytest.raises(LogRead):
        start(lake)


def status(lake):
    """A look of another process, which cannot read a log."""
    lake.writer = DeferredWriter(lake.root / TABLES, refuse)
    return Shop.status(lake)


def test_status_reads_no_log_of_which_every_file_is_as_noted(lake):
    rows = Lake.status(lake).row_count
    Shop.sync(lake)
    assert rows is not None
    assert status(lake).row_count == rows


OLDER = {
    **CHANGES,
    "an older commit is rewritten": lambda lake: lake.commit(1).write_bytes(lake.commit(1).read_bytes() + b"\n"),
    "an older one is gone": lambda lake: lake.commit(1).unlink(),
    "the first is gone": lambda lake: lake.commit(0).unlink(),
    "a checkpoint is made": lambda lake: DeltaTable(str(lake.folder)).create_checkpoint(),
}


@pytest.mark.parametrize("change", OLDER)
def test_status_reads_a_log_of_which_a_needed_file_changed(lake, change):
    OLDER[change](lake)
    with pytest.raises(LogRead):
        status(lake)


def test_a_commit_that_the_ledger_missed_is_not_noted(lake, monkeypatch):
    write = Ledger.record

    def record(ledger, table, progress, *changes):
        if progress.delta_version == 3:
            raise StorageUnavailable("no ledger", "")
        write(ledger, table, progress, *changes)

    lake.land()
    monkeypatch.setattr(Ledger, "record", record)
    monkeypatch.setattr("mirror_engine.engine.cycle.MAX_SYNC_ATTEMPTS", 1)
    lake.sync()
    assert lake.commit(3).exists()
    assert Ledger.read(lake.root / LEDGER).get_property(f"log {ORDERS}").split()[2] == "2"
