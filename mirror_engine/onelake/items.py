"""The registry of workspaces and items: folders of a store, each with a GUID that stays."""

from __future__ import annotations

import json
import re
import secrets
import threading
import time
import uuid
from base64 import b64decode, b64encode
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from mirror_engine.errors import UsageError
from mirror_engine.landing_zone.layout import ENGINE, STORE_ITEMS, TABLES, ZONE
from mirror_engine.landing_zone.listing import Kind
from mirror_engine.onelake.definition import PLAIN
from mirror_engine.onelake.errors import FabricApiError, FabricErrorCode, StorageApiError
from mirror_engine.onelake.store import StagedFile

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mirror_engine.onelake.store import LocalStore

TRASH = f"{ENGINE}/trash"
GUID = re.compile(r"[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}", re.IGNORECASE)
SUFFIXES = (".MountedRelationalDatabase", ".MirroredDatabase")  # clients may add one to an item's name
PREFIX = "onelake"  # `/onelake/{workspace}/{item}` is `/{workspace}/{item}`
SEGMENT_BYTES = 255
NAME_BYTES = SEGMENT_BYTES - max(len(suffix) for suffix in SUFFIXES)
# Control characters, what some disks forbid, a dot or space at either end, and lone surrogates
ODD = re.compile(r'[\x00-\x1f\x7f<>:"/\\|?*\ud800-\udfff]|^[. ]|[. ]$')


@dataclass(frozen=True)
class Workspace:
    """A folder at the top of the store, and its GUID."""

    id: str
    name: str


@dataclass(frozen=True)
class Item:
    """A mirrored database: a folder in a workspace, a ROOT for the engine."""

    id: str  # its GUID
    name: str  # the folder's, and the display name
    workspace: Workspace  # its workspace
    description: str = ""  # free text
    definition: bytes | None = None  # `mirroring.json`; None where the REST API was given none

    @property
    def path(self) -> str:
        """Relative to the store."""
        return f"{self.workspace.name}/{self.name}"


_Place = TypeVar("_Place", Workspace, Item)


