"""Request paths become addresses here, and nowhere else (endpoint chapter 2, rule 9.4)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import unquote_to_bytes

from mirror_engine.endpoint.faults import EndpointFault, Fault
from mirror_engine.endpoint.item_names import PREFIX
from mirror_engine.landing_zone.layout import ENGINE

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mirror_engine.endpoint.items import Item, Items, Workspace

OPEN_FOLDERS = ("Files", "Tables")
SEGMENT_BYTES = 255
MOST_SEGMENTS, MOST_CHARACTERS = 63, 1024  # of a whole path: what the real service takes, and what tools can walk


@dataclass(frozen=True)
class Address:
    """A place in a workspace, whether something stands there or not.

    Attributes:
        workspace: always a known one.
        item: None for the workspace itself.
        parts: the names below the item, decoded.
        written: all segments as the client wrote them (decoded): workspace, item, parts; without `onelake`.
    """

    workspace: Workspace
    item: Item | None
    parts: tuple[str, ...]
    written: tuple[str, ...]

    @property
    def path(self) -> str:
        """In the storage, from the store's top."""
        return "/".join([(self.item or self.workspace).path, *self.parts])

    @property
    def shown(self) -> str:
        """Relative to the workspace, the item's segment as the client wrote it; `""` for the workspace."""
        return "/".join(self.written[1:])

    @property
    def is_managed(self) -> bool:
        """Whether Fabric alone makes, renames and deletes it: a workspace, an item, its `Files` and `Tables`."""
        return len(self.parts) == 0 or (len(self.parts) == 1 and self.parts[0] in OPEN_FOLDERS)

    @property
    def is_open(self) -> bool:
        """Whether it lies below `Files` or `Tables`, where clients may write."""
        return len(self.parts) > 1 and self.parts[0] in OPEN_FOLDERS


def parse(raw_path: bytes, items: Items) -> Address:
    """The address of a request's path.

    Args:
        raw_path: as it was sent, percent-encoded, without the query; each segment is decoded once.
        items: what is known.

    Raises:
        EndpointFault: INVALID_URI (no workspace named, or a segment that is no name), WORKSPACE_NOT_FOUND,
            ARTIFACT_NOT_FOUND, or PATH_NOT_FOUND (the engine's own files).
    """
    segments = segments_of(raw_path)
    workspace = items.workspace(segments[0])
    if workspace is None:
        raise EndpointFault(Fault.WORKSPACE_NOT_FOUND)
    return _below(Address(workspace, None, (), segments[:1]), segments[1:], items)


def segments_of(raw_path: bytes) -> tuple[str, ...]:
    """The names in a request's path, from the workspace on; at least one.

    Raises:
        EndpointFault: INVALID_URI, PATH_NOT_FOUND as `parse`.
    """
    segments = [_checked(_decoded(segment)) for segment in raw_path.split(b"/") if segment]
    if segments and segments[0] == PREFIX:
        del segments[0]
    if not segments:
        raise EndpointFault(Fault.INVALID_URI, "The path names no workspace.")
    return tuple(segments)


def inside(folder: Address, directory: str, items: Items) -> Address:
    """A place below a folder, as the query's `directory` or `prefix` names it (decoded; outer slashes optional).

    Raises:
        EndpointFault: as `parse`.
    """
    return _below(folder, [_checked(segment) for segment in directory.split("/") if segment], items)


def _below(folder: Address, names: Sequence[str], items: Items) -> Address:
    written = (*folder.written, *names)
    if len(written) > MOST_SEGMENTS or len("/".join(written)) > MOST_CHARACTERS:
        raise EndpointFault(Fault.INVALID_URI, "The path is too long.")
    if folder.item is None and names:
        item = items.item(folder.workspace, names[0])
        if item is None:
            raise EndpointFault(Fault.ARTIFACT_NOT_FOUND)
        return Address(folder.workspace, item, tuple(names[1:]), written)
    return Address(folder.workspace, folder.item, (*folder.parts, *names), written)


def _decoded(segment: bytes) -> str:
    try:
        return unquote_to_bytes(segment).decode()
    except UnicodeDecodeError as problem:
        raise EndpointFault(Fault.INVALID_URI, "A segment of the path is no UTF-8.") from problem


def _checked(name: str) -> str:
    if name in {".", ".."} or any(odd in name for odd in "/\\\0"):
        raise EndpointFault(Fault.INVALID_URI, "A segment of the path is no name.")
    if len(name.encode(errors="surrogatepass")) > SEGMENT_BYTES:
        raise EndpointFault(Fault.INVALID_URI, "A segment of the path is too long.")
    if name.startswith(ENGINE):
        raise EndpointFault(Fault.PATH_NOT_FOUND)
    return name
