"""A storage that only looks: what must not be changed goes through this door."""

from __future__ import annotations

from typing import TYPE_CHECKING, BinaryIO, NoReturn

from mirror_engine.errors import StorageUnavailable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mirror_engine.storage.base import Entry, Storage


class ReadOnlyStorage:
    """A `Storage` over another that refuses every change."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage

    def list(self, folder: str) -> Sequence[Entry] | None:
        """See `Storage`."""
        return self._storage.list(folder)

    def stat(self, path: str) -> Entry | None:
        """See `Storage`."""
        return self._storage.stat(path)

    def open(self, path: str) -> BinaryIO:
        """See `Storage`."""
        return self._storage.open(path)

    def write(self, path: str, content: bytes) -> None:  # noqa: ARG002 - it is not written
        """Refused."""
        _refuse(path)

    def move(self, source: str, target: str) -> None:  # noqa: ARG002 - it is not moved
        """Refused."""
        _refuse(source)

    def delete(self, path: str) -> None:
        """Refused."""
        _refuse(path)


def _refuse(path: str) -> NoReturn:
    raise StorageUnavailable(f"{path}: opened for reading only")
