"""A part of a landing zone presented as a whole one: a zone without its ROOT, one table folder, one file."""

from __future__ import annotations

from typing import TYPE_CHECKING, BinaryIO

from mirror_engine.storage.base import Entry, Kind
from mirror_engine.storage.read_only import ReadOnlyStorage

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from mirror_engine.storage.base import Storage


class PlacedStorage(ReadOnlyStorage):
    """A `Storage` whose folder `at` is another storage's ROOT.

    Args:
        storage: what lies there.
        at: where, from this storage's own ROOT.
        only: the paths below `at` that are to be seen; all, where it is None.
    """

    def __init__(self, storage: Storage, at: str, only: Collection[str] | None = None) -> None:
        super().__init__(storage)
        self._at = at.split("/")
        self._only = only

    def list(self, folder: str) -> Sequence[Entry] | None:
        """See `Storage`."""
        parts = [part for part in folder.split("/") if part]
        if len(parts) < len(self._at):
            below = self._above(parts)
            return [below] if below else None
        inner = self._inner(folder)
        found = None if inner is None else self._storage.list(inner)
        return found and [entry for entry in found if self._is_seen(f"{inner}/{entry.name}".lstrip("/"))]

    def stat(self, path: str) -> Entry | None:
        """See `Storage`."""
        parts = [part for part in path.split("/") if part]
        if not parts:
            return _folder("")
        if len(parts) <= len(self._at):
            return self._above(parts[:-1]) if parts == self._at[: len(parts)] else None
        inner = self._inner(path)
        return None if inner is None else self._storage.stat(inner)

    def open(self, path: str) -> BinaryIO:
        """See `Storage`."""
        inner = self._inner(path)
        if inner is None:
            raise FileNotFoundError(path)
        return self._storage.open(inner)

    def _above(self, parts: Sequence[str]) -> Entry | None:
        """The one entry of a folder on the way to `at`."""
        if list(parts) != self._at[: len(parts)]:
            return None
        name = self._at[len(parts)]
        own = self._storage.stat("") if len(parts) + 1 == len(self._at) else None
        return Entry(name, Kind.FOLDER, 0, own.modified_ns, own.identity) if own else _folder(name)

    def _inner(self, path: str) -> str | None:
        parts = [part for part in path.split("/") if part]
        if parts[: len(self._at)] != self._at:
            return None
        inner = "/".join(parts[len(self._at) :])
        return inner if self._is_seen(inner) else None

    def _is_seen(self, inner: str) -> bool:
        """Whether it is one of the paths named, or on the way to one."""
        return self._only is None or not inner or any(f"{path}/".startswith(f"{inner}/") for path in self._only)


def _folder(name: str) -> Entry:
    return Entry(name, Kind.FOLDER, 0, 0, f"placed:{name}")
