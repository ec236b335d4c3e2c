"""Changes what Thrift's compact protocol wrote, as Parquet's footers are: numbers, texts, lists, fields.

https://github.com/apache/thrift/blob/master/doc/specs/thrift-compact-protocol.md
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fuzzing.bytes_mutations import LONGEST, NUMBERS, mutated_bytes

if TYPE_CHECKING:
    from random import Random

TRUE, FALSE, BYTE, I16, I32, I64, DOUBLE, BINARY, LIST, SET, MAP, STRUCT = range(1, 13)
MANY = 100
_INTEGERS = (I16, I32, I64)


@dataclass
class Struct:
    """Fields by id, each with its type."""

    fields: list[tuple[int, int, Any]]


@dataclass
class Several:
    """A list or set of one type; `count` is what it says, true or not."""

    kind: int
    values: list[Any]
    count: int


class Reader:
    """Reads a struct; raises IndexError, ValueError or RecursionError where there is none."""

    def __init__(self, content: bytes) -> None:
        self.content = content
        self.at = 0

    def byte(self) -> int:
        self.at += 1
        return self.content[self.at - 1]

    def varint(self) -> int:
        value = shift = 0
        while True:
            byte = self.byte()
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80 or shift > 70:
                return value

    def struct(self) -> Struct:
        fields, last = [], 0
        while (head := self.byte()) != 0:
            last = last + (head >> 4) if head >> 4 else _unzigzag(self.varint())
            fields.append((last, head & 15, self.value(head & 15)))
        return Struct(fields)

    def value(self, kind: int) -> Any:  # noqa: PLR0911 - one line per kind, read as a table
        match kind:
            case 1 | 2:
                return None
            case 3:
                return self.byte()
            case 4 | 5 | 6:
                return _unzigzag(self.varint())
            case 7:
                self.at += 8
                return self.content[self.at - 8 : self.at]
            case 8:
                size = self.varint()
                self.at += size
                return self.content[self.at - size : self.at]
            case 9 | 10:
                head = self.byte()
                count = head >> 4 if head >> 4 != 15 else self.varint()
                if count > len(self.content):
                    raise ValueError(count)
                inner = head & 15
                return Several(inner, [self.value(BYTE if inner <= FALSE else inner) for _ in range(count)], count)
            case 12:
                return self.struct()
            case _:
                raise ValueError(kind)


def written(value: Any, kind: int = STRUCT) -> bytes:  # noqa: PLR0911 - as above
    """A value as the protocol writes it."""
    match kind:
        case 1 | 2:
            return b""
        case 3:
            return bytes([value & 255])
        case 4 | 5 | 6:
            return _varint(value << 1 ^ value >> 63)
        case 7:
            return bytes(value)
        case 8:
            return _varint(len(value)) + value
        case 9 | 10:
            inner = BYTE if value.kind <= FALSE else value.kind
            return bytes([0xF0 | value.kind]) + _varint(value.count) + b"".join(written(v, inner) for v in value.values)
        case _:
            fields = (bytes([kind]) + _varint(at << 1) + written(inner, kind) for at, kind, inner in value.fields)
            return b"".join(fields) + b"\0"


def mutated_thrift(content: bytes, random: Random) -> bytes:
    """One struct's bytes after one change of it; what follows it stays."""
    reader = Reader(content)
    try:
        found = reader.struct()
    except (IndexError, ValueError, RecursionError):
        return mutated_bytes(content, random)
    _change(found, random)
    return (written(found) + content[reader.at :])[: 2 * LONGEST]


def _change(value: Struct, random: Random) -> None:
    """Change one thing in a struct or below it."""
    if not value.fields:
        value.fields.append((random.randrange(1, 20), I64, random.choice(NUMBERS)))
        return
    at = random.randrange(len(value.fields))
    name, kind, inner = value.fields[at]
    if random.random() < 0.15:
        changed = random.choice((None, (name + 1, kind, inner), (name, kind, inner)))
        value.fields[at : at + 1] = [] if changed is None else [changed, value.fields[at]]
        return
    value.fields[at] = (name, kind, _changed(inner, kind, random))


def _changed(value: Any, kind: int, random: Random) -> Any:
    if kind in _INTEGERS:
        near = value + random.choice((-1, 1, 2, 1 << 20, -(1 << 20)))
        return random.choice((near, -value, value * 2, random.choice(NUMBERS), random.randrange(16)))
    if kind == BINARY:
        return mutated_bytes(value, random)
    if kind in (LIST, SET):
        return _several(value, random)
    if kind == STRUCT:
        _change(value, random)
    return value


def _several(found: Several, random: Random) -> Several:
    roll = random.random()
    if roll < 0.1 or not found.values:
        return Several(found.kind, found.values, random.choice((0, 1, found.count + 1, 1 << 20, 2**31 - 1)))
    at = random.randrange(len(found.values))
    more = 50 if len(found.values) < MANY else 1  # or what grows once grows for ever
    if roll < 0.2:
        values = found.values[:at] + found.values[at:][:1] * random.choice((0, 2, more)) + found.values[at + 1 :]
        return Several(found.kind, values, len(values))
    values = list(found.values)
    values[at] = _changed(values[at], found.kind, random)
    return Several(found.kind, values, found.count)


def _unzigzag(value: int) -> int:
    return value >> 1 ^ -(value & 1)


def _varint(value: int) -> bytes:
    value &= (1 << 64) - 1
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])
