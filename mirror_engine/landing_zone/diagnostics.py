"""A diagnostic: one thing to say about a landing zone, by number, place, finding and remedy."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from mirror_engine.errors import RejectedFile
from mirror_engine.landing_zone.register import CATALOG, DiagnosticDefinition, Severity

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

UNSAFE = {ord(c): repr(c)[1:-1] for c in map(chr, [*range(32), *range(127, 160), *range(0xD800, 0xE000)])}


def printable(text: str) -> str:
    """A name as it may stand on one line of a terminal or a log: control characters and lone surrogates are escaped."""
    return text if text.isprintable() else text.translate(UNSAFE)


def count(number: int, noun: str) -> str:
    """`1 file`, `1,204 files`."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


class _Detail(str):
    """A value that fills a text; in `{count:file}` it is a number with its noun."""

    __slots__ = ()

    def __format__(self, noun: str) -> str:
        if noun and self.isdecimal():
            return count(int(self), noun)
        return f"{self} {noun}s" if noun else str(self)


@dataclass(frozen=True)
class Diagnostic:
    """What was found, and where.

    Attributes:
        code: the register's number, `MEnnn`.
        path: from the landing zone's top; the folder or file it is about.
        row: 1-based row within the file, header not counted; None where it is about no single row.
        column: the column's name, if it is about one.
        details: the values that fill the register's text, by name. Never a row's data.
        strict: whether severities are those of `strict`.
    """

    code: str
    path: str
    row: int | None = None
    column: str | None = None
    details: tuple[tuple[str, str], ...] = ()
    strict: bool = False

    @property
    def entry(self) -> DiagnosticDefinition:
        """Its line of the register."""
        return CATALOG[self.code]

    @property
    def severity(self) -> Severity:
        """How grave it is here."""
        return self.entry.strict if self.strict else self.entry.severity

    @property
    def text(self) -> str:
        """What was found, in words."""
        return printable(_filled(self.entry.text, self.details))

    @property
    def remedy(self) -> str:
        """What to do, in words; empty where nothing is to be done."""
        return printable(_filled(self.entry.remedy, self.details))

    @property
    def finding(self) -> str:
        """`<text> [MEnnn]`, for where its place stands beside it."""
        return f"{self.text} [{self.code}]"

    @property
    def message(self) -> str:
        """`<path>[, row n]: <text> [MEnnn]`."""
        place = printable(self.path) if self.row is None else f"{printable(self.path)}, row {self.row}"
        return f"{place}: {self.finding}"

    def to_json(self) -> dict[str, Any]:
        """What there is to report of it, as plain values."""
        return {
            "code": self.code,
            "severity": self.severity.value,
            "path": self.path,
            "row": self.row,
            "column": self.column,
            "text": self.text,
            "remedy": self.remedy,
            "message": self.message,
            "rules": list(self.entry.rules),
            "details": dict(self.details),
        }


def _filled(text: str, details: Iterable[tuple[str, str]]) -> str:
    return text.format_map({name: _Detail(value) for name, value in details})


def diagnose(code: str, path: str, *, row: int | None = None, strict: bool = False, **details: object) -> Diagnostic:
    """Make a diagnostic; a detail called `column` also becomes its place.

    Raises:
        KeyError: the register knows no such code, or a detail of its text is missing.
    """
    column = details.get("column")
    made = Diagnostic(
        code,
        path,
        row,
        None if column is None else str(column),
        tuple((name, str(value)) for name, value in details.items()),
        strict,
    )
    _ = made.text, made.remedy
    return made


def without_errors(diagnostics: Iterable[Diagnostic]) -> tuple[Diagnostic, ...]:
    """The diagnostics, once none of them is an error.

    Raises:
        RejectedFile: with the first error, and all others beside it.
    """
    said = tuple(diagnostics)
    for at, diagnostic in enumerate(said):
        if diagnostic.severity is Severity.ERROR:
            raise RejectedFile(diagnostic, said[:at] + said[at + 1 :])
    return said


KEPT_APART = 100  # diagnostics of one code; what comes after is counted onto the last of them


def tally(counts: Mapping[Diagnostic, int], said: Iterable[Diagnostic]) -> dict[Diagnostic, int]:
    """The counts with `said` added: equal ones together, and of one code no more than `KEPT_APART` apart."""
    total = dict(counts)
    kinds = Counter(found.code for found in total)
    last = {found.code: found for found in total}
    for found in said:
        if found not in total and kinds[found.code] >= KEPT_APART:
            total[last[found.code]] += 1
            continue
        if found not in total:
            kinds[found.code] += 1
            last[found.code] = found
        total[found] = total.get(found, 0) + 1
    return total
