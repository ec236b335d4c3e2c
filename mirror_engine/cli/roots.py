"""Tells a ROOT from what is none before an engine writes into it: a landing zone given for it, any other folder."""

from __future__ import annotations

import os
from pathlib import Path

from mirror_engine.cli.output import line, stderr
from mirror_engine.config import CONFIG_FILE
from mirror_engine.errors import StorageUnavailable, UsageError
from mirror_engine.landing_zone.layout import ENGINE, OLDER_ZONE, TABLES, ZONE
from mirror_engine.landing_zone.names import METADATA_FILE, SCHEMA_SUFFIX

FILES = ZONE.partition("/")[0]
MARKS = (ENGINE, FILES, OLDER_ZONE, TABLES, CONFIG_FILE)  # one of them makes a folder a ROOT


def check_root(root: Path) -> None:
    """Refuse what is no ROOT: an engine would make one of it. Says so where its landing zone is still to come.

    Raises:
        UsageError: it is a landing zone, a part of one, or a folder without any mark of a ROOT.
    """
    if _has_zone(root):
        return
    refuse_zone(root)
    if not any((root / mark).exists() for mark in MARKS):
        raise UsageError(
            f"{root}: holds no landing zone; nothing was written",
            f"A ROOT holds {ZONE}. Make one: mirror-engine init {root}",
        )
    stderr().print(line(f"{root}: no landing zone yet; files land in {root / ZONE}"))


def check_root_to_come(root: Path) -> None:
    """The same for who waits: of an empty folder, too, a publisher may still make a ROOT.

    Raises:
        UsageError: as `check_root`.
    """
    if any(_below(root)):
        check_root(root)


def refuse_zone(folder: Path) -> None:
    """Refuse a landing zone or a part of one where its ROOT is wanted.

    Raises:
        UsageError: it is one, and which folder its ROOT is.
    """
    whole = Path(os.path.abspath(folder))  # noqa: PTH100 - `resolve` would follow links
    zone = next((each for each in (whole, *whole.parents) if each.name == OLDER_ZONE), None)
    is_called_so = zone is not None and (zone == whole or zone.parent.name == FILES)
    if not is_called_so and not _looks_like_a_zone(folder):
        return
    what = "a landing zone" if zone in (None, whole) else "a part of a landing zone"
    help = f"Its folders belong into ROOT/{ZONE}; make one: mirror-engine init. `validate` takes it as it is."
    if zone is not None:
        root = zone.parent.parent if zone.parent.name == FILES else zone.parent
        help = f"Its ROOT is {Path(os.path.relpath(root)) if _is_from_here(root) else root}"
    raise UsageError(f"{folder}: this is {what}, not the ROOT of one; nothing was written", help)


def _is_from_here(root: Path) -> bool:
    """Whether it lies below the working folder, or that below it."""
    here = Path.cwd()
    return root.is_relative_to(here) or here.is_relative_to(root)


def _has_zone(root: Path) -> bool:
    return any((root / zone).is_dir() for zone in (ZONE, OLDER_ZONE))


def _looks_like_a_zone(folder: Path) -> bool:
    """Whether it holds what only a zone or a part of one holds: schema folders, table folders, metadata."""
    return (
        folder.name.endswith(SCHEMA_SUFFIX)
        or (folder / METADATA_FILE).exists()
        or any(each.name.endswith(SCHEMA_SUFFIX) or (each / METADATA_FILE).exists() for each in _below(folder))
    )


def _below(folder: Path) -> list[Path]:
    try:
        return list(folder.iterdir())
    except OSError as error:
        raise StorageUnavailable(f"{folder}: {error.strerror}", "Check path and rights.") from None
