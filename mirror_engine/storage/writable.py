"""Door 1 for a server: what it takes to let others write, one visible step at a time."""

from __future__ import annotations

from typing import TYPE_CHECKING, BinaryIO, Protocol

from mirror_engine.landing_zone.layout import ENGINE
from mirror_engine.storage.base import Storage

if TYPE_CHECKING:
    from mirror_engine.storage.base import Entry

STAGING = f"{ENGINE}/staging"  # below the storage's ROOT: staged files, and what was taken away until it is deleted


class Discardable(Protocol):
    """Something private that only waits to be deleted."""

    def discard(self) -> None:
        """Delete it; repeatable. What is not discarded, a later `sweep` deletes."""


class StagedFile(Discardable, Protocol):
    """A private file on the storage's own file system: no path shows it until it is published.

    One thread writes it at a time. Every method raises `StorageUnavailable` when the disk fails. Discarding it
    once it is published has no effect.
    """

    @property
    def size(self) -> int:
        """Bytes written so far."""

    def write(self, content: bytes | memoryview) -> None:
        """Add to its end."""

    def copy_from(self, reader: BinaryIO) -> None:
        """Add all that the reader still gives; never the whole of it in memory."""

    def close(self) -> None:
        """Let go of the open file. A later write opens it again."""

    def open(self) -> BinaryIO:
        """A reader of what was written; closes it first. It keeps reading when the file is discarded meanwhile."""

    def seal(self) -> None:
        """Close it; what was written outlasts a crash of the machine. Repeatable, and slow."""


class WritableStorage(Storage, Protocol):
    """A `Storage` in which a server writes for others.

    All methods may be called by several threads at once. What stands on a path's way and is no folder (a symbolic
    link, too) is met as an absent folder: `FileNotFoundError`. Nothing is followed, nothing leaves ROOT.
    """

    def make_folder(self, path: str) -> Entry:
        """A folder, with the folders on its way; where it stands already, it is left alone (identity and all).

        Raises:
            FileExistsError: something else stands there or on the way.
        """

    def stage(self) -> StagedFile:
        """A new private file."""

    def publish(self, staged: StagedFile, path: str, modified_ns: int) -> Entry:
        """Show a staged file at a path in one step, replacing a file (or link) there; makes no folders.

        Args:
            staged: of this storage; sealed first where it is not.
            path: where.
            modified_ns: LastModified to be shown, in nanoseconds since 1970.

        Raises:
            FileNotFoundError: the folder it would lie in is absent.
            IsADirectoryError: a folder stands there.
        """

    def rename(self, source: str, target: str) -> None:
        """Rename a file, or a folder with all in it, in one step; identity and LastModified stay; makes no folders.

        A file replaces a file (or link), a folder nothing.

        Raises:
            FileNotFoundError: the source, or the folder that the target would lie in, is absent.
            FileExistsError: a folder stands at the target, or a file where a folder would go.
            OSError: a folder would come to lie inside itself (`errno.EINVAL`).
        """

    def touch(self, path: str, modified_ns: int) -> None:
        """Set a file's LastModified.

        Raises:
            FileNotFoundError: there is no regular file.
        """

    def take_away(self, path: str) -> Discardable:
        """Let a file, or a folder with all in it, vanish in one step; discarding what is returned deletes it.

        A folder made afterwards has another identity than the one taken away, however soon.

        Raises:
            FileNotFoundError: neither file nor folder stands there.
        """

    def sweep(self) -> None:
        """Delete what an earlier process left staged or half deleted; nobody else may be writing."""
