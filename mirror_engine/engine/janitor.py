"""Cleaning of table folders: applied files are archived, except the newest, and deleted later (LZ-8.1 to LZ-8.5)."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, field
from datetime import datetime, timezone
from typing import TYPE_CHECKING

from mirror_engine.landing_zone.metadata import Strategy
from mirror_engine.landing_zone.names import PROCESSED_FOLDER, READY_TO_DELETE_FOLDER, READY_TO_DELETE_INFO
from mirror_engine.landing_zone.partitions import MAX_DEPTH
from mirror_engine.storage.base import Kind, at_once, entry_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from collections.abc import Set as AbstractSet

    from mirror_engine.config import Config
    from mirror_engine.landing_zone.listing import LandedFile, TableListing
    from mirror_engine.landing_zone.names import TableName
    from mirror_engine.landing_zone.progress import FolderProgress, Progress
    from mirror_engine.storage.base import Entry, R, Storage, T

SECONDS_BETWEEN_SWEEPS = 3600.0
MAX_LISTED = 1000  # archived files that are listed after each move; more of them once a sweep
_TIME_FORM = "%Y-%m-%dT%H:%M:%S.%fZ"
MAX_INFO_BYTES = 64 * 1024 * 1024  # publishers may write there
_WAYS = {  # by `cleanup`: where an applied file goes first, and where its time begins (LZ-8.2)
    "ready": (READY_TO_DELETE_FOLDER, READY_TO_DELETE_FOLDER),
    "processed": (PROCESSED_FOLDER, PROCESSED_FOLDER),
    "both": (PROCESSED_FOLDER, READY_TO_DELETE_FOLDER),
}


@dataclass
class _Cleaned:
    """How a table folder was when it was last cleaned.

    Attributes:
        listing, progress: new objects when they change.
        swept_at: when the archive was last listed.
        is_unusable: whether something else than a folder is where an archive is to be.
        moved: when files were moved since the last sweep, into an archive too long to be listed; None for another.
    """

    listing: TableListing | None = None
    progress: Progress | None = None
    swept_at: float = -math.inf
    is_unusable: bool = False
    moved: dict[str, float] | None = None


@dataclass
class Janitor:
    """Cleans one table folder after its commit, never before (LZ-8.1).

    `check_lock` is called before each move and deletion: another engine may read again what this one has applied.
    """

    storage: Storage
    config: Config
    clock: Callable[[], float]
    check_lock: Callable[[], None] = lambda: None
    _cleaned: dict[TableName, _Cleaned] = field(default_factory=dict, init=False)

    def is_due(self, listing: TableListing, progress: Progress) -> bool:
        """Whether `clean` may have something to do: something changed since, or archived files may have expired."""
        if self.config.cleanup == "off":
            return False
        before = self._cleaned.get(listing.name, _Cleaned())
        is_unchanged = before.listing is listing and before.progress is progress
        return not is_unchanged or self._is_sweep_due(before)

    def keep(self, names: AbstractSet[TableName]) -> None:
        """Forget all other tables."""
        for name in list(self._cleaned):  # workers add to it
            if name not in names:
                self._cleaned.pop(name, None)

    def clean(self, zone: str, listing: TableListing, progress: Progress, known: FolderProgress) -> int:
        """Archive applied files, and delete expired ones from the archive; returns how many were archived.

        `known` is what is known of the listed files. After a `StorageUnavailable` the next call does the rest.
        """
        if self.config.cleanup == "off":
            return 0
        table, folder = self._cleaned.setdefault(listing.name, _Cleaned()), f"{zone}/{listing.name.folder}"
        first, last = (f"{folder}/{archive}" for archive in _WAYS[self.config.cleanup])
        if is_sweep := self._is_sweep_due(table):
            archives = [self.storage.stat(archive) for archive in {first, last}]
            table.is_unusable = any(entry and entry.kind is not Kind.FOLDER for entry in archives)
            if table.is_unusable:
                is_sweep, table.swept_at = False, self.clock()
        # a file overwritten since is not applied, and an unapplied file is never moved (LZ-8.5)
        applied = () if table.is_unusable else processed(listing, known)
        names = ((f"{folder}/{file.path}", f"{first}/{file.path}", entry_of(file)) for file in applied)
        are_moved = self._each(names, lambda each: self.storage.move(*each))  # unless replaced meanwhile (LZ-8.5)
        moved = [file.path for file, is_moved in zip(applied, are_moved, strict=True) if is_moved]
        if moved or is_sweep:
            ready = moved
            if first != last:  # what was in the first archive before goes on
                ready = [path for path, _ in self._archived(first, "") if path not in moved]
                self._each(ready, lambda path: self.storage.move(f"{first}/{path}", f"{last}/{path}"))
            times = (table.moved or {}) | dict.fromkeys(ready, self.clock())
            if is_sweep or table.moved is None:
                is_long = self._expire(last, times) > MAX_LISTED
                table.moved, table.swept_at = {} if is_long else None, self.clock()
            else:
                table.moved = times
        table.listing, table.progress = listing, progress
        return len(moved)

    def _is_sweep_due(self, table: _Cleaned) -> bool:
        return abs(self.clock() - table.swept_at) >= SECONDS_BETWEEN_SWEEPS  # clocks may be set back, too

    def _each(self, files: Iterable[T], change: Callable[[T], R]) -> list[R]:
        """Move or delete files, each after a check of the lock."""

        def checked(file: T) -> R:
            self.check_lock()
            return change(file)

        return list(at_once(self.storage, checked, files))

    def _expire(self, folder: str, moved: Mapping[str, float]) -> int:
        """Update the info file, and delete expired files (LZ-8.2, LZ-8.3); returns how many files stay.

        `moved` has when files were moved that the info file may not have yet.
        """
        info_file = f"{folder}/{READY_TO_DELETE_INFO}"
        before = self._info(info_file)
        archived = dict(self._archived(folder, ""))
        now = self.clock()
        ready = {path: min(before.get(path, now), now) for path in archived}  # publishers may write any time into it
        ready.update({path: since for path, since in moved.items() if path in archived})
        kept = {
            path: since for path, since in ready.items() if now - since < self.config.delete_processed_after_seconds
        }
        self._each([path for path in ready if path not in kept], lambda path: self.storage.delete(f"{folder}/{path}"))
        ready = kept
        if ready != before:
            files = [
                {"name": path, "readyAtUtc": datetime.fromtimestamp(since, tz=timezone.utc).strftime(_TIME_FORM)}
                for path, since in sorted(ready.items())
            ]
            self.storage.write(info_file, json.dumps({"files": files}).encode())
        return len(ready)

    def _info(self, path: str) -> dict[str, float]:
        """Read the info file; publishers may empty the folder or damage the file (LZ-8.4)."""
        try:
            with self.storage.open(path) as handle:
                files = json.loads(handle.read(MAX_INFO_BYTES))["files"]
            return {
                str(entry["name"]): datetime.strptime(entry["readyAtUtc"], "%Y-%m-%dT%H:%M:%S.%f%z").timestamp()
                for entry in files
            }
        except (FileNotFoundError, ValueError, KeyError, TypeError, RecursionError):
            return {}

    def _archived(self, folder: str, below: str) -> Iterator[tuple[str, Entry]]:
        for entry in self.storage.list(f"{folder}/{below}".rstrip("/")) or ():
            path = f"{below}/{entry.name}".lstrip("/")
            if entry.kind is Kind.FOLDER and path.count("/") < MAX_DEPTH:
                yield from self._archived(folder, path)
            elif entry.kind is Kind.FILE and path != READY_TO_DELETE_INFO:
                yield path, entry


def processed(listing: TableListing, known: FolderProgress) -> list[LandedFile]:
    """Applied files that are unchanged since, except the newest of each partition (LZ-8.1, LZ-8.5)."""
    metadata = listing.usable

    def newest(partition: str) -> str:
        mark = known.marks[partition]
        # in time-ordered tables a name may have 20 digits by chance
        by_number = metadata.strategy is Strategy.SEQUENTIAL if metadata else mark.watermark > 0
        return mark.highest if by_number and mark.highest else mark.latest

    return [
        file
        for file in listing.files
        if (applied := known.applied.get(file.path)) is not None
        and applied.is_same(file.etag, file.modified_ns)
        and newest(file.partition) != file.path
    ]
