"""Finds out what a path is: a ROOT, a landing zone, a table folder or one change file."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from mirror_engine.errors import UsageError
from mirror_engine.landing_zone.layout import OLDER_ZONE, ZONE
from mirror_engine.landing_zone.names import METADATA_FILE, SCHEMA_SUFFIX
from mirror_engine.storage.local import LocalStorage
from mirror_engine.storage.placed import PlacedStorage
from mirror_engine.storage.retrying import RetryingStorage
from mirror_engine.storage.unmoved import UnmovedStorage

if TYPE_CHECKING:
    from pathlib import Path

    from mirror_engine.config import Config
    from mirror_engine.storage.base import Storage

DATA_SUFFIXES = frozenset({".parquet", ".csv", ".tsv", ".txt", ".gz"})


@dataclass(frozen=True)
class Place:
    """Something to be judged.

    Attributes:
        path: as the caller named it.
        zone: the folder that diagnostics' paths begin at.
        storage: the place as a ROOT.
        config: the options that suit it.
    """

    path: Path
    zone: Path
    storage: Storage
    config: Config


def place_of(path: Path, config: Config) -> Place:
    """What a path is, read as it was before processed files were moved away.

    Raises:
        UsageError: there is nothing, or nothing that looks like a landing zone.
    """
    if path.is_file():
        return _file(path, config)
    if not path.is_dir():
        raise UsageError(f"{path}: no such file or folder", "Give a ROOT, a landing zone, a table folder or a file.")
    for zone in (ZONE, OLDER_ZONE):
        if (path / zone).is_dir():
            return Place(path, path / zone, UnmovedStorage(_local(path)), config)
    if _is_table_folder(path):
        return _table(path, config)
    if path.name.endswith(SCHEMA_SUFFIX):
        return _placed(path, f"{ZONE}/{path.name}", path.parent, config)
    if any(_is_table_folder(below) or below.name.endswith(SCHEMA_SUFFIX) for below in path.iterdir() if below.is_dir()):
        return _placed(path, ZONE, path, config)
    raise UsageError(
        f"{path}: neither a landing zone nor a table folder",
        f"A ROOT holds {ZONE}, a landing zone holds table folders, a table folder holds {METADATA_FILE}.",
    )


def _local(folder: Path) -> Storage:
    return RetryingStorage(LocalStorage(folder))


def _placed(path: Path, at: str, zone: Path, config: Config) -> Place:
    return Place(path, zone, UnmovedStorage(PlacedStorage(_local(path), at)), config)


def _table(folder: Path, config: Config) -> Place:
    at, zone = _in_its_zone(folder)
    return _placed(folder, at, zone, config)


def _file(file: Path, config: Config) -> Place:
    """One change file, by itself: as its table's first, whatever its number is."""
    folder, below = file.absolute().parent, file.name
    while "=" in folder.name:
        folder, below = folder.parent, f"{folder.name}/{below}"
    config = replace(config, start_index="lowest")
    if not (folder / METADATA_FILE).is_file():
        config = replace(config, metadata="optional")
    at, zone = _in_its_zone(folder)
    return Place(file, zone, PlacedStorage(_local(folder), at, only=(METADATA_FILE, below)), config)


def _in_its_zone(folder: Path) -> tuple[str, Path]:
    """Where a table folder lies below a ROOT, and the landing zone it is of."""
    whole = folder.absolute()
    above = [whole.parent.name] if whole.parent.name.endswith(SCHEMA_SUFFIX) else []
    return "/".join([ZONE, *above, whole.name]), whole.parents[len(above)]


def _is_table_folder(folder: Path) -> bool:
    return (folder / METADATA_FILE).exists() or any(
        path.suffix.lower() in DATA_SUFFIXES and path.stem[:20].isdigit() for path in folder.iterdir() if path.is_file()
    )
