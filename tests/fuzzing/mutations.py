"""Changes bytes that may mean anything: flips, cuts, splices, length fields, odd tokens."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable
    from random import Random

MAX_BYTES = 1 << 15
TOKENS = (
    *(
        b"\0",
        b"\xff",
        b"\x80",
        b"\xef\xbb\xbf",
        b"\xff\xfe",
        b"\xfe\xff",
        b"\xed\xa0\x80",
        b"\xf4\x90\x80\x80",
        b"\x85",
    ),
    *(b'"', b'""', b"\\", b'\\"', b",", b";", b"\t", b"\r", b"\n", b"\r\n", "\u2028".encode(), b" ", b":", b"@"),
    *(b"{", b"}", b"[", b"]", b"null", b"\\ud800", b"NaN", b"1e999", b"1e-9999999", b"-0", b"9" * 30, b"[" * 2000),
    *(b"__rowMarker__", b"0", b"4", b"3", b"true", "\u00b2".encode(), "\u0130".encode(), "\u00df".encode()),
    *(b"PAR1", b"PARE", b"\x1f\x8b\x08", b"\x28\xb5\x2f\xfd", b"\xff\x06\x00\x00sNaPpY", b"%41", b"k=v", b"/"),
    *(b"0000-01-01", b"9999-12-31T23:59:59.9999999+14:00", b"-290309-01-01", b"__HIVE_DEFAULT_PARTITION__"),
)
NUMBERS = (0, 1, -1, 127, 128, 255, 256, 2**15 - 1, 2**16 - 1, 2**24, 2**31 - 1, -(2**31), 2**62, 2**63 - 1, -(2**63))


def mutated(content: bytes, random: Random) -> bytes:
    """The content after one change."""
    return random.choice(_CHANGES)(content, random)[:MAX_BYTES]


def _place(content: bytes, random: Random) -> int:
    return random.randint(0, len(content))


def _flipped(content: bytes, random: Random) -> bytes:
    if not content:
        return b"\0"
    at = random.randrange(len(content))
    return content[:at] + bytes([content[at] ^ 1 << random.randrange(8)]) + content[at + 1 :]


def _set(content: bytes, random: Random) -> bytes:
    at = _place(content, random)
    return content[:at] + bytes([random.choice((0, 1, 0x7F, 0x80, 0xFE, 0xFF))]) + content[at + 1 :]


def _cut(content: bytes, random: Random) -> bytes:
    return content[: _place(content, random)]


def _removed(content: bytes, random: Random) -> bytes:
    at = _place(content, random)
    return content[:at] + content[at + random.choice((1, 1, 2, 4, 8, 64)) :]


def _doubled(content: bytes, random: Random) -> bytes:
    at, size = _place(content, random), random.choice((1, 2, 8, 64, 512))
    return content[:at] + content[at : at + size] * random.choice((2, 2, 3, 50)) + content[at + size :]


def _token(content: bytes, random: Random) -> bytes:
    at = _place(content, random)
    return content[:at] + random.choice(TOKENS) + content[at + random.choice((0, 0, 1, 4)) :]


def _number(content: bytes, random: Random) -> bytes:
    at, wide = _place(content, random), random.random() < 0.5
    number = random.choice(NUMBERS)
    mask = (1 << (64 if wide else 32)) - 1
    value = struct.pack(random.choice("<>") + ("Q" if wide else "I"), number & mask)
    return content[:at] + value + content[at + len(value) :]


def _moved(content: bytes, random: Random) -> bytes:
    begin, end, to = sorted(_place(content, random) for _ in range(3))
    return content[:begin] + content[end:to] + content[begin:end] + content[to:]


_CHANGES: tuple[Callable[[bytes, Random], bytes], ...] = (
    *(_flipped, _flipped, _set, _cut, _removed, _doubled, _token, _token, _number, _moved),
)
