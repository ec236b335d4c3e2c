"""The text dialect, and the reader of its records and cells (LZ-6.2 to LZ-6.4, LZ-6.8).

A cell is `None` for NULL: an unquoted empty field, or unquoted `NullValue`. Row numbers are 1-based and count
data rows only: neither the header nor blank lines. Text right after a closing quote (`"a"b`) is refused: it may be a
quote that was not escaped, which would shift the row's cells.
"""

from __future__ import annotations

import codecs
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from mirror_engine.landing_zone.change import MARKER_COLUMN
from mirror_engine.landing_zone.diagnostics import RejectedFile, diagnose
from mirror_engine.landing_zone.json_reader import (
    JsonObject,
    Unreadable,
    boolean,
    by_name,
    either,
    json_object,
    name,
    text,
)
from mirror_engine.landing_zone.schema import Column, folded

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from mirror_engine.landing_zone.json_reader import PropertyReader

Record = list["str | None"]

LONG_LINE = 64 * 1024  # characters; a longer line is read cell by cell, with their number bounded
MAX_COLUMNS = 100_000  # in a header; a thousand times Fabric's limit
_RUN = 1000  # escapes matched at once: a match without bound would cost 100 times the text's memory


@dataclass(frozen=True)
class TextDialect:
    """The options of delimited text (LZ-6.2), each a valid one."""

    row_separator: str = "\r\n"
    column_separator: str = ","
    quote: str = '"'
    escape: str = "\\"
    null_value: str = ""
    encoding: str = "utf-8"


@dataclass(frozen=True)
class RecordLimits:
    """Limits of a record, and the path in messages.

    Attributes:
        path: of the file, for messages.
        row_bytes: longest record, its line ends included, in bytes of UTF-8.
        strict: whether severities are those of `strict`.
    """

    path: str
    row_bytes: int = 64 * 1024 * 1024
    strict: bool = False


