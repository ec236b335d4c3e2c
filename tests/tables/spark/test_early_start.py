"""Spark is started while files are read where a MERGE is probable, else when a commit needs it."""

from __future__ import annotations

import threading
from unittest.mock import Mock

import pytest

from mirror_engine import Config, Mirror
from mirror_engine.engine.replayer import LARGE_FILE_BYTES
from mirror_engine.errors import SparkFailed
from mirror_engine.publisher.landing_zone_writer import LandingZoneWriter
from mirror_engine.tables.merge.memory import MemoryDeltaWriter
from mirror_engine.tables.spark import session as session_module
from mirror_engine.tables.spark.session import Sessions

WAIT_SECONDS = 20


class RecordingWriter(MemoryDeltaWriter):
    """Records its calls, in order."""

    def __init__(self):
        super().__init__()
        self.calls = []

    def prepare(self):
        self.calls.append("prepare")

    def apply(self, table, batch, record, snapshot=None):
        self.calls.append("apply")
        return super().apply(table, batch, record, snapshot)


ROW = {"id": 1}
STARTS = {
    "upserts of rows that may be there": (lambda orders: orders.upsert(ROW), ["prepare", "apply"]),
    "inserts": (lambda orders: orders.insert({"id": 3}), ["apply"]),
    "deletes, which may match nothing": (lambda orders: orders.delete({"id": 2}), ["apply"]),
    "a rejected file": (lambda orders: orders.apply_changes((7, ROW)), []),
    "a large file is not waited for": (lambda orders: orders.land(b"x" * LARGE_FILE_BYTES), ["prepare"]),
    "a zone that has caught up": (lambda _: None, []),
}


@pytest.mark.parametrize(("land", "calls"), STARTS.values(), ids=STARTS)
def test_the_writer_gets_ready_once_a_file_may_change_rows_of_the_table(tmp_path, land, calls):
    def synced():
        writer.calls.clear()
        with Mirror(tmp_path, Config(), writer=writer) as mirror:
            mirror.sync()
        return writer.calls

    orders, writer = LandingZoneWriter(tmp_path).table("Orders", keys=["id"]), RecordingWriter()
    orders.insert(ROW)
    orders.upsert({"id": 2})
    assert synced() == ["apply"]  # a table without rows
    land(orders)
    assert synced() == calls


@pytest.fixture
def ended(monkeypatch):
    ended = []
    monkeypatch.setattr(session_module, "child_session", lambda *_: Mock())
    monkeypatch.setattr(session_module, "end_session", ended.append)
    return ended


def test_preparing_waits_for_nothing_and_starts_one_session(ended):
    go, started = threading.Event(), []

    def start():
        started.append(Mock())
        assert go.wait(WAIT_SECONDS)
        return started[0]

    sessions = Sessions(start)
    sessions.prepare()
    sessions.prepare()
    assert sessions.first is None
    go.set()
    with sessions.lent() as one, sessions.lent() as two:
        assert one is not two
    assert (sessions.first, len(started)) == (started[0], 1)
    sessions.close()
    assert ended == started


def test_a_failed_start_is_raised_where_a_session_is_needed_and_tried_again_after_that(ended):
    failures = [SparkFailed("no room"), SparkFailed("no room yet")]

    def start():
        if failures:
            raise failures.pop(0)
        return Mock()

    sessions = Sessions(start)
    sessions.prepare()
    with pytest.raises(SparkFailed, match="no room"), sessions.lent():
        pass
    sessions.prepare()
    with pytest.raises(SparkFailed, match="no room yet"), sessions.lent():
        pass
    with sessions.lent():
        pass
    sessions.close()
    assert len(ended) == 1


def test_a_start_under_way_is_waited_for_and_ended(ended):
    go = threading.Event()

    def start():
        assert go.wait(WAIT_SECONDS)
        return Mock()

    sessions = Sessions(start)
    sessions.prepare()
    threading.Timer(0.1, go.set).start()
    sessions.close()
    assert len(ended) == 1


def test_a_session_that_comes_back_after_the_end_is_not_lent_again(ended):
    sessions = Sessions(Mock)
    with sessions.lent() as early:
        sessions.close()
    with sessions.lent() as late:
        assert late is not early
    sessions.close()
    assert len(ended) == 2
