"""Which workspaces and items there are: folders of the store, each with a GUID that stays (endpoint chapter 2)."""

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
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from mirror_engine.config import Config
from mirror_engine.errors import ConfigError, UsageError
from mirror_engine.landing_zone.layout import ENGINE, TABLES, ZONE
from mirror_engine.storage.base import Kind

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from mirror_engine.onelake.store import WritableStorage

BOOK = f"{ENGINE}/endpoint.json"
GUID = re.compile(r"[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}", re.IGNORECASE)


@dataclass
class ItemNote:
    """Of one item."""

    id: str
    description: str = ""
    definition: bytes | None = None


@dataclass
class WorkspaceNote:
    """Of one workspace; its items by name."""

    id: str
    items: dict[str, ItemNote] = field(default_factory=dict)


def new_id(name: str) -> str:
    """A GUID for a folder; its own name, where that is one."""
    return name.lower() if GUID.fullmatch(name) else str(uuid.uuid4())


def read_book(storage: WritableStorage) -> dict[str, WorkspaceNote]:
    """The workspaces by name; empty where nothing was written yet.

    Raises:
        UsageError: the file is damaged.
    """
    try:
        with storage.open(BOOK) as file:
            content = file.read()
    except FileNotFoundError:
        return {}
    try:
        return {name: _workspace(told) for name, told in json.loads(content)["workspaces"].items()}
    except (ValueError, KeyError, TypeError, AttributeError, binascii.Error) as problem:
        help = "Put back a copy of it, or delete it: workspaces and items get new GUIDs then, and lose definitions."
        raise UsageError(f"{BOOK}: is damaged", help) from problem


def write_book(storage: WritableStorage, book: dict[str, WorkspaceNote], modified_ns: int) -> None:
    """Keep it in one step."""
    told = {name: {"id": note.id, "items": _items(note)} for name, note in book.items()}
    staged = storage.stage()
    try:
        staged.write(json.dumps({"workspaces": told}, indent=2).encode())
        storage.make_folder(ENGINE)  # on a disk, staging has made it its owner's alone
        storage.publish(staged, BOOK, modified_ns)
    finally:
        staged.discard()


def _items(note: WorkspaceNote) -> dict[str, dict[str, str | None]]:
    return {
        name: {
            "id": item.id,
            "description": item.description,
            "definition": None if item.definition is None else base64.b64encode(item.definition).decode(),
        }
        for name, item in note.items.items()
    }


def _workspace(told: dict[str, Any]) -> WorkspaceNote:
    return WorkspaceNote(str(told["id"]), {name: _item(item) for name, item in told["items"].items()})


def _item(told: dict[str, Any]) -> ItemNote:
    definition = told["definition"]
    return ItemNote(
        str(told["id"]), str(told["description"]), None if definition is None else base64.b64decode(definition)
    )


SUFFIXES = (".MountedRelationalDatabase", ".MirroredDatabase")  # clients may add one to an item's name
PREFIX = "onelake"  # `/onelake/{workspace}/{item}` is `/{workspace}/{item}`
NAME_BYTES = 255 - max(len(suffix) for suffix in SUFFIXES)
# Control characters, what some disks forbid, what ends or begins badly, and what no UTF-8 can spell
ODD = re.compile(r'[\x00-\x1f\x7f<>:"/\\|?*\ud800-\udfff]|^[. ]|[. ]$')


class NameInUse(Exception):
    """Another item of the workspace has that name, or one that differs in case only."""


class NameUnusable(Exception):
    """No folder can be called so everywhere, or paths would become ambiguous."""


def check_name(name: str) -> None:
    """Whether a workspace or item may be called so.

    Raises:
        NameUnusable: it says why.
    """
    if not name or ODD.search(name):
        raise NameUnusable('A name is not empty, has none of <>:"/\\|?*, and neither begins nor ends with . or space.')
    if len(name.encode()) > NAME_BYTES:
        raise NameUnusable(f"A name has at most {NAME_BYTES} bytes.")
    if GUID.fullmatch(name) or name.endswith(SUFFIXES) or name == PREFIX:
        raise NameUnusable("A name is no GUID, is not 'onelake', and does not end with an item type's suffix.")


def is_shown(name: str) -> bool:
    """Whether a folder of that name is a workspace or item at all; the store's own are none."""
    return bool(name) and "/" not in name and not name.startswith(".")


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
).encode()  # of items that nobody gave one: made by a command, or found


class CorruptedPayload(Exception):
    """A definition that is none; its words say where."""


@dataclass(frozen=True)
class Definition:
    """What a definition asks for.

    Attributes:
        default_schema: of tables outside a schema folder; None where it says none.
        retention_days: of the Delta tables; None where it says none.
    """

    default_schema: str | None = None
    retention_days: int | None = None


