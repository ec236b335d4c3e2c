"""Find what a path to validate is: a ROOT, a landing zone, a table folder or one change file."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from mirror_engine.errors import StorageUnavailable, UsageError
from mirror_engine.landing_zone.detection import sequence_of
from mirror_engine.landing_zone.layout import ENGINE, OLDER_ZONE, ZONE
from mirror_engine.landing_zone.names import METADATA_FILE, SCHEMA_SUFFIX
from mirror_engine.storage.local import LocalStorage
from mirror_engine.storage.retrying import RetryingStorage
from mirror_engine.storage.zone_view import ARCHIVES, RestoredView, Source, ZoneView

if TYPE_CHECKING:
    from mirror_engine.config import Config
    from mirror_engine.storage.base import Storage


@dataclass(frozen=True)
class ValidationTarget:
    """Files to check.

    Attributes:
        path: as the caller named it.
        landing_zone: the folder that diagnostics' paths begin at.
        storage: the files as a ROOT, archived ones at their old paths.
        config: the options that suit them.
    """

    path: Path
    landing_zone: Path
    storage: RestoredView
    config: Config


def find_target(path: Path, config: Config) -> ValidationTarget:
    """Find what a path is.

    Raises:
        UsageError: there is no such path, it is no part of a landing zone, or Fabric ignores it.
        StorageUnavailable: a folder cannot be listed.
    """
    absolute = Path(os.path.abspath(path))  # noqa: PTH100 - `resolve` would follow links, which Fabric does not have
    if absolute.is_file():
        return replace(_file(absolute, config), path=path)
    if not absolute.is_dir():
        raise UsageError(f"{path}: no such file or folder", "Give a ROOT, a landing zone, a table folder or a file.")
    return replace(_folder(absolute, config), path=path)


def _folder(folder: Path, config: Config) -> ValidationTarget:
    is_mirrored = (folder / ENGINE).is_dir()
    if is_mirrored:  # its first files may have been applied and deleted
        config = replace(config, first_file="lowest")
    zone = next((zone for zone in (ZONE, OLDER_ZONE) if (folder / zone).is_dir()), ZONE if is_mirrored else None)
    if zone:
        return ValidationTarget(folder, folder / zone, _restored(_local(folder)), config)
    if (folder / METADATA_FILE).exists():
        return _table(folder, config)
    if folder.name.endswith(SCHEMA_SUFFIX):
        return _placed(folder, f"{ZONE}/{folder.name}", folder.parent, config)
    if _is_zone(folder):
        return _placed(folder, ZONE, folder, config)
    if _has_change_files(folder):
        return _table(folder, config)
    raise UsageError(
        f"{folder}: neither a landing zone nor a table folder",
        f"A ROOT holds {ZONE}, a landing zone holds table folders, a table folder holds {METADATA_FILE}.",
    )


def _is_zone(folder: Path) -> bool:
    """Whether a folder has a zone's name, or holds schema folders, or folders with metadata or change files."""
    return folder.name == OLDER_ZONE or any(
        entry.name.endswith(SCHEMA_SUFFIX) or (entry / METADATA_FILE).exists() or _has_change_files(entry)
        for entry in _entries(folder)
        if entry.is_dir() and "=" not in entry.name
    )


def _has_change_files(folder: Path) -> bool:
    """Whether a folder, or a partition in it, has change files."""
    entries = _entries(folder)
    return any(sequence_of(entry.name) and entry.is_file() for entry in entries) or any(
        "=" in entry.name and entry.is_dir() and _has_change_files(entry) for entry in entries
    )


def _entries(folder: Path) -> list[Path]:
    try:
        return list(folder.iterdir())
    except OSError as error:
        raise StorageUnavailable(f"{folder}: {error.strerror}", "Check path and permissions.") from None


def _restored(storage: Storage) -> RestoredView:
    return RestoredView(storage, archived_first=True)


def _local(folder: Path) -> Storage:
    return RetryingStorage(LocalStorage(folder))


def _placed(path: Path, at: str, zone: Path, config: Config) -> ValidationTarget:
    return ValidationTarget(path, zone, _restored(ZoneView(_local(path), {"": None, at: Source("")})), config)


def _table(folder: Path, config: Config) -> ValidationTarget:
    at, zone = _place_in_zone(folder)
    return _placed(folder, at, zone, config)


def _file(file: Path, config: Config) -> ValidationTarget:
    """One change file, as the first of its table, whatever its number is."""
    folder, below, shown = file.parent, file.name, file.name
    while "=" in folder.name or folder.name in ARCHIVES:
        shown = shown if folder.name in ARCHIVES else f"{folder.name}/{shown}"
        folder, below = folder.parent, f"{folder.name}/{below}"
    if file.name[0] in "._":
        raise _ignored(file)
    if config.missing_metadata == "wait" and not (folder / METADATA_FILE).exists():
        raise UsageError(
            f"{file}: its table folder has no {METADATA_FILE}, and without it no file is read",
            "Land it there, or check the file as one of an insert-only table: --missing-metadata insert-only.",
        )
    at, zone = _place_in_zone(folder)
    view = ZoneView(
        _local(folder),
        {"": None, f"{at}/{METADATA_FILE}": Source(METADATA_FILE), f"{at}/{shown}": Source(below)},
    )
    return ValidationTarget(file, zone, _restored(view), replace(config, first_file="lowest"))


def _place_in_zone(folder: Path) -> tuple[str, Path]:
    """A table folder's path from ROOT, and its landing zone."""
    schema = [folder.parent.name] if folder.parent.name.endswith(SCHEMA_SUFFIX) else []
    if folder.name[0] in "._":
        raise _ignored(folder)
    return "/".join([ZONE, *schema, folder.name]), folder.parents[len(schema)]


def _ignored(path: Path) -> UsageError:
    return UsageError(
        f"{path}: Fabric ignores names that begin with `_` or `.`", "Give a table folder or a change file."
    )
