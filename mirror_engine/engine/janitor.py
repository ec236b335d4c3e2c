"""Cleaning of table folders: applied files are archived, except the newest, and deleted later (LZ-8.1 to LZ-8.5)."""

from __future__ import annotations

import json
from datetime import datetime, timezone
from typing import TYPE_CHECKING

from mirror_engine.engine.poller import is_unchanged
from mirror_engine.landing_zone.detection import sequence_of
from mirror_engine.landing_zone.listing import MetadataUsable
from mirror_engine.landing_zone.metadata import Strategy
from mirror_engine.landing_zone.names import PROCESSED_FOLDER, READY_TO_DELETE_FOLDER, READY_TO_DELETE_INFO
from mirror_engine.landing_zone.partitions import MAX_DEPTH
from mirror_engine.storage.base import Kind

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from collections.abc import Set as AbstractSet

    from mirror_engine.config import Config
    from mirror_engine.landing_zone.listing import LandedFile, TableListing
    from mirror_engine.landing_zone.names import TableName
    from mirror_engine.landing_zone.progress import Progress
    from mirror_engine.storage.base import Entry, Storage

SECONDS_BETWEEN_SWEEPS = 3600.0
MAX_INFO_BYTES = 64 * 1024 * 1024  # publishers may write there
_WAYS = {  # by `cleanup`: where an applied file goes first, and where its time begins (LZ-8.2)
    "ready": (READY_TO_DELETE_FOLDER, READY_TO_DELETE_FOLDER),
    "processed": (PROCESSED_FOLDER, PROCESSED_FOLDER),
    "both": (PROCESSED_FOLDER, READY_TO_DELETE_FOLDER),
}


