"""Workspaces and items of a store: folders, each with a GUID that stays, and mirroring definitions."""

from __future__ import annotations

import base64
import binascii
import json
import re
import secrets
import threading
import time
import uuid
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from mirror_engine.config import Config
from mirror_engine.errors import ConfigError, UsageError
from mirror_engine.landing_zone.layout import ENGINE, TABLES, ZONE
from mirror_engine.storage.base import Kind

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from mirror_engine.onelake.store import LocalStore

REGISTRY = f"{ENGINE}/items.json"
TRASH = f"{ENGINE}/trash"
GUID = re.compile(r"[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}", re.IGNORECASE)
SUFFIXES = (".MountedRelationalDatabase", ".MirroredDatabase")  # clients may add one to an item's name
PREFIX = "onelake"  # `/onelake/{workspace}/{item}` is `/{workspace}/{item}`
NAME_BYTES = 255 - max(len(suffix) for suffix in SUFFIXES)
# Control characters, what some disks forbid, a dot or space at either end, and lone surrogates
ODD = re.compile(r'[\x00-\x1f\x7f<>:"/\\|?*\ud800-\udfff]|^[. ]|[. ]$')

MIRRORING = "mirroring.json"
_INLINE = "InlineBase64"
_SOURCE, _TARGET, _FORMAT = "GenericMirror", "MountedRelationalDatabase", "Delta"
_MAX_DAYS = 30
PLAIN = json.dumps(
    {
        "properties": {
            "source": {"type": _SOURCE, "typeProperties": {}},
            "target": {"type": _TARGET, "typeProperties": {"format": _FORMAT}},
        }
    }
).encode()  # the definition of items that were not created by the REST API


class NameInUse(Exception):
    """Another item of the workspace has that name, or one that differs only in case."""


class NameUnusable(Exception):
    """No folder can have that name on every system, or paths would become ambiguous."""


class CorruptedPayload(Exception):
    """A definition that is not valid; the message says where."""


@dataclass(frozen=True)
class Workspace:
    """A folder at the top of the store."""

    id: str
    name: str

    @property
    def path(self) -> str:
        """Relative to the store."""
        return self.name


@dataclass(frozen=True)
class Item:
    """A mirrored database: a folder in a workspace, a ROOT for the engine.

    Attributes:
        id: its GUID.
        name: the folder's, and the display name.
        workspace: its workspace.
        description: free text.
        definition: `mirroring.json`; None where the REST API was given none.
    """

    id: str
    name: str
    workspace: Workspace
    description: str = ""
    definition: bytes | None = None

    @property
    def path(self) -> str:
        """Relative to the store."""
        return f"{self.workspace.path}/{self.name}"


@dataclass(frozen=True)
class _Record:
    """What a folder itself cannot hold."""

    id: str
    description: str = ""
    definition: bytes | None = None

    def to_json(self) -> dict[str, str | None]:
        definition = None if self.definition is None else base64.b64encode(self.definition).decode()
        return {"id": self.id, "description": self.description, "definition": definition}

    @staticmethod
    def from_json(values: dict[str, Any]) -> _Record:
        definition = values["definition"]
        decoded = None if definition is None else base64.b64decode(definition)
        return _Record(str(values["id"]), str(values["description"]), decoded)


