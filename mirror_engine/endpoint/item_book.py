"""What the store's folders do not say themselves of workspaces and items: `.mirror-engine/endpoint.json`."""

from __future__ import annotations

import base64
import binascii
import json
import re
import uuid
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from mirror_engine.errors import UsageError
from mirror_engine.landing_zone.layout import ENGINE

if TYPE_CHECKING:
    from mirror_engine.storage.writable import WritableStorage

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
        hint = "Put back a copy of it, or delete it: workspaces and items get new GUIDs then, and lose definitions."
        raise UsageError(f"{BOOK}: is damaged", hint) from problem


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
