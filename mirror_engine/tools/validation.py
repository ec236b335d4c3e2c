"""What `validate` shows: findings in landing zones, table by table."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

from mirror_engine.display import STYLES, bullet, line, often, place
from mirror_engine.landing_zone.detection import never_arrives
from mirror_engine.landing_zone.diagnostics import SEVERITY_ORDER, Severity, Trait
from mirror_engine.landing_zone.states import Blocked, Halted, Unconfigured
from mirror_engine.landing_zone.text import count
from mirror_engine.monitoring.state_text import NO_FOLDERS
from mirror_engine.results import Count, CountedFinding, Part, Place, Result, State, TableReference, names_of

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator

    from rich.console import RenderableType

    from mirror_engine.display import Lines
    from mirror_engine.landing_zone.diagnostics import Diagnostic

MAX_OF_A_CODE = 5  # places of one code that text shows in one table
MAX_TABLES, MAX_FAILING = 20, 100  # of more tables, text shows those with findings, and at most so many that fail
_STANDING_STILL = (Halted.code, Blocked.code, Unconfigured.code)
_OUTSIDE_TABLES = "ME002"
_OF_METADATA = ("ME008", "ME012")  # of these no single file is never read
_STATE_STYLES = {"caught_up": "green", "halted": "bold red", "blocked": "bold red"}


def blocks_progress(diagnostic: Diagnostic) -> bool:
    """Whether a diagnostic keeps files from being applied, until it is resolved (LZ-3.3, LZ-4.17) or forever."""
    return diagnostic.has(Trait.BLOCKS) or diagnostic.severity is Severity.ERROR or never_arrives(diagnostic)


class CheckedFinding(CountedFinding, frozen=True):
    """A diagnostic of a check, and how often it occurred.

    Attributes:
        line: of delimited text or invalid JSON, counted from 1
        fails: whether it fails the check: at or above `--fail-on`, or data is not applied because of it
    """

    line: Place | None
    fails: bool


class UnappliedFile(Part, frozen=True):
    """A change file that is not applied.

    Attributes:
        path: from the landing zone
    """

    path: str
    reason: str


class CheckedTable(TableReference, frozen=True):
    """The findings in one table folder.

    Attributes:
        message: the state in a sentence
        files: applied, in order; from the landing zone
        rows: applied
        fabric_error: what Fabric would show
    """

    state: State
    message: str
    files: Sequence[str]
    not_applied: Sequence[UnappliedFile]
    rows: Count
    fabric_error: str | None
    diagnostics: Sequence[CheckedFinding]

    @property
    def is_stuck(self) -> bool:
        """Whether files of it are not applied because of a finding that is not suppressed."""
        return any(blocks_progress(found.as_diagnostic) for found in self.diagnostics)

    @property
    def fails(self) -> bool:
        """Whether a finding in it fails the check."""
        return any(found.fails for found in self.diagnostics)

    def heading(self, name: str) -> RenderableType:
        """Its name, state and numbers."""
        from rich.text import Text  # noqa: PLC0415 - where something is shown

        total = len(self.files) + len(self.not_applied)
        applied = f"{len(self.files)} of {count(total, 'file')} applied" if self.not_applied else count(total, "file")
        numbers = f", {applied} ({count(self.rows, 'row')})" if total else ""
        state = line(self.state.replace("_", " "), _STATE_STYLES.get(self.state, "yellow"))
        return Text.assemble(line(name, "bold"), ": ", state, numbers)


class FindingCounts(Part, frozen=True):
    """How many different findings there are of each severity."""

    error: Count
    warning: Count
    info: Count


class CheckedZone(Part, frozen=True):
    """The findings in a landing zone, or a part of one.

    Attributes:
        target: what was checked, as it was given
        ok: nothing at or above `--fail-on`, and no data that is not applied
        suppressed: findings left out on request
        diagnostics: about the landing zone itself
    """

    target: str
    landing_zone: str
    ok: bool
    counts: FindingCounts
    suppressed: Count
    tables: Sequence[CheckedTable]
    diagnostics: Sequence[CheckedFinding]

    def findings(self) -> Iterator[CheckedFinding]:
        """All findings, the landing zone's own first."""
        yield from self.diagnostics
        for table in self.tables:
            yield from table.diagnostics

    def path_of(self, found: CheckedFinding) -> str:
        """A finding's path from where the landing zone's path begins; `""` for the top itself."""
        return "/".join(part for part in (self.landing_zone.rstrip("/"), found.path) if part and part != ".")

    def lines(self, *, all_tables: bool = False) -> Lines:
        """Table by table, the most serious findings first, each with its help; then a summary."""
        if self.diagnostics:
            yield line(f"{self.landing_zone}:", "bold")
            yield from self._findings(self.diagnostics)
        named = [*zip(self.tables, names_of(self.tables), strict=True)]
        chosen = None if all_tables or len(named) <= MAX_TABLES else self._chosen()
        for table, name in named:
            if chosen is None or table.landing_folder in chosen:
                yield table.heading(name)
                yield from self._findings(table.diagnostics)
                if table.fabric_error:
                    yield bullet("Fabric:", table.fabric_error, "dim")
        hidden = [] if chosen is None else [table for table in self.tables if table.landing_folder not in chosen]
        if hidden:
            clean = sum(not table.diagnostics for table in hidden)
            others = f"{count(len(hidden), 'more table')}: {clean:,} without findings"
            some = f", {len(hidden) - clean:,} with some" if len(hidden) > clean else ""
            yield line(f"… and {others}{some}; -v shows all", "dim")
        if not (self.tables or self.diagnostics):
            yield NO_FOLDERS
        yield ""
        yield from self._summary()

    def _chosen(self) -> Collection[str | None]:
        """Folders of the tables to show if there are many: failing ones, and some others with findings."""
        failing = sorted(table.landing_folder or "" for table in self.tables if table.fails)
        noted = [table.landing_folder for table in self.tables if table.diagnostics and not table.fails]
        return {*failing[:MAX_FAILING], *noted[:MAX_TABLES]}

    def _findings(self, diagnostics: Iterable[CheckedFinding]) -> Lines:
        by_code: dict[str, list[CheckedFinding]] = {}
        for found in diagnostics:
            by_code.setdefault(found.code, []).append(found)
        for same in by_code.values():
            helps = [found.help for found in same[:MAX_OF_A_CODE]]
            for found, following in zip(same, [*helps[1:], None], strict=False):
                label, rules = f"{found.severity.value}[{found.code}]:", f" ({', '.join(found.rules)})"
                yield bullet(label, f"{found.message}{often(found.count)}{rules}", mark_style=STYLES[found.severity])
                path = self.path_of(found)
                if found.line is not None:
                    path += f":{found.line}" + ("" if found.row is None else f" (row {found.row})")
                elif found.row is not None:
                    path += f", row {found.row}"
                if path:
                    yield place("  -->", path)
                if found.help and found.help != following:
                    yield bullet("  help:", found.help)
            if len(same) > MAX_OF_A_CODE:
                yield bullet("  ...", f"and {len(same) - MAX_OF_A_CODE:,} more {same[0].code}", "dim")

    def _summary(self) -> Lines:
        files = sum(len(table.files) for table in self.tables)
        pending = sum(len(table.not_applied) for table in self.tables)
        rows = sum(table.rows for table in self.tables)
        checked = f"{count(len(self.tables), 'table')}, {count(files + pending, 'file')}, {count(rows, 'row')}"
        if numbers := {name: number for name, number in self.counts.to_json().items() if number}:
            found = ", ".join(count(number, name) for name, number in numbers.items())
            yield line(f"Found {found} ({checked}).", STYLES[Severity(next(iter(numbers)))])
        elif files or pending or self.suppressed:
            yield line(f"No problems found ({checked}).", "green")
        else:
            yield f"Nothing has landed yet ({checked})."
        if self.suppressed:
            yield line(f"{count(self.suppressed, 'finding')} suppressed.", "dim")
        if shown := [*self.findings()]:
            gravest = max(shown, key=lambda found: SEVERITY_ORDER.index(found.severity))
            first = next((found for found in shown if found.fails), gravest)  # a cause before its effect
            yield line(f"For details: mirror-engine explain {first.code}", "dim")
        if not self.ok:
            yield line(f"Failed: {', '.join(self._why_failed())}.", "bold red")

    def _why_failed(self) -> Iterator[str]:
        """Reasons for a failed check: stuck tables, files that are never read, and the other findings by severity."""
        standing = [table for table in self.tables if table.state in _STANDING_STILL and table.is_stuck]
        for state, number in sorted(Counter(table.state for table in standing).items()):
            yield f"{count(number, 'table')} {'is' if number == 1 else 'are'} {state}"
        never = [found for found in self.findings() if never_arrives(found.as_diagnostic)]
        places = [found.path for found in never if found.code not in _OF_METADATA]
        waiting = {file.path for table in standing if table.state != Halted.code for file in table.not_applied}
        unread = {file.path for table in self.tables for file in table.not_applied if _is_below(file.path, places)}
        unread -= waiting
        unread |= {found.path for found in never if found.code == _OUTSIDE_TABLES}
        if unread:
            yield f"{count(len(unread), 'file')} {'is' if len(unread) == 1 else 'are'} never read"
        told = {id(found) for table in standing for found in table.diagnostics}
        others: dict[Severity, list[str]] = {}
        for found in self.findings():
            if found.fails and id(found) not in told and not any(_is_below(path, [found.path]) for path in unread):
                others.setdefault(found.severity, []).append(found.code)
        for severity in sorted(others, key=SEVERITY_ORDER.index, reverse=True):
            codes = dict.fromkeys(others[severity])
            yield f"{count(len(others[severity]), severity.value)} ({', '.join(codes)})"


class Validation(Result, frozen=True):
    """Findings in landing zones; also of `--format json`.

    Attributes:
        ok: nothing at or above `--fail-on`, and no data that is not applied
    """

    ok: bool
    targets: Sequence[CheckedZone]

    def text(self) -> Lines:
        return self.lines()

    def lines(self, *, all_tables: bool = False) -> Lines:
        """The text; of many tables without findings only with `all_tables`."""
        for each in self.targets:
            if len(self.targets) > 1:
                yield line(f"{each.target}:", "bold")
            yield from each.lines(all_tables=all_tables)


def _is_below(path: str, folders: Iterable[str]) -> bool:
    return any(path == folder or path.startswith(f"{folder}/") for folder in folders)
