"""Opens a mirror for a command, and rejects folders that are no ROOT before an engine writes into them."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from mirror_engine.cli.output import line, stderr
from mirror_engine.config import CONFIG_FILE
from mirror_engine.errors import StorageUnavailable, UsageError
from mirror_engine.landing_zone.layout import ENGINE, OLDER_ZONE, TABLES, ZONE
from mirror_engine.landing_zone.names import METADATA_FILE, SCHEMA_SUFFIX

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mirror_engine.config import Config
    from mirror_engine.events import Listener
    from mirror_engine.mirror import Mirror

FILES = ZONE.partition("/")[0]
MARKS = (ENGINE, FILES, OLDER_ZONE, TABLES, CONFIG_FILE)  # one of them makes a folder a ROOT


def open_mirror(root: Path, config: Config, listeners: Sequence[Listener] = ()) -> Mirror:
    """The mirror under `root`.

    Raises:
        UsageError: `root` is not a folder.
    """
    from mirror_engine.mirror import Mirror

    return Mirror(root, config, listeners=listeners)


def check_root(root: Path, *, may_be_empty: bool = False) -> None:
    """Reject a folder that is no ROOT; say so if its landing zone does not exist yet.

    Args:
        root: the folder.
        may_be_empty: whether a publisher may still make a ROOT of an empty folder.

    Raises:
        UsageError: it is a landing zone, a part of one, or a folder without any mark of a ROOT.
    """
    if any((root / zone).is_dir() for zone in (ZONE, OLDER_ZONE)) or (may_be_empty and not _entries(root)):
        return
    _reject_zone(root)
    if not any((root / mark).exists() for mark in MARKS):
        raise UsageError(
            f"{root} contains no landing zone ({ZONE})", f'create an example with "mirror-engine init {root}"'
        )
    stderr().print(line(f"{root}: no landing zone yet; land files in {root / ZONE}"))


def _reject_zone(folder: Path) -> None:
    whole = Path(os.path.abspath(folder))  # noqa: PTH100 - `resolve` would follow links
    zone = next((path for path in (whole, *whole.parents) if path.name == OLDER_ZONE), None)
    is_named_so = zone is not None and (zone == whole or zone.parent.name == FILES)
    if not is_named_so and not _looks_like_a_zone(folder):
        return
    what = "a landing zone" if zone in {None, whole} else "a part of a landing zone"
    help = f"move its folders to ROOT/{ZONE} (mirror-engine init creates one), or check it with validate"
    if zone is not None:
        root = zone.parent.parent if zone.parent.name == FILES else zone.parent
        here = Path.cwd()
        is_near = root.is_relative_to(here) or here.is_relative_to(root)
        help = f"use its ROOT: {Path(os.path.relpath(root)) if is_near else root}"
    raise UsageError(f"{folder} is {what}, not a ROOT", help)


def _looks_like_a_zone(folder: Path) -> bool:
    """Whether it contains schema folders, table folders or metadata, as only a landing zone does."""
    return (
        folder.name.endswith(SCHEMA_SUFFIX)
        or (folder / METADATA_FILE).exists()
        or any(path.name.endswith(SCHEMA_SUFFIX) or (path / METADATA_FILE).exists() for path in _entries(folder))
    )


def _entries(folder: Path) -> list[Path]:
    try:
        return list(folder.iterdir())
    except OSError as error:
        raise StorageUnavailable(f"{folder}: {error.strerror}", "check path and permissions") from None
