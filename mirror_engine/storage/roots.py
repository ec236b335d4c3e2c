"""Which folder is a ROOT, and which one is only near one: in it, around it, or of another kind."""

from __future__ import annotations

import os
from pathlib import Path

from mirror_engine.config import CONFIG_FILE
from mirror_engine.errors import StorageUnavailable, UsageError
from mirror_engine.landing_zone.layout import ENGINE, LEDGER, OLDER_ZONE, STORE_ITEMS, TABLES, ZONE
from mirror_engine.landing_zone.names import METADATA_FILE, SCHEMA_SUFFIX

FILES = ZONE.partition("/")[0]
MARKS = (ENGINE, FILES, OLDER_ZONE, TABLES, CONFIG_FILE)  # one of them makes a folder a ROOT
MAX_NEAR = 3  # ROOTs that a message names


def is_root(folder: Path) -> bool:
    """Whether a folder has a landing zone; the older one with a ledger: any folder can have its name (LZ-1.1)."""
    return (folder / ZONE).is_dir() or ((folder / OLDER_ZONE).is_dir() and (folder / LEDGER).exists())


def has_zone(folder: Path) -> bool:
    """Whether a folder has a landing zone, or a folder with the older one's name."""
    return any((folder / zone).is_dir() for zone in (ZONE, OLDER_ZONE))


def check_place(folder: Path) -> None:
    """Reject a folder of a ROOT, which may not exist yet: it is no ROOT itself, nor a STORE of the emulator.

    Raises:
        UsageError: it is in a landing zone, or its parent is a ROOT.
    """
    whole = Path(os.path.abspath(folder))  # noqa: PTH100 - `resolve` would follow links
    zone = next((path for path in (whole, *whole.parents) if path.name == OLDER_ZONE), None)
    if zone is not None and (zone == whole or zone.parent.name == FILES):
        what = "a landing zone" if zone == whole else "a part of a landing zone"
        owner = zone.parent.parent if zone.parent.name == FILES else zone.parent
    elif is_root(whole.parent):
        what, owner = "a folder of a ROOT", whole.parent
    else:
        return
    raise UsageError(f"{folder} is {what}, not a ROOT", f"its ROOT is {_shown(owner)}")


def check_root(root: Path, *, may_be_empty: bool = False) -> None:
    """Reject a folder that is no ROOT.

    Args:
        root: the folder.
        may_be_empty: whether a publisher may still make a ROOT of an empty folder.

    Raises:
        UsageError: it is a folder of a ROOT, a STORE, a landing zone, or has no mark of a ROOT.
        StorageUnavailable: it cannot be listed.
    """
    check_place(root)
    if has_zone(root):
        return
    try:
        inside = list(root.iterdir())
    except OSError as error:
        raise StorageUnavailable(f"{root}: {error.strerror}", "check path and permissions") from None
    if may_be_empty and not inside:
        return
    near = _near(root)
    if (root / STORE_ITEMS).exists():
        raise UsageError(f"{root} is a STORE of the emulator, not a ROOT", near or "a ROOT is STORE/WORKSPACE/ITEM")
    # schema folders, table folders and metadata are found in a landing zone only
    if any(path.name.endswith(SCHEMA_SUFFIX) or (path / METADATA_FILE).exists() for path in (root, *inside)):
        help = f"move its folders to ROOT/{ZONE} (mirror-engine init creates one), or check it with validate"
        raise UsageError(f"{root} is a landing zone, not a ROOT", help)
    if not any((root / mark).exists() for mark in MARKS):
        help = near or f'create an example with "mirror-engine init {root}"'
        raise UsageError(f"{root} contains no landing zone ({ZONE})", help)


def _near(folder: Path) -> str:
    """The ROOT above a folder, or `did you mean ./shop?` of those up to two levels below; `""` for none."""
    above = next(filter(is_root, Path(os.path.abspath(folder)).parents), None)  # noqa: PTH100
    if above:
        return f"its ROOT is {_shown(above)}"
    zones = sorted((*folder.glob(f"*/{ZONE}"), *folder.glob(f"*/*/{ZONE}")))
    roots = [f"{folder}/{zone.parents[1].relative_to(folder)}" for zone in zones]
    return f"did you mean {' or '.join(roots[:MAX_NEAR])}?" if roots else ""


def _shown(folder: Path) -> str:
    """An absolute path as a person near it writes it."""
    here = Path.cwd()
    is_near = folder.is_relative_to(here) or here.is_relative_to(folder)
    return os.path.relpath(folder) if is_near else str(folder)
