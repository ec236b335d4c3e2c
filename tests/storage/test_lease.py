"""The lease of a ROOT in a store: one engine holds it, and whoever lost it stops."""

from __future__ import annotations

import json
import os
import socket
import threading
import time
from dataclasses import replace

import pytest
from obstore.store import MemoryStore

from mirror_engine.clock import Clock
from mirror_engine.engine.ledger import Ledger
from mirror_engine.errors import RootLocked, StorageUnavailable
from mirror_engine.events import SetupProgress
from mirror_engine.landing_zone.layout import LEASE_ID, LEDGER
from mirror_engine.storage import lease as leases
from mirror_engine.storage.lease import hold_lease, holder_of
from mirror_engine.storage.object_store import ConditionalFile
from mirror_engine.storage.s3_store import S3Url

ROOT = S3Url("bucket", "", "shop")


class Machine:
    """A machine with a state folder of its own, whose calls of the store may fail or be answered late."""

    def __init__(self, folder, store):
        self.state, self.memory, self.ledger = folder, folder / LEASE_ID, folder / LEDGER
        self.memory.parent.mkdir(parents=True)
        self.file = ConditionalFile(store, "lease", ROOT)
        self.events = []

    @property
    def is_continued(self):
        return self.ledger.exists()

    def hold(self, clock=None):
        self.ledger.touch()
        return hold_lease(
            self.file, self.memory, lambda: Ledger.discard(self.ledger), self.events.append, clock=clock or Clock()
        )


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setattr(leases, "RENEW_SECONDS", 0.1)
    monkeypatch.setattr(leases, "EXPIRE_SECONDS", 0.5)
    monkeypatch.setattr(leases, "WATCH_SECONDS", 0.05)


@pytest.fixture
def lease_store():
    return MemoryStore()


@pytest.fixture
def machines(tmp_path, lease_store):
    return [Machine(tmp_path / name, lease_store) for name in ("one", "two")]


def written(store, **changes):
    """Replace what the lease says, as another program would."""
    found = json.loads(bytes(store.get("lease").bytes()))
    store.put("lease", json.dumps({**found, **changes}).encode())


def crash(machine, holder=None):
    """Leave a lease as an engine does that was killed."""
    me = holder or leases.Holder("dead", "worker-1", 7, time.time())
    machine.memory.write_text(me.id)
    machine.file.write(leases._content(me, time.time()), machine.file.read())


def fall_asleep(held):
    """A machine that sleeps renews nothing."""
    held._stopped.set()
    held._thread.join()


def test_one_engine_holds_it_and_the_other_says_who_and_since_when(machines):
    one, two = machines
    with one.hold() as held:
        assert not one.is_continued
        held.check()
        since = time.strftime("%Y-%m-%dT%H:%M", time.gmtime())
        who = rf"{socket.gethostname()} \(process {os.getpid()}\), since {since}"
        with pytest.raises(RootLocked, match=f"s3://bucket/shop: another engine is running here: {who}"), two.hold():
            pytest.fail("two engines")
    with two.hold():
        pass  # it was released


@pytest.mark.slow
def test_it_is_renewed_while_it_is_held_and_free_at_once_when_it_was_released(machines):
    one, two = machines
    with one.hold() as held:
        before = one.file.read()
        time.sleep(0.4)
        assert holder_of(one.file.read()).renewed_at > before.modified
        held.check()
    with two.hold():
        assert two.events == [], "it waited"
    assert holder_of(two.file.read()).is_over


def test_the_ledger_of_a_machine_is_that_of_the_last_engine_or_not(machines):
    one, two = machines
    found = []
    for machine in (one, one, two, one, one):
        with machine.hold():
            found.append(machine.is_continued)
    assert found == [False, True, False, False, True]


