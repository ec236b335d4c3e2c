"""Shared engine context: storage, Delta writer, ledger, options, clock and event sink."""

from __future__ import annotations

from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from mirror_engine.errors import RootLocked, StorageUnavailable, TransientError
from mirror_engine.landing_zone.names import TableName

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping

    from mirror_engine.clock import Clock
    from mirror_engine.config import Config
    from mirror_engine.engine.known_time import KnownTime
    from mirror_engine.engine.ledger import Ledger
    from mirror_engine.events import Listener
    from mirror_engine.landing_zone.progress import Progress
    from mirror_engine.storage.base import Storage
    from mirror_engine.storage.requests import Requests
    from mirror_engine.tables.base import DeltaReader, DeltaWriter


@dataclass(frozen=True)
class EngineContext:
    """What the parts of the engine share."""

    storage: Storage
    writer: DeltaWriter  # of the Delta tables; they are read by `delta`
    ledger: Ledger
    config: Config
    clock: Clock
    emit: Listener
    is_lasting: bool = False  # whether the engine goes on until it is stopped
    # Makes certain that ROOT is still held, before anything is written to it: see `lock_root`
    check_lock: Callable[[], None] = lambda: None
    requests: Requests | None = None  # counts those of a store; None on this machine
    known_time: KnownTime | None = None  # of what waits from one run to the next; None: the clock
    noted_places: set[str] = field(default_factory=set)  # Delta folders whose way was looked at: see `DeltaPlaces`
    reader: DeltaReader | None = None  # of the Delta tables, for those who only look; None: the writer
    # The last looks for commits of other programs, by Delta folder: after which version, when, and what was found
    _looks: dict[str, tuple[int, float, int]] = field(default_factory=dict)

    @property
    def delta(self) -> DeltaReader:
        """The reader of the Delta tables."""
        return self.reader or self.writer

    @property
    def now(self) -> float:
        """The time of what waits from one run to the next, in seconds since 1970."""
        return self.known_time() if self.known_time else self.clock()

    @property
    def lag(self) -> float:
        """How many seconds `now` is behind the clock; 0 if it is ahead."""
        return max(-self.known_time.and_lead()[1], 0.0) if self.known_time else 0.0

    @contextmanager
    def fenced(self, folder: str, known: Progress | None) -> Iterator[None]:
        """Commit to a Delta table in a folder of `ROOT/Tables`, and look after it whether this engine still holds ROOT.

        A commit that came late, after the table was dropped and made again, is taken back (LZ-4.18). `known`: the
        table's progress before.

        Raises:
            RootLocked, StorageUnavailable: as `check_lock`.
        """
        try:
            yield
        except TransientError:  # it may have been committed
            with suppress(StorageUnavailable):
                self._check_late(folder, known)
            raise
        except RootLocked:
            self._take_back(folder, known)
            raise
        self._check_late(folder, known)

    def _check_late(self, folder: str, known: Progress | None) -> None:
        try:
            self.check_lock()
        except RootLocked:
            self._take_back(folder, known)
            raise

    def _take_back(self, folder: str, known: Progress | None) -> None:
        with suppress(TransientError):
            if known:  # if another engine made the table again meanwhile
                self.writer.take_back(folder, known.generation)

    def keep_looks(self, tables: Collection[TableName]) -> None:
        """Forget what was seen in the Delta folders of all other tables."""
        if len(self._looks) > len(tables):
            for gone in self._looks.keys() - set(map(self.delta_folder, tables)):
                del self._looks[gone]

    def owners(self, folder: str) -> Mapping[TableName, Progress]:
        """Return the known tables whose Delta table is in a folder, from `ROOT/Tables`: at most two (LZ-1.5)."""
        schema, _, table = folder.rpartition("/")
        names = {TableName(schema, table), TableName("", table)}
        known = {name: self.ledger.progress(name) for name in names if self.delta_folder(name) == folder}
        return {name: progress for name, progress in known.items() if progress}

    def delta_folder(self, table: TableName) -> str:
        """Return the folder of a table's Delta table, from `ROOT/Tables` (LZ-1.4)."""
        return table.delta_folder(self.config.delta_default_schema)

    def latest_external_change(self, table: TableName, progress: Progress, max_age_seconds: float = 0.0) -> int | None:
        """Return the newest Delta version in which another program changed rows or columns; None for none.

        A look since the same version that is younger than `max_age_seconds` is good enough. Raises `TransientError`.
        """
        folder, version, now = self.delta_folder(table), progress.delta_version, self.clock.timer()
        looked = self._looks.get(folder)
        if looked is None or looked[0] != version or now - looked[1] >= max_age_seconds:
            found = self.delta.latest_external_change(folder, version, progress.columns)
            looked = self._looks[folder] = version, now, found
        return looked[2] if looked[2] >= 0 else progress.external_change_version