def payload_of(definition: object) -> bytes:
    """`mirroring.json` from the REST API's `definition`, checked.

    Raises:
        CorruptedPayload: there is none, or it is no definition.
    """
    parts = definition.get("parts") if isinstance(definition, dict) else None
    if not isinstance(parts, list) or not all(isinstance(part, dict) for part in parts):
        raise CorruptedPayload("definition.parts is no list of parts.")
    found = [part for part in parts if part.get("path") == MIRRORING]
    if len(found) != 1:
        raise CorruptedPayload(f"definition.parts holds {len(found)} parts with the path {MIRRORING}.")
    if found[0].get("payloadType") != _INLINE:
        raise CorruptedPayload(f"The payloadType of {MIRRORING} is not {_INLINE}.")
    try:
        payload = base64.b64decode(found[0].get("payload"), validate=True)
    except (TypeError, ValueError, binascii.Error):
        raise CorruptedPayload(f"The payload of {MIRRORING} is no base64.") from None
    read_definition(payload)
    return payload


def parts_of(payload: bytes) -> dict[str, Any]:
    """The same, as the REST API gives it back."""
    encoded = base64.b64encode(payload).decode()
    return {"parts": [{"path": MIRRORING, "payload": encoded, "payloadType": _INLINE}]}


def read_definition(payload: bytes) -> Definition:
    """What a `mirroring.json` asks for; what it holds beyond that is passed over.

    Raises:
        CorruptedPayload: it is no JSON, or not of an open mirrored database.
    """
    try:
        content = json.loads(payload)
    except (ValueError, RecursionError):
        raise CorruptedPayload(f"{MIRRORING} is no JSON.") from None
    properties = _object(content, "properties")
    source, target = _object(properties, "source"), _object(properties, "target")
    if source.get("type") != _SOURCE:
        raise CorruptedPayload(f"properties.source.type is not {_SOURCE}.")
    if target.get("type") != _TARGET:
        raise CorruptedPayload(f"properties.target.type is not {_TARGET}.")
    options = target.get("typeProperties")
    return _options({} if options is None else _object(target, "typeProperties"))


def _object(holder: object, name: str) -> dict[str, Any]:
    found = holder.get(name) if isinstance(holder, dict) else None
    if not isinstance(found, dict):
        raise CorruptedPayload(f"{name} is missing, or no object.")
    return found


def _options(given: dict[str, Any]) -> Definition:
    kind, schema, days = given.get("format"), given.get("defaultSchema"), given.get("retentionInDays")
    if kind is not None and kind != _FORMAT:
        raise CorruptedPayload(f"properties.target.typeProperties.format is not {_FORMAT}.")
    if schema is not None and not _is_schema(schema):
        raise CorruptedPayload("properties.target.typeProperties.defaultSchema is no name of a schema.")
    is_number = isinstance(days, int) and not isinstance(days, bool)
    if days is not None and not (is_number and 1 <= days <= _MAX_DAYS):
        raise CorruptedPayload(f"properties.target.typeProperties.retentionInDays is not from 1 to {_MAX_DAYS}.")
    return Definition(schema, days)


def _is_schema(name: object) -> bool:
    try:
        return isinstance(name, str) and Config(default_schema=name).default_schema == name
    except ConfigError:
        return False


__all__ = ["Item", "Items", "NameInUse", "NameUnusable", "Workspace"]

TRASH = f"{ENGINE}/trash"

_Note = TypeVar("_Note", ItemNote, WorkspaceNote)


@dataclass(frozen=True)
class Workspace:
    """A folder at the top of the store; `name` is the folder's."""

    id: str
    name: str

    @property
    def path(self) -> str:
        """From the store's top."""
        return self.name


@dataclass(frozen=True)
class Item:
    """A mirrored database: a folder in a workspace, a ROOT for the engine; `name` is the folder's.

    Attributes:
        id: its GUID.
        name: the folder's, and the display name.
        workspace: where it lies.
        description: free text.
        definition: `mirroring.json` as it was given, a plain one where nobody was asked for it; None where the REST
            API was given none.
    """

    id: str
    name: str
    workspace: Workspace
    description: str = ""
    definition: bytes | None = None

    @property
    def path(self) -> str:
        """From the store's top."""
        return f"{self.workspace.path}/{self.name}"


