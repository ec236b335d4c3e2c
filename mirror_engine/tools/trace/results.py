"""What `trace` shows: every change to a key, the effect of a file, or of another order of files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby, zip_longest
from typing import TYPE_CHECKING, Annotated, Literal

from msgspec import Meta

from mirror_engine.display import Fitted, Trimmed, bullet, bullets, cell, indented, line
from mirror_engine.landing_zone.change import RowMarker
from mirror_engine.landing_zone.text import count
from mirror_engine.results import Count, Finding, Part, Place, PlannedStep, Result, Row, TableReference
from mirror_engine.tools.difference import Difference

if TYPE_CHECKING:
    from rich.console import Group

    from mirror_engine.display import Lines

Marker = Annotated[int, Meta(extra_json_schema={"enum": [marker.value for marker in RowMarker]})]
MarkerName = Annotated[str, Meta(extra_json_schema={"enum": [marker.name.lower() for marker in RowMarker]})]

Effect = Literal["inserted", "updated", "deleted", "nothing"]
FileState = Literal["applied", "pending", "rejected", "ignored"]

MAX_COLUMNS = 12  # of a row that are shown unchanged
MAX_ROWS = 4  # of one key
MAX_NAMED = 2  # files of one commit
MISMATCH_HELP = "another program changed the table (see history), or a file was replaced after it was applied"
EFFECT_STYLES = {"inserted": "green", "updated": "cyan", "deleted": "red", "nothing": "dim"}
# effects of a file that are worth a line: its mark, the noun to be counted, and what became of them
NOTABLE_EFFECTS = {
    "unmatched_deletes": ("no match:", "delete", "no effect"),
    "unmatched_updates": ("no match:", "update", "inserted"),
    "duplicate_inserts": ("duplicate key:", "insert", "both rows kept"),
    "multi_row_changes": ("duplicate key:", "change", "of several rows"),
}


class ReplayStart(Part, frozen=True):
    """Where the replay starts, if not at the first file.

    Attributes:
        deleted_files: earlier files that are gone
        not_replayed: files that are there, but were applied before or along with those
        delta_version: after the last of them
        has_rows: whether the rows at that version are known
    """

    deleted_files: Count
    not_replayed: Sequence[str]
    delta_version: Count | None
    has_rows: bool

    def lines(self) -> Lines:
        """What was deleted, and from where the replay starts."""
        deleted = f"{count(self.deleted_files, 'earlier file')} {'was' if self.deleted_files == 1 else 'were'} deleted"
        if not self.has_rows:
            yield line(f"{deleted}, and so was the Delta version after them: earlier rows are unknown", "bold red")
        else:
            yield line(f"{deleted}: the replay starts from Delta version {self.delta_version}", "yellow")
        yield from bullets([("not replayed, came before or with these:", path) for path in self.not_replayed])


class RowChange(Part, frozen=True):
    """One change to a key.

    Attributes:
        row: of the file, counted from 1
        marker: the effective one
        has_marker: whether the file has a row marker column
        matched_rows: null where they are not known
        reason: why it did nothing, or matched others than expected
        before: rows with the key; null where they are not known
        after: rows with the key
        delta_version: of its commit
        pending_because: why its file is not applied
    """

    file: str
    row: Place
    marker: Marker
    marker_name: MarkerName
    has_marker: bool
    matched_rows: Count | None
    effect: Effect
    reason: str | None
    before: Sequence[Row] | None
    after: Sequence[Row]
    changed_columns: Sequence[str]
    delta_version: Count | None
    files_of_commit: Sequence[str]
    pending_because: str | None


class MarkedRow(Part, frozen=True):
    """A row of a file, and its marker.

    Attributes:
        row: of the file, counted from 1
    """

    row: Place
    marker: Marker
    marker_name: MarkerName


class NotApplied(Part, frozen=True):
    """A file that is not applied.

    Attributes:
        rows: those with the key; null if not known
    """

    path: str
    state: str
    reason: str | None
    rows: Sequence[MarkedRow] | None

    def changes(self) -> str:
        """Which of its rows have the key."""
        if self.rows is None:
            return "its content is unknown"
        rows = ", ".join(f"{each.marker} {each.marker_name} (row {each.row:,})" for each in self.rows[:MAX_ROWS])
        more = f" and {len(self.rows) - MAX_ROWS:,} more" if len(self.rows) > MAX_ROWS else ""
        return f"changes of this key: {rows}{more}" if rows else "no change of this key"


class RowTrace(TableReference, Result, frozen=True):
    """Every change to one key, in order.

    Attributes:
        key: as given, by column
        overwritten: files whose content is not what was applied
        result: after all changes
        applied: after the applied changes
        delta: in the Delta table
        matches_delta: null where there is nothing to compare
    """

    key: Mapping[str, str]
    replay_start: ReplayStart | None
    rows_at_start: Sequence[Row]
    changes: Sequence[RowChange]
    not_applied: Sequence[NotApplied]
    overwritten: Sequence[str]
    result: Sequence[Row]
    applied: Sequence[Row]
    delta: Sequence[Row] | None
    matches_delta: bool | None

    def text(self) -> Lines:
        """Every change below its file, then the row as it is."""
        key = ", ".join(f"{name} = {value}" for name, value in self.key.items())
        files = {change.file for change in self.changes}
        changes = (
            f"{count(len(self.changes), 'change')} in {count(len(files), 'file')}"
            if files
            else "no change file has this key"
        )
        yield line(f"{self.table}, {key}: {changes}", "bold")
        if self.replay_start:
            yield from self.replay_start.lines()
            yield from _rows_text("Before these files", self.rows_at_start)
        for _, entries in groupby(self.changes, lambda change: change.file):
            yield ""
            yield from _changes_of_file(list(entries))
        yield ""
        yield from _rows_text("Result", self.result)
        yield from self._agreement()
        yield from bullets([("overwritten after it was applied:", path) for path in self.overwritten])
        yield from bullets([("pending:", f"{file.path}: {file.reason}; {file.changes()}") for file in self.not_applied])

    def _agreement(self) -> Lines:
        """Whether the Delta table has the rows that its files make."""
        if self.delta is None:
            is_applied = any(not change.pending_because for change in self.changes)
            unread = "No Delta table could be read: see mirror-engine status."
            yield unread if is_applied else "There is no Delta table yet."
        elif self.matches_delta is None:
            yield from _rows_text("Delta table", self.delta)
        elif self.matches_delta:
            pending = sum(bool(change.pending_because) for change in self.changes)
            rest = f" ({count(pending, 'change')} still pending)" if pending else ""
            yield line(f"Matches the Delta table{rest}.", "green")
        else:
            yield line("Mismatch: the Delta table differs from its change files.", "bold red")
            yield from _rows_text("Applied change files", self.applied)
            yield from _rows_text("Delta table", self.delta)
            yield bullet("help:", MISMATCH_HELP)


class FileEffects(Part, frozen=True):
    """What the changes of a file matched and did."""

    inserted: Count
    updated: Count
    deleted: Count
    duplicate_inserts: Count
    unmatched_updates: Count
    unmatched_deletes: Count
    multi_row_changes: Count


class FileTrace(TableReference, Result, frozen=True):
    """What one change file did.

    Attributes:
        path: from the table folder
        reason: why it is not applied, or its effect is not known
        has_marker: whether it has a row marker column; null if it cannot be read
        markers: rows by marker
        effects: null if not known
        step: of the plan, that applies it
    """

    path: str
    state: FileState
    reason: str | None
    has_marker: bool | None
    markers: Mapping[str, Count]
    rows: Count
    effects: FileEffects | None
    delta_version: Count | None
    files_of_commit: Sequence[str]
    step: PlannedStep | None
    diagnostics: Sequence[Finding]

    def text(self) -> Lines:
        """Where the file is, what it contains, and its effect."""
        yield line(f"{self.table}, {self.path}: {self.state}", "bold")
        if self.state == "applied":
            yield indented(_commit_text(self.delta_version, self.files_of_commit, self.path))
        if self.reason:
            yield indented(line(self.reason, "yellow"))
        if self.step:
            yield bullet("plan:", self.step.message)
        if self.has_marker is not None:
            markers = (f"{rows:,} {RowMarker(int(each)).name.lower()} ({each})" for each, rows in self.markers.items())
            rest = "" if self.has_marker else "; no marker column"
            yield bullet(f"{count(self.rows, 'row')}:", f"{', '.join(markers) or 'none'}{rest}")
        if effects := self.effects:
            inserted = f"{count(effects.inserted, 'row')} inserted"
            yield bullet("effect:", f"{inserted}, {effects.updated:,} updated, {effects.deleted:,} deleted")
            for name, (mark, noun, text) in NOTABLE_EFFECTS.items():
                if number := getattr(effects, name):
                    yield bullet(mark, f"{count(number, noun)} ({text})")
        helps = [f"; {each.help}" if each.help else "" for each in self.diagnostics]
        yield from bullets(
            [
                (f"{each.severity.value}[{each.code}]:", f"{each.message}{help}")
                for each, help in zip(self.diagnostics, helps, strict=True)
            ]
        )


class WhatIfTrace(Difference, Result, frozen=True):
    """The table without a file, or in another order, compared with the table as it is.

    Attributes:
        table: name: `Sales.Orders`
        landing_folder: folder in the landing zone: `Sales.schema/Orders`; null if it is gone
        delta_path: Delta table, from ROOT: `Tables/Sales/Orders`
        changes: a sentence each
        message: state after a replay as it is
        message_what_if: state after the replay with the changes
    """

    table: str
    landing_folder: str | None
    delta_path: str
    changes: Sequence[str]
    message: str
    message_what_if: str
    replay_start: ReplayStart | None

    def text(self) -> Lines:
        """The changed order, and the difference that it makes."""
        yield line(f"{self.table}, {'; '.join(self.changes)}", "bold")
        if self.replay_start:
            yield from self.replay_start.lines()
        if self.message != self.message_what_if:
            yield bullet("actual:", self.message)
            yield bullet("what-if:", self.message_what_if)
        headline = "The table would be the same", "The table would differ"
        yield from self.lines(headline, ("actual", "what-if"), "yellow")


def _changes_of_file(changes: Sequence[RowChange]) -> Lines:
    from rich.table import Table  # noqa: PLC0415 - where it is shown

    first = changes[0]
    yield line(f"{first.file}{'' if first.has_marker else ', without markers'}", "bold")
    if waits := first.pending_because:
        yield line(f"  not applied yet: {waits}", "yellow")
    else:
        yield f"  {_commit_text(first.delta_version, first.files_of_commit, first.file)}"
    lines = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
    for width in (8, 8, 9):
        lines.add_column(min_width=width, no_wrap=True)
    lines.add_column(overflow="fold")
    for change in changes:
        matched = f"matched {'?' if change.matched_rows is None else change.matched_rows}"
        lines.add_row(f"  row {change.row:,}", f"{change.marker} {change.marker_name}", matched, _effect_text(change))
    yield Trimmed(lines)


def _commit_text(version: int | None, files: Sequence[str], path: str) -> str:
    if version is None:
        return "applied; the Delta version is no longer known"
    others = [name for name in files if name != path]
    if not others:
        return f"Delta version {version}"
    if len(others) <= MAX_NAMED:
        return f"Delta version {version}, with {', '.join(others)}"
    return f"Delta version {version}, with {len(others):,} others: {others[0]} … {others[-1]}"


def _effect_text(change: RowChange) -> Group:
    from rich.console import Group  # noqa: PLC0415 - where it is shown
    from rich.text import Text  # noqa: PLC0415 - the same

    effect = Text("no effect" if change.effect == "nothing" else change.effect, EFFECT_STYLES[change.effect])
    reason = f": {change.reason}" if change.reason else ""
    pairs: Sequence[tuple[Row | None, Row | None]] = ()
    if change.effect == "inserted" or (change.after and change.before is None):
        pairs = [(None, change.after[-1])]
    elif change.effect != "nothing":
        pairs = list(zip_longest(change.before or (), change.after))
    rows = [_values(old, new, change) for old, new in pairs[:MAX_ROWS]]
    more = [Text(f"… and {len(pairs) - MAX_ROWS:,} more rows", "dim")] if len(pairs) > MAX_ROWS else []
    return Group(Text.assemble(effect, reason), *rows, *more)


def _values(before: Row | None, after: Row | None, change: RowChange) -> Fitted:
    """One row, the changed values marked with `*`; of many columns only these."""
    row = after or before or {}
    parts = []
    for name, value in row.items():
        old = cell(before[name]) if before and after and name in change.changed_columns else cell(value)
        if old != cell(value):
            parts.append(line(f"*{name} {old} -> {cell(value)}", "bold"))
        elif len(row) <= MAX_COLUMNS:
            parts.append(line(f"{name} {cell(value)}"))
    if len(parts) < len(row):
        parts.append(line(f"({count(len(row) - len(parts), 'other column')})", "dim"))
    return Fitted(parts)


def _rows_text(heading: str, rows: Sequence[Row]) -> Lines:
    yield line(f"{heading}: {count(len(rows), 'row') if rows else 'no row'}", "bold")
    for row in rows[:MAX_ROWS]:
        yield indented(Fitted([line(f"{name} {cell(value)}") for name, value in row.items()]))
    if len(rows) > MAX_ROWS:
        yield line(f"  … and {len(rows) - MAX_ROWS:,} more", "dim")
