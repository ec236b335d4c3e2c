"""What is wanted of a Parquet file's footer and of its pages' headers (https://github.com/apache/parquet-format).

Fields are numbered as in parquet.thrift. A file has as many headers as pages, and most of what they and the footer hold
is of no matter here, but for lists, which Arrow reads by the kind that parquet.thrift says. Writers' usual forms are
found by a pattern each.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from mirror_engine.delta.thrift import BINARY, I32, I64, STRUCT, Struct, number
from mirror_engine.delta.thrift_patterns import FLAT, LIST, NESTED, NUMBER, NUMBERS, TEXTS, VARINT, one_of, several

if TYPE_CHECKING:
    from mirror_engine.delta.thrift import Bytes, Found

SCHEMA, ROW_GROUPS, COLUMNS, META_DATA, CRYPTO_METADATA = 2, 4, 1, 3, 8
CODEC, VALUES, SPREAD, BYTES, DATA_PAGES, DICTIONARY_PAGE = 4, 5, 6, 7, 9, 11
UNFOLDED, PACKED = 2, 3

_DESCRIBED = {CODEC: I32, VALUES: I64, SPREAD: I64, BYTES: I64, DATA_PAGES: I64, DICTIONARY_PAGE: I64}
_COUNTED = rb"\x15%b\x15%b\x15%b\x00" % (VARINT, VARINT, VARINT)  # pages of one kind and encoding, counted
_USUAL_PAGE = re.compile(
    rb"\x15%b\x15(%b)\x15(%b)%b{0,8}\x00" % (VARINT, VARINT, VARINT, one_of(NUMBER, NESTED)),
    re.DOTALL,
)
_USUAL_CHUNK = re.compile(
    rb"\x26%b\x1c"  # where it begins; what describes it
    rb"\x15%b\x19%b\x19%b\x15(%b)"  # its type, encodings, name, codec
    rb"\x16(%b)\x16(%b)\x16(%b)"  # how many values, how large
    rb"\x26(%b)(?:\x26(%b)|(?=[\x00\x30-\xff]))"  # the first page with values; that with the dictionary, if any
    rb"%b{0,8}\x00(?:[\x14-\x16]%b){0,4}\x00"
    % (
        *(VARINT, VARINT, NUMBERS, TEXTS),
        *([VARINT] * 6),
        one_of(FLAT, LIST + several(_COUNTED, (12, 12)), NUMBER),
        VARINT,
    ),
    re.DOTALL,
)


def _usual_page(content: Bytes, at: int) -> Found | None:
    found = _USUAL_PAGE.match(content, at)
    if found is None:
        return None
    unfolded, packed = found.groups()
    return {UNFOLDED: number(unfolded), PACKED: number(packed)}, found.end()


def _usual_chunk(content: Bytes, at: int) -> Found | None:
    found = _USUAL_CHUNK.match(content, at)
    if found is None:
        return None
    described = {name: number(value) for name, value in zip(_DESCRIBED, found.groups(), strict=True) if value}
    return {META_DATA: described}, found.end()


_SIZES = Struct({}, {2: I64, 3: I64})
_PLACES = Struct({}, {2: I32})
_LISTS_OF_A_COLUMN = {2: I32, 3: BINARY, 8: STRUCT, 13: STRUCT}  # encodings, name, words of its own, pages counted
_COLUMN = Struct(_DESCRIBED, {**_LISTS_OF_A_COLUMN, 16: _SIZES, 17: _PLACES})
_ENCRYPTED = Struct({}, {2: Struct({}, {1: BINARY})})
_CHUNK = Struct({META_DATA: _COLUMN, CRYPTO_METADATA: _ENCRYPTED}, usual=_usual_chunk)
_GROUP = Struct({COLUMNS: [_CHUNK]}, {4: STRUCT})
FOOTER = Struct({SCHEMA: bytes, ROW_GROUPS: [_GROUP]}, {5: STRUCT, 7: STRUCT})
PAGE = Struct({UNFOLDED: I32, PACKED: I32}, usual=_usual_page)
