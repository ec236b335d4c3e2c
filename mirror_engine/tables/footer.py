"""Footers of Parquet files that are added to a table: what readers need, and nothing that nobody checked.

A footer is one struct in Thrift's compact protocol; `parquet.thrift` names its fields by number. Arrow writes a footer
as it was read, or not at all, so this module rewrites it. It does not judge: the file is verified with
its new footer. Why: docs/decisions/plain-footer.md.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping
    from typing import BinaryIO

    Struct: TypeAlias = dict[int, "Value"]
    Fields: TypeAlias = Mapping[int, "Fields | None"]  # of a struct, by number; None: the whole value

_MAX_SHIFT = 63  # of a number's last seven bits
_TRUE, _FALSE, _BYTE, _SHORT, INTEGER, LONG, _DOUBLE, BINARY, LIST, _SET, _MAP, STRUCT, _UUID = range(1, 14)
_FIXED_BYTES = {_BYTE: 1, _DOUBLE: 8, _UUID: 16}
_BOOLS, _INTEGERS = frozenset({_TRUE, _FALSE}), {_SHORT: 16, INTEGER: 32, LONG: 64}  # with their bits
_MANY = 15  # values of a list: from here on their number follows

# Fields of FileMetaData, SchemaElement, RowGroup, ColumnChunk, ColumnMetaData, Statistics and KeyValue
SCHEMA, ROWS, ROW_GROUPS, KEY_VALUES, COLUMN_ORDERS = 2, 3, 4, 5, 7
TYPE, NAME, CONVERTED_TYPE, SCALE, PRECISION, LOGICAL_TYPE = 1, 4, 6, 7, 8, 10
COLUMNS, METADATA, ENCODINGS, PATH, STATISTICS, MAX, MIN, KEY = 1, 3, 2, 3, 12, 5, 6, 1
PLAIN = 0  # an encoding
_TYPE_LENGTH, _REPETITION, _OPTIONAL, _WRITER, _GROUP_ROWS, _CHUNK_VALUES, _CHUNK_SIZE = 2, 3, 1, 6, 3, 5, 7
_DATA_PLACE, _DICTIONARY_PLACE = 9, 11
_BOUND_BYTES = {0: 1, 1: 4, 2: 8, 3: 12, 4: 4, 5: 8}  # by physical type: of boolean, int32, int64, int96, float, double
_BYTE_ARRAY = 6

# Fields of PageHeader, DataPageHeader and DataPageHeaderV2
_PAGE_KIND, _PAGE_SIZE, _PAGE_VALUES, _PAGE_LEVELS = 1, 3, 1, 3
_DATA_PAGE, _DICTIONARY_PAGE, _DATA_PAGE_V2 = 0, 2, 3
_PAGE_HEADERS = {_DATA_PAGE: 5, _DICTIONARY_PAGE: 7, _DATA_PAGE_V2: 8}
_PAGE_ENCODINGS = {_DATA_PAGE: 2, _DATA_PAGE_V2: 4}
_RLE = 3
_KNOWN_ENCODINGS = {PLAIN, 2, _RLE, 4, 8}  # dictionary, bit-packed, and dictionary as RLE
_HEADER_BYTES = 1 << 16

# What stays. Readers act on what does not, and Arrow does not: the Arrow schema and other key-value metadata, page
# indexes, Bloom filters, encodings of pages, exactness of bounds, deprecated bounds, numbers of distinct values, places
# and sizes of row groups, sorting columns, field ids, names of other files, encryption.
_KEPT: Fields = {
    1: None,  # version
    SCHEMA: dict.fromkeys([TYPE, 2, 3, NAME, 5, CONVERTED_TYPE, 7, 8, LOGICAL_TYPE]),
    ROWS: None,
    ROW_GROUPS: {
        COLUMNS: {
            2: None,  # the place of the metadata, which Thrift requires and no reader uses
            METADATA: {
                **dict.fromkeys([TYPE, ENCODINGS, PATH, 4, 5, 6, 7]),  # …, codec, number of values, sizes
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
    """Rewrite a footer without metadata that would outlive the check of its file's rows.

    Bounds are said to be by the types' own order, so that Arrow shows all of them. Each chunk is said to hold plain
    values, as its dictionary does, so that no reader looks for a value in a dictionary alone.

    Args:
        footer: as it is in the file.
        kept_keys: of key-value metadata that stay.

    Raises:
        ValueError: it is not understood, or contradicts itself.
    """
    try:
        file = _only(read_struct(footer), _KEPT)
        for element in file[SCHEMA].data:
            element[NAME].data.decode()
        file[_WRITER] = file.get(_WRITER, Value(BINARY, b""))
        file[_WRITER].data.decode()
        elements = file[SCHEMA].data[1:]  # after the root; no column is nested
        for group in file[ROW_GROUPS].data:
            for element, chunk in zip(elements, group[COLUMNS].data, strict=True):
                _make_plain(chunk[METADATA].data, element)
        if pairs := file.pop(KEY_VALUES, None):
            left = [pair for pair in pairs.data if pair[KEY].data in kept_keys]
            if len({pair[KEY].data for pair in left}) < len(left):
                raise ValueError("a key comes twice")
            file |= {KEY_VALUES: pairs._replace(data=left)} if left else {}
        by_type = {1: Value(STRUCT, {})}
        file[COLUMN_ORDERS] = Value(LIST, [by_type] * len(elements), STRUCT)
        return written(file)
    except (LookupError, TypeError, AttributeError) as error:
        raise ValueError("it is not a Parquet footer") from error


def by_converted_types(footer: bytes) -> bytes:
    """The schema of a footer for readers that know converted types only."""
    file = read_struct(footer, last=SCHEMA)
    for element in file[SCHEMA].data:
        element.pop(LOGICAL_TYPE, None)
    return written({**file, ROWS: Value(LONG, 0), ROW_GROUPS: Value(LIST, [], STRUCT)})


def _make_plain(metadata: Struct, element: Struct) -> None:
    # Spark knows a chunk by its path, Arrow by its place; if its type is unknown, Arrow's bounds end the process
    if (metadata[TYPE].data, metadata[PATH].data) != (element[TYPE].data, [element[NAME].data]):
        raise ValueError("a chunk is not that of its column")
    encodings = metadata[ENCODINGS]
    if PLAIN not in encodings.data:
        metadata[ENCODINGS] = encodings._replace(data=[*encodings.data, PLAIN])
    if len(element[LOGICAL_TYPE].data if LOGICAL_TYPE in element else [0]) != 1:
        raise ValueError("a column has not one logical type")
    bounds = metadata[STATISTICS].data if STATISTICS in metadata else {}
    if not bounds.keys() >= {MAX, MIN}:  # Arrow would not show one alone
        bounds.pop(MAX, None)
        bounds.pop(MIN, None)
        return
    size = element[_TYPE_LENGTH].data if _TYPE_LENGTH in element else None
    size = _BOUND_BYTES.get(element[TYPE].data, size)
    if element[TYPE].data != _BYTE_ARRAY and {len(bounds[MAX].data), len(bounds[MIN].data)} != {size}:
        raise ValueError("a bound is not as long as its type")  # it would end the process


def check_pages(file: BinaryIO, footer: bytes) -> None:
    """Check all page headers of flat columns against their plain footer, because readers use different ones.

    Raises:
        ValueError: pages do not fill their chunk, hold another number of values than it or its group, or are encoded in
            a way that not every reader knows.
        OSError: the file cannot be read.
    """
    try:
        known = read_struct(footer)
        for group in known[ROW_GROUPS].data:
            for element, chunk in zip(known[SCHEMA].data[1:], group[COLUMNS].data, strict=True):
                is_optional = element[_REPETITION].data == _OPTIONAL
                _check_chunk_pages(file, chunk[METADATA].data, group[_GROUP_ROWS].data, is_optional=is_optional)
    except (LookupError, TypeError, AttributeError, RecursionError) as error:
        raise ValueError("its pages are not those of Parquet") from error


def _check_chunk_pages(file: BinaryIO, metadata: Struct, rows: int, *, is_optional: bool) -> None:
    data = begin = metadata[_DATA_PLACE].data
    if _DICTIONARY_PLACE in metadata:
        begin = metadata[_DICTIONARY_PLACE].data
        if not 0 < begin < data:
            raise ValueError("a dictionary comes after its values")
    at, end, values = begin, begin + metadata[_CHUNK_SIZE].data, 0
    while at < end:
        file.seek(at)
        reader = _Reader(file.read(min(_HEADER_BYTES, end - at)))
        page = reader.struct()
        kind = page[_PAGE_KIND].data
        header = page[_PAGE_HEADERS[kind]].data
        if page[_PAGE_SIZE].data < 0 or header[_PAGE_VALUES].data < 0:
            raise ValueError("a page has a negative size or number of values")
        if kind == _DICTIONARY_PAGE and (at != begin or begin == data):
            raise ValueError("a dictionary is in the middle of a chunk")
        if kind != _DICTIONARY_PAGE:
            values += header[_PAGE_VALUES].data
            if header[_PAGE_ENCODINGS[kind]].data not in _KNOWN_ENCODINGS:
                raise ValueError("not every reader supports a page's encoding")
            if kind == _DATA_PAGE and is_optional and header[_PAGE_LEVELS].data != _RLE:
                raise ValueError("not every reader supports the encoding of a page's NULLs")
        at += reader.at + page[_PAGE_SIZE].data
    if at != end or not values == metadata[_CHUNK_VALUES].data == rows:
        raise ValueError("the size of pages differs from the footer")


def _only(struct: Struct, fields: Fields) -> Struct:
    return {number: _within(struct[number], inner) for number, inner in fields.items() if number in struct}


def _within(value: Value, fields: Fields | None) -> Value:
    if fields is None:
        return value
    inner = [_only(each, fields) for each in value.data] if value.kind == LIST else _only(value.data, fields)
    return value._replace(data=inner)


# ---- Thrift's compact protocol


def read_struct(content: bytes, last: int = 0) -> Struct:
    """The struct that bytes begin with; where `last` is a field's number, no further than that.

    Raises:
        IndexError: they end before it does.
        ValueError: they are no Thrift, or nested too deeply.
    """
    try:
        return _Reader(content).struct(last)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


class _Reader:
    """Reads bytes from the first on; `at` is the next one."""

    def __init__(self, content: bytes) -> None:
        self._content = content
        self.at = 0

    def struct(self, last: int = 0) -> Struct:
        fields: Struct = {}
        number = 0
        while head := self._byte():
            kind = head & 0x0F
            number = number + (head >> 4) if head >> 4 else self._integer(_SHORT)
            # the head says which bool; in a list it has a byte of its own
            fields[number] = Value(kind, kind == _TRUE) if kind in _BOOLS else self._value(kind)
            if number == last:
                break
        return fields

    def _value(self, kind: int) -> Value:
        data: Any = None
        of = 0
        if kind in _INTEGERS:
            data = self._integer(kind)
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
        elif kind in _BOOLS:
            data = self._byte() == _TRUE
        elif kind in _FIXED_BYTES:
            data = self._bytes(_FIXED_BYTES[kind])
        else:
            raise ValueError(f"Thrift has no kind {kind}")
        return Value(kind, data, of)

    def _byte(self) -> int:
        self.at += 1
        return self._content[self.at - 1]

    def _bytes(self, size: int) -> bytes:
        self.at += size
        if self.at > len(self._content):
            raise IndexError("the bytes end within a value")
        return self._content[self.at - size : self.at]

    def _number(self) -> int:
        byte = self._byte()
        number, shift = byte & 0x7F, 7
        while byte > 0x7F:  # noqa: PLR2004 - seven bits, and whether more follow
            if shift > _MAX_SHIFT:
                raise ValueError("a number is too long")
            byte = self._byte()
            number |= (byte & 0x7F) << shift
            shift += 7
        return number

    def _integer(self, kind: int) -> int:
        number = self._number()
        if number >> _INTEGERS[kind]:  # some readers cut it off
            raise ValueError("a number is too long for its type")
        return (number >> 1) ^ -(number & 1)


def written(struct: Struct) -> bytes:
    """A struct as bytes, its fields in order."""
    made = bytearray()
    _write_fields(made, struct)
    return bytes(made)


def _write_fields(made: bytearray, struct: Struct) -> None:
    before = 0
    for number in sorted(struct):
        kind, data, of = struct[number]
        if kind in _BOOLS:
            kind = _TRUE if data else _FALSE
        if 0 < number - before <= _MANY:
            made.append(number - before << 4 | kind)
        else:
            made.append(kind)
            _write_integer(made, number)
        if kind not in _BOOLS:
            _write(made, kind, data, of)
        before = number
    made.append(0)


def _write(made: bytearray, kind: int, data: Any, of: int = 0) -> None:  # noqa: ANN401 - as `Value` has it
    """Write a value that is kept; bytes of fixed length are as they were."""
    if kind in _INTEGERS:
        _write_integer(made, data)
    elif kind == BINARY:
        _write_number(made, len(data))
        made += data
    elif kind == STRUCT:
        _write_fields(made, data)
    elif kind == LIST:
        made.append(min(len(data), _MANY) << 4 | of)
        if len(data) >= _MANY:
            _write_number(made, len(data))
        for each in data:
            _write(made, of, each)
    elif kind in _BOOLS:
        made.append(_TRUE if data else _FALSE)
    else:
        made += data


def _write_number(made: bytearray, number: int) -> None:
    while number > 0x7F:  # noqa: PLR2004 - seven bits at a time
        made.append(number & 0x7F | 0x80)
        number >>= 7
    made.append(number)


def _write_integer(made: bytearray, number: int) -> None:
    _write_number(made, number << 1 if number >= 0 else ~(number << 1))
