"""Changes bytes that may mean anything: flips, cuts, splices, length fields, odd tokens."""

from __future__ import annotations

MAX_BYTES = 1 << 15
TOKENS = (
    *(b"\0", b"\xff", b"\x80", b"\xef\xbb\xbf", b"\xff\xfe", b"\xfe\xff", b"\xed\xa0\x80", b"\xf4\x90\x80\x80"),
    *(b'"', b'""', b"\\", b'\\"', b",", b";", b"\t", b"\r", b"\n", b"\r\n", "\u2028".encode(), b"\x85", b" ", b":"),
    *(b"{", b"}", b"[", b"]", b"null", b"\\ud800", b"NaN", b"1e999", b"1e-9999999", b"-0", b"9" * 30, b"[" * 2000),
    *(b"__rowMarker__", b"0", b"4", b"3", b"true", "\u00b2".encode(), "\u0130".encode(), "\u00df".encode()),
    *(b"PAR1", b"PARE", b"\x1f\x8b\x08", b"\x28\xb5\x2f\xfd", b"\xff\x06\x00\x00sNaPpY", b"%41", b"k=v", b"/", b"@"),
    *(b"0000-01-01", b"9999-12-31T23:59:59.9999999+14:00", b"-290309-01-01", b"__HIVE_DEFAULT_PARTITION__"),
)
NUMBERS = (0, 1, -1, 127, 128, 255, 256, 2**15 - 1, 2**16 - 1, 2**24, 2**31 - 1, -(2**31), 2**62, 2**63 - 1, -(2**63))
KINDS = ("flip", "flip", "set", "cut", "remove", "double", "token", "token", "number", "move")


def mutated(content, random):
    """The content after one change."""
    at = random.randint(0, len(content))
    head, rest = content[:at], content[at:]
    match random.choice(KINDS):
        case "flip":
            flipped = (rest[0] if rest else 0) ^ 1 << random.randrange(8)
            changed = head + bytes([flipped]) + rest[1:]
        case "set":
            changed = head + bytes([random.choice((0, 1, 0x7F, 0x80, 0xFE, 0xFF))]) + rest[1:]
        case "cut":
            changed = head
        case "remove":
            changed = head + rest[random.choice((1, 1, 2, 4, 8, 64)) :]
        case "double":
            size = random.choice((1, 2, 8, 64, 512))
            changed = head + rest[:size] * random.choice((2, 2, 3, 50)) + rest[size:]
        case "token":
            changed = head + random.choice(TOKENS) + rest[random.choice((0, 0, 1, 4)) :]
        case "number":
            size = random.choice((4, 8))
            number = random.choice(NUMBERS) % (1 << 8 * size)
            changed = head + number.to_bytes(size, random.choice(("little", "big"))) + rest[size:]
        case _:  # a part of it moves
            begin, end = sorted(random.randint(0, len(rest)) for _ in range(2))
            changed = head + rest[begin:end] + rest[:begin] + rest[end:]
    return changed[:MAX_BYTES]