class Items:
    """The workspaces and items of a store; thread-safe.

    Folders whose name begins with a dot are neither. A folder that was created outside of the emulator gets its GUID
    when it is first listed or resolved.

    Args:
        storage: the store; `.mirror-engine/items.json` holds GUIDs, descriptions and definitions by path.
        clock: nanoseconds since 1970.

    Raises:
        UsageError: that file is damaged.
    """

    def __init__(self, storage: LocalStore, clock: Callable[[], int] = time.time_ns) -> None:
        self._storage = storage
        self._clock = clock
        self._lock = threading.RLock()
        self._records = _read_registry(storage)

    def workspaces(self) -> Sequence[Workspace]:
        """All workspaces, by name."""
        with self._lock:
            return [self._workspace(name) for name in self._folders("")]

    def workspace(self, segment: str) -> Workspace | None:
        """A workspace by GUID (in any case) or name."""
        with self._lock:
            name = self._name_of("", segment)
            return self._workspace(name) if self._is_folder(name, name) else None

    def items(self, workspace: Workspace) -> Sequence[Item]:
        """All items of a workspace, by name."""
        with self._lock:
            return [self._item(workspace, name) for name in self._folders(workspace.path)]

    def all(self) -> Sequence[Item]:
        """All items, by workspace and name."""
        with self._lock:
            return [item for workspace in self.workspaces() for item in self.items(workspace)]

    def item(self, workspace: Workspace, segment: str) -> Item | None:
        """An item by GUID, name, or name with `.MountedRelationalDatabase` or `.MirroredDatabase`."""
        with self._lock:
            names = [self._name_of(f"{workspace.path}/", segment)]
            names += [segment.removesuffix(suffix) for suffix in SUFFIXES if segment.endswith(suffix)]
            present = (name for name in names if self._is_folder(name, f"{workspace.path}/{name}"))
            name = next(present, None)
            return None if name is None else self._item(workspace, name)

    def create(self, workspace: Workspace, name: str, description: str = "", definition: bytes | None = None) -> Item:
        """Create an item with an empty landing zone; on NameInUse and NameUnusable nothing was created."""
        with self._lock:
            self._check_free(workspace.path, name)
            item = Item(str(uuid.uuid4()), name, workspace, description, definition)
            self._storage.make_folder(f"{item.path}/{ZONE}")
            self._storage.make_folder(f"{item.path}/{TABLES}")
            self._keep(item)
            return item

    def change(self, item: Item) -> Item:
        """Set the name (renames the folder), description and definition of the item with that `id`.

        Raises:
            NameInUse, NameUnusable: nothing was changed.
            KeyError: no item has that GUID.
        """
        with self._lock:
            prefix = f"{item.workspace.path}/"
            paths = {record.id: path for path, record in self._records.items() if path.startswith(prefix)}
            path = paths[item.id]
            if path != item.path:
                self._check_free(item.workspace.path, item.name, ignored=path.removeprefix(prefix))
                self._storage.rename(path, item.path)
                del self._records[path]
            self._keep(item)
            return item

    def remove(self, item: Item) -> None:
        """Move it to the store's `.mirror-engine/trash`, with all in it; no error where it is gone."""
        with self._lock:
            trash = f"{TRASH}/{item.id}-{secrets.token_hex(4)}"
            self._storage.make_folder(trash)
            with suppress(FileNotFoundError):
                self._storage.rename(item.path, f"{trash}/{item.name}")
            if self._records.pop(item.path, None):
                self._save()

    def ensure_workspace(self, name: str) -> Workspace:
        """The workspace of that name or GUID, created where it is missing; NameInUse, NameUnusable."""
        with self._lock:
            workspace = self.workspace(name)
            if workspace is None:
                self._check_free("", name)
                self._storage.make_folder(name)
            return workspace or self._workspace(name)

    def ensure(self, workspace_name: str, item_name: str) -> Item:
        """The item of that name, created with its workspace where it is missing; NameInUse, NameUnusable."""
        with self._lock:
            workspace = self.workspace(workspace_name)
            item = workspace and self.item(workspace, item_name)
            if not item:
                check_name(item_name)
            return item or self.create(self.ensure_workspace(workspace_name), item_name, definition=PLAIN)

    def _workspace(self, name: str) -> Workspace:
        return Workspace(self._record(name, _Record(_new_id(name))).id, name)

    def _item(self, workspace: Workspace, name: str) -> Item:
        record = self._record(f"{workspace.path}/{name}", _Record(_new_id(name), definition=PLAIN))
        return Item(record.id, name, workspace, record.description, record.definition)

    def _record(self, path: str, new: _Record) -> _Record:
        if path not in self._records:
            self._records[path] = new
            self._save()
        return self._records[path]

    def _keep(self, item: Item) -> None:
        self._records[item.path] = _Record(item.id, item.description, item.definition)
        self._save()

    def _save(self) -> None:
        """Write the registry in one step."""
        content = {path: record.to_json() for path, record in self._records.items()}
        staged = self._storage.stage()
        try:
            staged.write(json.dumps(content, indent=2).encode())
            self._storage.make_folder(ENGINE)
            self._storage.publish(staged, REGISTRY, self._clock())
        finally:
            staged.discard()

    def _check_free(self, folder: str, name: str, ignored: str | None = None) -> None:
        """Names that differ only in case are one name: to Fabric, and to some disks."""
        check_name(name)
        present = [entry.name for entry in self._storage.list(folder) or ()]
        if any(name.casefold() == other.casefold() for other in present if other != ignored):
            raise NameInUse(name)

    def _folders(self, path: str) -> list[str]:
        entries = self._storage.list(path) or ()
        return [entry.name for entry in entries if entry.kind is Kind.FOLDER and is_shown(entry.name)]

    def _is_folder(self, name: str, path: str) -> bool:
        entry = self._storage.stat(path) if is_shown(name) else None
        return entry is not None and entry.kind is Kind.FOLDER

    def _name_of(self, prefix: str, segment: str) -> str:
        """The name of the folder with that GUID; else the segment itself."""
        if not GUID.fullmatch(segment):
            return segment
        paths = (path for path, record in self._records.items() if record.id == segment.lower())
        names = (path.removeprefix(prefix) for path in paths if path.startswith(prefix))
        return next((name for name in names if "/" not in name), segment)


