"""What a client may know of a file or folder, its entity tag above all (endpoint chapter 7, rules 6 and 7)."""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import blake2b
from typing import TYPE_CHECKING

from mirror_engine.storage.base import Kind

if TYPE_CHECKING:
    from mirror_engine.storage.base import Entry


@dataclass(frozen=True)
class Properties:
    """Of a file or folder.

    Attributes:
        is_folder: else it is a file.
        size: in bytes; 0 for a folder.
        etag: in quotes, as in the header.
        modified_ns: LastModified in nanoseconds since 1970; the wire shows whole seconds (rule 9).
    """

    is_folder: bool
    size: int
    etag: str
    modified_ns: int

    @staticmethod
    def of(entry: Entry) -> Properties:
        """Of what a storage shows; a folder's tag is its identity, a file's its identity and content's time."""
        is_folder = entry.kind is Kind.FOLDER
        known = entry.identity if is_folder else f"{entry.identity} {entry.modified_ns} {entry.size}"
        return Properties(is_folder, entry.size, f'"{_tag(known)}"', entry.modified_ns)

    @staticmethod
    def maybe_of(entry: Entry | None) -> Properties | None:
        """The same; None of nothing."""
        return None if entry is None else Properties.of(entry)


def _tag(known: str) -> str:
    return f"0x8D{blake2b(known.encode(), digest_size=8).hexdigest()[:13].upper()}"
