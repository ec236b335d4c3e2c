"""Sets of row numbers as 64-bit Roaring bitmaps in their portable form (Roaring's format specification).

The few lines of NumPy keep a library of nine megabytes out of the installation; the tests compare both.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from mirror_engine.tables.changes.net_changes import Integers

_PLAIN, _WITH_RUNS = 12346, 12347  # cookies of a 32-bit bitmap
_CHUNK_BITS, _CHUNK = 16, 1 << 16
_MOST_LISTED = 4096  # numbers of a chunk; more are a bitmap
_LEAST_WITH_OFFSETS = 4  # chunks, where some are runs


def serialized(numbers: Integers) -> bytes:
    """The bytes of a set; its numbers are distinct and ascend."""
    parts = [(high, numbers[numbers >> 32 == high] & 0xFFFFFFFF) for high in np.unique(numbers >> 32).tolist()]
    return struct.pack("<q", len(parts)) + b"".join(struct.pack("<I", high) + _bitmap(low) for high, low in parts)


def deserialized(content: bytes) -> Integers:
    """The numbers of a set, ascending.

    Raises:
        ValueError, struct.error: the bytes are no set.
    """
    (count,) = struct.unpack_from("<q", content)
    at, found = 8, [np.empty(0, dtype=np.int64)]
    for _ in range(count):
        (high,) = struct.unpack_from("<I", content, at)
        numbers, at = _numbers(content, at + 4)
        found.append(numbers + (high << 32))
    return np.concatenate(found)


def _bitmap(numbers: Integers) -> bytes:
    """A 32-bit bitmap without runs."""
    keys, starts = np.unique(numbers >> _CHUNK_BITS, return_index=True)
    counts = np.diff(starts, append=len(numbers))
    chunks = [_chunk(low) for low in np.split(numbers & (_CHUNK - 1), starts[1:])]
    header = struct.pack("<II", _PLAIN, len(keys)) + np.stack([keys, counts - 1], axis=1).astype("<u2").tobytes()
    sizes = np.array([len(chunk) for chunk in chunks])
    offsets = len(header) + 4 * len(keys) + np.cumsum(sizes) - sizes
    return b"".join([header, offsets.astype("<u4").tobytes(), *chunks])


def _chunk(numbers: Integers) -> bytes:
    if len(numbers) <= _MOST_LISTED:
        return numbers.astype("<u2").tobytes()
    bits = np.zeros(_CHUNK, dtype=np.bool_)
    bits[numbers] = True
    packed: bytes = np.packbits(bits, bitorder="little").tobytes()
    return packed


def _numbers(content: bytes, at: int) -> tuple[Integers, int]:
    """The numbers of a 32-bit bitmap that begins at an offset, and where it ends."""
    (cookie,) = struct.unpack_from("<I", content, at)
    if cookie & 0xFFFF == _WITH_RUNS:
        count = (cookie >> 16) + 1
        flags = np.frombuffer(content, np.uint8, (count + 7) // 8, at + 4)
        are_runs, at = np.unpackbits(flags, bitorder="little")[:count].tolist(), at + 4 + len(flags)
        has_offsets = count >= _LEAST_WITH_OFFSETS
    elif cookie == _PLAIN:
        (count,) = struct.unpack_from("<I", content, at + 4)
        are_runs, at, has_offsets = [0] * count, at + 8, True
    else:
        raise ValueError("an unknown kind of bitmap")
    header = np.frombuffer(content, "<u2", 2 * count, at).reshape(-1, 2).astype(np.int64)
    at += header.size * 2 + (4 * count if has_offsets else 0)
    found = [np.empty(0, dtype=np.int64)]
    for (key, least), is_run in zip(header.tolist(), are_runs, strict=True):
        numbers, at = _chunk_numbers(content, at, least + 1, is_run=bool(is_run))
        found.append(numbers + (key << _CHUNK_BITS))
    return np.concatenate(found), at


def _chunk_numbers(content: bytes, at: int, count: int, *, is_run: bool) -> tuple[Integers, int]:
    if is_run:
        (runs,) = struct.unpack_from("<H", content, at)
        pairs = np.frombuffer(content, "<u2", 2 * runs, at + 2).reshape(-1, 2).tolist()
        numbers = [np.arange(start, start + more + 1) for start, more in pairs]
        return np.concatenate([np.empty(0, dtype=np.int64), *numbers]), at + 2 + 4 * runs
    if count <= _MOST_LISTED:
        return np.frombuffer(content, "<u2", count, at).astype(np.int64), at + 2 * count
    bits = np.unpackbits(np.frombuffer(content, np.uint8, _CHUNK // 8, at), bitorder="little")
    return np.flatnonzero(bits), at + _CHUNK // 8
