"""Events end a wait early; without them the wait ends by itself."""

from __future__ import annotations

import ctypes
import errno
import logging
import shutil
import sys
import threading
import time

import pytest

from mirror_engine.clock import Clock
from mirror_engine.engine import watcher as waking
from mirror_engine.engine.watcher import ZoneWatcher
from mirror_engine.landing_zone.names import TableName

POLLED = (
    "no file-system events of all or some folders ([Errno 28] inotify watch limit reached): the landing zone is polled"
)

pytestmark = pytest.mark.slow  # whole programs: no part of the quick look

FIRST = "00000000000000000001.parquet"
LONG = 20.0  # seconds no test waits for
SHORT = 0.15  # long enough for an event to arrive


@pytest.fixture(autouse=True)
def _short_bursts(monkeypatch):
    monkeypatch.setattr(waking, "SETTLING_SECONDS", 0.03)
    monkeypatch.setattr(waking, "STOP_LATENCY_SECONDS", 0.05)


@pytest.fixture
def watched_zone(tmp_path):
    folder = tmp_path / "Files" / "LandingZone"
    (folder / "Items" / "_FilesReadyToDelete").mkdir(parents=True)
    (folder / "Items" / "_writing.parquet").write_bytes(b"x")
    (folder / "Items" / "old.parquet").write_bytes(b"x")
    return folder


@pytest.fixture
def stop():
    return threading.Event()


@pytest.fixture
def waker(tmp_path, watched_zone, stop):
    assert watched_zone.is_dir()
    with ZoneWatcher(tmp_path, stop, Clock()) as made:
        yield made


def takes(act):
    started = time.monotonic()
    act()
    return time.monotonic() - started


def land(zone):
    (zone / "Items" / FIRST).write_bytes(b"x")


def append(zone):
    with (zone / "Items" / "old.parquet").open("ab") as file:
        file.write(b"x")


def read(zone):
    (zone / "Items" / "old.parquet").read_bytes()
    list(zone.iterdir())


def monitor(zone):
    (zone.parent / "Monitoring").mkdir()
    (zone.parent / "Monitoring" / "tables.json").write_bytes(b"{}")


PUBLISHING = {
    "a rename": lambda zone: (zone / "Items" / "_writing.parquet").rename(zone / "Items" / FIRST),
    "a file": land,
    "more of a file": append,
    "a removed file": lambda zone: (zone / "Items" / "old.parquet").unlink(),
    "a table": lambda zone: (zone / "Sales.schema" / "Stores").mkdir(parents=True),
    "a dropped table": lambda zone: shutil.rmtree(zone / "Items"),
    "metadata": lambda zone: (zone / "Items" / "_metadata.json").write_bytes(b"{}"),
}
ENGINES_OWN = {
    "cleaning": lambda zone: (zone / "Items" / "old.parquet").rename(
        zone / "Items" / "_FilesReadyToDelete" / "old.parquet"
    ),
    "sweeping": lambda zone: (zone / "Items" / "_FilesReadyToDelete" / "info.json").write_bytes(b"{}"),
    "reading": read,
    "monitoring files": monitor,
    "a temporary name": lambda zone: (zone / "Items" / "_next.parquet").write_bytes(b"x"),
}


@pytest.mark.parametrize("act", PUBLISHING)
def test_what_a_publisher_does_ends_the_wait(waker, watched_zone, act):
    threading.Timer(0.01, PUBLISHING[act], [watched_zone]).start()
    assert takes(lambda: waker.wait(LONG)) < LONG / 2


@pytest.mark.parametrize("act", ENGINES_OWN)
def test_what_the_engine_does_itself_ends_no_wait(waker, watched_zone, act):
    ENGINES_OWN[act](watched_zone)
    assert not waker.wait(SHORT)


def test_events_name_the_tables_that_they_touch(waker, watched_zone):
    (watched_zone / "S.schema" / "Orders").mkdir(parents=True)
    waker.wait(SHORT)
    waker.wait(SHORT)
    waker.touched()
    (watched_zone / "Items" / "_writing.parquet").rename(watched_zone / "Items" / FIRST)
    (watched_zone / "S.schema" / "Orders" / FIRST).write_bytes(b"x")
    while waker.wait(SHORT):
        pass
    assert waker.touched() == {TableName("", "Items"), TableName("S", "Orders")}
    assert waker.touched() == set()


