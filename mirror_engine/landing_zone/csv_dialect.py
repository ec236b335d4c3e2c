"""The text dialect, and the reader of its records and cells (LZ-6.2 to LZ-6.4, LZ-6.8).

A cell is `None` for NULL: an unquoted empty field, or unquoted `NullValue`. Row numbers are 1-based and count
data rows only: neither the header nor blank lines. Text right after a closing quote (`"a"b`) is refused: it may be a
quote that was not escaped, which would shift the row's cells.
"""

from __future__ import annotations

import codecs
import re
from dataclasses import dataclass
from itertools import chain
from operator import itemgetter
from typing import TYPE_CHECKING

from mirror_engine.landing_zone.csv_encoding import is_utf8, seeming_encoding
from mirror_engine.landing_zone.diagnostics import RejectedFile, diagnose
from mirror_engine.landing_zone.text import count

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

Record = list["str | None"]

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


class RecordReader:
    """Reader of records from pieces of text: the header first, raw; then rows of its width.

    Args:
        row_bytes: longest record, line ends inside it included, in bytes of UTF-8.

    Attributes:
        row: how many records were completed after the header; -1 before it.
        other_line_ends: whether a record had another end than the dialect declares (ME062).
    """

    def __init__(self, dialect: TextDialect, path: str, row_bytes: int = 1 << 26, *, strict: bool = False) -> None:
        self.row = -1
        self.other_line_ends = False
        self._path = path
        self._row_bytes = row_bytes
        self._strict = strict
        self._end = "\r" if dialect.row_separator == "\r" else "\n"
        self._returns = dialect.row_separator == "\r\n"
        self._dialect = dialect
        self._separator = dialect.column_separator
        # a line never holds its own end: where nothing is quoted, no line looks as if something were
        self._quote = dialect.quote or self._end
        self._nulls: frozenset[str] = frozenset()
        self._nulls_of_rows = frozenset({"", dialect.null_value})
        self._width = MAX_COLUMNS
        self._cells: Record = []  # of a record that runs on over line ends
        self._open: list[str] = []  # pieces of its last cell, from behind the opening quote
        self._bytes = 0  # of its lines so far

        escape = dialect.escape if dialect.escape != dialect.quote else ""
        q, e, s = re.escape(self._quote), re.escape(escape), re.escape(self._separator)
        plain, pair = f"[^{q}{e}]", f"{q}{q}|{e}[{q}{e}]?" if escape else f"{q}{q}"
        # a cell without escapes that is closed on its line, quoted or not, and what separates it from the next one
        self._simple = re.compile(f"(?:{q}({plain}*){q}|(?!{q})([^{s}]*))({s}|\\Z)")
        self._inside = re.compile(f"(?:{plain}+|{pair}){{0,{_RUN}}}")
        self._escaped = re.compile(f"[{q}{e}]([{q}{e}])")

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
                    yield from self._complete(["".join(tail), head], end)
                    tail, tail_bytes = [], 0
                tail.append(rest)
                tail_bytes += _utf8_length(rest)
                self._bound(tail_bytes)
        except UnicodeDecodeError as error:
            raise self._undecodable(error) from None
        yield from self._complete(tail, "")
        if self._open:
            raise self._rejected("a quote is opened and never closed", f"close it; {self._doubling}")

    def _complete(self, pieces: list[str], end: str) -> Iterator[list[Record]]:
        done: list[Record] = []
        try:
            for line in "".join(pieces).split(self._end):
                if (record := self._record(line, end)) is not None:
                    done.append(record)  # noqa: PERF401 - see below
        finally:  # what was completed before a fault comes first
            if done:
                yield done

    def _record(self, line: str, end: str) -> Record | None:
        if self._end == "\r" and not self._open and line[:1] == "\n":
            line = line[1:]
            self.other_line_ends = True
        if returned := line[-1:] == "\r":
            line = line[:-1]
        if self._open or len(line) * 4 > self._row_bytes:
            self._bound(_utf8_length(line))
        if self._open or self._quote in line:
            cells = self._quoted(line)
            if cells is None:
                line_end = "\r\n" if returned else self._end
                self._open.append(line_end)
                self._bytes += _utf8_length(line) + len(line_end)
                return None
        elif line:
            nulls = self._nulls
            cells = [None if cell in nulls else cell for cell in line.split(self._separator, self._width)]
        else:
            return None
        if end and returned != self._returns:
            self.other_line_ends = True
        if self.row < 0 and len(cells) <= MAX_COLUMNS:
            self._width, self._nulls = len(cells), self._nulls_of_rows
        if len(cells) != self._width:
            raise self._miscounted(line, len(cells))
        self.row += 1
        return cells

    def _quoted(self, line: str) -> Record | None:
        """The cells of a line, those of the lines before it included; None if its last one is still open."""
        at, cells = 0, self._cells
        while True:
            simple = None if self._open else self._simple.match(line, at)
            if simple:
                quoted, bare, separator = simple.groups()
                cells.append((None if bare in self._nulls else bare) if quoted is None else quoted)
                at = simple.end()
            else:
                start = at if self._open else at + 1
                end = self._closing_quote(line, start)
                self._open.append(line[start:end] if end >= 0 else line[start:])
                if end < 0:
                    return None
                cells.append(self._escaped.sub(itemgetter(1), "".join(self._open)))
                self._open = []
                separator, at = line[end + 1 : end + 2], end + 2
                if separator not in {"", self._separator}:
                    raise self._rejected("text follows a closing quote", self._doubling)
            if not separator or len(cells) > self._width:
                self._cells, self._bytes = [], 0
                return cells

    def _closing_quote(self, line: str, at: int) -> int:
        """The position of the closing quote of a cell that is open at `at`; -1 if there is none."""
        while (end := self._inside.match(line, at).end()) > at:  # type: ignore[union-attr]  # it matches the empty text
            at = end
        return at if at < len(line) else -1

    def _bound(self, more_bytes: int) -> None:
        if self._bytes + more_bytes > self._row_bytes:
            limit = f"{self._row_bytes} bytes"
            raise self._rejected("the row", code="ME075", limit=limit, option="max_row_size")

    def _miscounted(self, line: str, found: int) -> RejectedFile:
        """The rejection of a record that has another number of fields than the header."""
        known = f"header has {self._width:,}" if self.row >= 0 else f"limit is {MAX_COLUMNS:,}"
        more = found > self._width
        if more and self._quote not in line:  # it was not split further than need be
            found = line.count(self._separator) + 1
        reason = f"{'at least ' if more and self._quote in line else ''}{count(found, 'field')}, the {known}"
        if not more:
            help = "write every field, also empty ones; put fields that contain a line end in quotes"
        elif self._dialect.quote:
            help = f"put fields that contain `{shown_character(self._separator)}` in quotes ({self._quote})"
        else:
            help = "set `ColumnSeparator` to a character that no field contains, or set `QuoteCharacter`"
        return self._rejected(reason, help)

    def _undecodable(self, error: UnicodeDecodeError) -> RejectedFile:
        encoding = spelled_encoding(self._dialect.encoding)
        is_default = encoding == TextDialect.encoding
        seen = seeming_encoding(error.object) if is_default else "UTF-8" if is_utf8(error.object) else ""
        example = f"{seen}, which it seems to be" if seen else "its real one, such as windows-1252"
        help = f"write the file in {encoding}, or set `Encoding` to {example}"
        return self._rejected(
            f"bytes that are not {encoding}, the {'default' if is_default else 'declared'} `Encoding`", help
        )

    @property
    def _doubling(self) -> str:
        pair = f"{self._dialect.escape or self._quote}{self._quote}"
        return f"write quotes inside a field as {self._quote * 2}" + (f" or {pair}" if pair[0] != pair[1] else "")

    def _rejected(self, reason: str, help: str = "", code: str = "ME061", **details: str) -> RejectedFile:
        row = self.row + 1 if self.row >= 0 else None
        reason = reason if row else f"header: {reason}"
        diagnostic = diagnose(code, self._path, row=row, strict=self._strict, reason=reason, help=help, **details)
        return RejectedFile(diagnostic)


