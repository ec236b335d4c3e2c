"""Footers of Parquet files that are added to a table: what readers need, and nothing that nobody checked.

A footer is one struct in Thrift's compact protocol; `parquet.thrift` names its fields by number. Arrow writes a footer
as it was read, or not at all, so this module rewrites it (decision 63). It does not judge: the file is verified with
its new footer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    Struct: TypeAlias = dict[int, "Value"]
    Fields: TypeAlias = Mapping[int, "Fields | None"]  # of a struct, by number; None: the whole value

_MAX_SHIFT = 63  # of a number's last seven bits
_TRUE, _FALSE, _BYTE, _SHORT, INTEGER, LONG, _DOUBLE, BINARY, LIST, _SET, _MAP, STRUCT, _UUID = range(1, 14)
_FIXED_BYTES = {_BYTE: 1, _DOUBLE: 8, _UUID: 16}
_MANY = 15  # values of a list: from here on their number follows

# Fields of FileMetaData, SchemaElement, RowGroup, ColumnChunk, ColumnMetaData, Statistics and KeyValue
SCHEMA, ROW_GROUPS, KEY_VALUES, COLUMN_ORDERS = 2, 4, 5, 7
CONVERTED_TYPE, LOGICAL_TYPE = 6, 10
COLUMNS, METADATA, ENCODINGS, STATISTICS, MAX, MIN, KEY = 1, 3, 2, 12, 5, 6, 1
PLAIN = 0  # an encoding

# What stays. Readers act on what does not, and Arrow does not: the Arrow schema and other key-value metadata, page
# indexes, Bloom filters, encodings of pages, exactness of bounds, deprecated bounds, numbers of distinct values, places
# and sizes of row groups, sorting columns, field ids, names of other files, encryption.
_KEPT: Fields = {
    1: None,  # version
    SCHEMA: dict.fromkeys([1, 2, 3, 4, 5, CONVERTED_TYPE, 7, 8, LOGICAL_TYPE]),
    3: None,  # number of rows
    ROW_GROUPS: {
        COLUMNS: {
            2: None,  # the place of the metadata, which Thrift requires and no reader uses
            METADATA: {
                **dict.fromkeys([1, ENCODINGS, 3, 4, 5, 6, 7]),  # type, encodings, path, codec, number of values, sizes
                **dict.fromkeys([9, 11]),  # places of the first data page and of the dictionary
                STATISTICS: dict.fromkeys([3, MAX, MIN]),  # number of NULLs, bounds
            },
        },
        **dict.fromkeys([2, 3]),  # size, number of rows
    },
    KEY_VALUES: None,
    6: None,  # written by
}


class Value(NamedTuple):
    """A value in Thrift: a bool, an int, bytes, a struct's fields, or a list of such; None for what is never kept."""

    kind: int
    data: Any
    of: int = 0  # the kind of a list's values


def plain_footer(footer: bytes, kept_keys: Collection[bytes]) -> bytes:
    """A footer without what would outlive the check of its file's rows.

    Bounds are said to be by the types' own order, so that Arrow shows all of them. Each chunk is said to hold plain
    values, as its dictionary does, so that no reader looks for a value in a dictionary alone.

    Args:
        footer: as it is in the file.
        kept_keys: of key-value metadata that stay.

    Raises:
        ValueError: it is not understood.
    """
    try:
        file = _only(read_struct(footer), _KEPT)
        for group in file[ROW_GROUPS].data:
            for chunk in group[COLUMNS].data:
                _make_plain(chunk[METADATA].data)
        if pairs := file.pop(KEY_VALUES, None):
            left = [pair for pair in pairs.data if pair[KEY].data in kept_keys]
            file |= {KEY_VALUES: pairs._replace(data=left)} if left else {}
        by_type = {1: Value(STRUCT, {})}
        columns = len(file[SCHEMA].data) - 1  # none is nested
        file[COLUMN_ORDERS] = Value(LIST, [by_type] * columns, STRUCT)
        return written(file)
    except (LookupError, TypeError, AttributeError, RecursionError) as error:
        raise ValueError("it is no footer of Parquet") from error


def by_converted_types(footer: bytes) -> bytes:
    """A footer as readers see it that go by converted types alone."""
    file = read_struct(footer)
    for element in file[SCHEMA].data:
        element.pop(LOGICAL_TYPE, None)
    return written(file)


def _make_plain(metadata: Struct) -> None:
    encodings = metadata[ENCODINGS]
    if PLAIN not in encodings.data:
        metadata[ENCODINGS] = encodings._replace(data=[*encodings.data, PLAIN])
    bounds = metadata[STATISTICS].data if STATISTICS in metadata else {}
    if not bounds.keys() >= {MAX, MIN}:  # Arrow would not show one alone
        bounds.pop(MAX, None)
        bounds.pop(MIN, None)


