"""What to check: the landing zone, table folder or change file that a path or URL leads to."""

from __future__ import annotations

import os
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, TypeAlias

from mirror_engine.errors import StorageUnavailable, UsageError
from mirror_engine.landing_zone.detection import sequence_of
from mirror_engine.landing_zone.layout import ENGINE, OLDER_ZONE, ZONE
from mirror_engine.landing_zone.listing import Kind
from mirror_engine.landing_zone.names import METADATA_FILE, SCHEMA_SUFFIX
from mirror_engine.storage.store_url import StoreUrl
from mirror_engine.storage.stores import open_storage
from mirror_engine.storage.zone_view import ARCHIVES, RestoredView, Source, ZoneView

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from mirror_engine.config import Config
    from mirror_engine.storage.base import Storage
    from mirror_engine.storage.store_url import Place


@dataclass(frozen=True)
class ValidationTarget:
    """Files to check, shown as a ROOT with archived ones at their old paths; diagnostics begin at `landing_zone`.

    `is_whole` is whether they are a whole landing zone, not a table or a file of one.
    """

    path: Place
    landing_zone: str
    storage: RestoredView
    config: Config
    is_whole: bool


@dataclass(frozen=True)
class _StorePath:
    """A path in a store's container, with those methods of `Path` that are needed here."""

    top: StoreUrl
    storage: Storage = field(compare=False)
    path: PurePosixPath

    def __truediv__(self, path: str) -> _StorePath:
        return replace(self, path=self.path / path)

    def __str__(self) -> str:
        return str(self.place)

    @property
    def place(self) -> StoreUrl:
        return self.top / str(self.path) if self.path.parts else self.top

    @property
    def name(self) -> str:
        return self.path.name or self.top.name

    @property
    def parts(self) -> Sequence[str]:
        return self.path.parts

    @property
    def parent(self) -> _StorePath:
        return replace(self, path=self.path.parent)

    @property
    def parents(self) -> Sequence[_StorePath]:
        return [replace(self, path=path) for path in self.path.parents]

    def exists(self) -> bool:
        return self._is(*Kind)

    def is_dir(self) -> bool:
        return self._is(Kind.FOLDER)

    def is_file(self) -> bool:
        return self._is(Kind.FILE)

    def iterdir(self) -> Sequence[_StorePath]:
        return [self / entry.name for entry in self.storage.list("/".join(self.parts)) or ()]

    def _is(self, *kinds: Kind) -> bool:
        entry = self.storage.stat("/".join(self.parts))
        return entry is not None and entry.kind in kinds


_Path: TypeAlias = Path | _StorePath


def find_target(
    path: Place, config: Config, opened: Callable[[Place, str], Storage] = lambda place, _: open_storage(place)
) -> ValidationTarget:
    """Find what a path or URL is; `opened` returns the storage of a folder, of which what is below another is read.

    Raises `StorageUnavailable`, and `UsageError` where it is absent, no part of a landing zone, or ignored by Fabric.
    """
    absolute: _Path
    if isinstance(path, StoreUrl):
        item, _, below = path.path.partition("/") if path.is_onelake else ("", "", path.path)
        top = replace(path, path=item)
        absolute = _checked_path(_StorePath(top, open_storage(top), PurePosixPath(below)))
    else:  # `resolve` would follow links; Fabric has none
        absolute = _checked_path(Path(os.path.abspath(path)))  # noqa: PTH100
    if absolute.is_file():
        folder, landing_zone, mapping = _file(absolute, config)
    elif absolute.is_dir():
        folder, (landing_zone, mapping) = absolute, _folder(absolute)
    else:
        raise UsageError(f"{path}: no such file or folder", "Give a ROOT, a landing zone, a table folder or a file.")
    if folder != absolute or (folder / ENGINE).is_dir():  # one file of any number; or the first ones may be gone
        config = replace(config, first_file="lowest")
    below = "" if mapping else "/".join(landing_zone.parts[len(folder.parts) :])
    storage = opened(folder.place if isinstance(folder, _StorePath) else folder, below)
    if mapping:
        storage = ZoneView(storage, {"": None, **mapping})
    is_whole = not mapping or ZONE in mapping
    zone = str(landing_zone) if isinstance(landing_zone, _StorePath) else landing_zone.as_posix()
    return ValidationTarget(path, zone, RestoredView(storage, archived_first=True), config, is_whole)