class Items:
    """The workspaces and items of a store; safe to share between threads.

    Names beginning with a dot are neither. What somebody made beside the endpoint is found, and gets its GUID when
    it is first seen.

    Args:
        storage: the store; what its folders do not say is kept in `.mirror-engine/endpoint.json`.
        clock: nanoseconds since 1970.

    Raises:
        UsageError: that file is damaged.
    """

    def __init__(self, storage: WritableStorage, clock: Callable[[], int] = time.time_ns) -> None:
        self._storage = storage
        self._clock = clock
        self._lock = threading.RLock()
        self._book = read_book(storage)

    def workspaces(self) -> Sequence[Workspace]:
        """All, by name."""
        with self._lock:
            return [self._workspace(name) for name in self._folders("")]

    def workspace(self, segment: str) -> Workspace | None:
        """By GUID (in any case) or name; None where there is none."""
        with self._lock:
            name = _called(segment, self._book)
            return self._workspace(name) if self._is_folder(name, name) else None

    def items(self, workspace: Workspace) -> Sequence[Item]:
        """All of a workspace, by name."""
        with self._lock:
            return [self._item(workspace, name) for name in self._folders(workspace.path)]

    def all(self) -> Sequence[Item]:
        """Every item of every workspace, by workspace and name."""
        with self._lock:
            return [item for workspace in self.workspaces() for item in self.items(workspace)]

    def item(self, workspace: Workspace, segment: str) -> Item | None:
        """By GUID, by name, or by name with `.MountedRelationalDatabase` or `.MirroredDatabase`."""
        with self._lock:
            names = [_called(segment, self._notes(workspace))]
            names += [segment.removesuffix(suffix) for suffix in SUFFIXES if segment.endswith(suffix)]
            found = (name for name in names if self._is_folder(name, f"{workspace.path}/{name}"))
            name = next(found, None)
            return None if name is None else self._item(workspace, name)

    def create(self, workspace: Workspace, name: str, description: str = "", definition: bytes | None = None) -> Item:
        """A new item with an empty landing zone.

        Raises:
            NameInUse, NameUnusable: nothing was made.
        """
        with self._lock:
            self._check_free(workspace.path, name)
            item = Item(str(uuid.uuid4()), name, workspace, description, definition)
            self._storage.make_folder(f"{item.path}/{ZONE}")
            self._storage.make_folder(f"{item.path}/{TABLES}")
            self._keep(item)
            return item

    def change(self, item: Item) -> Item:
        """Let the item of that `id` be as told: name (renames the folder), description, definition.

        Raises:
            NameInUse, NameUnusable: nothing was changed.
            KeyError: no item has that GUID.
        """
        with self._lock:
            notes = self._notes(item.workspace)
            name = {note.id: name for name, note in notes.items()}[item.id]
            if name != item.name:
                self._check_free(item.workspace.path, item.name, but=name)
                self._storage.rename(f"{item.workspace.path}/{name}", item.path)
                del notes[name]
            self._keep(item)
            return item

    def remove(self, item: Item) -> None:
        """Move it to the store's `.mirror-engine/trash`, with all in it; no error where it is gone."""
        with self._lock:
            kept = f"{TRASH}/{item.id}-{secrets.token_hex(4)}"
            self._storage.make_folder(kept)
            with suppress(FileNotFoundError):
                self._storage.rename(item.path, f"{kept}/{item.name}")
            if self._notes(item.workspace).pop(item.name, None):
                self._save()

    def ensure_workspace(self, name: str) -> Workspace:
        """The workspace of that name or GUID, made where it is missing.

        Raises:
            NameInUse: another spelling of the name, or something else, stands there.
            NameUnusable: nothing was made.
        """
        with self._lock:
            found = self.workspace(name)
            if found is None:
                self._check_free("", name)
                self._storage.make_folder(name)
            return found or self._workspace(name)

    def ensure(self, workspace_name: str, item_name: str) -> Item:
        """The item of that name, made with its workspace where it is missing.

        Raises:
            NameInUse: another spelling of the name, or something else, stands there.
            NameUnusable: nothing was made.
        """
        with self._lock:
            workspace = self.workspace(workspace_name)
            found = workspace and self.item(workspace, item_name)
            if not found:
                check_name(item_name)
            return found or self.create(self.ensure_workspace(workspace_name), item_name, definition=PLAIN)

    def _workspace(self, name: str) -> Workspace:
        if name not in self._book:
            self._book[name] = WorkspaceNote(new_id(name))
            self._save()
        return Workspace(self._book[name].id, name)

    def _item(self, workspace: Workspace, name: str) -> Item:
        notes = self._notes(workspace)
        if name not in notes:
            notes[name] = ItemNote(new_id(name), definition=PLAIN)
            self._save()
        note = notes[name]
        return Item(note.id, name, workspace, note.description, note.definition)

    def _keep(self, item: Item) -> None:
        self._notes(item.workspace)[item.name] = ItemNote(item.id, item.description, item.definition)
        self._save()

    def _notes(self, workspace: Workspace) -> dict[str, ItemNote]:
        return self._book.setdefault(workspace.name, WorkspaceNote(workspace.id)).items

    def _save(self) -> None:
        write_book(self._storage, self._book, self._clock())

    def _check_free(self, folder: str, name: str, but: str | None = None) -> None:
        """Names that differ in case only are one name: to Fabric, and to some disks."""
        check_name(name)
        standing = [entry.name for entry in self._storage.list(folder) or ()]
        if any(name.casefold() == other.casefold() for other in standing if other != but):
            raise NameInUse(name)

    def _folders(self, path: str) -> list[str]:
        entries = self._storage.list(path) or ()
        return [entry.name for entry in entries if entry.kind is Kind.FOLDER and is_shown(entry.name)]

    def _is_folder(self, name: str, path: str) -> bool:
        found = self._storage.stat(path) if is_shown(name) else None
        return found is not None and found.kind is Kind.FOLDER


