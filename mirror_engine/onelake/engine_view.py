"""What an item's engine knows of files beyond what the disk says: which one they replaced or continue."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from mirror_engine.storage.base import joined
from mirror_engine.storage.local import LocalStorage

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from mirror_engine.landing_zone.listing import Entry

MAX_FILES = 10_000  # whose former identities are remembered: an engine sees them long before


class FileHistory:
    """Which file another one replaced or continues; paths are relative to the store. Thread-safe."""

    def __init__(self) -> None:
        self._replaced: dict[tuple[str, str], str] = {}
        self._continued: dict[str, tuple[str, ...]] = {}

    def note_replaced(self, path: str, identity: str, by: str) -> None:
        """Record that one file, by its identity, replaces another."""
        self._replaced[path, by] = identity
        _forget_oldest(self._replaced)

    def note_continued(self, identity: str, by: str) -> None:
        """Record that a file is about to get another identity, as after a flush."""
        self._continued[by] = (*self._continued.get(identity, ()), identity)
        _forget_oldest(self._continued)

    def forget_continued(self, identity: str) -> None:
        """Drop the history of an identity that no file has any more."""
        self._continued.pop(identity, None)

    def of(self, path: str, entry: Entry) -> Entry:
        """An entry with what it replaced or continues."""
        replaced, continues = self._replaced.get((path, entry.identity), ""), self._continued.get(entry.identity, ())
        return replace(entry, replaced=replaced, continues=continues) if replaced or continues else entry


def _forget_oldest(known: dict[Any, Any]) -> None:
    if len(known) > MAX_FILES:
        del known[next(iter(known))]


class EngineView(LocalStorage):
    """The folder of one item, whose path is relative to the store; its entries have their history."""

    def __init__(self, root: Path, history: FileHistory, item: str) -> None:
        super().__init__(root)
        self._history = history
        self._item = item

    def list(self, folder: str) -> Sequence[Entry] | None:
        path, entries = joined(self._item, folder), super().list(folder)
        return entries and [self._history.of(f"{path}/{each.name}", each) for each in entries]

    def stat(self, path: str) -> Entry | None:
        entry = super().stat(path)
        return entry and self._history.of(joined(self._item, path), entry)
