"""The digest of a file's bytes; a module of its own, for a start that reads no rows imports no Arrow."""

from __future__ import annotations

from hashlib import blake2b
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import BinaryIO

_BLOCK_BYTES = 1 << 20


def digest(handle: BinaryIO) -> tuple[str, int]:
    """The digest of all bytes (BLAKE2b, 128 bits, hex), and how many they are; leaves the handle at its beginning."""
    handle.seek(0)
    hasher = blake2b(digest_size=16)
    size = 0
    while block := handle.read(_BLOCK_BYTES):
        hasher.update(block)
        size += len(block)
    handle.seek(0)
    return hasher.hexdigest(), size