def _called(segment: str, notes: Mapping[str, _Note]) -> str:
    """The name that a GUID stands for; whatever is none stands for itself."""
    wanted = segment.lower() if GUID.fullmatch(segment) else None
    return next((name for name, note in notes.items() if note.id == wanted), segment)


class DatabaseStatus(str, Enum):
    """A mirrored database's state, in Fabric's words (LZ-9.4)."""

    INITIALIZING = "Initializing"
    INITIALIZED = "Initialized"
    STARTING = "Starting"
    RUNNING = "Running"
    PAUSED = "Paused"
    STOPPING = "Stopping"
    STOPPED = "Stopped"


@dataclass(frozen=True)
class FabricError:
    """An error that a status carries: Fabric's code and message."""

    code: str
    message: str


@dataclass(frozen=True)
class TableReport:
    """How one table is.

    Attributes:
        schema: the source schema, `""` without one.
        table: the source table.
        status: in Fabric's words (LZ-9.6).
        processed_bytes: of all operations (LZ-9.3).
        processed_rows: operations, not rows in the table (LZ-9.2).
        last_sync: ISO 8601 in UTC; None where there was none.
        error: None where there is none.
    """

    schema: str
    table: str
    status: str
    processed_bytes: int
    processed_rows: int
    last_sync: str | None
    error: FabricError | None = None


class MirroredDatabases(Protocol):
    """Mirrors items; every method returns soon, and may be called by several threads."""

    def status(self, item: Item) -> tuple[DatabaseStatus, FabricError | None]:
        """An item's state, and its error where it has one."""

    def tables(self, item: Item) -> Sequence[TableReport]:
        """The item's tables, by schema and name; the same that its monitoring files say."""

    def add(self, item: Item) -> None:
        """A new item of the REST API: it initializes for a moment, then waits to be started."""

    def start(self, item: Item) -> None:
        """Begin to mirror; a repeat does nothing. After a stop all tables are rebuilt (LZ-7.7)."""

    def stop(self, item: Item) -> None:
        """Mirror no more, once the commit at hand is finished; a repeat does nothing."""

    def poll(self, item: Item) -> None:
        """Look at the item's landing zone now, and apply what can be applied; returns when that is done."""

    def forget(self, item: Item) -> None:
        """Stop, and let go of the item's folder, which is about to be renamed or removed."""


INITIALIZING_SECONDS = 1.0  # publishers must be able to meet it (LZ-9.4)


class NullReplication:
    """`MirroredDatabases` without an engine.

    Args:
        clock: seconds that only grow.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._ready_at: dict[str, float] = {}
        self._told: dict[str, DatabaseStatus] = {}
        self._lock = threading.Lock()

    def status(self, item: Item) -> tuple[DatabaseStatus, FabricError | None]:
        """See `MirroredDatabases`."""
        with self._lock:
            if self._clock() < self._ready_at.get(item.id, 0.0):
                return DatabaseStatus.INITIALIZING, None
            return self._told.get(item.id, DatabaseStatus.INITIALIZED), None

    def tables(self, item: Item) -> Sequence[TableReport]:  # noqa: ARG002 - none are read
        """See `MirroredDatabases`."""
        return ()

    def add(self, item: Item) -> None:
        """See `MirroredDatabases`."""
        with self._lock:
            self._ready_at[item.id] = self._clock() + INITIALIZING_SECONDS

    def start(self, item: Item) -> None:
        """See `MirroredDatabases`."""
        with self._lock:
            self._told[item.id] = DatabaseStatus.RUNNING

    def stop(self, item: Item) -> None:
        """See `MirroredDatabases`."""
        with self._lock:
            self._told[item.id] = DatabaseStatus.STOPPED

    def poll(self, item: Item) -> None:
        """See `MirroredDatabases`; nobody looks."""

    def forget(self, item: Item) -> None:
        """See `MirroredDatabases`; there is nothing to let go of."""
