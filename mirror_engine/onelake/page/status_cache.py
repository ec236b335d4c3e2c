"""Looks at the mirrored databases for all who ask at about the same time, so that watching costs little."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Protocol

from mirror_engine.errors import MirrorError
from mirror_engine.onelake.items import DatabaseStatus

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import pyarrow as pa

    from mirror_engine.monitoring.status import MirrorStatus
    from mirror_engine.tables.base import HistoryEntry


FRESH_SECONDS = 1.0
REST = 4  # times as long as a look took, nobody looks again
MAX_COMMITS = 20
MAX_ROWS = 20
_KEPT = 64  # tables whose first rows are remembered


@dataclass(frozen=True)
class CachedStatus:
    """One mirrored database as it was a moment ago.

    Attributes:
        item: which.
        status: what `mirror-engine status` says of it; None where that could not be told.
        trouble: why; `""` where it could.
    """

    item: ShownItem
    status: MirrorStatus | None
    trouble: str = ""


@dataclass
class _Eye:
    """The last look at one item."""

    turn: threading.Lock
    status: MirrorStatus | None = None
    trouble: str = ""
    fresh_until: float = 0.0


class StatusCache:
    """Looks, each as fresh as a second, or as looking allows.

    Args:
        shown: what is looked at.
        clock: seconds that only grow.
    """

    def __init__(self, shown: DashboardSource, clock: Callable[[], float] = time.monotonic) -> None:
        self._shown = shown
        self._clock = clock
        self._eyes: dict[str, _Eye] = {}
        self._first_rows = lru_cache(_KEPT)(_read_rows)  # a version's rows stay as they are

    def all(self) -> Sequence[CachedStatus]:
        """Every mirrored database."""
        items = self._shown.items()
        for gone in self._eyes.keys() - {item.id for item in items}:
            self._eyes.pop(gone, None)
        return [self._of(item) for item in items]

    def one(self, item_id: str) -> CachedStatus | None:
        """A mirrored database by its GUID."""
        return next((self._of(item) for item in self._shown.items() if item.id == item_id), None)

    def history(self, item: ShownItem, delta_folder: str) -> Sequence[HistoryEntry]:
        """A table's newest commits.

        Raises:
            MirrorError: they cannot be read.
        """
        return item.view().history(delta_folder, limit=MAX_COMMITS)

    def rows(self, item: ShownItem, delta_folder: str, newest: HistoryEntry) -> pa.Table:
        """A table's first rows at its newest commit.

        Raises:
            MirrorError: they cannot be read.
        """
        return self._first_rows(_Source(item), delta_folder, newest.version, newest.timestamp_ms)

    def _of(self, item: ShownItem) -> CachedStatus:
        eye = self._eyes.setdefault(item.id, _Eye(threading.Lock()))
        with eye.turn:
            began = self._clock()
            if began >= eye.fresh_until:
                try:
                    eye.status, eye.trouble = item.view().status(), ""
                except MirrorError as error:
                    eye.status, eye.trouble = None, str(error)
                ended = self._clock()
                eye.fresh_until = ended + max(FRESH_SECONDS, REST * (ended - began))
            return CachedStatus(item, eye.status, eye.trouble)


class _Source:
    """An item as a key: the same for all its states."""

    def __init__(self, item: ShownItem) -> None:
        self.item = item

    def __hash__(self) -> int:
        return hash(self.item.id)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Source) and other.item.id == self.item.id


def _read_rows(source: _Source, delta_folder: str, version: int, _committed_ms: int) -> pa.Table:
    return source.item.view().read_table(delta_folder, version=version, limit=MAX_ROWS)


class Viewed(Protocol):
    """A mirror that is looked at; every method raises `MirrorError` where it cannot tell."""

    def status(self) -> MirrorStatus:
        """How every table is: a fresh look."""

    def history(self, table: str, *, limit: int | None = None) -> Sequence[HistoryEntry]:
        """The commits of a Delta folder, newest first."""

    def read_table(self, table: str, *, version: int | None = None, limit: int | None = None) -> pa.Table:
        """Rows of a Delta folder at a version; the newest by default."""


@dataclass(frozen=True)
class ShownItem:
    """One mirrored database.

    Attributes:
        id: its GUID.
        workspace, name: as they are displayed.
        state: in Fabric's words (LZ-9.4).
        error: why its engine ended; `""` where it did not.
        view: its mirror, to be looked at; raises `MirrorError` where it has gone.
    """

    id: str
    workspace: str
    name: str
    state: DatabaseStatus
    error: str
    view: Callable[[], Viewed]

    @property
    def should_run(self) -> bool:
        """Whether somebody wants it mirrored now: started and not stopped, or ended by a failure."""
        return bool(self.error) or self.state in {DatabaseStatus.STARTING, DatabaseStatus.RUNNING}


class DashboardSource(Protocol):
    """The mirrored databases of one server; may be asked by several threads."""

    def items(self) -> Sequence[ShownItem]:
        """Every one there is, by workspace and name."""