class RecordReader:
    """Reader of records from pieces of text: the header first, raw; then rows of its width.

    Attributes:
        row: how many records were completed after the header; -1 before it.
        other_line_ends: whether a record had another end than the dialect declares (ME062).
    """

    def __init__(self, dialect: TextDialect, limits: RecordLimits) -> None:
        self.row = -1
        self.other_line_ends = False
        self._limits = limits
        self._end = "\r" if dialect.row_separator == "\r" else "\n"
        self._returns = dialect.row_separator == "\r\n"
        self._separator = dialect.column_separator
        self._quoting = Quoting(dialect)
        # a line never holds its own end: where nothing is quoted, no line looks as if something were
        self._quote = dialect.quote or self._end
        self._nulls: frozenset[str] = frozenset()
        self._nulls_of_rows = frozenset({"", dialect.null_value})
        self._width = 0
        self._cells: Record = []  # of a record that runs on over line ends
        self._open: list[str] = []  # pieces of its last cell, from the opening quote
        self._bytes = 0  # of its lines so far

    def records(self, texts: Iterable[str]) -> Iterator[list[Record]]:
        """The records, in lists of those that one piece of text completes.

        Raises:
            RejectedFile: ME061 or ME075 at the row, after all earlier records were yielded.
        """
        tail: list[str] = []
        tail_bytes = 0
        try:
            for text in texts:
                head, end, rest = text.rpartition(self._end)
                if end:
                    block = "".join(tail) + head
                    tail, tail_bytes = [], 0
                    yield from self._plain(block) or self._complete(block.split(end), end)
                tail.append(rest)
                tail_bytes += _utf8_length(rest)
                self._bound(tail_bytes)
        except UnicodeDecodeError:
            raise self._rejected("bytes that are not in the declared encoding") from None
        yield from self._complete(["".join(tail)], "")
        if self._open:
            raise self._rejected("a quote is opened and never closed")

    def _plain(self, block: str) -> list[list[Record]]:
        """All records of a block without quotes and faults, fast; empty for any other block."""
        if self.row < 0 or self._open or self._end == "\r" or self._quote in block or not self._ends_well(block):
            return []
        lines = block.replace("\r\n", "\n").removesuffix("\r").split("\n")
        longest = max(map(len, lines))
        if longest >= LONG_LINE or longest * 4 > self._limits.row_bytes:
            return []
        nulls, separator = self._nulls, self._separator
        done: list[Record] = [
            [None if cell in nulls else cell for cell in line.split(separator)] for line in lines if line
        ]
        if set(map(len, done)) != {self._width}:
            return []
        self.row += len(done)
        return [done]

    def _ends_well(self, block: str) -> bool:
        returns = block.count("\r\n") + block.endswith("\r")
        return returns == (block.count("\n") + 1 if self._returns else 0)

    def _complete(self, lines: list[str], ended: str) -> Iterator[list[Record]]:
        done: list[Record] = []
        fault = None
        try:
            # not extend: what was completed before a fault must stay
            for line in lines:
                if (record := self._record(line, ended)) is not None:
                    done.append(record)  # noqa: PERF401 - see above
        except RejectedFile as error:
            fault = error
        if done:
            yield done
        if fault is not None:
            raise fault

    def _record(self, line: str, ended: str) -> Record | None:
        if self._open and self._quote not in line:
            self._open.append(line + ended)
            self._bytes += _utf8_length(line) + 1
            self._bound(0)
            return None
        if self._end == "\r" and not self._open and line[:1] == "\n":
            line = line[1:]
            self.other_line_ends = True
        returned = line[-1:] == "\r"
        if returned:
            line = line[:-1]
        if len(line) * 4 > self._limits.row_bytes:
            self._bound(_utf8_length(line))
        if self._open or self._quote in line:
            cells = self._quoted(line, "\r\n" if returned else self._end)
        elif not line:
            return None
        else:
            most = -1 if len(line) < LONG_LINE else self._width or MAX_COLUMNS
            nulls = self._nulls
            cells = [None if cell in nulls else cell for cell in line.split(self._separator, most)]
        if cells is None:
            return None
        if ended and returned != self._returns:
            self.other_line_ends = True
        return self._counted(cells)

    def _counted(self, cells: Record) -> Record:
        if self.row < 0:
            self._width = len(cells)
            self._nulls = self._nulls_of_rows
            if self._width > MAX_COLUMNS:
                raise self._rejected(f"more than {MAX_COLUMNS} columns")
        if len(cells) != self._width:
            raise self._rejected(f"{len(cells)} fields for {self._width}")
        self.row += 1
        return cells

    def _quoted(self, line: str, end: str) -> Record | None:
        if not self._open and len(line) < LONG_LINE:
            cells = self._quoting.cells(line, self._nulls)
            if cells is not None:
                return cells
        at = self._closed(line) if self._open else self._cell(line, 0)
        while 0 <= at < len(line):
            if line[at] != self._separator:
                raise self._rejected("text follows a closing quote")
            at = self._cell(line, at + 1)
        self._bytes += _utf8_length(line) + len(end)
        self._bound(0)
        if at < 0:
            self._open.append(end)
            return None
        done, self._cells, self._bytes = self._cells, [], 0
        return done

    def _cell(self, line: str, at: int) -> int:
        if len(self._cells) > (self._width or MAX_COLUMNS):
            raise self._rejected(f"more than {self._width or MAX_COLUMNS} fields")
        if line[at : at + 1] == self._quote:
            end = self._quoting.closing(line, at + 1)
            if end < 0:
                self._open = [line[at:]]
                return -1
            self._cells.append(self._quoting.plain(line[at : end + 1]))
            return end + 1
        end = line.find(self._separator, at)
        end = len(line) if end < 0 else end
        self._cells.append(None if line[at:end] in self._nulls else line[at:end])
        return end

    def _closed(self, line: str) -> int:
        end = self._quoting.closing(line, 0)
        if end < 0:
            self._open.append(line)
            return -1
        self._cells.append(self._quoting.plain("".join(self._open) + line[: end + 1]))
        self._open = []
        return end + 1

    def _bound(self, more_bytes: int) -> None:
        if self._bytes + more_bytes > self._limits.row_bytes:
            limit = f"{self._limits.row_bytes} bytes"
            raise self._rejected("the row", code="ME075", limit=limit, option="max_row_size")

    def _rejected(self, reason: str, code: str = "ME061", **details: str) -> RejectedFile:
        row = self.row + 1 if self.row >= 0 else None
        place = "" if row else "header: "
        return RejectedFile(
            diagnose(
                code,
                self._limits.path,
                row=row,
                strict=self._limits.strict,
                reason=f"{place}{reason}",
                **details,
            )
        )