def _checked_path(path: _Path) -> _Path:
    """The path; instead of a folder in a table folder, and of a file in one, the table folder as its zone has it."""
    zone = _zone_above(path)
    if zone is None or not path.exists():
        return path
    parts = path.parts[len(zone.parts) :]
    depth = 2 if parts[0].endswith(SCHEMA_SUFFIX) else 1
    is_nested = any("=" not in part and part not in ARCHIVES for part in parts[depth:-1])
    return zone / "/".join(parts[:depth]) if path.is_dir() or is_nested else path


def _zone_above(path: _Path) -> _Path | None:
    """The landing zone that a path leads through, unless it is a ROOT itself."""
    is_root = any((path / part).is_dir() for part in (ZONE, OLDER_ZONE, ENGINE))
    return None if is_root else next((above for above in path.parents if above.name == OLDER_ZONE), None)


def _folder(folder: _Path) -> tuple[_Path, Mapping[str, Source]]:
    """The landing zone that a folder is in, and where it is in a ROOT; of a ROOT nothing."""
    for zone in (ZONE, OLDER_ZONE):
        if (folder / zone).is_dir():
            return folder / zone, {}
    if (folder / ENGINE).is_dir():
        return folder / ZONE, {}
    has_metadata = (folder / METADATA_FILE).exists()
    if not has_metadata and folder.name.endswith(SCHEMA_SUFFIX):
        return folder.parent, {f"{ZONE}/{folder.name}": Source("")}
    is_placed = _zone_above(folder) is not None
    if not (has_metadata or is_placed) and _is_zone(folder):
        return folder, {ZONE: Source("")}
    if has_metadata or is_placed or _has_change_files(folder):
        at, landing_zone = _place_in_zone(folder)
        return landing_zone, {at: Source("")}
    raise UsageError(
        f"{folder}: neither a landing zone nor a table folder",
        f"A ROOT holds {ZONE}, a landing zone holds table folders, a table folder holds {METADATA_FILE}.",
    )


def _is_zone(folder: _Path) -> bool:
    """Whether a folder has a zone's name, or holds schema folders, or folders with metadata or change files."""
    return folder.name == OLDER_ZONE or any(
        entry.name.endswith(SCHEMA_SUFFIX) or (entry / METADATA_FILE).exists() or _has_change_files(entry)
        for entry in _entries(folder)
        if entry.is_dir() and "=" not in entry.name
    )


def _has_change_files(folder: _Path) -> bool:
    """Whether a folder, or a partition in it, has change files."""
    entries = _entries(folder)
    return any(sequence_of(entry.name) and entry.is_file() for entry in entries) or any(
        "=" in entry.name and entry.is_dir() and _has_change_files(entry) for entry in entries
    )


def _entries(folder: _Path) -> list[_Path]:
    try:
        return list(folder.iterdir())
    except OSError as error:
        raise StorageUnavailable(f"{folder}: {error.strerror}", "Check path and permissions.") from None


def _file(file: _Path, config: Config) -> tuple[_Path, _Path, Mapping[str, Source]]:
    """One change file's table folder and landing zone, and where the file is in a ROOT."""
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
    return folder, zone, {f"{at}/{METADATA_FILE}": Source(METADATA_FILE), f"{at}/{shown}": Source(below)}


def _place_in_zone(folder: _Path) -> tuple[str, _Path]:
    """A table folder's path from ROOT, and its landing zone."""
    schema = [folder.parent.name] if folder.parent.name.endswith(SCHEMA_SUFFIX) else []
    if len(folder.parents) <= len(schema):
        raise UsageError(f"{folder}: a table folder must be in a landing zone", "Give a folder with a folder above it.")
    if folder.name[0] in "._":
        raise _ignored(folder)
    return "/".join([ZONE, *schema, folder.name]), folder.parents[len(schema)]


def _ignored(path: _Path) -> UsageError:
    return UsageError(
        f"{path}: Fabric ignores names that begin with `_` or `.`", "Give a table folder or a change file."
    )
