"""The lease of a ROOT in a store: one engine holds it (docs/decisions/lease.md)."""

from __future__ import annotations

import json
import os
import socket
import time
import uuid
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING

from mirror_engine.clock import Clock
from mirror_engine.errors import RootLocked, StorageUnavailable
from mirror_engine.events import SetupProgress
from mirror_engine.landing_zone.layout import LEASE
from mirror_engine.landing_zone.text import printable
from mirror_engine.threads import threads

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from mirror_engine.events import Listener
    from mirror_engine.storage.object_store import ConditionalFile, StoredVersion
    from mirror_engine.storage.store_url import StoreUrl

RENEW_SECONDS = 10.0  # between two renewals
EXPIRE_SECONDS = 30.0  # without a renewal; then another engine may take the lease
WATCH_SECONDS = 2.0  # between two looks at a lease that may have expired
STRANGER = "an unknown engine"


@dataclass(frozen=True)
class Holder:
    """The engine that a lease names."""

    id: str  # random, of one run
    host: str
    process: int
    since: float  # when it took the lease by its own clock, in seconds since 1970
    is_over: bool = False  # whether it released the lease
    renewed_at: float = 0.0  # when it was renewed last by the store's clock, in seconds since 1970

    def __str__(self) -> str:
        since = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(self.since))
        return f"{self.host} (process {self.process}), since {since}" if self.host else STRANGER

    def age_seconds(self, clock: Clock) -> float:
        """Seconds since the last renewal, as far as this machine's clock agrees with the store's."""
        return clock.date() - self.renewed_at

    def is_live(self, clock: Clock) -> bool:
        """Whether it was renewed recently by this machine's clock: for display and refusals, not for taking it."""
        return not self.is_over and self.age_seconds(clock) < EXPIRE_SECONDS


def holder_of(version: StoredVersion | None) -> Holder | None:
    """Return the current or last holder of a lease; None without a lease. An unreadable lease is a stranger's."""
    if version is None:
        return None
    try:
        found = json.loads(version.content)
        host = printable(str(found["host"]))
        holder = Holder(str(found["id"]), host, int(found["process"]), float(found["since"]), found["is_over"] is True)
        str(holder)  # a time that is none fails here
    except (ValueError, KeyError, TypeError, OverflowError, OSError, RecursionError):
        holder = Holder("", "", 0, 0.0)
    return replace(holder, renewed_at=version.modified)


class Lease:
    """A lease that this process holds; a thread renews it, and stops once another engine has it."""

    def __init__(
        self, file: ConditionalFile, version: StoredVersion, me: Holder, taken: tuple[float, float], clock: Clock
    ) -> None:
        self._file, self._version, self._me, self._clock = file, version, me, clock
        self._lost: Holder | None = None
        self._renewed = taken  # by both clocks, when that was asked for: its answer may have come late
        self._lock = threads().lock()
        self._stopped = threads().event()
        self._thread = threads().start(self._keep, "lease")

    def check(self) -> None:
        """Ensure that this engine holds the lease; renews it if the last renewal is too old.

        Raises:
            RootLocked: another engine took it.
            StorageUnavailable: nothing is known of it.
        """
        with self._lock:
            if self._lost is None and self._age_seconds >= RENEW_SECONDS:
                self._renew()
                if self._lost is None and (age := self._age_seconds) >= EXPIRE_SECONDS:
                    raise StorageUnavailable(
                        f"{self._file.root}: the lease may have expired while it was renewed ({age:.0f} s)",
                        "The engine retries. Is the store slow, or did this machine sleep?",
                    )
            if self._lost is not None:
                raise RootLocked(
                    f"{self._file.root}: the lease was lost to another engine: {self._lost}",
                    "This engine stopped before its next commit. Run one engine per ROOT.",
                )

    def release(self) -> None:
        """End the thread, and let go of the lease if it is still held."""
        self._stopped.set()
        self._thread.join()
        if self._lost is None:
            with suppress(StorageUnavailable):  # it expires
                self._file.write(_content(replace(self._me, is_over=True), self._clock.date()), self._version)

    @property
    def _age_seconds(self) -> float:
        """Age of the last renewal, the greater of two clocks': monotonic stops in sleep, the date may be set back."""
        monotonic, wall = self._renewed
        return max(self._clock.timer() - monotonic, self._clock.date() - wall)

    def _renew(self) -> None:
        renewed = self._clock.timer(), self._clock.date()
        version = self._file.write(_content(self._me, renewed[1]), self._version)
        if version is None:
            version = self._file.read()
            holder = holder_of(version)
            if version is None:  # removed by hand
                version = self._file.write(_content(self._me, renewed[1]), None)
                holder = self._me if version else holder_of(self._file.read())
            if holder is None or holder.id != self._me.id:
                self._lost = holder or Holder("", "", 0, 0.0)
                return
        if version:
            self._version, self._renewed = version, renewed

    def _keep(self) -> None:
        while self._lost is None and not self._stopped.wait(RENEW_SECONDS / 2):
            with suppress(StorageUnavailable), self._lock:  # `check` tries again before anything is written
                if self._age_seconds >= RENEW_SECONDS / 2:
                    self._renew()


