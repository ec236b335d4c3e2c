"""History of tables: their commits, and what else happened to them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Self, overload

from mirror_engine.display import Grid, line, moment
from mirror_engine.engine.changes import ChangeKind
from mirror_engine.landing_zone.text import count
from mirror_engine.monitoring.state_text import DROPPED_BECAUSE
from mirror_engine.results import Count, Moment, Part, Place, Result, utc
from mirror_engine.tables.base import HistoryEntry

if TYPE_CHECKING:
    from mirror_engine.display import Lines
    from mirror_engine.engine.changes import TableChange

MAX_NAMED = 4  # change files of one commit


class Change(Part, frozen=True):
    """What became of a table besides the applied rows.

    Attributes:
        table: name: `Sales.Orders`
        reason: of a drop: `deleted`, `recreated` (its folder), `rebuild` or `removed` (by others); of a halt: the
            diagnostic's code; of a resume: `deleted` if the halted folder is gone
        files: change files archived or deleted, data files removed
        times: how often it happened
        last_at: when it happened last, ISO 8601 in UTC
    """

    table: str
    change: ChangeKind
    reason: str | None
    files: Count
    times: Place
    last_at: Moment

    @classmethod
    def of(cls, found: TableChange) -> Self:
        """Convert from a recorded change."""
        return cls(found.table.normalized, found.kind, found.reason or None, found.files, found.times, utc(found.at))


class TableHistory(Result, frozen=True):
    """Commits of a table, newest first; without a table, what happened to all tables besides their commits.

    As a sequence, its commits.

    Attributes:
        table: name: `Sales.Orders`; null without one
        landing_folder: folder in the landing zone: `Sales.schema/Orders`; null if it is gone
        delta_path: Delta table, from ROOT: `Tables/Sales/Orders`
        has_more: whether there are more commits, or without a table changes, than `--limit`
    """

    table: str | None
    landing_folder: str | None
    delta_path: str | None
    changes: Sequence[Change]
    commits: Sequence[HistoryEntry]
    has_more: bool

    def __len__(self) -> int:
        return len(self.commits)

    def __iter__(self) -> Iterator[HistoryEntry]:
        return iter(self.commits)

    @overload
    def __getitem__(self, at: int) -> HistoryEntry: ...
    @overload
    def __getitem__(self, at: slice) -> Sequence[HistoryEntry]: ...
    def __getitem__(self, at: int | slice) -> HistoryEntry | Sequence[HistoryEntry]:
        return self.commits[at]

    def text(self) -> Lines:
        if self.table is None and not self.changes:
            yield "Nothing is recorded: no table was dropped, halted or maintained."
            return
        yield self._changes() if self.table is None else self._commits()
        number = count(len(self.changes), "change") if self.table is None else count(len(self.commits), "commit")
        yield line(f"{number}{'; there are more, see --limit' if self.has_more else ''}", "dim")

    def _changes(self) -> Grid:
        rows = [
            (
                moment(change.last_at),
                change.table,
                change.change.replace("_", " "),
                DROPPED_BECAUSE.get(change.reason or "", change.reason) or "-",
                f"{change.files:,}" if change.files else "-",
            )
            for change in self.changes
        ]
        return Grid(["Time (UTC)", "Table", "Change", "Reason", ">Files"], rows)

    def _commits(self) -> Grid:
        rows = []
        for entry in self.commits:
            files = ", ".join(entry.files) or "-"
            if len(entry.files) > MAX_NAMED:
                files = f"{entry.files[0]} … {entry.files[-1]} ({len(entry.files):,} files)"
            at = moment(entry.committed_at)
            rows.append((str(entry.version), at, entry.operation, entry.applied_by or "-", f"{entry.rows:,}", files))
        headings = [">Version", "Time (UTC)", "Operation", "Applied by", ">Rows", "Change files"]
        return Grid(headings, rows, expendable=("Applied by", "Operation"), wrapped=headings[-1])
