"""One table as it is to be traced: what the engine did with it so far, and its files as they lay before that."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from mirror_engine.errors import UsageError
from mirror_engine.landing_zone.metadata import Strategy
from mirror_engine.landing_zone.names import METADATA_FILE
from mirror_engine.monitoring.overview import mirror_status
from mirror_engine.poller import Poller
from mirror_engine.steps import BeginGeneration
from mirror_engine.storage.one_table import OneTableStorage
from mirror_engine.storage.rearranged import RearrangedStorage, Slot
from mirror_engine.storage.unmoved import UnmovedStorage
from mirror_engine.table_names import find_table

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from mirror_engine.delta.history import HistoryEntry
    from mirror_engine.doors import Doors
    from mirror_engine.landing_zone.metadata import Metadata
    from mirror_engine.landing_zone.names import TableName
    from mirror_engine.landing_zone.progress import Progress
    from mirror_engine.landing_zone.sightings import FileSighting, TableSighting
    from mirror_engine.monitoring.status import FileStatus, TableStatus
    from mirror_engine.outlook import Look
    from mirror_engine.steps import Plan
    from mirror_engine.storage.base import Storage


@dataclass(frozen=True)
class Scene:
    """One table.

    Attributes:
        doors: the real ones, to be read only.
        plan: what the engine would do now.
        status: how the table is.
        progress: how far the folder's present life is; None before anything was applied.
        commits: of the Delta table, oldest first, as far back as its log reaches; none before anything was applied.
        zone: the landing zone, from ROOT.
        storage: ROOT with this table alone, its files unmoved, in the order in which they were applied.
        sighting: the table folder in that storage.
    """

    doors: Doors
    plan: Plan
    status: TableStatus
    progress: Progress | None
    commits: tuple[HistoryEntry, ...]
    zone: str
    storage: Storage
    sighting: TableSighting

    @property
    def name(self) -> TableName:
        """The table."""
        return self.plan.table

    @property
    def folder(self) -> str:
        """The table folder, from ROOT."""
        return f"{self.zone}/{self.name.folder}"

    @property
    def metadata(self) -> Metadata | None:
        """What `_metadata.json` says now; None where it cannot be used."""
        return self.sighting.usable

    @property
    def key_columns(self) -> tuple[str, ...]:
        """The key as `_metadata.json` declares it; empty in a keyless table.

        Raises:
            UsageError: the folder is no table yet.
        """
        if self.metadata is None and self.doors.config.metadata == "required":
            raise UsageError(
                f"{self.name.normalized}: is no table yet, for it has no usable {METADATA_FILE}",
                "See what is wrong with it: mirror-engine status.",
            )
        return self.metadata.key_columns if self.metadata else ()

    @cached_property
    def files(self) -> Mapping[str, FileStatus]:
        """How each change file really is, by path from the table folder."""
        return {file.path: file for file in self.status.files}

    @cached_property
    def versions(self) -> Mapping[int, HistoryEntry]:
        """Commits by Delta version."""
        return {commit.version: commit for commit in self.commits}

    @cached_property
    def overwritten(self) -> frozenset[str]:
        """Files whose content is another than the one that was applied, as far as that is remembered (LZ-3.13)."""
        return _replaced(self.sighting, self.progress)

    def batch_of(self, path: str) -> tuple[str, ...]:
        """The files that went into one commit with this one, itself among them; empty where that is not known."""
        file = self.files.get(path)
        commit = self.versions.get(file.version) if file and file.version is not None else None
        return commit.files if commit else ()


def scene_of(look: Look, table: str) -> Scene:
    """The table a person means.

    Raises:
        UnknownTable: the zone has none of that name.
        StorageUnavailable: it could not be read.
    """
    doors, zone = look.doors, look.zone
    folders = {doors.delta_folder(sighting.name): sighting.name for sighting in zone.tables}
    folder = find_table(table, list(folders), doors.config.schema_of_bare_tables)
    name = folders[folder]
    plan = look.plans[name]
    (status,) = mirror_status(Path(), doors, zone, {name: plan}, engine_running=False).tables
    is_new = any(isinstance(step, BeginGeneration) for step in plan.steps)
    progress = None if is_new else doors.ledger.progress(name)
    commits = tuple(reversed(doors.writer.history(folder))) if progress and progress.has_table else ()
    lying = next(sighting for sighting in zone.tables if sighting.name == name)
    unmoved = UnmovedStorage(doors.storage, processed_first=bool(_replaced(lying, progress)))
    storage: Storage = OneTableStorage(unmoved, zone.folder, name.folder)
    sighting = _seen(doors, storage, name)
    if progress:
        place = f"{zone.folder}/{name.folder}"
        slots = _of_other_lives(place, sighting, progress, lying) | _as_applied(place, sighting, progress, commits)
        storage = RearrangedStorage(storage, slots)
        sighting = _seen(doors, storage, name)
    return Scene(
        doors=doors,
        plan=plan,
        status=status,
        progress=progress,
        commits=commits,
        zone=zone.folder,
        storage=storage,
        sighting=sighting,
    )


def _seen(doors: Doors, storage: Storage, name: TableName) -> TableSighting:
    found = Poller(storage, doors.config).look()
    return next(sighting for sighting in found.tables if sighting.name == name)


def _replaced(sighting: TableSighting, progress: Progress | None) -> frozenset[str]:
    applied = progress.applied if progress else {}
    return frozenset(
        file.path
        for file in sighting.files
        if file.path in applied and applied[file.path].etag and not _is_same(file, applied[file.path].etag)
    )


def _of_other_lives(
    folder: str, sighting: TableSighting, progress: Progress, lying: TableSighting
) -> dict[str, Slot | None]:
    """Files moved away that the present table never held: a stop and start leaves them there (LZ-7.7)."""
    known = {*progress.applied, *(file.path for file in lying.files)}
    return {f"{folder}/{file.path}": None for file in sighting.files if file.path not in known}


def _as_applied(
    folder: str, sighting: TableSighting, progress: Progress, commits: Iterable[HistoryEntry]
) -> dict[str, Slot | None]:
    """Applied files that time orders, at times in the order in which they were applied: some came late (LZ-3.6)."""
    metadata = sighting.usable
    if metadata is None or metadata.strategy is not Strategy.LAST_UPDATE_TIME:
        return {}
    lying = {file.path for file in sighting.files}
    order = [path for commit in commits for path in commit.files]
    known = [path for path in dict.fromkeys((*order, *progress.applied)) if path in lying and path in progress.applied]
    return {f"{folder}/{path}": Slot(f"{folder}/{path}", rank) for rank, path in enumerate(known, start=1)}


def _is_same(file: FileSighting, etag: str) -> bool:
    """Whether it is the file of that etag; its time is not looked at, for that may be another here."""
    return etag.rpartition(":")[0] == file.etag.rpartition(":")[0]