class Janitor:
    """Cleans one table folder after its commit, never before (LZ-8.1)."""

    def __init__(self, storage: Storage, config: Config, clock: Callable[[], float]) -> None:
        self._storage = storage
        self._config = config
        self._clock = clock
        self._swept_at: dict[str, float] = {}
        self._cleaned: dict[TableName, tuple[TableListing, Progress]] = {}

    def is_due(self, zone: str, listing: TableListing, progress: Progress) -> bool:
        """Whether `clean` may have something to do: something changed since, or archived files may have expired."""
        if self._config.cleanup == "off":
            return False
        seen, known = self._cleaned.get(listing.name, (None, None))
        is_unchanged = seen is listing and known is progress  # both are new objects when they change
        return not is_unchanged or self._is_sweep_due(f"{zone}/{listing.name.folder}")

    def clean(self, zone: str, listing: TableListing, progress: Progress) -> int:
        """Archive applied files, and delete expired ones from the archive; returns how many were archived.

        Raises:
            StorageUnavailable: a move or a deletion failed; the next call does the rest.
        """
        moved = self._clean(f"{zone}/{listing.name.folder}", listing, progress)
        self._cleaned[listing.name] = (listing, progress)
        return moved

    def keep(self, zone: str, names: AbstractSet[TableName]) -> None:
        """Forget all other tables."""
        if not self._cleaned.keys() <= names:
            folders = {f"{zone}/{name.folder}" for name in names}
            self._cleaned = {name: state for name, state in self._cleaned.items() if name in names}
            self._swept_at = {folder: at for folder, at in self._swept_at.items() if folder in folders}

    def _clean(self, folder: str, listing: TableListing, progress: Progress) -> int:
        if self._config.cleanup == "off":
            return 0
        first, last = _WAYS[self._config.cleanup]
        entries = [self._storage.stat(f"{folder}/{archive}") for archive in {first, last}]
        if any(entry and entry.kind is not Kind.FOLDER for entry in entries):
            self._swept_at[folder] = self._clock()
            return 0
        # a file overwritten since is not applied, and an unapplied file is never moved (LZ-8.5)
        done = [file for file in processed(listing, progress) if is_unchanged(self._storage, folder, file)]
        moved = [file.path for file in done if self._archive(folder, first, file)]
        if moved or self._is_sweep_due(folder):
            ready = moved if first == last else self._passed_on(f"{folder}/{first}", f"{folder}/{last}", moved)
            self._expire(f"{folder}/{last}", ready)
            self._swept_at[folder] = self._clock()
        return len(moved)

    def _archive(self, folder: str, archive: str, file: LandedFile) -> bool:
        """Archive one file; a file that replaced it at the last moment is moved back (LZ-8.5)."""
        source, target = f"{folder}/{file.path}", f"{folder}/{archive}/{file.path}"
        self._storage.move(source, target)
        if is_unchanged(self._storage, f"{folder}/{archive}", file):
            return True
        if self._storage.stat(source) is None:
            self._storage.move(target, source)
        return False

    def _passed_on(self, first: str, last: str, but: Sequence[str]) -> list[str]:
        """Move what was in the first archive before into the last."""
        before = [path for path, _ in self._archived(first, "") if path not in but]
        for path in before:
            self._storage.move(f"{first}/{path}", f"{last}/{path}")
        return before

    def _is_sweep_due(self, folder: str) -> bool:
        """Whether to look for expired files though none was archived; clocks may be set back, too."""
        swept_at = self._swept_at.get(folder)
        return swept_at is None or abs(self._clock() - swept_at) >= SECONDS_BETWEEN_SWEEPS

    def _expire(self, folder: str, moved: Sequence[str]) -> None:
        """Update the info file, and delete expired files (LZ-8.2, LZ-8.3)."""
        info_file = f"{folder}/{READY_TO_DELETE_INFO}"
        before = self._info(info_file)
        archived = dict(self._archived(folder, ""))
        now = self._clock()
        ready = {path: min(before.get(path, now), now) for path in archived}  # publishers may write any time into it
        ready.update(dict.fromkeys(moved, now))
        due = [path for path, since in ready.items() if now - since >= self._config.delete_processed_after_seconds]
        for path in due:
            self._storage.delete(f"{folder}/{path}")
            del ready[path]
        if ready != before:
            self._storage.write(info_file, _rendered(ready))

    def _info(self, path: str) -> dict[str, float]:
        """Read the info file; publishers may empty the folder or damage the file (LZ-8.4)."""
        try:
            with self._storage.open(path) as handle:
                files = json.loads(handle.read(MAX_INFO_BYTES))["files"]
            return {
                str(entry["name"]): datetime.strptime(entry["readyAtUtc"], "%Y-%m-%dT%H:%M:%S.%f%z").timestamp()
                for entry in files
            }
        except (FileNotFoundError, ValueError, KeyError, TypeError, RecursionError):
            return {}

    def _archived(self, folder: str, below: str) -> Iterator[tuple[str, Entry]]:
        for entry in self._storage.list(f"{folder}/{below}".rstrip("/")) or ():
            path = f"{below}/{entry.name}".lstrip("/")
            if entry.kind is Kind.FOLDER and path.count("/") < MAX_DEPTH:
                yield from self._archived(folder, path)
            elif entry.kind is Kind.FILE and path != READY_TO_DELETE_INFO:
                yield path, entry


def processed(listing: TableListing, progress: Progress) -> list[LandedFile]:
    """Applied files that are unchanged since, except the newest of each partition (LZ-8.1, LZ-8.5)."""
    newest: dict[str, tuple[int, int, str]] = {}
    for path, applied in progress.applied.items():
        partition, _, name = path.rpartition("/")
        number = sequence_of(name) if _is_numbered(listing, progress, partition) else 0
        rank = number, applied.modified_ns if applied.etag else 0, name
        newest[partition] = max(newest.get(partition, rank), rank)
    return [
        file
        for file in listing.files
        if (applied_file := progress.applied.get(file.path)) is not None
        and applied_file.is_same(file.etag, file.modified_ns)
        and newest[file.partition][2] != file.name
    ]


def _is_numbered(listing: TableListing, progress: Progress, partition: str) -> bool:
    """Whether file numbers give the order: in time-ordered tables a name may have 20 digits by chance."""
    if isinstance(listing.metadata, MetadataUsable):
        return listing.metadata.metadata.strategy is Strategy.SEQUENTIAL
    return partition in progress.watermarks


def _rendered(ready: dict[str, float]) -> bytes:
    files = [
        {"name": path, "readyAtUtc": datetime.fromtimestamp(since, tz=timezone.utc).strftime("%Y-%m-%dT%H:%M:%S.%fZ")}
        for path, since in sorted(ready.items())
    ]
    return json.dumps({"files": files}).encode()
