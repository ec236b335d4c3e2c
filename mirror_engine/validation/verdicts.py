"""What is to be said of a landing zone: a verdict on each table, and every diagnostic with how often."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from mirror_engine.landing_zone.register import GRAVITY, Severity

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from mirror_engine.landing_zone.diagnostics import Diagnostic

Counted = tuple["Diagnostic", int]  # and how often it was met
GAP = "ME019"  # a warning that holds files back as an error does
STUCK = ("blocked", "latched")


def holds(diagnostic: Diagnostic) -> bool:
    """Whether it keeps files from being applied until somebody does something (LZ-3.3, LZ-4.17)."""
    return diagnostic.code == GAP or diagnostic.severity is Severity.ERROR


@dataclass(frozen=True)
class TableVerdict:
    """What there is to say about one table folder.

    Attributes:
        name: the table folder, from the landing zone's top.
        state: what the service would come to, in a word such as `level` or `latched`.
        files: that would be applied, from the landing zone's top, in reading order.
        rows: that these files hold.
        diagnostics: about the table, its metadata and its files, first seen first.
        is_text: whether its change files are delimited text, so that a row has a line.
        state_text: the state in a sentence.
        waiting: files that would not be applied, each with the reason.
        fabric: a refusal as the service words it, without its ids; `""` where there is none, or of words unknown.
    """

    name: str
    state: str
    files: tuple[str, ...] = ()
    rows: int = 0
    diagnostics: tuple[Counted, ...] = ()
    is_text: bool = False
    state_text: str = ""
    waiting: tuple[tuple[str, str], ...] = ()
    fabric: str = ""

    @property
    def is_stuck(self) -> bool:
        """Whether it stands still until somebody does something, and not only because of what is passed over."""
        return self.state in STUCK and any(holds(found) for found, _ in self.diagnostics)

    def to_json(self) -> dict[str, Any]:
        """The same as plain values."""
        return {
            "table": self.name,
            "state": self.state,
            "state_text": self.state_text,
            "files": list(self.files),
            "waiting": [{"path": path, "why": why} for path, why in self.waiting],
            "rows": self.rows,
            "fabric": self.fabric,
            "diagnostics": _plain(self.diagnostics),
        }


@dataclass(frozen=True)
class Verdicts:
    """What there is to say about a landing zone, or a part of one.

    Attributes:
        tables: in the order of the zone.
        diagnostics: about the zone itself.
        zone: the landing zone's path from the top of the repository, `/` between parts; `""` where it is that top.
        fail_on: the severity from which on a diagnostic fails a check.
        passed_over: how many diagnostics are left out because they were known.
    """

    tables: tuple[TableVerdict, ...] = ()
    diagnostics: tuple[Counted, ...] = ()
    zone: str = ""
    fail_on: Severity = Severity.ERROR
    passed_over: int = 0

    def all(self) -> Iterator[Counted]:
        """Every diagnostic with how often it was met: the zone's own first."""
        yield from self.diagnostics
        for table in self.tables:
            yield from table.diagnostics

    def where(self, wanted: Callable[[Diagnostic], bool]) -> Verdicts:
        """The same with those diagnostics alone; all others are passed over."""
        tables = tuple(replace(table, diagnostics=_only(table.diagnostics, wanted)) for table in self.tables)
        unwanted = sum(not wanted(found) for found, _ in self.all())
        kept = _only(self.diagnostics, wanted)
        return replace(self, tables=tables, diagnostics=kept, passed_over=self.passed_over + unwanted)

    def path_of(self, diagnostic: Diagnostic) -> str:
        """The path from the top of the repository; `""` for the top itself."""
        return "/".join(part for part in (self.zone.rstrip("/"), diagnostic.path) if part and part != ".")

    def fails(self, diagnostic: Diagnostic) -> bool:
        """Whether it is as grave as what fails a check, or holds files back: no gap is clean, whatever `fail_on` is."""
        return holds(diagnostic) or GRAVITY.index(diagnostic.severity) >= GRAVITY.index(self.fail_on)

    @property
    def is_failing(self) -> bool:
        """Whether the check fails."""
        return any(self.fails(found) for found, _ in self.all())

    def count(self, severity: Severity) -> int:
        """How many different diagnostics of a severity there are."""
        return sum(found.severity is severity for found, _ in self.all())

    def to_json(self) -> dict[str, Any]:
        """The same as plain values."""
        return {
            "zone": self.zone,
            "fails": self.is_failing,
            "counts": {severity.value: self.count(severity) for severity in reversed(GRAVITY)},
            "passed_over": self.passed_over,
            "tables": [table.to_json() for table in self.tables],
            "diagnostics": _plain(self.diagnostics),
        }


def _only(diagnostics: tuple[Counted, ...], wanted: Callable[[Diagnostic], bool]) -> tuple[Counted, ...]:
    return tuple((found, count) for found, count in diagnostics if wanted(found))


def _plain(diagnostics: tuple[Counted, ...]) -> list[dict[str, Any]]:
    return [found.to_json() | {"count": count} for found, count in diagnostics]
