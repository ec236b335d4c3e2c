"""The pages of a Parquet file by their headers, read before a parser makes room for what these claim.

A page's header may claim 2 GB in a file of a few bytes, or unfold to that. Footer and headers are structs in Thrift's
compact protocol, with fields as in parquet.thrift (https://github.com/apache/parquet-format). A file has as many
headers as pages, and most of what they hold is of no matter here: it is passed over.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from mirror_engine.delta.parquet_footer import broken, too_large

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from typing import BinaryIO

    from mirror_engine.config import Config

PAGE_ROWS = 4  # a page may unfold to as many rows of the longest length allowed; writers make pages of a megabyte
_HEADER_BYTES, _LONGEST_HEADER = 512, 16 * 1024 * 1024
_DEEPEST = 16
_BOOLEANS, _BYTE, _INTEGERS, _DOUBLE, _BINARY, _LISTS, _MAP, _STRUCT = (1, 2), 3, (4, 5, 6), 7, 8, (9, 10), 11, 12
_LONG_FORM = 15  # of a list's length
_MORE = 0x80  # bytes of a number follow

_ROW_GROUPS, _COLUMNS, _META_DATA, _CRYPTO_METADATA = 4, 1, 3, 8
_CODEC, _VALUES, _SPREAD, _BYTES, _DATA_PAGES, _DICTIONARY_PAGE = 4, 5, 6, 7, 9, 11
_CHUNK = {
    _META_DATA: dict.fromkeys((_CODEC, _VALUES, _SPREAD, _BYTES, _DATA_PAGES, _DICTIONARY_PAGE)),
    _CRYPTO_METADATA: {},
}
_SCHEMA = 2
_FOOTER = {_SCHEMA: bytes, _ROW_GROUPS: {_COLUMNS: _CHUNK}}
_UNFOLDED, _PACKED = 2, 3
_PAGE = dict.fromkeys((_UNFOLDED, _PACKED))


@dataclass(frozen=True)
class Chunk:
    """Where the pages of one column of one row group lie, as the footer says.

    Attributes:
        begin, end: of its bytes; the same where it has no pages here.
        unfolded: how many bytes they take without compression.
        codec: they are compressed with, by parquet.thrift's number.
    """

    begin: int = 0
    end: int = 0
    unfolded: int = 0
    codec: int = 0


@dataclass(frozen=True)
class Layout:
    """How a file is laid out, as its footer says.

    Attributes:
        schema: its columns, as they are written there.
        groups: the column chunks of each row group; one that is encrypted or empty has no pages here.
    """

    schema: bytes
    groups: Sequence[Sequence[Chunk]]


def layout_of(footer: bytes, path: str) -> Layout:
    """Read a footer.

    Raises:
        PublisherError: ME024.
    """
    try:
        found, _ = _struct(footer, 0, _FOOTER, 0)
    except (IndexError, ValueError):
        raise broken(path, "its footer cannot be understood") from None
    groups = [[_chunk(column) for column in group.get(_COLUMNS, ())] for group in found.get(_ROW_GROUPS, ())]
    return Layout(found.get(_SCHEMA, b""), groups)


class Unfolded(NamedTuple):
    """How many bytes pages unfold to: all together, and the largest of them."""

    total: int
    largest: int


def check_pages(source: BinaryIO, size: int, chunks: Iterable[Chunk], path: str, config: Config) -> Unfolded:
    """Refuse pages that claim more room than the file has, or than a few of the longest rows need.

    Returns:
        How many bytes they unfold to.

    Raises:
        PublisherError: ME024, ME075.
        StorageUnavailable: the bytes could not be read.
    """
    limit = PAGE_ROWS * config.row_bytes
    total = largest = 0
    for chunk in chunks:
        at = chunk.begin
        while 0 <= at < min(chunk.end, size):
            header, length = _header(source, at, path)
            packed, unfolded = header.get(_PACKED, -1), header.get(_UNFOLDED, -1)
            if min(packed, unfolded) < 0:
                raise broken(path, "a page is said to have no length")
            if at + length + packed > size:
                raise broken(path, "a page is said to be longer than the file")
            if max(packed, unfolded) > limit:
                raise too_large(path, f"a page of {max(packed, unfolded):,} bytes", limit)
            at += length + packed
            total, largest = total + unfolded, max(largest, unfolded)
    return Unfolded(total, largest)


def _chunk(column: Mapping[int, Any]) -> Chunk:
    described = column.get(_META_DATA, {})
    if _CRYPTO_METADATA in column or described.get(_VALUES, 0) <= 0:
        return Chunk()
    begin = described.get(_DATA_PAGES, 0)
    dictionary = described.get(_DICTIONARY_PAGE, 0)
    begin = dictionary if 0 < dictionary < begin else begin
    end = begin + described.get(_BYTES, 0)
    return Chunk(begin, end, described.get(_SPREAD, 0), described.get(_CODEC, 0))


def _header(source: BinaryIO, at: int, path: str) -> tuple[Mapping[int, int], int]:
    """A page's header, and how long it is."""
    for most in (_HEADER_BYTES, _LONGEST_HEADER):
        source.seek(at)
        try:
            return _struct(source.read(most), 0, _PAGE, 0)
        except IndexError:
            continue
        except ValueError:
            break
    raise broken(path, "the header of a page cannot be understood")


