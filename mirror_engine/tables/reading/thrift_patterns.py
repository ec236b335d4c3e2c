"""Regular expressions for structs in Thrift's compact protocol: one match instead of a step for each field.

They know numbers, flags, texts, lists and structs up to a length. What is longer, or nested deeper, they do not match:
whoever uses them reads that field by field (`read_struct`). No two forms match the same bytes, and every repetition is
bounded: so bytes made on purpose cost neither time nor room.
"""

from __future__ import annotations

MAX_TEXT = 40  # bytes: of a UUID, and of most columns' names
MAX_LIST = 6
MAX_FIELDS = 32  # of a struct: each takes room while it is matched

VARINT = rb"[\x80-\xff]{0,8}[\x00-\x7f]"
_FLAGS, _INTEGERS, _BINARY, _LIST, _STRUCT = (1, 2), (4, 6), (8, 8), (9, 9), (12, 12)  # kinds: the first and the last
_STEPS = range(1, 16)  # from one field's number to the next


def head(kinds: tuple[int, int]) -> bytes:
    """What begins a field of one of these kinds, whichever number it has."""
    return b"[%b]" % b"".join(_between(step, kinds) for step in _STEPS)


def one_of(*forms: bytes) -> bytes:
    """One of these forms."""
    return b"(?:%b)" % b"|".join(forms)


def several(form: bytes, kinds: tuple[int, int]) -> bytes:
    """A short list of values of one form, after its field's head."""
    counts = range(MAX_LIST + 1)
    return one_of(*(b"[%b](?:%b){%d}" % (_between(count, kinds), form, count) for count in counts))


def _between(high: int, kinds: tuple[int, int]) -> bytes:
    first, last = (rb"\x%02x" % (high << 4 | kind) for kind in kinds)
    return b"%b-%b" % (first, last)


TEXT = one_of(*(rb"\x%02x.{%d}" % (length, length) for length in range(MAX_TEXT + 1)))
NUMBERS = several(VARINT, _INTEGERS)
TEXTS = rb"\x18" + TEXT  # a list of one
LIST = head(_LIST)
NUMBER = head(_INTEGERS) + VARINT  # a field
_EMPTY = head(_STRUCT) + rb"\x00"
_PLAIN = one_of(NUMBER, head(_FLAGS), head(_BINARY) + TEXT, LIST + NUMBERS, _EMPTY)
FLAT = head(_STRUCT) + _PLAIN + rb"{1,%d}\x00" % MAX_FIELDS  # never empty: what has two forms is tried both ways
BODY = one_of(_PLAIN, FLAT) + rb"{0,%d}\x00" % MAX_FIELDS  # of a struct, after its head
