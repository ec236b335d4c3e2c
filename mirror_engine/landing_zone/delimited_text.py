"""The text dialect, and how text written in it comes apart into records of cells (LZ-6.2 to LZ-6.4, LZ-6.8).

A cell is `None` where it is NULL: an unquoted empty field, or unquoted `NullValue`. Row numbers are 1-based and count
data rows only: neither the header nor blank lines. Text right after a closing quote (`"a"b`) is refused: it may be a
quote that was not escaped, and then any reading would shift the row's cells.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from mirror_engine.errors import PublisherError
from mirror_engine.landing_zone.diagnostics import diagnose

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

Record = list["str | None"]

LONG_LINE = 64 * 1024  # characters; a longer line is walked cell by cell, so that its cells can be counted on the way
MAX_COLUMNS = 100_000  # in a header; a thousand times what the service takes
_RUN = 1000  # escapes matched at once: a match without bound would cost 100 times the text's memory


@dataclass(frozen=True)
class TextDialect:
    """How a publisher writes delimited text (LZ-6.2); every value is one the protocol knows."""

    row_separator: str = "\r\n"
    column_separator: str = ","
    quote: str = '"'
    escape: str = "\\"
    null_value: str = ""
    encoding: str = "utf-8"


@dataclass(frozen=True)
class RecordLimits:
    """What a record may be, and where faults are reported.

    Attributes:
        path: of the file, for messages.
        row_bytes: longest record, its line ends included, in bytes of UTF-8.
        strict: whether severities are those of `strict`.
    """

    path: str
    row_bytes: int = 64 * 1024 * 1024
    strict: bool = False


class RecordReader:
    """Takes text in pieces and gives records: the header first, raw; then rows as wide as it.

    Attributes:
        row: how many records were completed after the header; -1 before it.
        other_line_ends: whether a record ended in another way than the dialect says (ME062).
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
            PublisherError: ME061 or ME075 at the row it is about, after all records before it were given.
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
            raise self._refused("bytes that are not in the declared encoding") from None
        yield from self._complete(["".join(tail)], "")
        if self._open:
            raise self._refused("a quote is opened and never closed")

    def _plain(self, block: str) -> list[list[Record]]:
        """All records of a block in which nothing is quoted and nothing is wrong, fast; nothing where it is not so."""
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
        except PublisherError as error:
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
                raise self._refused(f"more than {MAX_COLUMNS} columns")
        if len(cells) != self._width:
            raise self._refused(f"{len(cells)} fields for {self._width}")
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
                raise self._refused("text follows a closing quote")
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
            raise self._refused(f"more than {self._width or MAX_COLUMNS} fields")
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
            raise self._refused("the row is longer", code="ME075", limit=limit, option="row_bytes")

    def _refused(self, reason: str, code: str = "ME061", **details: str) -> PublisherError:
        row = self.row + 1 if self.row >= 0 else None
        place = "" if row else "header: "
        return PublisherError(
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
        """The cells of a line; None where its last cell is open, faulty or very long."""
        quote = self._quote
        fields = self._field.findall(line + self._separator)
        if fields[-1][:1] == quote and self._whole.fullmatch(fields[-1]) is None:
            return None
        return [self.plain(field) if field[:1] == quote else None if field in nulls else field for field in fields]

    def closing(self, text: str, at: int) -> int:
        """Where the quote closes that is open at `at`; -1 where it does not."""
        while (end := self._run.match(text, at).end()) > at:  # type: ignore[union-attr]  # it matches the empty text
            at = end
        return at if text[at : at + 1] else -1

    def plain(self, field: str) -> str:
        """What stands between the quotes, its escapes freed."""
        inner = field[1:-1]
        if self._escape not in inner:
            return inner.replace(self._pair_of_quotes, self._quote)
        return self._pair.sub(_second, inner)


def _second(pair: re.Match[str]) -> str:
    return pair[0][1]
