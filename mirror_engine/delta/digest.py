"""Tells the content of one file from that of another."""

from __future__ import annotations

from hashlib import blake2b
from typing import BinaryIO

_BLOCK_BYTES = 1 << 20


def digest(handle: BinaryIO) -> tuple[str, int]:
    """The digest of all bytes (BLAKE2b, 128 bits, hex) and how many they are; the handle ends at the beginning."""
    handle.seek(0)
    hasher = blake2b(digest_size=16)
    size = 0
    while block := handle.read(_BLOCK_BYTES):
        hasher.update(block)
        size += len(block)
    handle.seek(0)
    return hasher.hexdigest(), size