def _only(struct: Struct, fields: Fields) -> Struct:
    return {number: _within(struct[number], inner) for number, inner in fields.items() if number in struct}


def _within(value: Value, fields: Fields | None) -> Value:
    if fields is None:
        return value
    inner = [_only(each, fields) for each in value.data] if value.kind == LIST else _only(value.data, fields)
    return value._replace(data=inner)


# ---- Thrift's compact protocol


def read_struct(content: bytes) -> Struct:
    """The struct that bytes begin with.

    Raises:
        IndexError: they end before it does.
        ValueError: they are no Thrift.
    """
    return _Reader(content).struct()


class _Reader:
    def __init__(self, content: bytes) -> None:
        self._content = content
        self._at = 0

    def struct(self) -> Struct:
        fields: Struct = {}
        number = 0
        while head := self._byte():
            number = number + (head >> 4) if head >> 4 else self._integer()
            kind = head & 0x0F
            fields[number] = Value(kind, kind == _TRUE) if kind in {_TRUE, _FALSE} else self._value(kind)
        return fields

    def _value(self, kind: int) -> Value:
        """A value of a struct, or of a list: only there a bool has a byte of its own."""
        data: Any = None
        of = 0
        if kind in {_TRUE, _FALSE}:
            data = self._byte() == _TRUE
        elif kind in {_SHORT, INTEGER, LONG}:
            data = self._integer()
        elif kind == BINARY:
            data = self._bytes(self._number())
        elif kind == STRUCT:
            data = self.struct()
        elif kind in {LIST, _SET}:
            head = self._byte()
            of = head & 0x0F
            count = self._number() if head >> 4 == _MANY else head >> 4
            data = [self._value(of).data for _ in range(count)]
        elif kind == _MAP:
            count = self._number()
            kinds = self._byte() if count else 0
            for _ in range(count):
                self._value(kinds >> 4)
                self._value(kinds & 0x0F)
        elif kind in _FIXED_BYTES:
            data = self._bytes(_FIXED_BYTES[kind])
        else:
            raise ValueError(f"Thrift has no kind {kind}")
        return Value(kind, data, of)

    def _byte(self) -> int:
        self._at += 1
        return self._content[self._at - 1]

    def _bytes(self, count: int) -> bytes:
        self._at += count
        if self._at > len(self._content):
            raise IndexError("the bytes end within a value")
        return self._content[self._at - count : self._at]

    def _number(self) -> int:
        number = shift = 0
        while (byte := self._byte()) >= 0x80:  # noqa: PLR2004 - seven bits, and whether more follow
            number |= (byte & 0x7F) << shift
            shift += 7
            if shift > _MAX_SHIFT:
                raise ValueError("a number is too long")
        return number | byte << shift

    def _integer(self) -> int:
        number = self._number()
        return (number >> 1) ^ -(number & 1)


def written(struct: Struct) -> bytes:
    """A struct as bytes, its fields in order."""
    parts, before = [], 0
    for number, value in sorted(struct.items()):
        kind = (_TRUE if value.data else _FALSE) if value.kind in {_TRUE, _FALSE} else value.kind
        step = number - before
        parts.append(bytes([step << 4 | kind]) if 0 < step < _MANY + 1 else bytes([kind]) + _as_integer(number))
        parts.append(b"" if kind in {_TRUE, _FALSE} else _value(value))
        before = number
    return b"".join([*parts, b"\0"])


def _value(value: Value) -> bytes:
    """A value that is kept; bytes of fixed length are as they were."""
    kind, data = value.kind, value.data
    made: bytes = data
    if kind in {_TRUE, _FALSE}:
        made = bytes([_TRUE if data else _FALSE])
    if kind in {_SHORT, INTEGER, LONG}:
        made = _as_integer(data)
    elif kind == BINARY:
        made = _as_number(len(data)) + data
    elif kind == STRUCT:
        made = written(data)
    elif kind == LIST:
        count = len(data)
        head = bytes([count << 4 | value.of]) if count < _MANY else bytes([_MANY << 4 | value.of]) + _as_number(count)
        made = head + b"".join(_value(Value(value.of, each)) for each in data)
    return made


def _as_number(number: int) -> bytes:
    made = bytearray()
    while number > 0x7F:  # noqa: PLR2004 - seven bits at a time
        made.append(number & 0x7F | 0x80)
        number >>= 7
    made.append(number)
    return bytes(made)


def _as_integer(number: int) -> bytes:
    return _as_number(number << 1 if number >= 0 else ~(number << 1))
