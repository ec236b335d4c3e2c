"""Why a text file's header names no declared column: another dialect, other names, or no header at all (LZ-6.5)."""

from __future__ import annotations

import re
from dataclasses import replace
from difflib import get_close_matches
from itertools import product
from typing import TYPE_CHECKING, NamedTuple

from mirror_engine.landing_zone.csv_dialect import BOM, RecordReader, decoded
from mirror_engine.landing_zone.diagnostics import RejectedFile
from mirror_engine.landing_zone.schema import folded, listed

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from mirror_engine.landing_zone.csv_dialect import TextDialect

HEAD_BYTES = 1 << 16  # of the text that other dialects are tried on
MAX_COMPARED = 20  # names of a header that are compared with all declared ones
_PIECE = 1024  # characters that are read at once: the first record is wanted alone
_MISREAD_BOM = BOM.encode().decode("cp1252")
_MAX_NAME = 100  # characters of a name in a message
_OPTIONS = {
    "encoding": "Encoding",
    "row_separator": "RowSeparator",
    "column_separator": "ColumnSeparator",
    "quote": "QuoteCharacter",
}
_TRIED = {
    "encoding": ("utf-8", "utf-16-le", "utf-16-be"),
    "row_separator": ("\n", "\r"),
    "column_separator": (",", ";", "\t", "|"),
    "quote": ('"', "'"),
}
_SPELLED = {"utf-8": "UTF-8", "utf-16-le": "UTF-16", "utf-16-be": "UTF-16BE", "\t": "\\t", "\n": "\\n", "\r": "\\r"}
_AS_TEXT = "write delimited text, as `FileFormat` says"
_FORMATS = {
    b"PAR1": ("a Parquet file", "is `FileFormat` `Parquet`? Correct the metadata, or write delimited text"),
    b"PK\x03\x04": ("a ZIP archive, as Excel writes it", _AS_TEXT),
    b"[{": ("JSON", _AS_TEXT),
    b'{"': ("JSON", _AS_TEXT),
    b"<!": ("HTML or XML", _AS_TEXT),
    b"<html": ("HTML or XML", _AS_TEXT),
    b"<?xml": ("HTML or XML", _AS_TEXT),
}
_SEPARATORS = re.compile(r"[,;|\t]")
_VALUE = re.compile(  # a number, a date, a boolean, a GUID, an address: no name of a column
    r"[+-]?[0-9][0-9.,' ]*(e[+-]?[0-9]+)?|[0-9]{2,4}[-/.][0-9]{1,2}[-/.][0-9]{1,4}.*|true|false|null"
    r"|\{?[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\}?|[^@]+@[^@]+",
    re.IGNORECASE | re.DOTALL,
)


class HeaderFault(NamedTuple):
    """What a header looks like, and what to do about it."""

    found: str
    advice: str


def header_fault(header: Sequence[str], head: bytes, dialect: TextDialect, declared: Iterable[str]) -> HeaderFault:
    """Explain a header that names no declared column.

    A first line that looks like a row, or may be one, is not shown.

    Args:
        header: its fields, as they were read.
        head: the first bytes of the text.
        dialect: in which they were read.
        declared: the names of the declared columns.
    """
    names = {folded(name): name for name in declared}
    if other := foreign_format(head):
        return other
    options = likely_options(head, dialect, names)
    if _OPTIONS["encoding"] in options:
        return HeaderFault("it is in another encoding", _correct(options))
    shown = f"it is {_count(header)} {listed([f'`{_shortened(name)}`' for name in header])}"
    if options:
        return HeaderFault(shown, _correct(options))
    near = [other for name in header[:MAX_COMPARED] for other in get_close_matches(folded(_trimmed(name)), names, n=1)]
    if near:
        meant = listed([f"`{names[name]}`" for name in dict.fromkeys(near)])
        return HeaderFault(shown, f"did you mean {meant}? Write the names as `SchemaDefinition` has them")
    if any(_VALUE.fullmatch(_trimmed(cell)) for name in header for cell in _SEPARATORS.split(name)):
        found = f"the first line is {_count(header)} and looks like a row"
        return HeaderFault(found, "is `FirstRowAsHeader` false? Write the names of the columns as the first line")
    may_be_row = len(header) == len(names)  # of text alone
    found = f"the first line is {_count(header)}" if may_be_row else shown
    return HeaderFault(found, f"write the declared names as the first line: {listed([*names.values()])}")


def foreign_format(head: bytes) -> HeaderFault | None:
    """Say that a file is no delimited text but of another known format; None if it may be text."""
    for beginning, (what, advice) in _FORMATS.items():
        if head.lstrip().startswith(beginning):
            return HeaderFault(f"it is {what}", advice)
    return None


def _correct(options: str) -> str:
    return f"is {options}? Correct the metadata, or write the file as the metadata says"


def meant_name(name: str, declared: Iterable[str]) -> str:
    """The question whether a declared column is meant by a name in a header; `""` if none is like it."""
    names = {folded(each): each for each in declared}
    near = get_close_matches(folded(_trimmed(name)), names, n=1)
    return f"did you mean `{names[near[0]]}`? If not, " if near else ""


def likely_options(head: bytes, dialect: TextDialect, names: Iterable[str]) -> str:
    """The options, with their values, by which the first line would name most columns; `""` if none are better."""
    wanted = frozenset(map(folded, names))
    best, meant = _matches(head, dialect, wanted), ""
    for changes in sorted(_changes(dialect), key=len):
        if (found := _matches(head, replace(dialect, **changes), wanted)) > best:
            best = found
            meant = " and ".join(f"`{_OPTIONS[name]}` `{_SPELLED.get(to, to)}`" for name, to in changes.items())
    return meant


def _changes(dialect: TextDialect) -> Iterator[dict[str, str]]:
    declared = {name: getattr(dialect, name) for name in _TRIED}
    for values in product(*((declared[name], *tried) for name, tried in _TRIED.items())):
        yield {name: to for name, to in zip(_TRIED, values, strict=True) if to != declared[name]}


def _matches(head: bytes, dialect: TextDialect, wanted: frozenset[str]) -> int:
    """How many wanted names are in the first line, read in a dialect."""
    try:
        texts = decoded([head], dialect.encoding)  # it may end within a character
        pieces = (text[at : at + _PIECE] for text in texts for at in range(0, len(text), _PIECE))
        first = next(RecordReader(dialect, "").records(pieces), [])
    except RejectedFile:
        return 0
    return len({folded((name or "").strip(f"{BOM} ")) for record in first[:1] for name in record} & wanted)


def _trimmed(name: str) -> str:
    return name.strip(f"{BOM}\"' \t").removeprefix(_MISREAD_BOM)


def _count(header: Sequence[str]) -> str:
    return "one field" if len(header) == 1 else f"{len(header)} fields"


def _shortened(name: str) -> str:
    return name if len(name) <= _MAX_NAME else f"{name[:_MAX_NAME]}…"
