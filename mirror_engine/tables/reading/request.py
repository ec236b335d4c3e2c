"""What is read of a table folder, and against what: each file against the table as the file before leaves it.

Imports no Arrow: a start that reads no rows goes without.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, BinaryIO, Protocol

from mirror_engine.errors import ConcurrentModification
from mirror_engine.storage.base import look_again
from mirror_engine.tables.base import ReadContext

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence

    from mirror_engine.landing_zone.listing import Entry
    from mirror_engine.landing_zone.metadata import Metadata
    from mirror_engine.landing_zone.names import TableName
    from mirror_engine.storage.base import Storage
    from mirror_engine.tables.base import FileRows


@dataclass(frozen=True)
class LandedFolder:
    """A table folder whose files are read by its metadata."""

    zone: str  # the landing zone, from ROOT
    table: TableName
    metadata: Metadata


@dataclass(frozen=True)
class ReadRequest:
    """One file to read, as the poller listed it, against the context before it."""

    folder: LandedFolder
    file: Entry
    context: ReadContext = field(default_factory=ReadContext)

    @property
    def path(self) -> str:
        """The file from the landing zone's top, for messages."""
        return f"{self.folder.table.folder}/{self.file.path}"

    @property
    def _path_from_root(self) -> str:
        return f"{self.folder.zone}/{self.path}"

    def open(self, storage: Storage) -> BinaryIO:
        """Open the file.

        Raises:
            ConcurrentModification: it is gone.
            StorageUnavailable: it could not be opened.
        """
        try:
            return storage.open(self._path_from_root, self.file)
        except FileNotFoundError:
            raise ConcurrentModification(f"{self.path}: replaced or removed before it was read") from None

    def listed_now(self, storage: Storage, *, was_read: bool = True) -> Entry:
        """The file as it would be listed now: equal to `file` where it did not change since.

        Raises:
            ConcurrentModification: it was replaced or removed.
            StorageUnavailable: its entry could not be read.
        """
        entry = look_again(storage, self._path_from_root, self.file, was_read=was_read)
        if entry is None:
            raise ConcurrentModification(f"{self.path}: replaced or removed since it was listed")
        return replace(self.file, size=entry.size, modified_ns=entry.modified_ns)


class OrderedReader(Protocol):
    """Reads pending files, each against the context after the one before."""

    def in_order(
        self, folder: LandedFolder, files: Sequence[Entry], context: ReadContext
    ) -> Generator[FileRows, None, None]:
        """The files, one after the other on demand; closing it deletes the scratch files of what was read beyond.

        `context` is that of the first of them.

        Raises:
            RejectedFile: the next file breaks the protocol; nothing of it may be applied.
            ConcurrentModification: a file was replaced or removed since it was listed.
            StorageUnavailable: the storage or the scratch folder failed.
        """
