"""Who holds ROOT: one engine at a time, by a locked file, in a store also by a lease there (decision 42)."""

from __future__ import annotations

from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from filelock import FileLock, Timeout

from mirror_engine.engine.ledger import Ledger
from mirror_engine.errors import RootLocked, StorageUnavailable
from mirror_engine.events import ignore
from mirror_engine.landing_zone.layout import LEASE_ID, LEDGER, LOCK, TABLES
from mirror_engine.storage.lease import hold_lease, holder_of, last_id, lease_file
from mirror_engine.storage.local import os_errors
from mirror_engine.storage.roots import check_place, state_folder
from mirror_engine.tables.log.durability import sync_folder

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable, Iterator

    from mirror_engine.events import Listener
    from mirror_engine.storage.lease import Holder
    from mirror_engine.storage.store_url import Place

LOCK_TIMEOUT_SECONDS = 0.5  # `status` holds the lock for a moment, too


@contextmanager
def lock_root(
    root: Place, emit: Listener = ignore, stop: threading.Event | None = None
) -> Iterator[Callable[[], None]]:
    """Hold ROOT for one engine, and make the folders that an engine needs; `emit` gets the event of a wait.

    Yields what makes certain that it is still held, or raises `RootLocked` or `StorageUnavailable`. A wait ends with
    `RootLocked` once `stop` is set. The ledger of this machine is removed where another machine's engine has run since.

    Raises:
        UsageError: it is a folder of another ROOT.
        RootLocked: another engine is running on it.
        StorageUnavailable: it cannot be written.
    """
    check_place(root)
    state = state_folder(root)
    lock = FileLock(state / LOCK, timeout=LOCK_TIMEOUT_SECONDS)
    try:
        if isinstance(root, Path):
            (root / TABLES).mkdir(exist_ok=True)
            sync_folder(root)  # makes the folder of all tables durable
            (root / LOCK).parent.mkdir(exist_ok=True)
        else:
            (state / LOCK).parent.mkdir(parents=True, exist_ok=True)
        lock.acquire()
    except Timeout:
        raise RootLocked(f"{root}: another engine is running here", "Stop it first, or wait for it.") from None
    except OSError as error:
        message = f"{state}: cannot be written: {error.strerror or error}"
        raise StorageUnavailable(message, "An engine needs a ROOT it can write to.") from error
    try:
        if isinstance(root, Path):
            yield partial(_check_place, root, _place(root))
            return
        discard = partial(Ledger.discard, state / LEDGER)
        with hold_lease(lease_file(root), state / LEASE_ID, discard, emit, stop) as lease:
            yield lease.check
    finally:
        lock.release()


def _place(root: Path) -> tuple[int, int] | None:
    """What is at ROOT's path: device and inode; None for nothing."""
    try:
        found = root.stat()
    except FileNotFoundError:
        return None
    return found.st_dev, found.st_ino


def _check_place(root: Path, before: tuple[int, int] | None) -> None:
    """Raise `StorageUnavailable` where ROOT was moved away, or another folder is in its place."""
    with os_errors("check", str(root)):
        if _place(root) != before:
            message = f"{root}: was moved away while the engine was running"
            raise StorageUnavailable(message, "Move it back, or stop this engine and start one where it is now.")


def is_locked(root: Place) -> bool:
    """Whether an engine of this machine is running on ROOT; False where this cannot be asked."""
    lock = state_folder(root) / LOCK
    if not lock.exists():
        return False
    try:
        with FileLock(lock, timeout=0):
            return False
    except Timeout:
        return True
    except OSError:  # without the right to write, the lock cannot be tried
        return False


def lease_of(root: Place) -> tuple[Holder | None, bool]:
    """Who holds the lease of a ROOT in a store, and whether this machine's ledger is that engine's.

    Raises `StorageUnavailable`.
    """
    if isinstance(root, Path):
        return None, True
    holder = holder_of(lease_file(root).read())
    return holder, holder is not None and holder.id == last_id(state_folder(root) / LEASE_ID)