class Items:
    """The workspaces and items of a store; thread-safe.

    Folders whose name begins with a dot are neither. A folder that was created outside of the emulator gets its GUID
    when it is first listed or resolved. `.mirror-engine/items.json` holds GUIDs, descriptions and definitions by path;
    UsageError where it is damaged. With `allow_bare_names` a path may name an item by its display name alone.
    """

    def __init__(self, storage: LocalStore, *, allow_bare_names: bool = False) -> None:
        self.allow_bare_names = allow_bare_names
        self._storage = storage
        self._lock = threading.RLock()
        self._registry = _read_registry(storage)

    def workspaces(self) -> Sequence[Workspace]:
        with self._lock:
            return [Workspace(self._known(name)["id"], name) for name in self._folders("")]

    def workspace(self, segment: str) -> Workspace | None:
        """A workspace by GUID (in any case) or name."""
        return _named(segment, self.workspaces())

    def items(self, workspace: Workspace) -> Sequence[Item]:
        """All items of a workspace, by name."""
        with self._lock:
            known = {name: self._known(f"{workspace.name}/{name}", PLAIN) for name in self._folders(workspace.name)}
            return [
                Item(each["id"], name, workspace, each["description"], _bytes(each["definition"]))
                for name, each in known.items()
            ]

    def all(self) -> Sequence[Item]:
        with self._lock:
            return [item for workspace in self.workspaces() for item in self.items(workspace)]

    def item(self, workspace: Workspace, segment: str) -> Item | None:
        """An item by GUID, name, or name with `.MountedRelationalDatabase` or `.MirroredDatabase`."""
        items = self.items(workspace)
        return _named(segment, items) or next((item for item in items if item.name == display_name(segment)), None)

    def create(self, workspace: Workspace, name: str, description: str = "", definition: bytes | None = None) -> Item:
        """Create an item with an empty landing zone; on FabricApiError nothing was created."""
        with self._lock:
            self._check_free(workspace.name, name)
            item = Item(str(uuid.uuid4()), name, workspace, description, definition)
            self._storage.make_folder(f"{item.path}/{ZONE}")
            self._storage.make_folder(f"{item.path}/{TABLES}")
            self._keep(item.path, item.id, description, definition)
            return item

    def change(self, item: Item) -> Item:
        """Set the name (renames the folder), description and definition of the item with that `id`.

        ItemNotFound, and those of `create`: nothing was changed.
        """
        with self._lock:
            prefix = f"{item.workspace.name}/"
            paths = {known["id"]: path for path, known in self._registry.items() if path.startswith(prefix)}
            path = paths.get(item.id)
            if path is None:  # deleted in between
                raise FabricApiError(FabricErrorCode.ItemNotFound)
            if path != item.path:
                self._check_free(item.workspace.name, item.name, ignored=path.removeprefix(prefix))
                self._storage.rename(path, item.path)
                del self._registry[path]
            self._keep(item.path, item.id, item.description, item.definition)
            return item

    def remove(self, item: Item) -> None:
        """Move it to the store's `.mirror-engine/trash`, with all in it; no error where it is gone."""
        with self._lock:
            trash = f"{TRASH}/{item.id}-{secrets.token_hex(4)}"
            self._storage.make_folder(trash)
            with suppress(StorageApiError):
                self._storage.rename(item.path, f"{trash}/{item.name}")
            if self._registry.pop(item.path, None):
                self._save()

    def ensure_workspace(self, name: str) -> Workspace:
        """The workspace of that name or GUID, created where it is missing; errors as `create`."""
        with self._lock:
            if workspace := self.workspace(name):
                return workspace
            self._check_free("", name)
            self._storage.make_folder(name)
            return Workspace(self._known(name)["id"], name)

    def ensure(self, workspace_name: str, item_name: str) -> Item:
        """The item of that name, created with its workspace where it is missing; errors as `create`."""
        with self._lock:
            workspace = self.workspace(workspace_name)
            item = workspace and self.item(workspace, item_name)
            if not item:
                _check_name(item_name)
            return item or self.create(self.ensure_workspace(workspace_name), item_name, definition=PLAIN)

    def _known(self, path: str, definition: bytes | None = None) -> dict[str, Any]:
        """What the registry holds of a folder; one that is called like a GUID has that one."""
        if path not in self._registry:
            name = path.rpartition("/")[2]
            self._keep(path, name.lower() if GUID.fullmatch(name) else str(uuid.uuid4()), "", definition)
        return self._registry[path]

    def _keep(self, path: str, guid: str, description: str, definition: bytes | None) -> None:
        encoded = definition and b64encode(definition).decode()
        self._registry[path] = {"id": guid, "description": description, "definition": encoded}
        self._save()

    def _save(self) -> None:
        with StagedFile(self._storage) as staged:  # durable, unlike `write`
            staged.write(json.dumps(self._registry, indent=2).encode())
            self._storage.publish(staged, STORE_ITEMS, time.time_ns())

    def _check_free(self, folder: str, name: str, ignored: str | None = None) -> None:
        """Names that differ only in case are one name: to Fabric, and to some disks."""
        _check_name(name)
        present = [entry.name for entry in self._storage.list(folder) or ()]
        if any(name.casefold() == other.casefold() for other in present if other != ignored):
            raise FabricApiError(FabricErrorCode.ItemDisplayNameAlreadyInUse)

    def _folders(self, path: str) -> list[str]:
        """Names of the folders in one; those of the store itself are neither workspaces nor items."""
        entries = self._storage.list(path) or ()
        return [entry.name for entry in entries if entry.kind is Kind.FOLDER and not entry.name.startswith(".")]


def display_name(segment: str) -> str:
    """An item's name in a path, without the type that may follow it."""
    return next((segment.removesuffix(suffix) for suffix in SUFFIXES if segment.endswith(suffix)), segment)


def _read_registry(storage: LocalStore) -> dict[str, dict[str, Any]]:
    try:
        with storage.open(STORE_ITEMS) as file:
            content = file.read()
    except FileNotFoundError:
        return {}
    try:
        registry: dict[str, dict[str, Any]] = json.loads(content)
        for values in registry.values():
            values["id"], values["description"], _bytes(values["definition"])
    except (ValueError, KeyError, TypeError, AttributeError) as problem:
        restore = "Restore it from a copy, or delete it: workspaces and items get new GUIDs then and lose definitions."
        raise UsageError(f"{STORE_ITEMS}: is damaged", restore) from problem
    return registry


def _bytes(definition: str | None) -> bytes | None:
    return None if definition is None else b64decode(definition)


def _named(segment: str, places: Sequence[_Place]) -> _Place | None:
    """The workspace or item with that name or GUID."""
    return next((place for place in places if place.name == segment or place.id == segment.lower()), None)


def _check_name(name: str) -> None:
    """Check the name of a new workspace or item: one that any folder can have, and that makes no path ambiguous."""
    problem = ""
    if not name or ODD.search(name):
        problem = 'A name must not be empty, contain any of <>:"/\\|?*, or begin or end with . or space.'
    elif len(name.encode()) > NAME_BYTES:
        problem = f"A name has at most {NAME_BYTES} bytes."
    elif GUID.fullmatch(name) or name.endswith(SUFFIXES) or name == PREFIX:
        problem = "A name must not be a GUID or 'onelake', or end with an item type's suffix."
    if problem:
        raise FabricApiError(FabricErrorCode.InvalidRequest, problem)
