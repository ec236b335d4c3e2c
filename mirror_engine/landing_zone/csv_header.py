"""Why a text file's header does not name the declared columns: another dialect, other names, or none (LZ-6.5)."""

from __future__ import annotations

import re
from dataclasses import replace
from difflib import get_close_matches
from itertools import product
from typing import TYPE_CHECKING, NamedTuple

from mirror_engine.landing_zone.change import MARKER_COLUMN
from mirror_engine.landing_zone.csv_dialect import BOM, RecordReader, decoded, shown_character
from mirror_engine.landing_zone.diagnostics import RejectedFile
from mirror_engine.landing_zone.schema import folded, listed

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

    from mirror_engine.landing_zone.csv_dialect import TextDialect

HEAD_BYTES = 1 << 16  # of the text that other dialects are tried on
MAX_COMPARED = 20  # names of a header that are compared with all declared ones
_PIECE = 1024  # bytes that are read at once: the first record is wanted alone
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
_BACKSLASH_T = "\\t"
_OTHER_SEPARATORS = (":", "^", "~", " ", _BACKSLASH_T, "\x01", "\x1f", "\uff0c", "\uff1b")  # which cannot be declared
_BYTES_A_CHARACTER = 4  # at most
_FEW_LINES = 5  # before the header, such as a title
_SURE_NAMES = 3  # columns that a first line names and no row has as its cells
_PLAIN = re.compile(r"[A-Za-z0-9_ .-]*")  # such names look the same in every dialect
_MARKER = folded(MARKER_COLUMN)
_SPELLED = {"utf-8": "UTF-8", "utf-16-le": "UTF-16", "utf-16-be": "UTF-16BE", "\t": "\\t", "\n": "\\n", "\r": "\\r"}
_AS_TEXT = "write delimited text, as `FileFormat` says"
AS_READ = "land it as text, or compressed with GZIP or ZSTD"
_FORMATS = {  # by how it begins
    rb"PAR1": ("a Parquet file", "is `FileFormat` `Parquet`? Correct the metadata, or write delimited text"),
    rb"PK\x03\x04": ("a ZIP archive, as Excel writes it", _AS_TEXT),
    rb"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1": ("an old Office file, such as `.xls`", _AS_TEXT),
    rb"\s*(\[\s*[{\]]|\{\s*[\"}])": ("JSON", _AS_TEXT),
    rb"\s*<(!|html|\?xml)": ("HTML or XML", _AS_TEXT),
    rb"Obj\x01": ("an Avro file", _AS_TEXT),
    rb"ORC[^\x00]{0,60}\x00": ("an ORC file", _AS_TEXT),
    rb"%PDF-": ("a PDF file", _AS_TEXT),
    rb"BZh[1-9]1AY&SY": ("compressed with bzip2", AS_READ),
    rb"\xfd7zXZ\x00": ("compressed with xz", AS_READ),
    rb"7z\xbc\xaf\x27\x1c": ("a 7z archive", AS_READ),
    rb"\x1f\x8b\x08|\x28\xb5\x2f\xfd|\xff\x06\x00\x00sNaPpY": ("compressed twice", AS_READ),  # this is the text within
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


def header_fault(
    header: Sequence[str], head: bytes, dialect: TextDialect, declared: Iterable[str], keys: Iterable[str] = ()
) -> HeaderFault:
    """Explain a header that names no declared column.

    A first line that may be a row is not shown.

    Args:
        header: its fields, as they were read.
        head: the first bytes of the text.
        dialect: in which they were read.
        declared: the names of the declared columns.
        keys: those of the key columns.
    """
    names = {folded(name): name for name in declared}
    if other := foreign_format(head):
        return other
    options, changes = _likely(head, dialect, names, keys)
    if "encoding" in changes:
        return HeaderFault("it is in another encoding", _correct(options))
    if options:
        shown = f" {listed([f'`{_shortened(name)}`' for name in header])}"
        is_sure = is_header(_first(head, replace(dialect, **changes)), names)
        return HeaderFault(f"it is {_count(header)}{shown if is_sure else ''}", _correct(options))
    fault = _marked_twice(header, names) or _joined(header, dialect, names, is_foreign=True)
    if fault := fault or _later(head, dialect, names, keys):
        return fault
    near = [other for name in header[:MAX_COMPARED] for other in get_close_matches(folded(_trimmed(name)), names, n=1)]
    if 2 * len(near) >= len(header):
        meant = listed([f"`{names[name]}`" for name in dict.fromkeys(near)])
        found = f"the first line is {_count(header)}"
        return HeaderFault(found, f"did you mean {meant}? Write the names as `SchemaDefinition` has them")
    return _no_header(header) if any(map(_is_value, header)) else _other_names(header, names.values())


def is_header(fields: Iterable[str], declared: Iterable[str]) -> bool:
    """Whether a first line is certainly the header: it names all columns, most of its own fields, or the row marker.

    Any other may be a row with a column's name as a cell, so what else it holds is not shown.
    """
    found, names = [*map(folded, fields)], set(map(folded, declared))
    known = names.intersection(found)
    is_named = known == names or known.issuperset(found)
    return _MARKER in found or is_named or (len(known) >= _SURE_NAMES and 2 * len(known) > len(found))


def partial_fault(
    header: Sequence[str], head: bytes, dialect: TextDialect, declared: Iterable[str], keys: Iterable[str]
) -> HeaderFault | None:
    """Explain a header that names some declared columns by chance, or in part; None if it is right as far as is known.

    See `header_fault`.
    """
    names = {folded(name): name for name in declared}
    known = {*names, _MARKER}
    others = [name for name in header if folded(name) not in known]
    found = set(map(folded, header))
    absent = {key: name for key, name in names.items() if key not in found}
    if fault := _marked_twice(others, names) or _joined(others, dialect, absent, is_foreign=False):
        return fault
    head = head[: _BYTES_A_CHARACTER * sum(len(name) + len('"",') for name in header)]  # no rows: each file pays for it
    if not all(map(_PLAIN.fullmatch, others)) and (options := likely_options(head, dialect, names, keys)):
        return HeaderFault("it names more declared columns if it is read in another way", _correct(options))
    if _MARKER in found or 2 * (len(header) - len(others)) > len(header):
        return None
    wanted = set(map(folded, keys))
    if wanted <= found if wanted else len(header) != len(names):
        return None
    if any(map(_is_value, others)):
        return _no_header(header)
    missing = [f"`{name}`" for name in keys if folded(name) not in found]
    found_instead = f"its {_count(header)} are without the key {listed(missing)}"
    return HeaderFault(found_instead, _other_names(header, names.values()).advice) if wanted else None


def _marked_twice(header: Iterable[str], names: Mapping[str, str]) -> HeaderFault | None:
    """Explain a name with a second byte order mark before it: only the first mark is no part of the text (LZ-6.4)."""
    known = {**names, _MARKER: MARKER_COLUMN}
    for field in header:
        if BOM in field and (name := known.get(folded(_trimmed(field)))):
            return HeaderFault(f"a second byte order mark is before `{name}`", "write one byte order mark, or none")
    return None


def _other_names(header: Sequence[str], declared: Iterable[str]) -> HeaderFault:
    advice = f"write the declared names as the first line: {listed([*declared])}"
    return HeaderFault(f"the first line is {_count(header)}", advice)


def _no_header(header: Sequence[str]) -> HeaderFault:
    found = f"the first line is {_count(header)} and looks like a row"
    return HeaderFault(found, "is `FirstRowAsHeader` false? Write the names of the columns as the first line")


def _is_value(name: str) -> bool:
    return any(_VALUE.fullmatch(_trimmed(cell)) for cell in _SEPARATORS.split(name[:HEAD_BYTES]))


def _joined(
    fields: Sequence[str], dialect: TextDialect, names: Mapping[str, str], *, is_foreign: bool
) -> HeaderFault | None:
    """Explain declared names in one field: the separator differs, or quotes are around them."""
    for field in fields:
        for separator in (*_TRIED["column_separator"], *_OTHER_SEPARATORS):
            if found := _parts(field, separator, names, is_foreign=is_foreign):
                within = listed([f"`{name}`" for name in found])
                declared = shown_character(dialect.column_separator)
                if separator == dialect.column_separator:
                    advice = "put each field into quotes of its own, or none"
                    return HeaderFault(f"one pair of quotes is around {within}", advice)
                shown = "a backslash and `t`" if separator == _BACKSLASH_T else f"`{shown_character(separator)}`"
                advice = f"separate all fields with `{declared}`, as the metadata says"
                advice += "" if separator in _TRIED["column_separator"] else f"; `ColumnSeparator` cannot be {shown}"
                return HeaderFault(f"{shown} is between {within}", advice)
    return None


def _parts(field: str, separator: str, names: Mapping[str, str], *, is_foreign: bool) -> Sequence[str]:
    """Declared names and the marker in a field, split by a separator; empty if it may be one name."""
    field = field[:HEAD_BYTES]
    if separator not in field:
        return ()
    parts = [part for each in field.split(separator) if (part := folded(_trimmed(each)))]
    known = [MARKER_COLUMN if part == _MARKER else names[part] for part in parts if part in names or part == _MARKER]
    is_sure = separator in _TRIED["column_separator"] or is_foreign  # `Order Date` may be a name
    if MARKER_COLUMN in known:
        return known if len(parts) > 1 else ()
    enough = len(known) > 1 and (2 * len(known) >= len(parts) if is_foreign else len(known) == len(parts))
    return known if enough and is_sure else ()


def _later(head: bytes, dialect: TextDialect, names: Iterable[str], keys: Iterable[str]) -> HeaderFault | None:
    """Explain a header below the first line: a title, a comment or Excel's `sep=` is above it."""
    wanted = {*map(folded, names), _MARKER}
    codec = dialect.encoding
    rest, end = head, ("\r" if dialect.row_separator == "\r" else "\n").encode(codec)
    for lines in range(1, _FEW_LINES + 1):
        _, ended, rest = rest.partition(end)
        if not ended:
            break
        if rest.startswith((end, "\r\n".encode(codec))):  # the next line is empty
            continue
        options = likely_options(rest, dialect, names, keys)
        if options or _matches(rest, dialect, wanted, keys):
            also = f"; is {options}? Correct the metadata, too" if options else ""
            found = f"the names of the columns are in line {lines + 1}"
            return HeaderFault(found, f"delete everything before them{also}")
    return None


def foreign_format(head: bytes) -> HeaderFault | None:
    """Explain that a file is of another known format; None if it may be delimited text."""
    for beginning, (what, advice) in _FORMATS.items():
        if re.match(beginning, head):
            return HeaderFault(f"it is {what}", advice)
    return None


def _correct(options: str) -> str:
    return f"is {options}? Correct the metadata, or write the file as the metadata declares"


def meant_name(name: str, declared: Iterable[str]) -> str:
    """The question whether a declared column is meant by a name in a header; `""` if none is like it."""
    names = {folded(each): each for each in declared}
    near = get_close_matches(folded(_trimmed(name)), names, n=1)
    return f"did you mean `{names[near[0]]}`? If not, " if near else ""


def likely_options(head: bytes, dialect: TextDialect, names: Iterable[str], keys: Iterable[str] = ()) -> str:
    """The options, with their values, by which the first line would name most columns; `""` if none are better."""
    return _likely(head, dialect, names, keys)[0]


def _likely(head: bytes, dialect: TextDialect, names: Iterable[str], keys: Iterable[str]) -> tuple[str, dict[str, str]]:
    """See `likely_options`; also as changes of the dialect."""
    wanted = {*map(folded, names), _MARKER}
    best, meant = len(wanted & _first(head, dialect).keys()), dict[str, str]()
    for changes in sorted(_changes(dialect), key=len):
        if (found := _matches(head, replace(dialect, **changes), wanted, keys)) > best:
            best, meant = found, changes
    return " and ".join(f"`{_OPTIONS[name]}` `{_SPELLED.get(to, to)}`" for name, to in meant.items()), meant


def _changes(dialect: TextDialect) -> Iterator[dict[str, str]]:
    declared = {name: getattr(dialect, name) for name in _TRIED}
    for values in product(*(dict.fromkeys((declared[name], *tried)) for name, tried in _TRIED.items())):
        yield {name: to for name, to in zip(_TRIED, values, strict=True) if to != declared[name]}


def _matches(head: bytes, dialect: TextDialect, wanted: Collection[str], keys: Iterable[str]) -> int:
    """Count the wanted names in the first line, read in a dialect; 0 if that reading is wrong.

    A right one names the key and nearly all else, and leaves no name in quotes or beside another one.
    """
    fields = _first(head, dialect)
    found = len([name for name in fields if name in wanted])
    names = {name: name for name in wanted}
    others = [field for name, field in fields.items() if name not in wanted]
    if 2 * found < min(len(fields), len(wanted)) or not fields.keys() >= set(map(folded, keys)):
        return 0
    if any(folded(_trimmed(field)) in wanted for field in others) or _joined(others, dialect, names, is_foreign=False):
        return 0
    return found


def _first(head: bytes, dialect: TextDialect) -> dict[str, str]:
    """The fields of the first line, read in a dialect, by their folded names; none if it cannot be read."""
    try:
        pieces = (head[at : at + _PIECE] for at in range(0, len(head), _PIECE))
        first = next(RecordReader(dialect, "").records(decoded(pieces, dialect.encoding)), [])
    except RejectedFile:
        return {}
    fields = [(name or "").strip(f"{BOM} ") for record in first[:1] for name in record]
    return {folded(field): field for field in fields}


def _trimmed(name: str) -> str:
    return name.strip(f"{BOM}\"' \t").removeprefix(_MISREAD_BOM)


def _count(header: Sequence[str]) -> str:
    return "one field" if len(header) == 1 else f"{len(header)} fields"


def _shortened(name: str) -> str:
    return name if len(name) <= _MAX_NAME else f"{name[:_MAX_NAME]}…"
