"""Addresses: a request's path resolved to workspace, item and the path below it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import unquote_to_bytes

from mirror_engine.landing_zone.layout import ENGINE
from mirror_engine.onelake.errors import StorageApiError, StorageErrorCode
from mirror_engine.onelake.items import PREFIX

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mirror_engine.onelake.items import Item, Items, Workspace

OPEN_FOLDERS = ("Files", "Tables")
SEGMENT_BYTES = 255
MAX_SEGMENTS, MAX_CHARACTERS = 63, 1024  # of a whole path: OneLake's limits


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


def parse(raw_path: bytes, items: Items) -> Address:
    """Resolve a request's path, percent-encoded and without the query, among the known workspaces and items.

    InvalidUri, WorkspaceNotFound, ArtifactNotFound, PathNotFound.
    """
    segments = segments_of(raw_path)
    workspace = items.workspace(segments[0])
    if workspace is None:
        raise StorageApiError(StorageErrorCode.WorkspaceNotFound)
    return _below(Address(workspace, None, (), segments[:1]), segments[1:], items)


def inside(folder: Address, directory: str, items: Items) -> Address:
    """Resolve the query's decoded `directory` or `prefix` below a folder; outer slashes are optional."""
    return _below(folder, [_checked(segment) for segment in directory.split("/") if segment], items)


def segments_of(raw_path: bytes) -> tuple[str, ...]:
    """The names of a request's path from the workspace on, at least one, each decoded once."""
    try:
        names = [_checked(unquote_to_bytes(segment).decode()) for segment in raw_path.split(b"/") if segment]
    except UnicodeDecodeError as problem:
        raise StorageApiError(StorageErrorCode.InvalidUri, "A segment of the path is not UTF-8.") from problem
    if names[:1] == [PREFIX]:
        del names[0]
    if not names:
        raise StorageApiError(StorageErrorCode.InvalidUri, "The path names no workspace.")
    return tuple(names)


def _below(folder: Address, names: Sequence[str], items: Items) -> Address:
    written = (*folder.written, *names)
    if len(written) > MAX_SEGMENTS or len("/".join(written)) > MAX_CHARACTERS:
        raise StorageApiError(StorageErrorCode.InvalidUri, "The path is too long.")
    if folder.item or not names:
        return Address(folder.workspace, folder.item, (*folder.parts, *names), written)
    item = items.item(folder.workspace, names[0])
    if item is None:
        raise StorageApiError(StorageErrorCode.ArtifactNotFound)
    return Address(folder.workspace, item, tuple(names[1:]), written)


def _checked(name: str) -> str:
    if name in {".", ".."} or any(odd in name for odd in "/\\\0"):
        raise StorageApiError(StorageErrorCode.InvalidUri, "A segment of the path is not a name.")
    if len(name.encode(errors="surrogatepass")) > SEGMENT_BYTES:
        raise StorageApiError(StorageErrorCode.InvalidUri, "A segment of the path is too long.")
    if name.startswith(ENGINE):
        raise StorageApiError(StorageErrorCode.PathNotFound)
    return name