def _struct(content: bytes, at: int, wanted: Mapping[int, Any], depth: int) -> tuple[dict[int, Any], int]:
    """The wanted fields of a struct, and where it ends.

    Args:
        content: holds the struct.
        at: where it begins.
        wanted: by field, None for a number, `bytes` for what is written there, else what is wanted of a struct, or of
            each struct of a list.
        depth: how deep it lies.

    Raises:
        IndexError: it does not end.
        ValueError: it is no struct, or a wanted field is of another kind.
    """
    if depth > _DEEPEST:
        raise ValueError(depth)
    found: dict[int, Any] = {}
    name = 0
    while head := content[at]:
        at += 1
        kind = head & 15
        if head >> 4:
            name += head >> 4
        else:
            name, at = _number(content, at)
        if name not in wanted:
            at = _passed(content, at, kind, depth)
        elif wanted[name] is None and kind in _INTEGERS:
            found[name], at = _number(content, at)
        else:
            found[name], at = _value(content, at, kind, wanted[name], depth)
    return found, at + 1


def _value(content: bytes, at: int, kind: int, wanted: Any, depth: int) -> tuple[Any, int]:  # noqa: ANN401 - see `_struct`
    """A wanted value that is no number, and where it ends."""
    if wanted is bytes:
        end = _passed(content, at, kind, depth)
        return content[at:end], end
    if wanted is not None and kind == _STRUCT:
        return _struct(content, at, wanted, depth + 1)
    if wanted is not None and kind in _LISTS:
        return _structs(content, at, wanted, depth + 1)
    raise ValueError(kind)


def _structs(content: bytes, at: int, wanted: Mapping[int, Any], depth: int) -> tuple[list[dict[int, Any]], int]:
    kind, count, at = _list_head(content, at)
    if count and kind != _STRUCT:
        raise ValueError(kind)
    found = []
    for _ in range(count):
        one, at = _struct(content, at, wanted, depth)
        found.append(one)
    return found, at


def _passed(content: bytes, at: int, kind: int, depth: int) -> int:  # noqa: PLR0911 - one line per kind, read as a table
    """Where a value ends."""
    if kind in _INTEGERS:
        return _passed_numbers(content, at, 1)
    if kind == _BINARY:
        length, at = _varint(content, at)
        return at + length
    if kind in _BOOLEANS:
        return at
    if kind == _STRUCT:
        return _passed_struct(content, at, depth + 1)
    if kind in _LISTS:
        inner, count, at = _list_head(content, at)
        if inner in _INTEGERS:
            return _passed_numbers(content, at, count)
        return _passed_all(content, at, [inner] * min(count, len(content)), depth + 1)
    if kind == _MAP:
        count, at = _varint(content, at)
        kinds = [content[at] >> 4, content[at] & 15] if count else []
        return _passed_all(content, at + bool(count), kinds * min(count, len(content)), depth + 1)
    if kind in (_BYTE, _DOUBLE):
        return at + (1 if kind == _BYTE else 8)
    raise ValueError(kind)


def _passed_struct(content: bytes, at: int, depth: int) -> int:
    """Where a struct ends of which nothing is wanted: most of a footer is such, so that calls are spared."""
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
        elif kind == _STRUCT:
            deep += 1
        else:
            at = _passed(content, at, kind, deep)
    if deep > _DEEPEST:
        raise ValueError(deep)
    return at


def _passed_numbers(content: bytes, at: int, count: int) -> int:
    for _ in range(count):
        while content[at] >= _MORE:
            at += 1
        at += 1
    return at


def _passed_all(content: bytes, at: int, kinds: Iterable[int], depth: int) -> int:
    if depth > _DEEPEST:
        raise ValueError(depth)
    for kind in kinds:
        at = _passed(content, at, _BYTE if kind in _BOOLEANS else kind, depth)
    return at


def _list_head(content: bytes, at: int) -> tuple[int, int, int]:
    """The kind of a list's values, how many there are, and where they begin."""
    head = content[at]
    if head >> 4 < _LONG_FORM:
        return head & 15, head >> 4, at + 1
    count, at = _varint(content, at + 1)
    return head & 15, count, at


def _number(content: bytes, at: int) -> tuple[int, int]:
    value = content[at]
    if value < _MORE:
        return value >> 1 ^ -(value & 1), at + 1
    value, at = _varint(content, at)
    return value >> 1 ^ -(value & 1), at


def _varint(content: bytes, at: int) -> tuple[int, int]:
    value = content[at]
    at += 1
    if value < _MORE:
        return value, at
    value &= _MORE - 1
    for shift in range(7, 64, 7):
        byte = content[at]
        at += 1
        value |= (byte & (_MORE - 1)) << shift
        if byte < _MORE:
            return value, at
    raise ValueError(value)
