"""What the reports share: where a diagnostic is, and how it reads on one line."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mirror_engine.landing_zone.diagnostics import Severity
from mirror_engine.publisher.validate import blocks_progress

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mirror_engine.landing_zone.diagnostics import Diagnostic
    from mirror_engine.publisher.validate import TableReport, ValidationReport

THE_ZONE = "landing zone"  # where a name is wanted for what belongs to no table


def located(verdicts: ValidationReport) -> Iterator[tuple[Diagnostic, int, int | None]]:
    """Every diagnostic with how often it was met and its line, if it has one: the zone's own first."""
    yield from ((found, times, None) for found, times in verdicts.diagnostics)
    for table in verdicts.tables:
        yield from ((found, times, line_of(found, table)) for found, times in table.diagnostics)


def line_of(diagnostic: Diagnostic, table: TableReport) -> int | None:
    """The 1-based line of a row in delimited text, or of a fault in JSON; None in Parquet and where there is no row.

    Below a header of one line a row is one line, unless cells before it hold line ends or blank lines were skipped.
    """
    if diagnostic.row is not None:
        return diagnostic.row + 1 if table.is_text else None
    line = dict(diagnostic.details).get("line", "") if diagnostic.code == "ME010" else ""
    return int(line) if line.isdecimal() else None


def severity_of(diagnostic: Diagnostic) -> Severity:
    """How grave it is to whoever reads only this: a gap fails a check as an error does."""
    return Severity.ERROR if blocks_progress(diagnostic) else diagnostic.severity


def message_of(diagnostic: Diagnostic, times: int) -> str:
    """The whole of it on one line: place, finding, code, how often, and what to do."""
    often = f" ({times:,} times)" if times > 1 else ""
    remedy = f" -> {diagnostic.help}" if diagnostic.help else ""
    return f"{diagnostic.full_message}{often}{remedy}"


def encodable(text: str) -> str:
    """A path as it is, but for what UTF-8 cannot say: lone surrogates of a name that is no Unicode."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")
