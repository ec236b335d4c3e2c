"""What `sync` and `run` show: what was applied, what became of tables, and which of them wait for what."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Self

from msgspec.structs import replace

from mirror_engine.display import bullet, bullets, diagnostic_lines, elapsed, halted, ignored_paths, line, with_help
from mirror_engine.engine.cycle import RunResult
from mirror_engine.engine.planner import EXTERNAL_CHANGE
from mirror_engine.engine.recovery import LOST_ROWS
from mirror_engine.landing_zone.detection import never_arrives
from mirror_engine.landing_zone.diagnostics import Trait
from mirror_engine.landing_zone.states import Blocked, CaughtUp, Empty, Halted, Unlisted, needs_attention
from mirror_engine.landing_zone.text import count, printable
from mirror_engine.monitoring.history import Change
from mirror_engine.monitoring.state_text import (
    DROPPED_BECAUSE,
    TableCounts,
    describe,
    help_for,
    ignored_data,
    kind_of,
    lost_rows,
    notes,
)
from mirror_engine.monitoring.status_results import MAX_PARAGRAPHS
from mirror_engine.results import Count, Failure, Finding, Result, Seconds, State, TableReference

if TYPE_CHECKING:
    from mirror_engine.display import Lines
    from mirror_engine.engine.changes import Changes
    from mirror_engine.engine.cycle import Engine, Totals
    from mirror_engine.errors import MirrorError
    from mirror_engine.landing_zone.diagnostics import Diagnostic
    from mirror_engine.landing_zone.names import TableName
    from mirror_engine.landing_zone.states import TableState

MAX_NAMED = 10  # tables in one line
BECAME = {  # tables, by the kind of a change
    "resumed": "{tables} {over}",
    "folder_moved": "{tables} moved or mounted again, with the same content",
    "progress_rebuilt": "Progress of {tables} was rebuilt from the Delta log",
    "maintained": "Maintained {tables}",
    "files_archived": "Archived {applied} of {tables}",
    "archived_files_deleted": "Deleted {archived} of {tables}",
}
UNUSUAL = frozenset({"folder_moved", "progress_rebuilt"})


class SyncedTable(TableReference, frozen=True):
    """A table after the run.

    Attributes:
        message: the state in a sentence
        help: what to do
        needs_attention: whether it cannot go on until something is landed, corrected or removed
        last_failure: what is tried again
        diagnostic: why it is halted, unconfigured or unlisted, or is going to be dropped
        ignored: why data that landed is never read
        lost: rows that went with a Delta table that others removed
        external_change: that another program changed rows or columns of the Delta table
    """

    state: State
    message: str
    help: str | None
    needs_attention: bool
    last_failure: Failure | None
    diagnostic: Finding | None
    ignored: Sequence[Finding]
    lost: Sequence[Finding]
    external_change: Finding | None

    @classmethod
    def of_state(
        cls,
        table: TableName,
        delta_folder: str,
        state: TableState,
        failure: MirrorError | None = None,
        *found: Diagnostic,
    ) -> Self:
        """Describe a table: why it is tried again, and what was `found` besides the state."""
        lost, own = [each for each in found if each.code == LOST_ROWS], state.diagnostic
        ignored, external = _ignored(found), next((each for each in found if each.code == EXTERNAL_CHANGE), None)
        help = failure.help if failure else help_for(state, engine_running=False, lost=lost)
        return cls.of(
            table,
            delta_folder,
            state.code,
            describe(table, state) + notes(ignored) + lost_rows(lost),
            help or (lost[0].help if lost else None),
            needs_attention(state),
            Failure(**failure.to_json()) if failure else None,
            own and Finding.of(own),
            [*map(Finding.of, ignored)],
            [*map(Finding.of, lost)],
            external and Finding.of(external),
        )

    @property
    def is_noted(self) -> bool:
        """Whether there is more to report than that it has caught up."""
        # the failure of the whole names unlisted ones
        is_well = self.state in {CaughtUp.code, Empty.code, Unlisted.code}
        return bool(not is_well or self.last_failure or self.lost or self.external_change or self.ignored)

    def lines(self) -> Lines:
        """What failed, what others did, data that is ignored, or why it has not caught up, with what to do."""
        for found in (*self.lost, *([self.external_change] if self.external_change else ())):
            yield from diagnostic_lines(found.as_diagnostic)
        message = self.message.removesuffix(lost_rows(found.as_diagnostic for found in self.lost))
        ignored = [found.as_diagnostic for found in self.ignored]
        bare = message.removesuffix(notes(ignored))
        is_well = self.state in {CaughtUp.code, Empty.code}
        if self.last_failure:
            yield f"{bare}."
            yield from with_help(f"error: {self.last_failure.message}", self.last_failure.help, "bold red")
        elif is_well and self.ignored:
            yield line(f"{message}.", "yellow")
        elif is_well or self.state == Unlisted.code:
            return
        elif self.state == Halted.code and self.diagnostic:
            yield from diagnostic_lines(self.diagnostic.as_diagnostic, halted(self.table))
        else:
            is_said = self.state == Blocked.code and self.lost
            yield from with_help(f"{bare}.", None if is_said else self.help)
        yield from bullets(ignored_paths(ignored))


class SyncReport(Result, frozen=True):
    """What was applied, and how every table is then.

    Attributes:
        exit_code: of the process
        commits: made
        duration_seconds: from start to end
        changes: what became of tables besides the applied rows
        last_failure: of the landing zone as a whole
        ignored: why data that landed outside of tables is never read
    """

    result: RunResult
    exit_code: Count
    commits: Count
    files_applied: Count
    rows_applied: Count
    tables_applied: Count
    duration_seconds: Seconds
    changes: Sequence[Change]
    last_failure: Failure | None
    ignored: Sequence[Finding]
    counts: TableCounts
    tables: Sequence[SyncedTable]

    @classmethod
    def of_engine(cls, engine: Engine) -> Self:
        """Report what an engine has done so far, and how every table is after its last cycle."""
        context, last = engine.context, engine.last
        progress, failure = context.ledger.tables(), last.failures.get(None)
        tables = []
        for name, plan in last.plans.items():
            noted = progress[name].diagnostics if name in progress else {}
            found = *plan.diagnostics, *(each for each in noted if each.code == LOST_ROWS)
            facts = context.delta_folder(name), plan.state, last.failures.get(name)
            tables.append(SyncedTable.of_state(name, *facts, *found))
        report = cls.of_tables(last.run_result, tables, engine.applied, engine.seconds, engine.changes)
        whole = Failure(**failure.to_json()) if failure else None
        ignored = [*map(Finding.of, _ignored(last.zone.diagnostics if last.zone else ()))]
        return replace(report, last_failure=whole, ignored=ignored)

    @classmethod
    def of_tables(
        cls, result: RunResult, tables: Sequence[SyncedTable], applied: Totals, seconds: float, changes: Changes
    ) -> Self:
        """Report what was applied, and count the tables."""
        kinds = Counter(
            kind_of(each.state, is_stuck=bool(each.last_failure) or each.needs_attention) for each in tables
        )
        numbers = applied.commits, applied.files, applied.rows, len(applied.tables), round(seconds, 3)
        became = [*map(Change.of, changes.all())]
        return cls(result, result.exit_code, *numbers, became, None, [], TableCounts(**kinds), tables)

    @property
    def dropped(self) -> Sequence[str]:
        """Tables that were dropped; some are there again, rebuilt."""
        return sorted({change.table for change in self.changes if change.change == "dropped"})

    def text(self) -> Lines:
        return self.lines()

    def lines(self, *, verbose: bool = False) -> Lines:
        """Dropped tables, tables that need attention, other changes, and what was applied.

        Files that were archived only with `verbose`.
        """
        yield from changes_text(change for change in self.changes if change.change == "dropped")
        yield from self._attention()
        yield from changes_text(
            change
            for change in self.changes
            if change.change != "dropped" and (verbose or change.change != "files_archived")
        )
        yield self._summary()

    def _attention(self) -> Lines:
        """What failed, data that is ignored, and the tables that have not caught up, with what to do."""
        if self.last_failure:
            yield from with_help(f"error: {self.last_failure.message}", self.last_failure.help, "bold red")
        for found in self.ignored:
            yield from diagnostic_lines(found.as_diagnostic)
        noted = [table for table in self.tables if table.is_noted]
        noted.sort(key=lambda table: not (table.last_failure or table.needs_attention))
        for table in noted[:MAX_PARAGRAPHS]:
            yield from table.lines()
        if (more := len(noted) - MAX_PARAGRAPHS) > 0:
            yield line(f"… and {count(more, 'more table')}: see mirror-engine status", "dim")

    def _summary(self) -> str:
        """What was applied, and how many tables have caught up: two sentences."""
        applied = "Nothing to apply"
        if self.commits:
            files = f"{count(self.files_applied, 'file')} ({count(self.rows_applied, 'row')})"
            applied = f"Applied {files} to {count(self.tables_applied, 'table')} in {count(self.commits, 'commit')}"
        applied = f"{applied} ({elapsed(self.duration_seconds)})."
        is_whole = not self.last_failure
        but = ignored_data(len(self.ignored) + sum(len(table.ignored) for table in self.tables))
        if not self.tables:
            none = "There are no tables left" if self.dropped else "There are no tables yet"
            return f"{applied} {none if is_whole else 'No table could be listed'}{but}."
        caught_up = sum(table.state in {CaughtUp.code, Empty.code} for table in self.tables)
        if caught_up < len(self.tables) or any(table.last_failure for table in self.tables):
            return f"{applied} {self.counts}"
        return f"{applied} {'All' if is_whole else 'All other'} tables have caught up{but}."


def _ignored(found: Iterable[Diagnostic]) -> list[Diagnostic]:
    """Why data that landed is never read."""
    return [each for each in found if each.has(Trait.IGNORED) and never_arrives(each)]


def changes_text(changes: Iterable[Change]) -> Lines:
    """Changes of tables besides applied rows."""
    by_kind = groupby(changes, lambda each: (each.change, "" if each.change == "halted" else each.reason or ""))
    for (kind, reason), group in by_kind:
        found = [*group]
        names = ", ".join(printable(each.table) for each in found[:MAX_NAMED])
        more = f" and {count(len(found) - MAX_NAMED, 'more table')}" if len(found) > MAX_NAMED else ""
        tables = count(len(found), "table")
        match kind:
            case "dropped":
                yield line(f"Dropped {tables} ({DROPPED_BECAUSE[reason]}): {names}{more}.", "yellow")
                if reason == "removed":
                    yield bullet("help:", "archived change files are read again by mirror-engine rebuild --replay")
            case "halted":
                pass  # each is named with its reason, if it is halted still
            case _:
                files = sum(change.files for change in found)
                over = f"no longer halted ({DROPPED_BECAUSE[reason]})" if reason else "resumed"
                facts = {"tables": tables, "over": over, "archived": count(files, "archived file")}
                became = BECAME[kind].format(**facts, applied=count(files, "applied file"))
                yield line(f"{became}: {names}{more}.", "yellow" if kind in UNUSUAL else "")
