"""Pages of the Blob dialect's listings: prefix, delimiter, marker, `startFrom` (endpoint chapter 4)."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING

from mirror_engine.endpoint.faults import EndpointFault, Fault

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mirror_engine.endpoint.address import Address
    from mirror_engine.endpoint.lake import Lake, Listed

DELIMITER = "/"


@dataclass(frozen=True)
class Asked:
    """What a client wants listed.

    Attributes:
        prefix: of names relative to the workspace.
        begin: the first name, inclusive.
        most: entries on a page.
        delimiter: `/` for one level alone, `""` for all below.
    """

    prefix: str
    begin: str
    most: int
    delimiter: str


@dataclass(frozen=True)
class Page:
    """One page: entries by whole name in byte order, a closed folder as its name with the delimiter.

    Attributes:
        entries: by name.
        following: the name that the next page begins with; `""` at the end.
    """

    entries: list[tuple[str, Listed]]
    following: str


def page(lake: Lake, place: Address, asked: Asked) -> Page:
    """List what begins with a prefix.

    Args:
        lake: what is listed.
        place: the address in the URL: a workspace, or a folder in one that names then begin with.
        asked: what of it.

    Raises:
        EndpointFault: INVALID_QUERY_PARAMETER_VALUE for another delimiter; the item is unknown.
    """
    if asked.delimiter not in {"", DELIMITER}:
        raise EndpointFault(Fault.INVALID_QUERY_PARAMETER_VALUE, "The only delimiter is /.")
    whole = f"{place.shown}/{asked.prefix}" if place.shown else asked.prefix
    found = _level(lake, place, asked.prefix) if asked.delimiter else _below(lake, place, asked)
    wanted = ((name, each) for name, each in found if name.startswith(whole) and name >= asked.begin)
    entries = list(islice(wanted, asked.most + 1))
    following = entries[asked.most][0] if len(entries) > asked.most else ""
    return Page(entries[: asked.most], following)


def _level(lake: Lake, place: Address, prefix: str) -> Iterator[tuple[str, Listed]]:
    """One folder's entries, a folder under its name with the delimiter."""
    folder = _folder(lake, place, prefix)
    found = [] if folder is None else lake.children(folder)
    named = ((each.name + DELIMITER * each.properties.is_folder, each) for each in found)
    yield from sorted(named, key=lambda pair: pair[0])


def _below(lake: Lake, place: Address, asked: Asked) -> Iterator[tuple[str, Listed]]:
    folder = _folder(lake, place, asked.prefix)
    found = iter(()) if folder is None else lake.descendants(folder, asked.begin)
    yield from ((each.name, each) for each in found)


def _folder(lake: Lake, place: Address, prefix: str) -> Address | None:
    """The deepest folder that a prefix names; None where there is none."""
    folder = lake.inside(place, prefix.rpartition(DELIMITER)[0])
    try:
        found = lake.properties(folder)
    except EndpointFault as refused:
        if refused.fault is Fault.PATH_NOT_FOUND:
            return None
        raise
    return folder if found.is_folder else None
