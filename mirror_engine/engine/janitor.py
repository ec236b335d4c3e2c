"""Cleaning of table folders: applied files are archived, except the newest, and deleted later (LZ-8.1 to LZ-8.5)."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from mirror_engine.landing_zone.listing import Kind
from mirror_engine.landing_zone.metadata import Strategy
from mirror_engine.landing_zone.names import PROCESSED_FOLDER, READY_TO_DELETE_FOLDER, READY_TO_DELETE_INFO
from mirror_engine.landing_zone.partitions import MAX_DEPTH
from mirror_engine.storage.base import at_once

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from collections.abc import Set as AbstractSet

    from mirror_engine.config import Config
    from mirror_engine.engine.ledger import Ledger
    from mirror_engine.landing_zone.listing import Entry, TableListing
    from mirror_engine.landing_zone.names import TableName
    from mirror_engine.landing_zone.progress import FolderProgress, Mark, Progress
    from mirror_engine.storage.base import R, Storage, T

SECONDS_BETWEEN_SWEEPS = 3600.0
MAX_LISTED = 100  # archived files that are listed whenever one is moved or expires; more of them once a sweep
_TIME_FORM = "%Y-%m-%dT%H:%M:%S.%fZ"
_WAYS = {  # by `cleanup`: where an applied file goes first, and where its time begins (LZ-8.2)
    "ready": (READY_TO_DELETE_FOLDER, READY_TO_DELETE_FOLDER),
    "processed": (PROCESSED_FOLDER, PROCESSED_FOLDER),
    "both": (PROCESSED_FOLDER, READY_TO_DELETE_FOLDER),
}


@dataclass
class _Cleaned:
    """The state of a table folder at its last cleanup.

    Attributes:
        listing, progress: new objects when they change.
        expires_at: when the next archived file expires.
        sweep_at: when its archive is to be swept though nothing changed.
        looked_at: when its archives were last looked at.
        is_unusable: whether something else than a folder is where an archive is to be.
        is_stale: whether something was done in the archive since the info file was written.
    """

    listing: TableListing | None = None
    progress: Progress | None = None
    expires_at: float = -math.inf
    sweep_at: float = math.inf
    looked_at: float = -math.inf
    is_unusable: bool = False
    is_stale: bool = False


@dataclass
class Janitor:
    """Cleans one table folder after its commit, never before (LZ-8.1).

    The ledger has since when archived files are ready to delete. A sweep compares it with the archive, where others
    may add and remove files, and writes the info file; it comes only after something was done in the archive.

    `check_lock` is called before each move and deletion: another engine may read again what this one has applied.
    `clock` never goes back; `lag` is by how many seconds it is behind the date: publishers read dates.
    """

    storage: Storage
    ledger: Ledger
    config: Config
    clock: Callable[[], float]
    check_lock: Callable[[], None] = lambda: None
    lag: Callable[[], float] = lambda: 0.0
    _cleaned: dict[TableName, _Cleaned] = field(default_factory=dict, init=False)

    def is_due(self, listing: TableListing, progress: Progress, *, keeps: bool = False) -> bool:
        """Whether `clean` may have work: something changed since the last call, or archived files have expired."""
        if self.config.cleanup == "off":
            return False
        before, now = self._cleaned.get(listing.name, _Cleaned()), self.clock()
        is_unchanged = before.listing is listing and before.progress is progress
        return not is_unchanged or now >= before.sweep_at or (not keeps and now >= before.expires_at)

    def keep(self, names: AbstractSet[TableName]) -> None:
        """Forget all other tables."""
        for name in list(self._cleaned):  # workers add to it
            if name not in names:
                self._cleaned.pop(name, None)

    def clean(
        self, zone: str, listing: TableListing, progress: Progress, known: FolderProgress, *, keeps: bool = False
    ) -> tuple[int, int]:
        """Archive applied files, and delete expired ones from the archive unless it `keeps` them; returns how many.

        `known` is what is known of the listed files. After a `StorageUnavailable` the next call does the rest.
        """
        archived, expired = 0, dict[str, float]()
        name, folder, now = listing.name, f"{zone}/{listing.name.folder}", self.clock()
        table = self._cleaned.setdefault(name, _Cleaned())
        (first, last), seconds = _WAYS[self.config.cleanup], self.config.delete_processed_after_seconds
        expired_at = -math.inf if keeps else now - seconds
        # a file overwritten since is not applied, and an unapplied file is never moved (LZ-8.5)
        applied = processed(listing, known)
        is_late = now - table.looked_at >= SECONDS_BETWEEN_SWEEPS
        passes_on = first != last and (is_late or bool(applied))
        table.is_stale |= passes_on or bool(applied) or self.ledger.archive_times(name)[0] <= expired_at
        is_sweep = self._is_sweep_due(name, now, is_stale=table.is_stale)
        if is_late and (is_sweep or table.is_stale):
            archives = [self.storage.stat(f"{folder}/{archive}") for archive in dict.fromkeys((first, last))]
            table.is_unusable = any(entry and entry.kind is not Kind.FOLDER for entry in archives)
            table.looked_at = now
        if not table.is_unusable:
            if is_sweep:
                self._compare(name, folder, last)
            if passes_on:  # what was in the first archive before goes on
                before = [(f"{first}/{path}", f"{last}/{path}", None) for path in self._listed(f"{folder}/{first}", "")]
                self._move(name, folder, before, is_ready=True)
            moves = [(file.path, f"{first}/{file.path}", file) for file in applied]
            archived = self._move(name, folder, moves, is_ready=first == last)
            expired = dict(self.ledger.archived(name, before=expired_at))
            self._each(expired, lambda path: self.storage.delete(f"{folder}/{path}"))
            self.ledger.archive(name, {}, expired)
            if is_sweep:
                self._write_info(name, folder, last)
                table.is_stale = False
        table.expires_at = self.ledger.archive_times(name)[0] + seconds
        table.sweep_at = now + SECONDS_BETWEEN_SWEEPS if table.is_stale or first != last else math.inf
        table.listing, table.progress = listing, progress
        return archived, len(expired)

    def _is_sweep_due(self, name: TableName, now: float, *, is_stale: bool) -> bool:
        """Whether to list the archive: where it is not known, or files come and go in it; a long one once an hour."""
        swept_at = self.ledger.archive_times(name)[1]
        if not is_stale or swept_at == -math.inf:
            return swept_at == -math.inf
        is_long = len(self.ledger.archived(name, limit=MAX_LISTED + 1)) > MAX_LISTED
        return not is_long or now - swept_at >= SECONDS_BETWEEN_SWEEPS

    def _move(
        self, name: TableName, folder: str, moves: Sequence[tuple[str, str, Entry | None]], *, is_ready: bool
    ) -> int:
        """Move files of a table folder unless they were replaced meanwhile (LZ-8.5); returns how many were moved.

        Where their time begins (`is_ready`), it is noted before the move, so that each archived file has one.
        """
        since = self.clock()
        if is_ready:
            self.ledger.archive(name, {target: since for _, target, _ in moves})
        places = [(f"{folder}/{source}", f"{folder}/{target}", only) for source, target, only in moves]
        are_moved = self._each(places, lambda each: self.storage.move(*each))
        left = (target for (_, target, _), is_moved in zip(moves, are_moved, strict=True) if not is_moved)
        self.ledger.archive(name, {}, left)
        return sum(are_moved)

    def _each(self, files: Iterable[T], change: Callable[[T], R]) -> list[R]:
        """Move or delete files, each after a check of the lock."""

        def checked(file: T) -> R:
            self.check_lock()
            return change(file)

        return list(at_once(self.storage, checked, files))

    def _compare(self, name: TableName, folder: str, archive: str) -> None:
        """Import what other programs did in an archive (LZ-8.4).

        The time of a file that the ledger does not know is that of the info file, or begins now.
        """
        listed = {f"{archive}/{path}" for path in self._listed(f"{folder}/{archive}", "")}
        known = {path for path in self.ledger.archived(name) if path.startswith(f"{archive}/")}
        now, since = self.clock(), self._info(f"{folder}/{archive}") if listed - known else {}
        ready = {path: min(since.get(path, now), now) for path in listed - known}
        self.ledger.archive(name, ready, known - listed)

    def _write_info(self, name: TableName, folder: str, archive: str) -> None:
        """Write the info file (LZ-8.2): for publishers, and for an engine whose ledger is lost."""
        lag = self.lag()
        files = [
            {
                "name": path.removeprefix(f"{archive}/"),
                "readyAtUtc": datetime.fromtimestamp(since + lag, tz=UTC).strftime(_TIME_FORM),
            }
            for path, since in sorted(self.ledger.archived(name).items())
            if path.startswith(f"{archive}/")
        ]
        if files or self.storage.stat(f"{folder}/{archive}"):
            self.storage.write(f"{folder}/{archive}/{READY_TO_DELETE_INFO}", json.dumps({"files": files}).encode())
        self.ledger.archive(name, {}, swept_at=self.clock())

    def _info(self, archive: str) -> dict[str, float]:
        """Read the info file, by path from the table folder; publishers may remove or damage it (LZ-8.4)."""
        lag = self.lag()
        try:
            with self.storage.open(f"{archive}/{READY_TO_DELETE_INFO}") as handle:
                return {
                    f"{archive.rpartition('/')[2]}/{entry['name']}": datetime.strptime(
                        entry["readyAtUtc"], "%Y-%m-%dT%H:%M:%S.%f%z"
                    ).timestamp()
                    - lag
                    for entry in json.load(handle)["files"]
                }
        except (FileNotFoundError, ValueError, KeyError, TypeError, RecursionError):
            return {}

    def _listed(self, folder: str, below: str) -> Iterator[str]:
        for entry in self.storage.list(f"{folder}/{below}".rstrip("/")) or ():
            path = f"{below}/{entry.name}".lstrip("/")
            if entry.kind is Kind.FOLDER and path.count("/") < MAX_DEPTH:
                yield from self._listed(folder, path)
            elif entry.kind is Kind.FILE and path != READY_TO_DELETE_INFO:
                yield path


def newest(listing: TableListing, mark: Mark) -> str:
    """Return the applied file of a partition that stays in its folder (LZ-8.1)."""
    metadata = listing.usable
    # in time-ordered tables a name may have 20 digits by chance
    by_number = metadata.strategy is Strategy.SEQUENTIAL if metadata else mark.watermark > 0
    return mark.highest if by_number and mark.highest else mark.latest


def processed(listing: TableListing, known: FolderProgress) -> list[Entry]:
    """Applied files that are unchanged since, except the newest of each partition (LZ-8.1, LZ-8.5)."""
    stay = {newest(listing, mark) for mark in known.marks.values()}
    return [
        file
        for file in listing.files
        if file.path not in stay
        and (applied := known.applied.get(file.path)) is not None
        and applied.is_same(file.etag, file.modified_ns)
    ]
