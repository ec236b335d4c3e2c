"""Regular expressions for structs in Thrift's compact protocol: one match instead of a step for each field.

They know numbers, flags, texts and lists up to a length. What is longer, or nested deeper, they do not match: whoever
uses them reads that field by field (`read_struct`).
"""

from __future__ import annotations

LONGEST_TEXT = 40  # bytes: of a UUID, and of most columns' names
LONGEST_LIST = 6

VARINT = rb"[\x80-\xff]{0,9}[\x00-\x7f]"
_FLAGS, _INTEGERS, _BINARY, _LIST, _STRUCT = (1, 2), (4, 5, 6), 8, 9, 12


def head(*kinds: int) -> bytes:
    """What begins a field of one of these kinds, whichever number it has."""
    return b"[%b]" % b"".join(rb"\x%02x" % (step << 4 | kind) for step in range(1, 16) for kind in kinds)


def one_of(*forms: bytes) -> bytes:
    """One of these forms."""
    return b"(?:%b)" % b"|".join(forms)


def several(form: bytes, kinds: tuple[int, ...]) -> bytes:
    """A short list of values of one form, after its field's head."""
    counts = range(LONGEST_LIST + 1)
    return one_of(*(rb"[%b](?:%b){%d}" % (_list_heads(count, kinds), form, count) for count in counts))


def _list_heads(count: int, kinds: tuple[int, ...]) -> bytes:
    return b"".join(rb"\x%02x" % (count << 4 | kind) for kind in kinds)


TEXT = one_of(*(rb"\x%02x.{%d}" % (length, length) for length in range(LONGEST_TEXT + 1)))
NUMBERS = several(VARINT, _INTEGERS)
TEXTS = rb"\x18" + TEXT  # a list of one
NUMBER = head(*_INTEGERS) + VARINT  # a field
_PLAIN = one_of(NUMBER, head(*_FLAGS), head(_BINARY) + TEXT, head(_LIST) + NUMBERS)
_FLAT = _PLAIN + rb"*\x00"
STRUCT = head(_STRUCT) + _FLAT
NESTED = head(_STRUCT) + one_of(_PLAIN, STRUCT) + rb"*\x00"
BODY = one_of(_PLAIN, NESTED) + rb"*\x00"  # of a struct, after its head