def _utf8_length(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode())


class Quoting:
    """One dialect's quotes, as regular expressions (LZ-6.3)."""

    def __init__(self, dialect: TextDialect) -> None:
        self._quote, self._separator = dialect.quote, dialect.column_separator
        escape = dialect.escape if dialect.escape != dialect.quote else ""
        self._escape = escape or dialect.quote * 2
        self._pair_of_quotes = dialect.quote * 2
        if not self._quote:
            return
        q, e, s = re.escape(self._quote), re.escape(escape), re.escape(self._separator)
        plain = f"[^{q}{e}]"
        special = f"{q}{q}|{e}(?:[{q}{e}]|(?![{q}{e}]))" if escape else f"{q}{q}"
        whole = f"{q}{plain}*(?:(?:{special}){plain}*){{0,{_RUN}}}{q}"
        # an open, faulty or very long quoted cell becomes one field with all behind it, never several wrong ones
        self._field = re.compile(
            f"({q}{plain}*{q}(?={s})|[^{q}{s}][^{s}]*|{whole}(?={s})|{q}[\\s\\S]*|){s}",
        )
        self._whole = re.compile(whole)
        self._run = re.compile(f"(?:{plain}+|{special}){{0,{_RUN}}}")
        self._pair = re.compile(f"{q}{q}|{e}[{q}{e}]" if escape else f"{q}{q}")

    def cells(self, line: str, nulls: frozenset[str]) -> Record | None:
        """The cells of a line; None if its last cell is open, faulty or very long."""
        quote = self._quote
        fields = self._field.findall(line + self._separator)
        if fields[-1][:1] == quote and self._whole.fullmatch(fields[-1]) is None:
            return None
        return [self.plain(field) if field[:1] == quote else None if field in nulls else field for field in fields]

    def closing(self, text: str, at: int) -> int:
        """The position of the closing quote of a cell open at `at`; -1 if there is none."""
        while (end := self._run.match(text, at).end()) > at:  # type: ignore[union-attr]  # it matches the empty text
            at = end
        return at if text[at : at + 1] else -1

    def plain(self, field: str) -> str:
        """The text between the quotes, unescaped."""
        inner = field[1:-1]
        if self._escape not in inner:
            return inner.replace(self._pair_of_quotes, self._quote)
        return self._pair.sub(_second, inner)


def _second(pair: re.Match[str]) -> str:
    return pair[0][1]


BOM = "\ufeff"
_ALIASES = {
    "unicode": "utf-16-le",
    "utf-16": "utf-16-le",
    "utf16": "utf-16-le",
    "ucs-2": "utf-16-le",
    "unicodefffe": "utf-16-be",
    "bigendianunicode": "utf-16-be",
    "utf-32": "utf-32-le",
    "utf32": "utf-32-le",
    "utf-8-sig": "utf-8",
    "utf-8-bom": "utf-8",
    "utf-8 with bom": "utf-8",
    "utf-8 without bom": "utf-8",
    "iso-8859-8-i": "iso8859-8",
    "macintosh": "mac-roman",
    "us-ascii": "ascii",
}
# .NET's code pages that Python knows under their number alone
_CODE_PAGE = re.compile(r"(?:windows|x-cp|ibm|cp|dos)-?0*(\d{3,5})", re.IGNORECASE)
# Python's text encodings that change files do not have, or that decode to surrogates.
_NOT_FOR_FILES = {
    "idna", "punycode", "unicode-escape", "raw-unicode-escape", "undefined", "mbcs", "oem", "utf-7", "charmap",
}  # fmt: skip
_WIDE = {"utf-16-le", "utf-16-be", "utf-32-le", "utf-32-be"}


