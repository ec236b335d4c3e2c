"""Which workspaces and items there are: folders of the store, each with a GUID that stays (endpoint chapter 2)."""

from __future__ import annotations

import secrets
import threading
import time
import uuid
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from mirror_engine.endpoint.definition import PLAIN
from mirror_engine.endpoint.item_book import GUID, ItemNote, WorkspaceNote, new_id, read_book, write_book
from mirror_engine.endpoint.item_names import SUFFIXES, NameInUse, NameUnusable, check_name, is_shown
from mirror_engine.landing_zone.layout import ENGINE, TABLES, ZONE
from mirror_engine.storage.base import Kind

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from mirror_engine.storage.writable import WritableStorage

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
