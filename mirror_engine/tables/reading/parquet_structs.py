"""What is wanted of a Parquet file's footer and of its pages' headers (https://github.com/apache/parquet-format).

Fields are numbered as in parquet.thrift. A file has as many headers as pages, and most of what they and the footer hold
is of no matter here, but for lists, which Arrow reads by the kind that parquet.thrift says. Writers' usual forms are
found by a pattern each.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from mirror_engine.tables.reading.thrift import BINARY, I32, I64, STRUCT, Struct, number
from mirror_engine.tables.reading.thrift_patterns import (
    BODY,
    FLAT,
    LIST,
    NUMBER,
    NUMBERS,
    TEXTS,
    VARINT,
    one_of,
    several,
)

if TYPE_CHECKING:
    from mirror_engine.tables.reading.thrift import Bytes, Found

SCHEMA, ROW_GROUPS, COLUMNS, META_DATA, CRYPTO_METADATA = 2, 4, 1, 3, 8
CODEC, VALUES, SPREAD, BYTES, DATA_PAGES, DICTIONARY_PAGE = 4, 5, 6, 7, 9, 11
UNFOLDED, PACKED, VALUES_PAGE, VALUES_PAGE_V2 = 2, 3, 5, 8
ENCODING, ENCODING_V2 = 2, 4

_DESCRIBED = {CODEC: I32, VALUES: I64, SPREAD: I64, BYTES: I64, DATA_PAGES: I64, DICTIONARY_PAGE: I64}
_COUNTED = rb"\x15%b\x15%b\x15%b\x00" % (VARINT, VARINT, VARINT)  # pages of one kind and encoding, counted
_VALUES_V1 = rb"\x15%b\x15(%b)" % (VARINT, VARINT)  # how many, and how they are encoded
_VALUES_V2 = rb"\x15%b\x15%b\x15%b\x15(%b)" % (VARINT, VARINT, VARINT, VARINT)
_USUAL_PAGE = re.compile(
    rb"\x15%b\x15(%b)\x15(%b)%b%b\x00"
    % (
        *(VARINT, VARINT, VARINT),
        one_of(  # with values in either version, or a dictionary; without a checksum, or behind one
            *(rb"\x2c" + _VALUES_V1, rb"\x5c" + _VALUES_V2, rb"\x4c"),
            rb"\x15%b%b" % (VARINT, one_of(rb"\x1c" + _VALUES_V1, rb"\x4c" + _VALUES_V2, rb"\x3c")),
        ),
        BODY,
    ),
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
    unfolded, packed, first, second, first_checked, second_checked = found.groups()
    told: dict[int, Any] = {UNFOLDED: number(unfolded), PACKED: number(packed)}
    if first or first_checked:
        told[VALUES_PAGE] = {ENCODING: number(first or first_checked)}
    elif second or second_checked:
        told[VALUES_PAGE_V2] = {ENCODING_V2: number(second or second_checked)}
    return told, found.end()


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
_PAGES = {VALUES_PAGE: Struct({ENCODING: I32}), VALUES_PAGE_V2: Struct({ENCODING_V2: I32})}
PAGE = Struct({UNFOLDED: I32, PACKED: I32, **_PAGES}, usual=_usual_page)
