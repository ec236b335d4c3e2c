"""Workspaces and items of a store: folders, each with a GUID that stays; paths in them, and mirroring definitions."""

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
from urllib.parse import unquote_to_bytes

from mirror_engine.config import Config
from mirror_engine.errors import ConfigError, UsageError
from mirror_engine.landing_zone.layout import ENGINE, STORE_ITEMS, TABLES, ZONE
from mirror_engine.landing_zone.listing import Kind
from mirror_engine.onelake.errors import BARE_NAMES, FabricApiError, FabricErrorCode, StorageApiError, StorageErrorCode
from mirror_engine.onelake.store import StagedFile

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mirror_engine.onelake.store import LocalStore

TRASH = f"{ENGINE}/trash"
GUID = re.compile(r"[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}", re.IGNORECASE)
SUFFIXES = (".MountedRelationalDatabase", ".MirroredDatabase")  # clients may add one to an item's name
PREFIX = "onelake"  # `/onelake/{workspace}/{item}` is `/{workspace}/{item}`
OPEN_FOLDERS = ("Files", "Tables")
SEGMENT_BYTES = 255
MAX_SEGMENTS, MAX_CHARACTERS = 63, 1024  # of a whole path: OneLake's limits
NAME_BYTES = SEGMENT_BYTES - max(len(suffix) for suffix in SUFFIXES)
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


@dataclass(frozen=True)
class Address:
    """A path in a workspace, whether it exists or not."""

    workspace: Workspace  # a known one
    item: Item | None  # None for the workspace itself
    parts: tuple[str, ...]  # the decoded names below the item
    written: tuple[str, ...]  # all decoded segments as the client wrote them, without `onelake`

    @property
    def path(self) -> str:
        """Relative to the store."""
        return "/".join([self.item.path if self.item else self.workspace.name, *self.parts])

    @property
    def shown(self) -> str:
        """Relative to the workspace, as the client wrote it; `""` for the workspace."""
        return "/".join(self.written[1:])

    @property
    def is_open(self) -> bool:
        """Whether clients may write there: below `Files` or `Tables`."""
        return len(self.parts) > 1 and self.parts[0] in OPEN_FOLDERS


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

    def address(self, raw_path: bytes) -> Address:
        """Resolve a request's path, percent-encoded and without the query, among the known workspaces and items.

        InvalidUri, WorkspaceNotFound, FriendlyNameSupportDisabled, ArtifactNotFound, PathNotFound.
        """
        segments = segments_of(raw_path)
        workspace = self.workspace(segments[0])
        if workspace is None:
            raise StorageApiError(StorageErrorCode.WorkspaceNotFound)
        return self._below(Address(workspace, None, (), segments[:1]), segments[1:])

    def inside(self, folder: Address, directory: str) -> Address:
        """Resolve the query's decoded `directory` or `prefix` below a folder; outer slashes are optional."""
        return self._below(folder, [_checked(segment) for segment in directory.split("/") if segment])

    def _below(self, folder: Address, names: Sequence[str]) -> Address:
        written = (*folder.written, *names)
        if len(written) > MAX_SEGMENTS or len("/".join(written)) > MAX_CHARACTERS:
            raise StorageApiError(StorageErrorCode.InvalidUri, "The path is too long.")
        if folder.item or not names:
            return Address(folder.workspace, folder.item, (*folder.parts, *names), written)
        item = self.item(folder.workspace, names[0])
        self.check_form(names[0], item)
        if item is None:
            raise StorageApiError(StorageErrorCode.ArtifactNotFound)
        return Address(folder.workspace, item, tuple(names[1:]), written)

    def check_form(self, segment: str, item: Item | None) -> None:
        """FriendlyNameSupportDisabled for the display name of an item, or of none, where bare names are not allowed."""
        is_typed = segment.endswith(SUFFIXES) or (item is None and "." in segment)
        if not (self.allow_bare_names or is_typed or GUID.fullmatch(segment)):
            raise StorageApiError(StorageErrorCode.FriendlyNameSupportDisabled, headers=BARE_NAMES)

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


def segments_of(raw_path: bytes) -> tuple[str, ...]:
    """The names of a request's path from the workspace on, at least one, each decoded once.

    `%2F` separates names, too: Java's and Go's SDKs encode the whole path so. It makes no empty name, but may end the
    path, as a slash may.
    """
    try:
        decoded = [unquote_to_bytes(segment).decode() for segment in raw_path.split(b"/") if segment]
    except UnicodeDecodeError as problem:
        raise StorageApiError(StorageErrorCode.InvalidUri, "A segment of the path is not UTF-8.") from problem
    if decoded and not raw_path.endswith(b"/"):
        decoded[-1] = decoded[-1].removesuffix("/")
    names = [_checked(name) for segment in decoded for name in segment.split("/")]
    if names[:1] == [PREFIX]:
        del names[0]
    if not names:
        raise StorageApiError(StorageErrorCode.InvalidUri, "The path names no workspace.")
    return tuple(names)


