"""Recognises a file that is compressed with Snappy, to say so: text in Snappy is not read (LZ-6.2)."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pyarrow as pa

if TYPE_CHECKING:
    from typing import BinaryIO

_MAGIC = (b"\xff\x06\x00\x00sNaPpY", b"\x82SNAPPY\x00")  # of the framing format, and of snappy-java
_VARINT_BYTES = 5
_MOST_BYTES = 64 * 1024 * 1024  # of an expanded block; a larger one is not tried
_MOST_RATIO = 24  # a copy of 64 bytes takes three


def is_snappy(file: BinaryIO) -> bool:
    """Whether a file is framed, in the blocks of Hadoop or snappy-java, or one raw block, which has no magic number."""
    length = file.seek(0, os.SEEK_END)
    file.seek(0)
    head = file.read(max(map(len, _MAGIC)))
    if head.startswith(_MAGIC):
        return True
    if head.startswith(b"\0"):  # Hadoop: two lengths of four bytes, then a block
        return _is_block(file, 8, int.from_bytes(head[4:8], "big"))
    return _is_block(file, 0, length)


def _is_block(file: BinaryIO, at: int, length: int) -> bool:
    """Whether the bytes from an offset on are a block: its size fits its length, and it expands to that."""
    file.seek(at)
    size = _varint(file.read(_VARINT_BYTES))
    if not (0 < size <= min(_MOST_BYTES, _MOST_RATIO * length) and length <= 32 + size + size // 6):
        return False
    file.seek(at)
    block = file.read(length)
    try:
        pa.decompress(block, decompressed_size=size, codec="snappy", asbytes=True)
    except (OSError, pa.ArrowException):
        return False
    return True


def _varint(content: bytes) -> int:
    """The number that bytes begin with, seven bits in each; 0 if it does not end."""
    number = 0
    for at, byte in enumerate(content):
        number |= (byte & 0x7F) << 7 * at
        if byte < 0x80:  # noqa: PLR2004 - the last byte
            return number
    return 0
