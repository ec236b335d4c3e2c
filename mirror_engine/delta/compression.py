"""Delimited text as landed, plain or compressed: told by content, unpacked in bounded pieces (LZ-6.2).

Snappy comes in three forms: with frames, in Hadoop's blocks, and as one raw block. A raw block cannot be unpacked
piece by piece: it is bounded by `batch_bytes`. Checksums of Snappy's frames are not verified.
"""

from __future__ import annotations

import gzip
import io
import zlib
from typing import TYPE_CHECKING, BinaryIO

import pyarrow as pa

from mirror_engine.delta.change_bytes import guarded
from mirror_engine.errors import PublisherError
from mirror_engine.landing_zone.diagnostics import diagnose

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from mirror_engine.config import Config

CHUNK_BYTES = 256 * 1024
_GZIP = b"\x1f\x8b\x08"
_ZSTD = b"\x28\xb5\x2f\xfd"
_FRAMED = b"\xff\x06\x00\x00sNaPpY"
_BOMS = (b"\xef\xbb\xbf", b"\xff\xfe", b"\xfe\xff", b"\x00\x00\xfe\xff")
_TEXT_CONTROLS = frozenset(b"\t\n\v\f\r\x1b")
_HEAD_BYTES = 512
_LONGEST_FRAME = 65536
_MOST_PACKED = 64  # no Snappy block unpacks to more than this many times its size
_VARINT_BYTES = 5
_COMPRESSED, _UNCOMPRESSED, _FIRST_SKIPPABLE = 0x00, 0x01, 0x80


class Damaged(Exception):
    """Compressed data that cannot be unpacked."""


def text_bytes(handle: BinaryIO, path: str, config: Config) -> Iterator[bytes]:
    """The bytes of the text, from its start, in pieces; whatever it is compressed with.

    Args:
        handle: the file, seekable; left open.
        path: for messages.
        config: `batch_bytes` bounds one raw Snappy block.

    Raises:
        PublisherError: ME024 for damaged data, ME075 for a block beyond the bound.
        StorageUnavailable: reading failed.
    """
    source = guarded(handle, path)
    size = source.seek(0, 2)
    source.seek(0)
    head = source.read(_HEAD_BYTES)
    source.seek(0)
    unpack = _unpacker(head, size)
    try:
        yield from unpack(source, config.batch_bytes)
    except Damaged as fault:
        raise PublisherError(diagnose("ME024", path, reason=str(fault))) from fault
    except _TooLong as fault:
        limit = f"{config.batch_bytes} bytes"
        reason = f"a Snappy block of {fault.args[0]} bytes"
        raise PublisherError(diagnose("ME075", path, reason=reason, limit=limit, option="batch_bytes")) from fault


class _TooLong(Exception):
    pass


class _Lent(io.RawIOBase):
    """A reader that Arrow may close, as it does when it is done: the file below is read again."""

    def __init__(self, source: BinaryIO) -> None:
        super().__init__()
        self._source = source

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        return self._source.read(size)


def _unpacker(head: bytes, size: int) -> Callable[[BinaryIO, int], Iterator[bytes]]:
    if head.startswith(_GZIP):
        return _gzip
    if head.startswith(_ZSTD):
        return _zstd
    if head.startswith(_FRAMED):
        return _snappy_frames
    if head.startswith(_BOMS) or not any(byte < 32 or byte > 127 for byte in head if byte not in _TEXT_CONTROLS):  # noqa: PLR2004 - ASCII
        return _plain
    if _looks_like_hadoop(head, size):
        return _snappy_hadoop
    return _snappy_raw if _looks_raw(head, size) else _plain


def _plain(source: BinaryIO, _limit: int) -> Iterator[bytes]:
    while chunk := source.read(CHUNK_BYTES):
        yield chunk


def _gzip(source: BinaryIO, _limit: int) -> Iterator[bytes]:
    with gzip.GzipFile(fileobj=source, mode="rb") as unpacked:
        try:
            while chunk := unpacked.read(CHUNK_BYTES):
                yield chunk
        except (OSError, EOFError, zlib.error) as fault:
            raise Damaged("its gzip data is damaged or ends early") from fault


