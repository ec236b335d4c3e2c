"""A change file, held to be the one that the poller saw, before it is read and after."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, BinaryIO

from mirror_engine.errors import ZoneChanged
from mirror_engine.storage.base import Kind

if TYPE_CHECKING:
    from mirror_engine.delta.read_request import ReadRequest
    from mirror_engine.storage.base import Entry, Storage


@dataclass(frozen=True)
class SightedFile:
    """The file of a request, as it lies.

    Attributes:
        storage: door 1.
        path: from ROOT.
        name: from the landing zone's top, for messages.
        entry: what it was when it was sighted here.
    """

    storage: Storage
    path: str
    name: str
    entry: Entry

    def open(self) -> BinaryIO:
        """Its bytes, from the beginning.

        Raises:
            ZoneChanged: it is gone.
            StorageUnavailable: it could not be opened.
        """
        try:
            return self.storage.open(self.path)
        except FileNotFoundError:
            raise ZoneChanged(f"{self.name}: gone before it was read") from None

    def is_unchanged(self) -> bool:
        """Whether its size and its LastModified are what they were.

        Raises:
            ZoneChanged: another file lies there, or none.
        """
        now = self.storage.stat(self.path)
        if now is None or now.identity != self.entry.identity:
            raise ZoneChanged(f"{self.name}: replaced while it was read")
        return (now.size, now.modified_ns) == (self.entry.size, self.entry.modified_ns)

    def check_unchanged(self) -> None:
        """Hold it to be what it was.

        Raises:
            ZoneChanged: it is not.
        """
        if not self.is_unchanged():
            raise ZoneChanged(f"{self.name}: changed while it was looked at")


def sighted(storage: Storage, request: ReadRequest) -> SightedFile:
    """The file that a request asks for.

    Raises:
        ZoneChanged: another file lies there than the poller saw, or none.
        StorageUnavailable: it could not be looked at.
    """
    path = f"{request.zone}/{request.path}"
    entry = storage.stat(path)
    if entry is None or entry.kind is not Kind.FILE or entry.identity != request.file.identity:
        raise ZoneChanged(f"{request.path}: no longer the file that was seen")
    return SightedFile(storage, path, request.path, entry)
