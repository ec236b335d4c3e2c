"""Tells keys apart by 64 bits each: what counts keys need not hold them."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from mirror_engine.delta.collapse import comparable

if TYPE_CHECKING:
    from collections.abc import Sequence

Hashes: TypeAlias = NDArray[np.uint64]

_BASE = np.uint64(0x9E3779B97F4A7C15)


def key_hashes(columns: Sequence[pa.Array]) -> tuple[Hashes, NDArray[np.bool_]]:
    """Keys as numbers: equal where LZ-4.9 sees equal keys; else different but for one in about 10^19 pairs.

    Args:
        columns: the key columns, of one length; a single integer column becomes itself, so that its order is kept.

    Returns:
        Per row its number, and whether every part of its key is there (LZ-4.8).
    """
    if len(columns) == 1 and pa.types.is_integer(columns[0].type) and not columns[0].null_count:
        return _numbers(columns[0]), np.ones(len(columns[0]), dtype=np.bool_)
    parts = [comparable(pa.chunked_array([column])).combine_chunks() for column in columns]
    whole = np.ones(len(parts[0]), dtype=np.bool_)
    for part in parts:
        if part.null_count:
            whole &= part.is_valid().to_numpy(zero_copy_only=False)
    if len(parts) == 1 and _is_number(parts[0].type):
        return _numbers(parts[0]), whole
    made = np.zeros(len(whole), dtype=np.uint64)
    for part in parts:
        own = _mixed(_numbers(part)) if _is_number(part.type) else _of_bytes(part)
        made = _mixed(made * _BASE + own)
    return made, whole


def _is_number(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_temporal(kind) or pa.types.is_boolean(kind))


def _numbers(part: pa.Array) -> Hashes:
    if pa.types.is_boolean(part.type):
        part = part.cast(pa.int8())
    elif pa.types.is_temporal(part.type):
        part = part.view(pa.int32() if part.type.bit_width == pa.int32().bit_width else pa.int64())
    filled = part.fill_null(0) if part.null_count else part
    return np.asarray(filled.to_numpy(zero_copy_only=False)).astype(np.int64, copy=False).view(np.uint64)


def _of_bytes(part: pa.Array) -> Hashes:
    """Text, bytes and decimals: a sum over bytes, each with its own number times a power of its place."""
    offsets, content = _bytes_of(part)
    lengths = np.diff(offsets)
    places = np.arange(len(content), dtype=np.int64) - np.repeat(offsets[:-1] - offsets[0], lengths)
    powers = _powers(int(lengths.max(initial=0)))
    terms = _byte_numbers()[content] * powers[places]
    sums = np.concatenate([np.zeros(1, dtype=np.uint64), np.cumsum(terms, dtype=np.uint64)])
    starts = offsets - offsets[0]
    return _mixed(sums[starts[1:]] - sums[starts[:-1]] + lengths.astype(np.uint64))


def _bytes_of(part: pa.Array) -> tuple[NDArray[np.int64], NDArray[np.uint8]]:
    if pa.types.is_decimal(part.type):
        width = part.type.byte_width
        offsets = np.arange(len(part) + 1, dtype=np.int64) * width
        start = part.offset * width
        return offsets, np.frombuffer(part.buffers()[1], dtype=np.uint8)[start : start + len(part) * width]
    filled: Any = part.fill_null(b"" if pa.types.is_large_binary(part.type) else "")
    offsets = np.frombuffer(filled.buffers()[1], dtype=np.int64)[filled.offset : filled.offset + len(filled) + 1]
    data = filled.buffers()[2]
    content = np.frombuffer(data, dtype=np.uint8) if data is not None else np.empty(0, dtype=np.uint8)
    return offsets, content[offsets[0] : offsets[-1]]


@cache
def _byte_numbers() -> Hashes:
    """A number for each byte, none of them 0."""
    return _mixed(np.arange(1, 257, dtype=np.uint64))


def _powers(count: int) -> Hashes:
    return np.cumprod(np.full(max(count, 1), _BASE, dtype=np.uint64), dtype=np.uint64)


def _mixed(numbers: Hashes) -> Hashes:
    """Spread every bit over all (the finalizer of splitmix64)."""
    with np.errstate(over="ignore"):
        numbers = (numbers ^ (numbers >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        numbers = (numbers ^ (numbers >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        mixed: Hashes = numbers ^ (numbers >> np.uint64(31))
    return mixed