def test_engine_killed_when_it_has_the_lease_leaves_no_older_ledger(machines, monkeypatch):
    one, two = machines
    for machine in (one, two):
        with machine.hold():
            pass
    monkeypatch.delattr(leases, "Lease")  # the lease was just taken
    with pytest.raises(NameError), one.hold():
        pass
    assert not one.ledger.exists()


@pytest.mark.slow
@pytest.mark.parametrize("skew", [-3600.0, 3600.0])
def test_another_machine_waits_until_a_lease_has_expired_whatever_its_clock_says(machines, skew):
    one, two = machines
    crash(one)
    started = time.monotonic()
    with two.hold(Clock(lambda: time.time() + skew)):
        assert not two.is_continued
        assert time.monotonic() - started > 0.45
    assert [str(event.what).startswith("the lease of worker-1 (process 7)") for event in two.events] == [True]
    assert isinstance(two.events[0], SetupProgress)


@pytest.mark.parametrize("skew", [-3600.0, 0.0, 3600.0])
def test_a_wrong_clock_never_takes_a_lease_that_is_renewed(machines, skew):
    one, two = machines
    with one.hold() as held:
        wrong = Clock(lambda: time.time() + skew)
        with pytest.raises(RootLocked, match="another engine is running here"), two.hold(wrong):
            pytest.fail("two engines")
        held.check()


def test_who_lost_the_lease_is_stopped_at_the_next_check(machines):
    one, two = machines
    with one.hold() as held:
        fall_asleep(held)
        written(two.file._store, id="other", host="worker-2", process=8)
        time.sleep(0.15)
        with pytest.raises(RootLocked, match=r"the lease was lost to another engine: worker-2 \(process 8\)"):
            held.check()
        with pytest.raises(RootLocked, match="lost"):
            held.check()
    assert holder_of(one.file.read()).id == "other"  # it is not released by who lost it


def test_the_thread_that_renews_finds_the_loss_too(machines):
    one, _ = machines
    with one.hold() as held:
        written(one.file._store, id="other", host="worker-2")
        held._thread.join(2.0)
        assert not held._thread.is_alive()
        with pytest.raises(RootLocked, match="worker-2"):
            held.check()


@pytest.mark.slow
def test_removed_lease_is_recreated(machines):
    one, two = machines
    with one.hold() as held:
        one.file._store.delete("lease")
        time.sleep(0.3)
        held.check()
        with pytest.raises(RootLocked), two.hold():
            pass


class Answers:
    """A file whose writes fail as scripted: `refused`, `lost` (done, but not answered), `late` or `doubled`."""

    def __init__(self, file, *faults):
        self.file, self.faults, self._store, self.root = file, list(faults), file._store, file.root

    def read(self):
        return self.file.read()

    def write(self, content, before):
        fault = self.faults.pop(0) if self.faults else ""
        if fault == "refused":
            raise StorageUnavailable("refused")
        done = self.file.write(content, before)
        if fault == "lost":
            raise StorageUnavailable("lost")
        if fault == "late":
            time.sleep(leases.EXPIRE_SECONDS)
        # a client that repeats a request whose answer was lost finds its own first try
        return self.file.write(content, before) if fault == "doubled" else done


@pytest.mark.slow
def test_a_repeated_request_is_no_loss(machines):
    one, _ = machines
    one.file = Answers(one.file, "doubled", "doubled", "doubled")
    with one.hold() as held:
        time.sleep(0.3)
        held.check()


@pytest.mark.slow
@pytest.mark.parametrize("fault", ["refused", "lost", "late"])
def test_an_unanswered_renewal_is_repeated_before_anything_is_written(machines, fault):
    one, _ = machines
    with one.hold() as held:
        fall_asleep(held)
        held._file = Answers(one.file, fault, fault)
        time.sleep(0.15)
        for _ in range(2):
            with pytest.raises(StorageUnavailable):
                held.check()
        held.check()


