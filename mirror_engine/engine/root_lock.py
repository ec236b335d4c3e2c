"""ROOT, for one engine at a time: a lock in it, and the folders that an engine needs there."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from filelock import FileLock, Timeout

from mirror_engine.errors import RootLocked, StorageUnavailable
from mirror_engine.landing_zone.layout import LOCK, TABLES
from mirror_engine.tables.log.durability import sync_folder

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

MAX_LOOK_SECONDS = 0.5  # `status` holds the lock for a moment, too


@contextmanager
def held(root: Path) -> Iterator[None]:
    """ROOT, for one engine at a time.

    Raises:
        RootLocked: another engine holds it.
        StorageUnavailable: it cannot be written.
    """
    lock = FileLock(root / LOCK, timeout=MAX_LOOK_SECONDS)
    try:
        (root / TABLES).mkdir(exist_ok=True)
        sync_folder(root)  # where that has a name, all tables have theirs
        (root / LOCK).parent.mkdir(exist_ok=True)
        lock.acquire()
    except Timeout:
        raise RootLocked(f"{root}: another engine is at work here", "Stop it first, or wait for it.") from None
    except OSError as fault:
        message = f"{root}: cannot be written: {fault.strerror or fault}"
        raise StorageUnavailable(message, "An engine needs a ROOT it can write to.") from fault
    try:
        yield
    finally:
        lock.release()


def is_held(root: Path) -> bool:
    """Whether an engine is at work there, as far as one may ask."""
    lock = root / LOCK
    if not lock.exists():
        return False
    try:
        with FileLock(lock, timeout=0):
            return False
    except Timeout:
        return True
    except OSError:  # whoever may only read cannot ask
        return False
