"""Finds out what a path is: a ROOT, a landing zone, a table folder or one change file."""

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
    """Something to be judged.

    Attributes:
        path: as the caller named it.
        zone: the folder that diagnostics' paths begin at.
        storage: the place as a ROOT.
        config: the options that suit it.
    """

    path: Path
    zone: Path
    storage: RestoredView
    config: Config


def place_of(path: Path, config: Config) -> ValidationTarget:
    """What a path is, read as it was before processed files were moved away.

    Raises:
        UsageError: there is nothing, nothing that looks like a landing zone, or something the service passes over.
        StorageUnavailable: it cannot be looked into.
    """
    whole = Path(os.path.abspath(path))  # noqa: PTH100 - `resolve` would follow links, which the service has none of
    if whole.is_file():
        return replace(_file(whole, config), path=path)
    if not whole.is_dir():
        raise UsageError(f"{path}: no such file or folder", "Give a ROOT, a landing zone, a table folder or a file.")
    return replace(_folder(whole, config), path=path)


def _folder(folder: Path, config: Config) -> ValidationTarget:
    is_mirrored = (folder / ENGINE).is_dir()
    if is_mirrored:  # its first files may be gone, and nobody is to blame
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
    if _holds_data(folder):
        return _table(folder, config)
    raise UsageError(
        f"{folder}: neither a landing zone nor a table folder",
        f"A ROOT holds {ZONE}, a landing zone holds table folders, a table folder holds {METADATA_FILE}.",
    )


def _is_zone(folder: Path) -> bool:
    """Whether it is called so, or holds what only a zone holds: schema folders, or folders with metadata or data."""
    return folder.name == OLDER_ZONE or any(
        each.name.endswith(SCHEMA_SUFFIX) or (each / METADATA_FILE).exists() or _holds_data(each)
        for each in _below(folder)
        if each.is_dir() and "=" not in each.name
    )


def _holds_data(folder: Path) -> bool:
    """Whether change files lie in it, or in partitions of it."""
    below = _below(folder)
    return any(sequence_of(each.name) and each.is_file() for each in below) or any(
        "=" in each.name and each.is_dir() and _holds_data(each) for each in below
    )


def _below(folder: Path) -> list[Path]:
    try:
        return list(folder.iterdir())
    except OSError as error:
        raise StorageUnavailable(f"{folder}: {error.strerror}", "Check path and rights.") from None


def _restored(storage: Storage) -> RestoredView:
    return RestoredView(storage, archived_first=True)


def _local(folder: Path) -> Storage:
    return RetryingStorage(LocalStorage(folder))


def _placed(path: Path, at: str, zone: Path, config: Config) -> ValidationTarget:
    return ValidationTarget(path, zone, _restored(ZoneView(_local(path), {"": None, at: Source("")})), config)


def _table(folder: Path, config: Config) -> ValidationTarget:
    at, zone = _in_its_zone(folder)
    return _placed(folder, at, zone, config)


def _file(file: Path, config: Config) -> ValidationTarget:
    """One change file, by itself: as its table's first, whatever its number is."""
    folder, below, shown = file.parent, file.name, file.name
    while "=" in folder.name or folder.name in ARCHIVES:
        shown = shown if folder.name in ARCHIVES else f"{folder.name}/{shown}"
        folder, below = folder.parent, f"{folder.name}/{below}"
    if file.name[0] in "._":
        raise _passed_over(file)
    if config.missing_metadata == "wait" and not (folder / METADATA_FILE).exists():
        raise UsageError(
            f"{file}: no {METADATA_FILE} lies in its table folder, and without it nothing is read",
            "Land it there, or judge the file as one of an insert-only table: --missing-metadata insert-only.",
        )
    at, zone = _in_its_zone(folder)
    seen = ZoneView(
        _local(folder),
        {"": None, f"{at}/{METADATA_FILE}": Source(METADATA_FILE), f"{at}/{shown}": Source(below)},
    )
    return ValidationTarget(file, zone, _restored(seen), replace(config, first_file="lowest"))


def _in_its_zone(folder: Path) -> tuple[str, Path]:
    """Where a table folder lies below a ROOT, and the landing zone it is of."""
    above = [folder.parent.name] if folder.parent.name.endswith(SCHEMA_SUFFIX) else []
    if folder.name[0] in "._":
        raise _passed_over(folder)
    return "/".join([ZONE, *above, folder.name]), folder.parents[len(above)]


def _passed_over(path: Path) -> UsageError:
    return UsageError(
        f"{path}: the service passes over names that begin with `_` or `.`", "Give a table folder or a change file."
    )
