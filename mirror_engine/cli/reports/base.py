"""What a report tells: a verdict on each table of a landing zone, and where in a repository its files lie."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from mirror_engine.landing_zone.register import Severity

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mirror_engine.landing_zone.diagnostics import Diagnostic

Counted = tuple["Diagnostic", int]  # and how often it was met
GRAVITY = (Severity.INFO, Severity.WARNING, Severity.ERROR)
THE_ZONE = "landing zone"  # where a name is wanted for what belongs to no table


@dataclass(frozen=True)
class TableVerdict:
    """What there is to say about one table folder.

    Attributes:
        name: the table folder, from the landing zone's top.
        state: in words, such as `level` or `latched`.
        files: that were judged, from the landing zone's top, in reading order.
        rows: that were judged.
        diagnostics: about the table, its metadata and its files.
        is_text: whether its change files are delimited text, so that a row has a line.
    """

    name: str
    state: str
    files: tuple[str, ...] = ()
    rows: int = 0
    diagnostics: tuple[Counted, ...] = ()
    is_text: bool = False


@dataclass(frozen=True)
class Verdicts:
    """What there is to say about a landing zone.

    Attributes:
        tables: in the order of the zone.
        diagnostics: about the zone itself.
        root: the landing zone's path from the top of the repository, `/` between parts; `""` where it is that top.
        fail_on: the severity from which on a diagnostic fails a check.
    """

    tables: tuple[TableVerdict, ...] = ()
    diagnostics: tuple[Counted, ...] = ()
    root: str = ""
    fail_on: Severity = Severity.ERROR

    def located(self) -> Iterator[tuple[Diagnostic, int, int | None]]:
        """Every diagnostic with how often it was met and its line, if it has one: the zone's own first."""
        yield from ((found, times, None) for found, times in self.diagnostics)
        for table in self.tables:
            yield from ((found, times, line_of(found, table)) for found, times in table.diagnostics)

    def path_of(self, diagnostic: Diagnostic) -> str:
        """The path from the top of the repository; `""` for the top itself."""
        return "/".join(part for part in (self.root.strip("/"), diagnostic.path) if part and part != ".")

    def fails(self, diagnostic: Diagnostic) -> bool:
        """Whether it is as grave as what fails a check."""
        return GRAVITY.index(diagnostic.severity) >= GRAVITY.index(self.fail_on)


def line_of(diagnostic: Diagnostic, table: TableVerdict) -> int | None:
    """The 1-based line of a row in delimited text, or of a fault in JSON; None in Parquet and where there is no row.

    Below a header of one line a row is one line, unless cells before it hold line ends or blank lines were skipped.
    """
    if diagnostic.row is not None:
        return diagnostic.row + 1 if table.is_text else None
    line = dict(diagnostic.details).get("line", "") if diagnostic.code == "ME010" else ""
    return int(line) if line.isdecimal() else None


def message_of(diagnostic: Diagnostic, times: int) -> str:
    """The whole of it on one line: place, finding, code, how often, and what to do."""
    often = f" ({times:,} times)" if times > 1 else ""
    remedy = f" -> {diagnostic.remedy}" if diagnostic.remedy else ""
    return f"{diagnostic.message}{often}{remedy}"


def encodable(text: str) -> str:
    """A path as it is, but for what UTF-8 cannot say: lone surrogates of a name that is no Unicode."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")
