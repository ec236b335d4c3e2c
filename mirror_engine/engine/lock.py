"""Who holds ROOT: one engine, by a locked file; in a store also by a lease there (docs/decisions/lease.md)."""

from __future__ import annotations

import os
import threading
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from filelock import FileLock, Timeout

from mirror_engine.config import read_effective
from mirror_engine.engine.ledger import Ledger
from mirror_engine.errors import RootLocked, StorageUnavailable
from mirror_engine.events import ignore
from mirror_engine.landing_zone.layout import LEASE_ID, LEDGER, LOCK, OPTIONS, TABLES
from mirror_engine.storage.lease import hold_lease, holder_of, last_id, lease_file
from mirror_engine.storage.local import os_errors
from mirror_engine.storage.roots import check_place, state_folder
from mirror_engine.tables.log.durability import sync_folder

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from mirror_engine.clock import Clock
    from mirror_engine.config import Config
    from mirror_engine.events import Listener
    from mirror_engine.storage.lease import Holder
    from mirror_engine.storage.store_url import Place

LOCK_TIMEOUT_SECONDS = 0.5  # `status` holds the lock for a moment, too


@contextmanager
def lock_root(
    root: Place, emit: Listener = ignore, stop: threading.Event | None = None, clock: Clock | None = None
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
    with ExitStack() as stack:
        lock = _LockFile(root, state / LOCK, stack)
        if isinstance(root, Path):
            with lock.errors():
                (root / TABLES).mkdir(exist_ok=True)
                sync_folder(root)  # makes the folder of all tables durable
        else:
            with lock.errors():
                state.mkdir(parents=True, exist_ok=True)
        lock.check()
        if isinstance(root, Path):
            place = _place(root)

            def check_here() -> None:
                _check_place(root, place)  # first: nothing is made where ROOT was
                lock.check()

            yield check_here
            return
        discard = partial(Ledger.discard, state / LEDGER)
        with hold_lease(lease_file(root), state / LEASE_ID, discard, emit, stop=stop, clock=clock) as lease:

            def check() -> None:
                lock.check()
                lease.check()

            yield check


class _LockFile:
    """The locked file of a ROOT; thread-safe. One that was removed is locked anew, unless another engine was first."""

    def __init__(self, root: Place, path: Path, stack: ExitStack) -> None:
        self._root, self._path, self._stack = root, path, stack
        self._held: os.stat_result | None = None  # its inode is not used again while it is open
        self._mutex = threading.Lock()

    def check(self) -> None:
        """Hold the file that is there; RootLocked, StorageUnavailable."""
        with self._mutex, self.errors():
            with suppress(FileNotFoundError):
                if self._held and os.path.samestat(self._path.stat(), self._held):
                    return
            self._path.parent.mkdir(exist_ok=True)
            lock = FileLock(self._path, timeout=LOCK_TIMEOUT_SECONDS, thread_local=False)
            lock.acquire()
            self._stack.callback(lock.release)
            self._held = self._path.stat()

    @contextmanager
    def errors(self) -> Iterator[None]:
        try:
            yield
        except Timeout:
            help_text = "Stop it first, or wait for it."
            raise RootLocked(f"{self._root}: another engine is running here", help_text) from None
        except FileExistsError as error:
            message = f"{error.filename}: is not a folder, but a file or a broken link"
            help_text = "Put the folder itself in its place, or mount the disk behind the link."
            raise StorageUnavailable(message, help_text) from error
        except OSError as error:
            message = f"{self._path.parents[1]}: cannot be written: {error.strerror or error}"
            raise StorageUnavailable(message, "An engine needs a ROOT it can write to.") from error


def _place(root: Path) -> tuple[int, int] | None:
    """Identity of ROOT's folder: device and inode; None if absent."""
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
            raise StorageUnavailable(message, "Move it back, or stop this engine and start one at the new path.")


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


def config_of_running(root: Place) -> Config | None:
    """Options of the engine of this machine that runs on ROOT; None if none runs."""
    return read_effective(state_folder(root) / OPTIONS) if is_locked(root) else None


def lease_of(root: Place) -> tuple[Holder | None, bool]:
    """Return the holder of a store ROOT's lease, and whether this machine's ledger belongs to that engine.

    Raises `StorageUnavailable`.
    """
    if isinstance(root, Path):
        return None, True
    holder = holder_of(lease_file(root).read())
    return holder, holder is not None and holder.id == last_id(state_folder(root) / LEASE_ID)