def _zstd(source: BinaryIO, _limit: int) -> Iterator[bytes]:
    try:
        unpacked = pa.CompressedInputStream(pa.PythonFile(_Lent(source), mode="r"), "zstd")
        while chunk := unpacked.read(CHUNK_BYTES):
            yield chunk
    except (OSError, pa.ArrowException) as fault:
        raise Damaged("its ZSTD data is damaged or ends early") from fault


def _snappy_frames(source: BinaryIO, limit: int) -> Iterator[bytes]:
    while head := source.read(4):
        kind, length = head[0], int.from_bytes(head[1:], "little")
        content = _exactly(source, length)
        if kind == _COMPRESSED:
            yield _block(content[4:], _LONGEST_FRAME, limit)
        elif kind == _UNCOMPRESSED:
            yield content[4:]
        elif kind < _FIRST_SKIPPABLE or len(head) < 4:  # noqa: PLR2004 - a frame's head
            raise Damaged("its Snappy frames are damaged")


def _snappy_hadoop(source: BinaryIO, limit: int) -> Iterator[bytes]:
    while head := source.read(4):
        left = int.from_bytes(head, "big")
        while left > 0:
            packed = int.from_bytes(_exactly(source, 4), "big")
            content = _block(_exactly(source, packed), left, limit)
            left -= len(content)
            yield content


def _snappy_raw(source: BinaryIO, limit: int) -> Iterator[bytes]:
    packed = source.read(limit + 1)
    try:
        unpacked = _block(packed, limit + 1, limit)
    except Damaged:  # no Snappy after all: text with strange characters, whose own faults say more
        source.seek(0)
        yield from _plain(source, limit)
        return
    for at in range(0, len(unpacked), CHUNK_BYTES):
        yield unpacked[at : at + CHUNK_BYTES]


def _exactly(source: BinaryIO, size: int) -> bytes:
    pieces = []
    while size > 0:
        if not (piece := source.read(min(size, CHUNK_BYTES))):
            raise Damaged("its Snappy data ends early")
        pieces.append(piece)
        size -= len(piece)
    return b"".join(pieces)


def _block(packed: bytes, most: int, limit: int) -> bytes:
    """One raw block, unpacked; damaged beyond what its place allows, too long beyond what memory does."""
    size, _ = _declared_size(packed)
    if size < 0 or (size > most and most <= limit):
        raise Damaged("its Snappy data is damaged")
    if size > limit:
        raise _TooLong(size)
    try:
        unpacked: bytes = pa.decompress(packed, decompressed_size=size, codec="snappy", asbytes=True)
    except (OSError, pa.ArrowException) as fault:
        raise Damaged("its Snappy data is damaged") from fault
    return unpacked


def _declared_size(packed: bytes) -> tuple[int, int]:
    """What a raw block says it unpacks to, and how many bytes say it; -1 where they say nothing."""
    size = 0
    for at, byte in enumerate(packed[:_VARINT_BYTES]):
        size |= (byte & 0x7F) << 7 * at
        if byte < 0x80:  # noqa: PLR2004 - the last byte of a varint
            return size, at + 1
    return -1, 0


def _looks_raw(head: bytes, size: int) -> bool:
    unpacked, at = _declared_size(head)
    # whatever its length, a block begins with a literal: there is nothing yet to copy from
    starts_well = 0 < at < len(head) and head[at] & 0b11 == 0
    return starts_well and size <= 32 + unpacked + unpacked // 6 and unpacked <= size * _MOST_PACKED


def _looks_like_hadoop(head: bytes, size: int) -> bool:
    whole, packed = int.from_bytes(head[:4], "big"), int.from_bytes(head[4:8], "big")
    unpacked, at = _declared_size(head[8:])
    return 0 < packed <= size - 8 and 0 < unpacked <= whole and at > 0 and head[8 + at] & 0b11 == 0
