"""Structs in Thrift's compact protocol (https://github.com/apache/thrift), as far as one is wanted.

Only what is wanted is kept; all else is passed over, however it is nested.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from mirror_engine.tables.reading.thrift_patterns import BODY

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

Bytes: TypeAlias = "bytes | memoryview"
Found: TypeAlias = "tuple[dict[int, Any], int]"

_DEEPEST = 16
I32, I64, BINARY, STRUCT = 5, 6, 8, 12
_BOOLEANS, _BYTE, _INTEGERS, _DOUBLE, _LISTS, _MAP = (1, 2), 3, (4, 5, 6), 7, (9, 10), 11
_LIST = 9
_LAST_FIELD = (1 << 15) - 1
_BITS = 64
_LONG_FORM = 15  # of a list's length
_MORE = 0x80  # bytes of a number follow
_USUAL = re.compile(BODY, re.DOTALL)


def _never(_content: Bytes, _at: int) -> None:
    """No form is usual."""


class Struct(NamedTuple):
    """What is wanted of a struct.

    Attributes:
        fields: by number; `I32` or `I64` for a number, `bytes` for a list as it is written, a `Struct` for a struct,
            `[Struct]` for a list of such.
        lists: of lists that are not wanted, by number, the kind of their values, for other readers go by that, whatever
            kind is written; of structs in which such lists are, a `Struct`.
        usual: finds the same at once in a struct of the usual form, and where it ends; None in any other.
    """

    fields: Mapping[int, Any]
    lists: Mapping[int, int | Struct] = {}
    usual: Callable[[Bytes, int], Found | None] = _never


def read_struct(content: Bytes, at: int, wanted: Struct, depth: int = 0) -> Found:
    """The wanted fields of a struct by their numbers, and where it ends.

    Args:
        content: holds the struct.
        at: where it begins.
        wanted: of it.
        depth: how deep it lies.

    Raises:
        IndexError: it does not end.
        ValueError: it is no struct; or other readers may understand it otherwise, for a wanted field is of another kind
            or there twice, or a field's number is none.
    """
    if depth > _DEEPEST:
        raise ValueError(depth)
    return wanted.usual(content, at) or _fields(content, at, wanted, depth)


def _fields(content: Bytes, at: int, struct: Struct, depth: int) -> Found:
    found: dict[int, Any] = {}
    wanted = struct.fields
    name = 0
    while head := content[at]:
        at += 1
        kind = head & 15
        if head >> 4:
            name += head >> 4
        else:
            name, at = _number(content, at)
        if not 0 <= name <= _LAST_FIELD or name in found:
            raise ValueError(name)
        if name not in wanted:
            at = _passed_known(content, at, kind, struct.lists.get(name), depth)
        elif kind == wanted[name]:
            found[name], at = _number(content, at)
        else:
            found[name], at = _value(content, at, kind, wanted[name], depth)
    return found, at + 1


def _value(content: Bytes, at: int, kind: int, wanted: Any, depth: int) -> tuple[Any, int]:  # noqa: ANN401 - see `Struct`
    """A wanted value that is no number, and where it ends."""
    if wanted is bytes and kind == _LIST:
        _check_values(content, at, STRUCT)
        end = _passed(content, at, kind, depth)
        return bytes(content[at:end]), end
    if isinstance(wanted, Struct) and kind == STRUCT:
        return read_struct(content, at, wanted, depth + 1)
    if isinstance(wanted, list) and kind == _LIST:
        return _structs(content, at, wanted[0], depth + 1)
    raise ValueError(kind)


def _passed_known(content: Bytes, at: int, kind: int, known: int | Struct | None, depth: int) -> int:
    """Where a value ends that is not wanted."""
    if isinstance(known, Struct):
        return read_struct(content, at, known, depth + 1)[1] if kind == STRUCT else _passed(content, at, kind, depth)
    if known is not None and kind == _LIST:
        _check_values(content, at, known)
    return _passed(content, at, kind, depth)


def _check_values(content: Bytes, at: int, wanted: int) -> None:
    """Refuse a list of values of another kind; numbers are all written alike."""
    kind, count, _ = _list_head(content, at)
    if count and kind != wanted and not (kind in _INTEGERS and wanted in _INTEGERS):
        raise ValueError(kind)


def _structs(content: Bytes, at: int, wanted: Struct, depth: int) -> tuple[list[dict[int, Any]], int]:
    _check_values(content, at, STRUCT)
    _, count, at = _list_head(content, at)
    found = []
    for _ in range(count):
        one, at = read_struct(content, at, wanted, depth)
        found.append(one)
    return found, at


def _passed(content: Bytes, at: int, kind: int, depth: int) -> int:  # noqa: PLR0911 - one line per kind, read as a table
    """Where a value ends."""
    if kind in _INTEGERS:
        return _passed_numbers(content, at, 1)
    if kind == BINARY:
        length, at = _varint(content, at)
        return at + length
    if kind in _BOOLEANS:
        return at
    if kind == STRUCT:
        return _passed_struct(content, at, depth + 1)
    if kind in _LISTS:
        inner, count, at = _list_head(content, at)
        if inner in _INTEGERS:
            return _passed_numbers(content, at, count)
        if inner == STRUCT:
            return _passed_structs(content, at, count, depth + 1)
        return _passed_all(content, at, [inner] * min(count, len(content)), depth + 1)
    if kind == _MAP:
        count, at = _varint(content, at)
        kinds = [content[at] >> 4, content[at] & 15] if count else []
        return _passed_all(content, at + bool(count), kinds * min(count, len(content)), depth + 1)
    if kind in (_BYTE, _DOUBLE):
        return at + (1 if kind == _BYTE else 8)
    raise ValueError(kind)


def _passed_struct(content: Bytes, at: int, depth: int) -> int:
    """Where a struct ends of which nothing is wanted: most of a footer is such, so that calls are spared."""
    if usual := _USUAL.match(content, at):
        return usual.end()
    deep = depth
    while depth <= deep <= _DEEPEST:
        head = content[at]
        at += 1
        kind = head & 15
        if not head:
            deep -= 1
            continue
        if not head >> 4:
            _, at = _varint(content, at)
        if kind in _INTEGERS:
            while content[at] >= _MORE:
                at += 1
            at += 1
        elif kind == STRUCT:
            deep += 1
        else:
            at = _passed(content, at, kind, deep)
    if deep > _DEEPEST:
        raise ValueError(deep)
    return at


def _passed_structs(content: Bytes, at: int, count: int, depth: int) -> int:
    for _ in range(count):
        at = _passed_struct(content, at, depth)
    return at


def _passed_numbers(content: Bytes, at: int, count: int) -> int:
    for _ in range(count):
        while content[at] >= _MORE:
            at += 1
        at += 1
    return at


def _passed_all(content: Bytes, at: int, kinds: Iterable[int], depth: int) -> int:
    if depth > _DEEPEST:
        raise ValueError(depth)
    for kind in kinds:
        at = _passed(content, at, _BYTE if kind in _BOOLEANS else kind, depth)
    return at


def _list_head(content: Bytes, at: int) -> tuple[int, int, int]:
    """The kind of a list's values, how many there are, and where they begin."""
    head = content[at]
    if head >> 4 < _LONG_FORM:
        return head & 15, head >> 4, at + 1
    count, at = _varint(content, at + 1)
    return head & 15, count, at


@lru_cache(maxsize=10_000)
def number(content: bytes) -> int:
    """A number that is written so."""
    value = 0
    for byte in reversed(content):
        value = value << 7 | byte & (_MORE - 1)
    return value >> 1 ^ -(value & 1)


def _number(content: Bytes, at: int) -> tuple[int, int]:
    value = content[at]
    if value < _MORE:
        return value >> 1 ^ -(value & 1), at + 1
    value, at = _varint(content, at)
    return value >> 1 ^ -(value & 1), at


def _varint(content: Bytes, at: int) -> tuple[int, int]:
    value = content[at]
    at += 1
    if value < _MORE:
        return value, at
    value &= _MORE - 1
    for shift in range(7, 64, 7):
        byte = content[at]
        at += 1
        value |= (byte & (_MORE - 1)) << shift
        if byte < _MORE and value < 1 << _BITS:
            return value, at
    raise ValueError(value)
