"""Addresses of requests: a path, resolved among the workspaces and items of a store."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import unquote_to_bytes

from mirror_engine.landing_zone.layout import ENGINE
from mirror_engine.onelake.errors import BARE_NAMES, StorageApiError, StorageErrorCode
from mirror_engine.onelake.items import GUID, PREFIX, SEGMENT_BYTES, SUFFIXES

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mirror_engine.onelake.items import Item, Items, Workspace

OPEN_FOLDERS = ("Files", "Tables")
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


def address_of(items: Items, raw_path: bytes) -> Address:
    """Resolve a request's path, percent-encoded and without the query, among the known workspaces and items.

    InvalidUri, WorkspaceNotFound, FriendlyNameSupportDisabled, ArtifactNotFound, PathNotFound.
    """
    segments = segments_of(raw_path)
    workspace = items.workspace(segments[0])
    if workspace is None:
        raise StorageApiError(StorageErrorCode.WorkspaceNotFound)
    return _below(items, Address(workspace, None, (), segments[:1]), segments[1:])


def address_below(items: Items, folder: Address, directory: str) -> Address:
    """Resolve the query's decoded `directory` or `prefix` below a folder; outer slashes are optional."""
    return _below(items, folder, [_checked(segment) for segment in directory.split("/") if segment])


def _below(items: Items, folder: Address, names: Sequence[str]) -> Address:
    written = (*folder.written, *names)
    if len(written) > MAX_SEGMENTS or len("/".join(written)) > MAX_CHARACTERS:
        raise StorageApiError(StorageErrorCode.InvalidUri, "The path is too long.")
    if folder.item or not names:
        return Address(folder.workspace, folder.item, (*folder.parts, *names), written)
    item = items.item(folder.workspace, names[0])
    check_form(items, names[0], item)
    if item is None:
        raise StorageApiError(StorageErrorCode.ArtifactNotFound)
    return Address(folder.workspace, item, tuple(names[1:]), written)


def check_form(items: Items, segment: str, item: Item | None) -> None:
    """FriendlyNameSupportDisabled for the display name of an item, or of none, where bare names are not allowed."""
    is_typed = segment.endswith(SUFFIXES) or (item is None and "." in segment)
    if not (items.allow_bare_names or is_typed or GUID.fullmatch(segment)):
        raise StorageApiError(StorageErrorCode.FriendlyNameSupportDisabled, headers=BARE_NAMES)


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
