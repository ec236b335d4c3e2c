"""Which workspaces and items there are: folders of the store, each with a GUID that stays."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mirror_engine.storage.writable import WritableStorage


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
        definition: `mirroring.json` as it was given; None where none was.
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


class NameInUse(Exception):
    """Another item of the workspace has that name."""


class NameUnusable(Exception):
    """No folder can be called so everywhere, or paths would become ambiguous."""


class Items:
    """The workspaces and items of a store; safe to share between threads.

    Args:
        storage: the store; the GUIDs are kept in its `.mirror-engine/endpoint.json`.
    """

    def __init__(self, storage: WritableStorage) -> None:
        self._storage = storage

    def workspaces(self) -> Sequence[Workspace]:
        """All, by name; a folder that somebody made beside gets its GUID now."""
        raise NotImplementedError

    def workspace(self, segment: str) -> Workspace | None:
        """By GUID (in any case) or name; None where there is none."""
        raise NotImplementedError

    def items(self, workspace: Workspace) -> Sequence[Item]:
        """All of a workspace, by name."""
        raise NotImplementedError

    def item(self, workspace: Workspace, segment: str) -> Item | None:
        """By GUID, by name, or by name with `.MountedRelationalDatabase` or `.MirroredDatabase`."""
        raise NotImplementedError

    def create(self, workspace: Workspace, name: str, description: str = "", definition: bytes | None = None) -> Item:
        """A new item with an empty landing zone.

        Raises:
            NameInUse, NameUnusable: nothing was made.
        """
        raise NotImplementedError

    def change(self, item: Item) -> Item:
        """Keep what differs from the known item of the same `id`: name (renames the folder), description, definition.

        Raises:
            NameInUse, NameUnusable: nothing was changed.
            KeyError: no item has that GUID.
        """
        raise NotImplementedError

    def remove(self, item: Item) -> None:
        """Move it to the store's `.mirror-engine/trash`, with all in it; no error where it is gone."""
        raise NotImplementedError

    def ensure(self, workspace_name: str, item_name: str) -> Item:
        """The item of that name, made with its workspace where it is missing.

        Raises:
            NameUnusable: nothing was made.
        """
        raise NotImplementedError