def _read_registry(storage: LocalStore) -> dict[str, _Record]:
    try:
        with storage.open(REGISTRY) as file:
            content = file.read()
    except FileNotFoundError:
        return {}
    try:
        return {path: _Record.from_json(values) for path, values in json.loads(content).items()}
    except (ValueError, KeyError, TypeError, AttributeError, binascii.Error) as problem:
        restore = "Restore it from a copy, or delete it: workspaces and items get new GUIDs then and lose definitions."
        raise UsageError(f"{REGISTRY}: is damaged", restore) from problem


def _new_id(name: str) -> str:
    """A GUID for a folder; its own name, where that is one."""
    return name.lower() if GUID.fullmatch(name) else str(uuid.uuid4())


def check_name(name: str) -> None:
    """Check the name of a new workspace or item; NameUnusable says why it cannot be used."""
    if not name or ODD.search(name):
        raise NameUnusable('A name is not empty, has none of <>:"/\\|?*, and neither begins nor ends with . or space.')
    if len(name.encode()) > NAME_BYTES:
        raise NameUnusable(f"A name has at most {NAME_BYTES} bytes.")
    if GUID.fullmatch(name) or name.endswith(SUFFIXES) or name == PREFIX:
        raise NameUnusable("A name is no GUID, is not 'onelake', and does not end with an item type's suffix.")


def is_shown(name: str) -> bool:
    """Whether a folder of that name is a workspace or item; the store's own are not."""
    return bool(name) and "/" not in name and not name.startswith(".")


@dataclass(frozen=True)
class Definition:
    """Default schema and retention of a definition; None where it has none."""

    default_schema: str | None = None
    retention_days: int | None = None


def payload_of(definition: object) -> bytes:
    """The validated `mirroring.json` in the REST API's `definition`; CorruptedPayload."""
    parts = definition.get("parts") if isinstance(definition, dict) else None
    if not isinstance(parts, list) or not all(isinstance(part, dict) for part in parts):
        raise CorruptedPayload("definition.parts is not a list of parts.")
    mirroring = [part for part in parts if part.get("path") == MIRRORING]
    if len(mirroring) != 1:
        raise CorruptedPayload(f"definition.parts holds {len(mirroring)} parts with the path {MIRRORING}.")
    if mirroring[0].get("payloadType") != _INLINE:
        raise CorruptedPayload(f"The payloadType of {MIRRORING} is not {_INLINE}.")
    try:
        payload = base64.b64decode(mirroring[0].get("payload"), validate=True)
    except (TypeError, ValueError, binascii.Error):
        raise CorruptedPayload(f"The payload of {MIRRORING} is not base64.") from None
    read_definition(payload)
    return payload


def definition_json(payload: bytes) -> dict[str, Any]:
    """The REST API's `definition` of a `mirroring.json`."""
    encoded = base64.b64encode(payload).decode()
    return {"parts": [{"path": MIRRORING, "payload": encoded, "payloadType": _INLINE}]}


def read_definition(payload: bytes) -> Definition:
    """Read a `mirroring.json`; unknown properties are ignored. CorruptedPayload."""
    try:
        content = json.loads(payload)
    except (ValueError, RecursionError):
        raise CorruptedPayload(f"{MIRRORING} is not JSON.") from None
    properties = _object(content, "properties")
    source, target = _object(properties, "source"), _object(properties, "target")
    if source.get("type") != _SOURCE:
        raise CorruptedPayload(f"properties.source.type is not {_SOURCE}.")
    if target.get("type") != _TARGET:
        raise CorruptedPayload(f"properties.target.type is not {_TARGET}.")
    options = {} if target.get("typeProperties") is None else _object(target, "typeProperties")
    kind, schema, days = options.get("format"), options.get("defaultSchema"), options.get("retentionInDays")
    if kind is not None and kind != _FORMAT:
        raise CorruptedPayload(f"properties.target.typeProperties.format is not {_FORMAT}.")
    if schema is not None and not _is_schema(schema):
        raise CorruptedPayload("properties.target.typeProperties.defaultSchema is not a schema name.")
    is_number = isinstance(days, int) and not isinstance(days, bool)
    if days is not None and not (is_number and 1 <= days <= _MAX_DAYS):
        raise CorruptedPayload(f"properties.target.typeProperties.retentionInDays is not from 1 to {_MAX_DAYS}.")
    return Definition(schema, days)


def _object(holder: object, name: str) -> dict[str, Any]:
    value = holder.get(name) if isinstance(holder, dict) else None
    if not isinstance(value, dict):
        raise CorruptedPayload(f"{name} is missing, or not an object.")
    return value


def _is_schema(name: object) -> bool:
    try:
        return isinstance(name, str) and Config(default_schema=name).default_schema == name
    except ConfigError:
        return False
