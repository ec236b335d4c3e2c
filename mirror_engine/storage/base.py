"""Door 1, the promise: what the engine asks of the place where a mirrored database lies."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, BinaryIO, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence


class Kind(str, Enum):
    """What an entry is."""

    FILE = "file"
    FOLDER = "folder"
    OTHER = "other"  # a symbolic link, a socket, a device: seen, never followed


@dataclass(frozen=True)
class Entry:
    """One thing in a folder.

    Attributes:
        name: the last part of its path; `""` for ROOT itself.
        kind: what it is.
        size: in bytes; 0 for a folder.
        modified_ns: last modification in nanoseconds since 1970.
        identity: set when it is created. For a file: kept by writing in place and by renaming it, new after
            deleting and creating again. For a folder: kept by changes inside it, new after drop and recreate.
    """

    name: str
    kind: Kind
    size: int
    modified_ns: int
    identity: str


class Storage(Protocol):
    """Files below one ROOT.

    Paths are relative to ROOT, `/` between parts, no leading slash, `""` for ROOT itself. No path leaves ROOT:
    one that would (`..`, a symbolic link on the way) is met like an absent one. Every method raises
    `StorageUnavailable` when the call failed and nothing is known of its effect; absence is never that error.
    No retry, cache or log inside: those are decorators of this interface.
    """

    def list(self, folder: str) -> Sequence[Entry] | None:
        """The entries of a folder, sorted by name by code point; None where there is no such folder."""

    def stat(self, path: str) -> Entry | None:
        """One entry; None where there is none. A symbolic link is `OTHER`."""

    def open(self, path: str) -> BinaryIO:
        """A seekable reader of a regular file's bytes; it keeps reading the file it opened if the path is replaced.

        Raises:
            FileNotFoundError: there is no regular file.
        """

    def write(self, path: str, content: bytes) -> None:
        """Put a whole file in one step, replacing what was there; makes the folders on the way. Repeatable."""

    def move(self, source: str, target: str) -> None:
        """Rename a file in one step, replacing what was at `target`; makes the folders on the way.

        An absent source is no error where the target exists (so it is repeatable), nor where neither does.
        """

    def delete(self, path: str) -> None:
        """Remove a file, or a folder with all in it; absent is no error. Symbolic links are removed, not followed."""


def parts_of(path: str) -> tuple[str, ...] | None:
    """The parts of a path from ROOT; `()` for ROOT itself, None for a path that is none or would leave ROOT.

    None for `..`, `.`, an empty part (so an absolute path, too), NUL, and text that is no UTF-8.
    """
    if not path:
        return ()
    parts = tuple(path.split("/"))
    odd = "\0" in path or any(part in {"", ".", ".."} for part in parts) or not is_text(path)
    return None if odd else parts


def joined(folder: str, name: str) -> str:
    """Join two relative paths; either may be empty."""
    return f"{folder}/{name}" if folder and name else folder or name


def is_text(name: str) -> bool:
    """Whether a name can be written as UTF-8; a local disk may hold others."""
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True