def test_file_renamed_away_touches_its_table_and_ends_no_wait(waker, watched_zone):
    waker.wait(0)
    waker.touched()
    (watched_zone / "Items" / "old.parquet").rename(watched_zone / "Items" / "_withdrawn.parquet")
    assert not waker.wait(SHORT)
    assert waker.touched() == {TableName("", "Items")}


@pytest.mark.parametrize("act", ["a new table", "a schema gone", "a wake", "a start"])
def test_events_beside_tables_may_touch_all(waker, watched_zone, act):
    (watched_zone / "S.schema" / "Orders").mkdir(parents=True)
    while waker.wait(SHORT):
        pass
    if act != "a start":
        waker.touched()
    if act == "a new table":
        (watched_zone / "Other").mkdir()
    elif act == "a schema gone":
        shutil.rmtree(watched_zone / "S.schema")
    elif act == "a wake":
        waker.wake()
    while waker.wait(SHORT):
        pass
    assert waker.touched() is None


def test_a_burst_ends_one_wait_only(waker, watched_zone):
    for number in range(50):
        (watched_zone / "Items" / f"{number}.parquet").write_bytes(b"x")
    assert waker.wait(LONG)
    assert not waker.wait(SHORT)


def test_rename_into_place_ends_the_wait_immediately(waker, watched_zone, monkeypatch):
    monkeypatch.setattr(waking, "PAUSE_SECONDS", SHORT)
    waker._scanned = time.monotonic() - SHORT
    for number in range(3):
        (watched_zone / "Items" / f"_{number}").write_bytes(b"x")

    def publish(number):
        return (watched_zone / "Items" / f"_{number}").rename(watched_zone / "Items" / f"{number:020d}.parquet")

    threading.Timer(0.01, publish, [0]).start()
    assert takes(lambda: waker.wait(2 * LONG)) < LONG / 2
    monkeypatch.setattr(waking, "PAUSE_SECONDS", LONG)
    publish(1)
    publish(2)
    time.sleep(SHORT)
    assert not waker.is_due()
    monkeypatch.setattr(waking, "PAUSE_SECONDS", SHORT)
    assert takes(lambda: waker.wait(LONG)) < LONG / 2
    assert not waker.wait(SHORT), "one wait has both"


def test_event_ends_a_wait_of_no_time_once_it_is_due(waker):
    """The engine waits for nothing between two scans while batches are in progress."""
    assert not waker.wait(0)
    waker.wake(is_renamed=True)
    time.sleep(2 * waking.PAUSE_SECONDS)
    assert waker.is_due()
    assert waker.wait(0)
    assert not waker.is_due()
    assert not waker.wait(0)


def test_renamed_files_end_waits_while_others_keep_coming(waker, watched_zone, monkeypatch):
    """Each second a file for each of many tables: no quiet ever comes, and what was written once is long over."""
    monkeypatch.setattr(waking, "SETTLING_SECONDS", LONG)
    monkeypatch.setattr(waking, "MAX_BURST_SECONDS", 1.5 * SHORT)
    waker.wake()
    assert waker.wait(LONG)
    waits = 0
    for number in range(9):
        passing = watched_zone / "Items" / f"_{number}"
        passing.write_bytes(b"x")
        passing.rename(watched_zone / "Items" / f"{number + 1:020d}.parquet")
        waits += waker.wait(SHORT)
    assert waits >= 4


def test_a_file_that_is_renamed_while_another_is_written_waits_for_it(waker, watched_zone, monkeypatch):
    monkeypatch.setattr(waking, "SETTLING_SECONDS", LONG)
    (watched_zone / "Items" / "_1").write_bytes(b"x")
    with (watched_zone / "Items" / f"{2:020d}.parquet").open("wb") as file:
        file.write(b"half")
        file.flush()
        (watched_zone / "Items" / "_1").rename(watched_zone / "Items" / FIRST)
        time.sleep(SHORT)
        assert not waker.is_due()