def _checked(name: str) -> str:
    if name in {"", ".", ".."} or any(odd in name for odd in "\\\0"):
        raise StorageApiError(StorageErrorCode.InvalidUri, "A segment of the path is not a name.")
    if len(name.encode(errors="surrogatepass")) > SEGMENT_BYTES:
        raise StorageApiError(StorageErrorCode.InvalidUri, "A segment of the path is too long.")
    if name.startswith(ENGINE):
        raise StorageApiError(StorageErrorCode.PathNotFound)
    return name


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
        problem = 'A name is not empty, has none of <>:"/\\|?*, and neither begins nor ends with . or space.'
    elif len(name.encode()) > NAME_BYTES:
        problem = f"A name has at most {NAME_BYTES} bytes."
    elif GUID.fullmatch(name) or name.endswith(SUFFIXES) or name == PREFIX:
        problem = "A name is no GUID, is not 'onelake', and does not end with an item type's suffix."
    if problem:
        raise FabricApiError(FabricErrorCode.InvalidRequest, problem)


def corrupted(finding: str) -> FabricApiError:
    """The error of a definition that is not valid."""
    return FabricApiError(FabricErrorCode.CorruptedPayload, finding)


def payload_of(definition: object) -> bytes:
    """The validated `mirroring.json` in the REST API's `definition`; CorruptedPayload."""
    parts = definition.get("parts") if isinstance(definition, dict) else None
    if not isinstance(parts, list) or not all(isinstance(part, dict) for part in parts):
        raise corrupted("definition.parts is not a list of parts.")
    mirroring = [part for part in parts if part.get("path") == MIRRORING]
    if len(mirroring) != 1:
        raise corrupted(f"definition.parts holds {len(mirroring)} parts with the path {MIRRORING}.")
    if mirroring[0].get("payloadType") != _INLINE:
        raise corrupted(f"The payloadType of {MIRRORING} is not {_INLINE}.")
    try:
        payload = b64decode(mirroring[0].get("payload"), validate=True)
    except (TypeError, ValueError):
        raise corrupted(f"The payload of {MIRRORING} is not base64.") from None
    read_definition(payload)
    return payload


def definition_json(item: Item, payload: bytes) -> dict[str, Any]:
    """The REST API's `definition` of an item with that `mirroring.json`."""
    described = {"description": item.description} if item.description else {}
    platform = {
        "$schema": "https://developer.microsoft.com/json-schemas/fabric/gitIntegration/platformProperties/2.0.0/schema.json",
        "metadata": {"type": "MirroredDatabase", "displayName": item.name, **described},
        "config": {"version": "2.0", "logicalId": str(uuid.UUID(int=0))},
    }
    parts = {MIRRORING: payload, ".platform": json.dumps(platform, indent=2).encode()}
    return {
        "parts": [
            {"path": path, "payload": b64encode(part).decode(), "payloadType": _INLINE} for path, part in parts.items()
        ]
    }


def read_definition(payload: bytes) -> dict[str, Any]:
    """The options of `Config` that a `mirroring.json` sets; unknown properties are ignored. CorruptedPayload."""
    try:
        content = json.loads(payload)
    except (ValueError, RecursionError):
        raise corrupted(f"{MIRRORING} is not JSON.") from None
    properties = _object(content, "properties")
    source, target = _object(properties, "source"), _object(properties, "target")
    typed = {} if target.get("typeProperties") is None else _object(target, "typeProperties")
    schema, days, feed = (typed.get(name) for name in ("defaultSchema", "retentionInDays", "enableDeltaChangeDataFeed"))
    checks = (
        (source.get("type") == _SOURCE, f"source.type is not {_SOURCE}"),
        (target.get("type") == _TARGET, f"target.type is not {_TARGET}"),
        (typed.get("format") in (None, _FORMAT), f"target.typeProperties.format is not {_FORMAT}"),
        (schema is None or _is_schema(schema), "target.typeProperties.defaultSchema is not a schema name"),
        (
            days is None or (type(days) is int and 1 <= days <= _MAX_DAYS),  # True is an int, too
            f"target.typeProperties.retentionInDays is not from 1 to {_MAX_DAYS}",
        ),
        (type(feed) in (bool, type(None)), "target.typeProperties.enableDeltaChangeDataFeed is not true or false"),
    )
    for is_valid, finding in checks:
        if not is_valid:
            raise corrupted(f"properties.{finding}.")
    wanted = None if feed is None else "on" if feed else "off"
    options = {"default_schema": schema, "vacuum_retention_days": days, "change_data_feed": wanted}
    return {name: value for name, value in options.items() if value is not None}


def _object(holder: object, name: str) -> dict[str, Any]:
    value = holder.get(name) if isinstance(holder, dict) else None
    if not isinstance(value, dict):
        raise corrupted(f"{name} is missing, or not an object.")
    return value


def _is_schema(name: object) -> bool:
    try:
        return isinstance(name, str) and Config(default_schema=name).default_schema == name
    except ConfigError:
        return False
