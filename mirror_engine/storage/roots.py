"""Which folder is a ROOT, which one is only near one (in it, around it, of another kind), and where its state is."""

from __future__ import annotations

import hashlib
import os
import re
import shlex
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from mirror_engine.config import CONFIG_FILE
from mirror_engine.errors import UsageError
from mirror_engine.landing_zone.layout import ENGINE, LEDGER, OLDER_ZONE, STORE_ITEMS, TABLES, ZONE
from mirror_engine.landing_zone.listing import Kind
from mirror_engine.landing_zone.names import METADATA_FILE, SCHEMA_SUFFIX
from mirror_engine.landing_zone.text import printable
from mirror_engine.storage.base import name_alike
from mirror_engine.storage.store_url import local_folder
from mirror_engine.storage.stores import open_storage

if TYPE_CHECKING:
    from mirror_engine.storage.store_url import Place

FILES = ZONE.partition("/")[0]
MARKS = (ENGINE, FILES, OLDER_ZONE, TABLES, CONFIG_FILE)  # one of them makes a folder a ROOT
MAX_NEAR = 3  # ROOTs that a message names


def state_folder(place: Place) -> Path:
    """Return the folder for the engine's own files: in ROOT, or on this machine if ROOT is in a store.

    `MIRROR_ENGINE_STATE` names the folder in which those are made.
    """
    if isinstance(place, Path):
        return place
    home = Path.home() / ("Library/Application Support" if sys.platform == "darwin" else ".local/state")
    base = Path(os.environ.get("XDG_STATE_HOME") or home) / "mirror-engine"
    readable = re.sub(r"[^\w.-]+", "-", f"{place.container}-{place.path.partition('/')[0]}", flags=re.ASCII).strip("-.")
    digest = hashlib.sha256(str(place).encode()).hexdigest()[:12]
    return Path(os.environ.get("MIRROR_ENGINE_STATE") or base) / f"{readable[:80]}-{digest}"


def root_of(place: Place) -> Place:
    """Return the ROOT of a URL that may be that of its landing zone, which Fabric's page of the item shows."""
    if isinstance(place, Path) or not f"/{place.path}".endswith(f"/{ZONE}"):
        return place
    return replace(place, path=place.path.removesuffix(ZONE).rstrip("/"))


def is_root(folder: Path) -> bool:
    """Whether a folder has a landing zone; the older one with a ledger: any folder can have its name (LZ-1.1)."""
    return (folder / ZONE).is_dir() or ((folder / OLDER_ZONE).is_dir() and (folder / LEDGER).exists())


def has_zone(place: Place) -> bool:
    """Whether a folder has a landing zone, or a folder with the older one's name."""
    found = map(open_storage(place).stat, (ZONE, OLDER_ZONE))
    return any(entry and entry.kind is Kind.FOLDER for entry in found)


def zone_alike(place: Place) -> str:
    """Return the folder whose name is that of the landing zone in another case, from ROOT; `""` for none."""
    return name_alike(open_storage(place), ZONE)


def check_place(folder: Place) -> None:
    """Reject a folder inside a ROOT, existing or not: it cannot be a ROOT or a STORE of the emulator.

    Raises:
        UsageError: it is in a landing zone, or its parent is a ROOT, or a `Path` made of a URL.
    """
    if not isinstance(folder, Path):
        above, is_inside, _ = f"/{folder.path}/".partition(f"/{ZONE}/")
        if is_inside:
            root = replace(folder, path=above.strip("/"))
            raise UsageError(f"{folder} is a part of a landing zone, not a ROOT", f"its ROOT is {root}")
        return
    whole = Path(os.path.abspath(local_folder(folder)))  # noqa: PTH100 - `resolve` would follow links
    zone = next((path for path in (whole, *whole.parents) if path.name == OLDER_ZONE), None)
    if zone is not None and (zone == whole or zone.parent.name == FILES):
        what = "a landing zone" if zone == whole else "a part of a landing zone"
        owner = zone.parent.parent if zone.parent.name == FILES else zone.parent
    elif is_root(whole.parent):
        what, owner = "a folder of a ROOT", whole.parent
    else:
        return
    raise UsageError(f"{folder} is {what}, not a ROOT", f"its ROOT is {_shown(owner)}")


def check_root(root: Place, *, may_be_empty: bool = False) -> None:
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
    inside = [entry.name for entry in open_storage(root).list("") or ()]
    if may_be_empty and not inside:
        return
    found = ""
    if not isinstance(root, Path):
        found = f"; it contains {', '.join(map(printable, inside[:MAX_NEAR]))}" if inside else ""
        help = "check the URL; a publisher makes the folder with its first file"
    else:
        near = _near(root)
        help = near or f"check the path, or create an example: mirror-engine init {pasted(root)}"
        if (root / STORE_ITEMS).exists():
            raise UsageError(f"{root} is a STORE of the emulator, not a ROOT", near or "a ROOT is STORE/WORKSPACE/ITEM")
        # schema folders, table folders and metadata are found in a landing zone only
        if any(
            path.name.endswith(SCHEMA_SUFFIX) or (path / METADATA_FILE).exists()
            for path in (root, *(root / name for name in inside))
        ):
            help = f"move its folders to ROOT/{ZONE} (mirror-engine init creates one), or check it with validate"
            raise UsageError(f"{root} is a landing zone, not a ROOT", help)
    if {*inside}.isdisjoint(MARKS):
        raise UsageError(f"{root} contains no landing zone ({ZONE}){found}", help)


def pasted(folder: Place | str) -> str:
    """Quote a folder for a shell, so that a leading dash is not taken for an option."""
    text = str(folder)
    return shlex.quote(f"./{text}" if text.startswith("-") else text)


def check_store(store: Path) -> None:
    """Reject a STORE that is a ROOT or a workspace, or is new to the emulator and has other content.

    Raises:
        UsageError: a folder in it would be served as a mirrored database, and get folders of one.
    """
    check_place(store)
    if zones := [*store.glob(ZONE), *store.glob(f"*/{ZONE}")]:
        raise UsageError(
            f"{store}: contains {zones[0].relative_to(store)}, but a STORE contains WORKSPACE/ITEM/{ZONE}",
            "Use the folder that contains the workspaces.",
        )
    if (store / STORE_ITEMS).exists():
        return
    for item in sorted(store.glob("[!.]*/[!.]*")):
        is_folder = item.is_dir() and not (item.is_symlink() or item.parent.is_symlink())
        if is_folder and any(item.glob("*")) and not any((item / mark).exists() for mark in MARKS):
            message = f"{store} is not a STORE: {printable(str(item.relative_to(store)))} is not a mirrored database"
            raise UsageError(message, "give a new folder, such as ./onelake; a STORE contains WORKSPACE/ITEM")


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