def test_a_burst_is_over_when_it_has_been_quiet_and_no_later(waker, monkeypatch):
    monkeypatch.setattr(waking, "SETTLING_SECONDS", 1.0)
    monkeypatch.setattr(waking, "MAX_BURST_SECONDS", 9.0)
    threading.Timer(0.1, waker.wake).start()
    waker.wake()
    assert 1.0 < takes(lambda: waker.wait(LONG)) < 9.0  # before the longest burst


def test_an_endless_burst_does_not_hold_the_poller_up(waker, watched_zone, monkeypatch):
    monkeypatch.setattr(waking, "MAX_BURST_SECONDS", 0.2)
    done = threading.Event()

    def write_on():
        while not done.wait(0.01):
            append(watched_zone)

    writer = threading.Thread(target=write_on)
    writer.start()
    try:
        assert takes(lambda: waker.wait(LONG)) < LONG / 2
    finally:
        done.set()
        writer.join()


def test_stop_ends_the_wait(waker, stop):
    threading.Timer(0.05, stop.set).start()
    assert takes(lambda: waker.wait(LONG)) < LONG / 2
    assert waker.wait(LONG)


def test_a_zone_made_later_is_watched(tmp_path, stop):
    """LZ-7.11."""
    zone = tmp_path / "Files" / "LandingZone"
    with ZoneWatcher(tmp_path, stop, Clock()) as waker:
        assert not waker.wait(0)
        threading.Timer(0.05, lambda: (zone / "Items").mkdir(parents=True)).start()
        assert waker.wait(LONG)
        assert waker.wait(LONG), "what came before the watch began is looked for at once"
        assert not waker.wait(SHORT)
        land(zone)
        assert waker.wait(LONG)


def test_a_zone_dropped_and_made_again_is_watched(waker, watched_zone):
    shutil.rmtree(watched_zone)
    (watched_zone / "Items").mkdir(parents=True)
    while waker.wait(SHORT):
        pass
    land(watched_zone)
    assert waker.wait(LONG)


def test_no_thread_outlives_the_waker(tmp_path, watched_zone, stop):
    before = set(threading.enumerate())
    with ZoneWatcher(tmp_path, stop, Clock()) as waker:
        land(watched_zone)
        waker.wait(LONG)
        assert set(threading.enumerate()) - before
    deadline = time.monotonic() + LONG
    while set(threading.enumerate()) - before and time.monotonic() < deadline:
        time.sleep(0.01)
    assert set(threading.enumerate()) <= before


@pytest.mark.skipif(sys.platform != "linux", reason="inotify is Linux's")
@pytest.mark.parametrize("watches", [0, 5])
def test_watch_limit_is_reported_once_and_polling_continues(tmp_path, watched_zone, monkeypatch, caplog, watches):
    inotify_c = pytest.importorskip("watchdog.observers.inotify_c")
    for number in range(10):
        (watched_zone / f"T{number}").mkdir()
    left = iter(range(watches))

    def limited(*arguments):
        if next(left, None) is None:
            ctypes.set_errno(errno.ENOSPC)
            return -1
        return int(add_watch(*arguments))

    add_watch = inotify_c.inotify_add_watch
    monkeypatch.setattr(inotify_c, "inotify_add_watch", limited)
    caplog.set_level(logging.INFO, "mirror_engine.engine.watcher")
    with ZoneWatcher(tmp_path, threading.Event(), Clock()) as waker:
        assert not waker.wait(0.05)
        (watched_zone / "new.parquet").write_bytes(b"x")
        assert waker.wait(LONG if watches else SHORT) is bool(watches), "what is watched is heard of all the same"
        assert not waker.wait(SHORT)
    assert [record.message for record in caplog.records] == [POLLED]


def test_a_wait_ends_when_the_clock_is_moved_past_its_end(tmp_path, stop):
    clock = Clock()
    with ZoneWatcher(tmp_path, stop, clock) as waker:
        threading.Timer(SHORT, clock.advance, kwargs={"seconds": LONG}).start()
        assert takes(lambda: waker.wait(LONG)) < LONG / 2


def test_without_events_a_change_ends_no_wait_and_may_be_in_any_table(watched_zone, stop):
    with ZoneWatcher(None, stop, Clock()) as waker:
        land(watched_zone)
        assert not waker.wait(2 * SHORT)
        assert [waker.touched(), waker.touched()] == [None, None]
        waker.wake()
        assert waker.wait(LONG)