def codec_of(name: str) -> str | None:
    """Python's one name for an encoding that .NET or IANA calls `name`, in any case; None if there is none.

    `utf-16` and `utf-32` without more mean little endian, as in .NET; a byte order mark in the file overrules it.
    """
    spelling_key = " ".join(name.casefold().split())
    page = _CODE_PAGE.fullmatch(spelling_key)
    if not spelling_key.isascii():
        return None  # codecs.lookup would ignore the letters it does not know
    for spelling in (_ALIASES.get(spelling_key, spelling_key), f"cp{page[1]}" if page else spelling_key):
        try:
            codec = codecs.lookup(spelling)
        except (LookupError, ValueError):
            continue
        is_text = bool(getattr(codec, "_is_text_encoding", True))
        found = codec.name.replace("_", "-")
        return _ALIASES.get(found, found) if is_text and found not in _NOT_FOR_FILES else None
    return None


def decoded(chunks: Iterable[bytes], codec: str) -> Iterator[str]:
    """Bytes as text, chunk by chunk, without the byte order mark (LZ-6.4).

    Args:
        chunks: in order, cut anywhere.
        codec: as `codec_of` names it.

    Raises:
        UnicodeDecodeError: at the first byte that is not text, after all text before it was yielded.
    """
    decoder: codecs.IncrementalDecoder | None = None
    first = True
    head = b""
    for chunk in chunks:
        head += chunk
        if decoder is None and len(head) < len(codecs.BOM_UTF32_LE):
            continue
        decoder = decoder or codecs.getincrementaldecoder(_overruled(codec, head))()
        for decoded in _step(decoder, head, final=False):
            yield decoded.removeprefix(BOM) if first else decoded
            first = first and not decoded
        head = b""
    decoder = decoder or codecs.getincrementaldecoder(_overruled(codec, head))()
    for decoded in _step(decoder, head, final=True):
        yield decoded.removeprefix(BOM) if first else decoded


def _overruled(codec: str, head: bytes) -> str:
    if codec not in _WIDE:
        return codec
    marks = (
        (codecs.BOM_UTF16_LE, "utf-16-le"),
        (codecs.BOM_UTF16_BE, "utf-16-be"),
        (codecs.BOM_UTF32_LE, "utf-32-le"),
        (codecs.BOM_UTF32_BE, "utf-32-be"),
    )
    return next((named for mark, named in marks if named[:6] == codec[:6] and head.startswith(mark)), codec)


def _step(decoder: codecs.IncrementalDecoder, chunk: bytes, *, final: bool) -> Iterator[str]:
    pending, flags = decoder.getstate()
    try:
        text = decoder.decode(chunk, final)
        if not text.isascii():
            text.encode()
    except UnicodeDecodeError as error:
        decoder.setstate((b"", flags))
        # the text before the bad byte comes first, so that the reader knows the row
        yield decoder.decode((pending + chunk)[: error.start], False)
        raise
    except UnicodeEncodeError as error:
        yield text[: error.start]
        raise UnicodeDecodeError("text", b"", 0, 1, "half of a surrogate pair") from None
    yield text


TYPES = {
    "String": "string",
    "Int16": "short",
    "Int32": "integer",
    "Int64": "long",
    "Single": "float",
    "Double": "double",
    "Boolean": "boolean",
    "DateTime": "timestamp",
    "IDate": "date",
    "ITime": "string",
    "ByteArray": "binary",
}
_TIME = "ITime"
OPTIONS = frozenset(
    {
        "FirstRowAsHeader",
        "RowSeparator",
        "ColumnSeparator",
        "QuoteCharacter",
        "EscapeCharacter",
        "NullValue",
        "Encoding",
    }
)
_COLUMN_PROPERTIES = {"Name", "DataType", "IsNullable"}
# Publishers also write the escapes of these characters instead of the characters; nothing else could be meant.
_ROW_SEPARATORS = {spelling: end for end in ("\r\n", "\n", "\r") for spelling in (end, repr(end)[1:-1])}
_COLUMN_SEPARATORS = {",": ",", ";": ";", "|": "|", "\t": "\t", "\\t": "\t", "tab": "\t"}
_QUOTES = {'"': '"', "'": "'", "": ""}
_ESCAPES = {"\\": "\\", "/": "/", '"': '"', "": ""}