@contextmanager
def hold_lease(  # noqa: PLR0913 - what differs between machines
    file: ConditionalFile,
    memory: Path,
    discard: Callable[[], None],
    emit: Listener,
    *,
    stop: threading.Event | None = None,
    clock: Clock | None = None,
) -> Iterator[Lease]:
    """Take the lease of a ROOT and hold it; the caller holds the lock of this machine already.

    The file `memory` keeps the id of the last lease taken from here: its engine is gone, as the lock is free, so that
    its lease need not expire. Where another engine held the lease last, `discard` is called first.

    Raises:
        RootLocked: another engine holds it, or may hold it and `stop` is set.
        StorageUnavailable: nothing is known of it.
    """
    clock = clock or Clock()
    me = Holder(uuid.uuid4().hex, socket.gethostname(), os.getpid(), clock.date())
    earlier = last_id(memory)
    before = _await(file, earlier, emit, stop or threads().event(), clock)
    last = holder_of(before)
    if last is None or last.id != earlier:
        discard()
    memory.write_text(me.id, encoding="utf-8")
    taken = clock.timer(), clock.date()
    content = _content(me, taken[1])
    try:
        version = file.write(content, before)
    except StorageUnavailable:  # no library repeats a write with a condition
        version = file.write(content, before)
    if version is None:
        version = file.read()
        holder = holder_of(version)
        if version is None or holder is None or holder.id != me.id:  # else its answer was lost
            raise _locked(file, holder)
    lease = Lease(file, version, me, taken, clock)
    try:
        yield lease
    finally:
        lease.release()


def lease_file(root: StoreUrl) -> ConditionalFile:
    """Return the lease of a ROOT."""
    from mirror_engine.storage.object_store import ConditionalFile  # noqa: PLC0415 - an optional library

    return ConditionalFile(root.object_store(), LEASE, root)


def last_id(memory: Path) -> str | None:
    """Return the id of the lease last taken from this machine; None if there was none."""
    try:
        return memory.read_text(encoding="utf-8", errors="replace") or None  # cut off when the machine failed
    except FileNotFoundError:
        return None


def _await(
    file: ConditionalFile, earlier: str | None, emit: Listener, stop: threading.Event, clock: Clock
) -> StoredVersion | None:
    """Return the version of a free lease: released, expired, left by an engine of this machine, or None.

    A lease has expired once this process saw no new version of it for long enough; no two clocks are compared. A clock
    that is wrong can only refuse too soon.
    """
    version = file.read()
    holder, began = holder_of(version), clock.timer()
    if holder and holder.id != earlier and not holder.is_over:
        if 0 <= holder.age_seconds(clock) < EXPIRE_SECONDS:
            raise _locked(file, holder)
        emit(SetupProgress(f"the lease of {holder}"))
    while holder and holder.id != earlier and not holder.is_over and clock.timer() - began < EXPIRE_SECONDS:
        if stop.wait(WATCH_SECONDS):
            raise _locked(file, holder)
        before, version = version, file.read()
        holder = holder_of(version)
        if holder and not holder.is_over and version != before:
            raise _locked(file, holder)
    return version


def _locked(file: ConditionalFile, holder: Holder | None) -> RootLocked:
    fault = f"{file.root}: another engine is running here: {holder or STRANGER}"
    return RootLocked(fault, "Stop it first, or wait for it.")


def _content(holder: Holder, now: float) -> bytes:
    return json.dumps(asdict(replace(holder, renewed_at=now))).encode()
