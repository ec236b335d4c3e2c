"""What keeps a STORE's tables from holding all that has landed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mirror_engine.endpoint.databases import DatabaseStatus
from mirror_engine.errors import TransientError
from mirror_engine.goals import NotYet, not_level

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mirror_engine.endpoint.items import Item
    from mirror_engine.serving.fleet import Fleet

_AT_WORK = frozenset({DatabaseStatus.STARTING, DatabaseStatus.RUNNING})


def unfinished(fleet: Fleet) -> list[tuple[Item, NotYet]]:
    """Each table that is not level, of the items that are mirrored; each engine that could not go on."""
    return [(item, each) for item in fleet.items.all() for each in _of(fleet, item)]


def _of(fleet: Fleet, item: Item) -> Sequence[NotYet]:
    state, error = fleet.status(item)
    if error:
        return [NotYet("", state.value, error.message, needs_a_person=True)]
    if state not in _AT_WORK:
        return []
    with fleet.mirror(item) as mirror:
        try:
            found = not_level(mirror.status(), (), mirror.config.schema_of_bare_tables)
        except TransientError as problem:  # the next look may succeed
            return [NotYet("", state.value, problem.message, problem.hint)]
    return [each for each in found if each.table]  # a zone without tables holds nothing that could be missing