def read_dialect(reader: PropertyReader, properties: JsonObject) -> TextDialect:
    """The text options, nested in `FileFormatTypeProperties` or flat next to it (LZ-2.7)."""
    nested = reader.property(properties, "FileFormatTypeProperties", json_object, JsonObject())
    note_unknown(reader, nested, OPTIONS, "FileFormatTypeProperties.")
    places = (nested, properties)
    default = TextDialect()
    reader.option(places, "FirstRowAsHeader", _header, True)
    return TextDialect(
        reader.option(places, "RowSeparator", _choice(_ROW_SEPARATORS, "\\r\\n, \\n or \\r"), default.row_separator),
        reader.option(places, "ColumnSeparator", _choice(_COLUMN_SEPARATORS, ", ; | or tab"), default.column_separator),
        reader.option(places, "QuoteCharacter", _choice(_QUOTES, "\" ' or empty"), default.quote),
        reader.option(places, "EscapeCharacter", _choice(_ESCAPES, '\\ / " or empty'), default.escape),
        reader.option(places, "NullValue", text, default.null_value),
        reader.option(places, "Encoding", _encoding, default.encoding),
    )


def read_columns(reader: PropertyReader, properties: JsonObject) -> tuple[tuple[Column, ...], frozenset[str]]:
    """The declared columns without the row marker (LZ-6.6), and the names of those with times of day.

    A repeated name is an error, ignoring case. ME056 if none are declared (LZ-6.1).
    """
    definition = reader.property(properties, "SchemaDefinition", json_object, JsonObject())
    note_unknown(reader, definition, {"Columns"}, "SchemaDefinition.")
    entries: list[JsonObject] = reader.property(definition, "Columns", _objects, [], called="SchemaDefinition.Columns")
    if not entries and not reader.errors:
        found = "empty" if definition.names else "absent"
        reader.reject("ME056", option="SchemaDefinition", found=found, known="the columns of the text")
    columns: dict[str, Column] = {}
    times = set()
    for number, entry in enumerate(entries, 1):
        column = _read_column(reader, entry, number)
        if column is None or folded(column.name) == folded(MARKER_COLUMN):
            continue
        if _TIME.casefold() in map(_lower, entry.values("DataType")):
            times.add(column.name)
        if (other := columns.setdefault(folded(column.name), column)) is not column:
            known = "different names, ignoring case"
            reader.reject("ME011", property=f"column {other.name}", found="declared twice", known=known)
    return tuple(columns.values()), frozenset(times)


def note_unknown(
    reader: PropertyReader, properties: JsonObject, known: set[str] | frozenset[str], place: str = ""
) -> None:
    """Warn of unknown properties (LZ-2.8)."""
    folded = {one.casefold() for one in known}
    for spelled in properties.names:
        if spelled.casefold() not in folded:
            reader.note("ME012", property=f"{place}{spelled}")


def _read_column(reader: PropertyReader, entry: JsonObject, number: int) -> Column | None:
    note_unknown(reader, entry, _COLUMN_PROPERTIES, "SchemaDefinition.Columns.")
    if not entry.values("Name"):
        reader.reject("ME011", property=f"Name of column {number}", found="absent", known="a name")
        return None
    called = reader.property(entry, "Name", name, "", called=f"Name of column {number}")
    if folded(called) == folded(MARKER_COLUMN):
        return Column(called, "integer")
    if not entry.values("DataType"):
        reader.reject("ME011", property=f"DataType of column {called}", found="absent", known=either(TYPES))
    kind = reader.property(entry, "DataType", by_name(TYPES), "string", called=f"DataType of column {called}")
    nullable = reader.property(entry, "IsNullable", boolean, False, called=f"IsNullable of column {called}")
    return Column(called, kind, nullable) if called else None


def _lower(value: object) -> str:
    return value.casefold() if isinstance(value, str) else ""


def _choice(known: Mapping[str, str], allowed: str) -> Callable[[object], str]:
    def meaning(value: object) -> str:
        if isinstance(value, str) and value.casefold() in known:
            return known[value.casefold()]
        raise Unreadable(allowed)

    return meaning


def _header(value: object) -> bool:
    if boolean(value):
        return True
    raise Unreadable("true")


def _encoding(value: object) -> str:
    if isinstance(value, str) and (codec := codec_of(value)) is not None:
        return codec
    raise Unreadable("UTF-8 or another .NET name")


def _objects(value: object) -> list[JsonObject]:
    if isinstance(value, list) and all(isinstance(entry, JsonObject) for entry in value):
        return value
    raise Unreadable("an array of objects")