@pytest.mark.slow
def test_lease_acquired_late_is_renewed_before_any_write(machines):
    one, two = machines
    one.file = Answers(one.file, "late")
    with one.hold() as held:
        written(two.file._store, id="other")
        with pytest.raises(RootLocked, match="lost"):
            held.check()


@pytest.mark.parametrize("fault", ["killed", "refused", "lost"])
def test_after_a_crash_or_an_unanswered_start_the_same_machine_goes_on_at_once(machines, fault):
    one, _ = machines
    if fault == "killed":
        crash(one)
    else:
        file, one.file = one.file, Answers(one.file, fault, "refused")  # it is tried twice
        with pytest.raises(StorageUnavailable), one.hold():
            pytest.fail("it holds nothing")
        one.file = file
    with one.hold():
        assert one.is_continued == (fault != "refused")
        assert one.events == [], "it waited"


@pytest.mark.slow
def test_two_that_start_at_once_are_one(machines):
    barrier, results = threading.Barrier(8), []

    def start(machine):
        barrier.wait()
        try:
            with machine.hold():
                results.append("held")
                time.sleep(0.3)
        except RootLocked:
            results.append("locked")

    machine = machines[0]
    others = [Machine(machine.state.with_name(str(number)), machine.file._store) for number in range(8)]
    threads = [threading.Thread(target=start, args=[other]) for other in others]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(results) == ["held", *["locked"] * 7]


@pytest.mark.parametrize(
    "content", [b"", b"{}", b"[1]", b"\xff", b'{"id": "", "host": "h", "process": "x"}', b"[" * 9999]
)
def test_a_lease_that_cannot_be_read_is_a_strangers(machines, lease_store, content):
    lease_store.put("lease", content)
    with pytest.raises(RootLocked, match="an unknown engine"), machines[0].hold():
        pytest.fail("it may be held")


@pytest.mark.slow
def test_a_lease_that_cannot_be_read_expires(machines, lease_store):
    lease_store.put("lease", b"{}")
    machines[0].memory.write_text("")  # of a machine that failed
    with pytest.raises(RootLocked, match="an unknown engine"), machines[0].hold():
        pytest.fail("it may be held")
    time.sleep(0.5)
    with machines[0].hold():
        assert not machines[0].is_continued


def test_a_holder_is_shown_without_its_id_and_without_control_characters(lease_store):
    me = leases.Holder("secret", "worker\x1b[31m", 7, 0.0)
    ConditionalFile(lease_store, "lease", ROOT).write(leases._content(me, time.time()), None)
    found = holder_of(ConditionalFile(lease_store, "lease", ROOT).read())
    assert str(found) == "worker\\x1b[31m (process 7), since 1970-01-01T00:00:00Z"
    assert replace(found, is_over=True).is_live(Clock()) is False
    assert found.is_live(Clock())


@pytest.mark.parametrize(
    "wrong", [Clock(monotonic=lambda: 0.0), Clock(lambda: 0.0)], ids=["a machine slept", "its date was set back"]
)
def test_a_lease_grows_old_by_any_clock(machines, monkeypatch, wrong):
    one, _ = machines
    with one.hold() as held:
        fall_asleep(held)
        held._clock, held._renewed = wrong, (wrong.timer(), wrong.date())
        written(one.file._store, id="other", host="worker-2")
        held.check()  # it was renewed just now
        time.sleep(0.01)
        monkeypatch.setattr(leases, "RENEW_SECONDS", 0.01)
        with pytest.raises(RootLocked, match="worker-2"):
            held.check()


@pytest.mark.slow
def test_a_check_costs_a_request_only_where_the_last_renewal_is_too_old(machines, monkeypatch):
    one, _ = machines
    with one.hold() as held:
        fall_asleep(held)
        writes = []
        monkeypatch.setattr(held, "_renew", lambda renew=held._renew: (writes.append(1), renew()))
        for _ in range(3):
            time.sleep(0.12)
            for _ in range(5):
                held.check()
    assert len(writes) == 3
