"""The mirrored databases of a STORE, as the page and the metrics ask for them."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from mirror_engine.monitoring.shown import ShownItem

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from mirror_engine.endpoint.databases import MirroredDatabases
    from mirror_engine.endpoint.items import Item, Items
    from mirror_engine.mirror import Mirror


class ShownStore:
    """`Shown` over a STORE.

    Args:
        items: which there are.
        databases: who mirrors them.
        mirror_of: an item's mirror.
    """

    def __init__(self, items: Items, databases: MirroredDatabases, mirror_of: Callable[[Item], Mirror]) -> None:
        self._items = items
        self._databases = databases
        self._mirror_of = mirror_of

    def items(self) -> Sequence[ShownItem]:
        """See `Shown`."""
        return [self._shown(item) for item in self._items.all()]

    def _shown(self, item: Item) -> ShownItem:
        state, error = self._databases.status(item)
        said = error.message if error else ""
        return ShownItem(item.id, item.workspace.name, item.name, state, said, partial(self._mirror_of, item))