def shown_character(text: str) -> str:
    """A separator or line end on one line: `;`, a backslash and `t`."""
    return text if text.isprintable() else repr(text)[1:-1]


def _utf8_length(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode())


def spelled_encoding(codec: str) -> str:
    """The name of a code page as publishers declare it: `windows-1252`."""
    return re.sub(r"^cp(?=125\d$)", "windows-", re.sub("^iso8859", "iso-8859", codec))


BOM = "\ufeff"
_ALIASES = {
    "unicode": "utf-16-le",
    "utf-16": "utf-16-le",
    "ucs-2": "utf-16-le",
    "unicodefffe": "utf-16-be",
    "bigendianunicode": "utf-16-be",
    "utf-32": "utf-32-le",
    "utf-8-sig": "utf-8",
    "utf-8-bom": "utf-8",
    "utf-8 with bom": "utf-8",
    "utf-8 without bom": "utf-8",
    "iso-8859-8-i": "iso8859-8",
}
# .NET's code pages that Python knows under their number alone
_CODE_PAGE = re.compile(r"(?:windows|x-cp|ibm|cp|dos)-?0*(\d{3,5})", re.IGNORECASE)
# Python's text encodings that change files do not have, or that decode to surrogates
_NOT_FOR_FILES = frozenset(
    "idna punycode unicode-escape raw-unicode-escape undefined mbcs oem utf-7 charmap".split()  # noqa: SIM905 - a list of words
)
_BYTE_ORDER_MARKS = {
    "utf-16-le": codecs.BOM_UTF16_LE,
    "utf-16-be": codecs.BOM_UTF16_BE,
    "utf-32-le": codecs.BOM_UTF32_LE,
    "utf-32-be": codecs.BOM_UTF32_BE,
}


def codec_of(name: str) -> str | None:
    """Python's one name for an encoding that .NET or IANA calls `name`, in any case; None if there is none.

    `utf-16` and `utf-32` without more mean little endian, as in .NET; a byte order mark in the file overrules it.
    """
    key = " ".join(name.casefold().split())
    if not key.isascii():
        return None  # codecs.lookup would ignore the letters it does not know
    page = _CODE_PAGE.fullmatch(key)
    for spelling in (_ALIASES.get(key, key), f"cp{page[1]}" if page else key):
        try:
            codec = codecs.lookup(spelling)
        except (LookupError, ValueError):
            continue
        found = codec.name.replace("_", "-")
        is_text = getattr(codec, "_is_text_encoding", True) and found not in _NOT_FOR_FILES
        return _ALIASES.get(found, found) if is_text else None
    return None


def decoded(chunks: Iterable[bytes], codec: str) -> Iterator[str]:
    """Bytes as text, chunk by chunk, without the byte order mark, which overrules the byte order (LZ-6.4).

    Raises:
        UnicodeDecodeError: at the first byte that is not text, after all text before it was yielded.
    """
    chunks, head = iter(chunks), b""
    while len(head) < len(codecs.BOM_UTF32_LE) and (chunk := next(chunks, None)) is not None:
        head += chunk
    marked = (other for other, mark in _BYTE_ORDER_MARKS.items() if other[:6] == codec[:6] and head.startswith(mark))
    codec = next(marked, codec)
    decoder = codecs.getincrementaldecoder(codec)()
    first = True
    for content in chain([head], chunks, [None]):
        try:
            text = decoder.decode(content or b"", content is None)
        except UnicodeDecodeError as error:
            # the text before the bad byte comes first, so that the reader knows the row
            yield error.object[: error.start].decode(codec, "replace").removeprefix(BOM if first else "")
            raise
        yield text.removeprefix(BOM) if first else text
        first = first and not text
