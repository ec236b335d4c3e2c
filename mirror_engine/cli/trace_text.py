"""What `trace` found, for a person: what happened first, then what is, and what does not fit."""

from __future__ import annotations

from itertools import groupby, zip_longest
from typing import TYPE_CHECKING, Any

from rich.console import Group
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from mirror_engine.cli.differences import Headings, difference_text
from mirror_engine.cli.fitting import FittingLine
from mirror_engine.cli.output import bullet, line
from mirror_engine.landing_zone.change import RowMarker
from mirror_engine.landing_zone.diagnostics import count
from mirror_engine.monitoring.words import cell

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from rich.console import RenderableType

    from mirror_engine.publisher.trace.file import FileReport
    from mirror_engine.publisher.trace.plan_report import PlanReport
    from mirror_engine.publisher.trace.replay import ReplayStart
    from mirror_engine.publisher.trace.row import RowHistory, TracedChange, Unread
    from mirror_engine.publisher.trace.what_if import WhatIf
    from mirror_engine.tables.merge.keys_only import ChangeEffects

    Row = Mapping[str, Any]

MAX_LISTED = 8
MAX_COLUMNS = 12  # of a row that are shown unchanged
MAX_ROWS = 4  # of one key
MAX_NAMED = 2  # files of one commit
OTHERWISE = Headings(
    equal="The table would be the same",
    unequal="The table would differ",
    style="yellow",
    missing_columns="columns only as the files are",
    unexpected_columns="columns only otherwise",
    missing="Only as the files are",
    unexpected="Only otherwise",
    different="Different",
    expected="As the files are",
    found="Otherwise",
)


def key_text(table: str, story: RowHistory) -> Iterator[RenderableType]:
    """`--key`: every change below its file, then the row as it is."""
    named = ", ".join(f"{name} = {value}" for name, value in story.key.items())
    files = {change.change.file for change in story.changes}
    told = f"{count(len(story.changes), 'change')} in {count(len(files), 'file')}" if files else "no change"
    yield line(f"{table}, {named}: {told}", "bold")
    if story.beginning:
        yield from _beginning(story.beginning)
        yield from _rows("Before these files", story.first) if story.is_known else ()
    for _, changes in groupby(story.changes, lambda each: each.change.file):
        yield Text()
        yield from _file_of(list(changes))
    yield Text()
    yield from _rows("In the end", story.end)
    yield from _agreement(story)
    yield from _listed("overwritten after it was applied:", story.overwritten)
    yield from _listed("unread:", [f"{file.path}: {file.why}; {_waiting(file)}" for file in story.unread])


def _waiting(file: Unread) -> str:
    """What an unread file will do to the key once it is read."""
    if file.rows is None:
        return "what it holds is not known"
    named = ", ".join(f"{marker.value} {marker.name.lower()} (row {row:,})" for row, marker in file.rows[:MAX_ROWS])
    more = f" and {len(file.rows) - MAX_ROWS:,} more" if len(file.rows) > MAX_ROWS else ""
    return f"holds of this key: {named}{more}" if named else "holds nothing of this key"


def _file_of(changes: Sequence[TracedChange]) -> Iterator[RenderableType]:
    """One file's changes to the key, below where the file went."""
    first = changes[0]
    yield line(f"{first.change.file}{'' if first.change.has_marker else ', without markers'}", "bold")
    yield line(
        f"  {_went(first.version, first.batch, first.change.file, first.waits)}", "yellow" if first.waits else ""
    )
    lines = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
    for width in (8, 8, 7):
        lines.add_column(min_width=width, no_wrap=True)
    lines.add_column(overflow="fold")
    for change in changes:
        row = line(f"  row {change.change.row:,}")
        marker = line(f"{change.change.marker.value} {change.change.marker.name.lower()}")
        lines.add_row(row, marker, line(_met(change)), _effect(change))
    yield lines


def _went(version: int | None, batch: Sequence[str], path: str, waits: str) -> str:
    if waits:
        return f"not applied yet: {waits}"
    if version is None:
        return "applied; into which Delta version is not known any more"
    others = [each for each in batch if each != path]
    if not others:
        return f"in Delta version {version}, alone"
    if len(others) <= MAX_NAMED:
        return f"in Delta version {version}, in one commit with {', '.join(others)}"
    return f"in Delta version {version}, in one commit with {len(others):,} others: {others[0]} … {others[-1]}"


def _met(traced: TracedChange) -> str:
    if not traced.is_known:
        return "?"
    return count(len(traced.change.before), "row") if traced.change.before else "no row"


def _effect(traced: TracedChange) -> Group:
    style = {"inserted": "green", "updated": "cyan", "deleted": "red", "nothing": "dim"}[traced.did]
    told = Text.assemble((traced.did if traced.did != "nothing" else "no effect", style))
    if traced.why:
        told.append(f": {traced.why}")
    pairs = _pairs(traced)
    rows = [_values(before, after, traced) for before, after in pairs[:MAX_ROWS]]
    more = [Text(f"… and {len(pairs) - MAX_ROWS:,} more rows", "dim")] if len(pairs) > MAX_ROWS else []
    return Group(told, *rows, *more)


def _pairs(traced: TracedChange) -> list[tuple[Row | None, Row | None]]:
    """Rows before and after, side by side; only the one that came, where one came."""
    before, after = traced.change.before, traced.change.after
    if traced.did == "inserted" or (after and not traced.is_known):
        return [(None, after[-1])]
    return list(zip_longest(before, after)) if traced.did != "nothing" else []


def _values(before: Row | None, after: Row | None, traced: TracedChange) -> FittingLine:
    """One row, the changed values marked with `*`; of many columns only these."""
    row = after or before or {}
    changed = [name for name in row if before and after and name in traced.columns and _differ(before, after, name)]
    shown = [name for name in row if name in changed or len(row) <= MAX_COLUMNS]
    told = []
    for name in shown:
        if name in changed and before and after:
            told.append(line(f"*{name} {cell(before[name])} -> {cell(after[name])}", "bold"))
        else:
            told.append(line(f"{name} {cell(row[name])}"))
    if len(shown) < len(row):
        told.append(Text(f"({count(len(row) - len(shown), 'other column')})", "dim"))
    return FittingLine(told)


def _differ(before: Row, after: Row, name: str) -> bool:
    return cell(before[name]) != cell(after[name])


def _rows(heading: str, rows: Sequence[Row]) -> Iterator[RenderableType]:
    if not rows:
        yield line(f"{heading}: no row", "bold")
        return
    yield line(f"{heading}: {count(len(rows), 'row')}", "bold")
    for row in rows[:MAX_ROWS]:
        values = FittingLine([line(f"{name} {cell(value)}") for name, value in row.items()])
        yield Padding(values, (0, 0, 0, 2), expand=False)
    if len(rows) > MAX_ROWS:
        yield line(f"  … and {len(rows) - MAX_ROWS:,} more", "dim")


def _agreement(story: RowHistory) -> Iterator[RenderableType]:
    """Whether the Delta table has what its files make."""
    if story.real is None:
        yield line("There is no Delta table yet.")
    elif story.agrees is None:
        yield from _rows("The Delta table has", story.real)
    elif story.agrees:
        waits = sum(bool(change.waits) for change in story.changes)
        rest = f", but for {count(waits, 'change')} not applied yet" if waits else ""
        yield line(f"The Delta table says the same{rest}.", "green")
    else:
        yield line("THE DELTA TABLE SAYS SOMETHING ELSE", "bold red")
        yield from _rows("The files that are applied make", story.applied)
        yield from _rows("The Delta table has", story.real)
        yield bullet("->", "Another program wrote to it (see history), or a file was replaced after it was applied.")


def _beginning(found: ReplayStart) -> Iterator[RenderableType]:
    gone = f"{count(found.gone, 'earlier file')} {'is' if found.gone == 1 else 'are'} gone"
    held = f"what {'it' if found.gone == 1 else 'they'} held is not known"
    if found.rows is None:
        yield line(f"{gone}; {held}, nor is the table after that: its history is deleted, too", "bold red")
    else:
        yield line(f"{gone}; {held}: the replay begins with Delta version {found.version}", "yellow")
    if found.earlier:
        yield from _listed("not replayed, for they came before or along with these:", found.earlier)


def file_text(table: str, story: FileReport) -> Iterator[RenderableType]:
    """`--file`: where it is, what it holds, and what that did."""
    yield line(f"{table}, {story.path}: {story.state}", "bold")
    if story.state == "applied":
        yield Padding(line(_went(story.version, story.batch, story.path, "")), (0, 0, 0, 2), expand=False)
    if story.why:
        yield Padding(line(story.why, "yellow"), (0, 0, 0, 2), expand=False)
    if story.step:
        yield bullet("plan:", story.step.text)
    if story.has_marker is not None:
        named = (f"{rows:,} {RowMarker(marker).name.lower()} ({marker})" for marker, rows in story.markers.items())
        rest = "" if story.has_marker else "; it has no marker column"
        yield bullet(f"{count(story.rows, 'row')}:", f"{', '.join(named) or 'none'}{rest}")
    if story.effects:
        yield from _effects(story.effects)
    for found in story.diagnostics:
        remedy = f" -> {found.help}" if found.help else ""
        yield bullet(f"{found.severity.value}:", f"{found.coded_message}{remedy}")


def _effects(found: ChangeEffects) -> Iterator[RenderableType]:
    did = f"{count(found.inserted, 'row')} inserted, {found.updated:,} updated, {found.deleted:,} deleted"
    yield bullet("did:", did)
    met = (
        (found.absent_deletes, "delete", "of a key without a row: no effect"),
        (found.absent_updates, "update", "of a key without a row: inserted"),
        (found.repeated, "insert", "of a key with a row: both stay"),
        (found.spread, "change", "of a key with several rows"),
    )
    for rows, noun, what in met:
        if rows:
            yield bullet("met:", f"{count(rows, noun)} {what}")


def plan_text(story: PlanReport) -> Iterator[RenderableType]:
    """`--plan`: the steps, then what stays undone and why."""
    yield line(story.state_text, "bold")
    if not story.steps:
        yield line("  nothing is to be done")
    for number, step in enumerate(story.steps, start=1):
        yield bullet(f"{number}.", step.text)
    if not (story.left or story.advice):
        yield line("  then everything that landed is in the table, if no file breaks the protocol")
    else:
        yield Text()
        yield line("Why not more", "bold")
        yield from _listed("left:", [f"{file.path}: {file.reason}" for file in story.left])
        yield from [bullet("->", story.advice)] if story.advice else []
    yield from _listed("ignored:", [f"{found.path}: {found.coded_message}" for found in story.ignored])
    yield from _listed("next to land:", [f"{place}/{name}".lstrip("/") for place, name in story.next_expected.items()])


def what_if_text(table: str, story: WhatIf) -> Iterator[RenderableType]:
    """`--what-if`: what was supposed, and what comes out differently."""
    yield line(f"{table}, {'; '.join(story.supposed)}", "bold")
    if story.beginning:
        yield from _beginning(story.beginning)
    if story.state != story.state_otherwise:
        yield bullet("as the files are:", story.state)
        yield bullet("otherwise:", story.state_otherwise)
    yield from difference_text(story.difference, OTHERWISE)


def _listed(mark: str, lines: Sequence[str]) -> Iterator[RenderableType]:
    for text in lines[:MAX_LISTED]:
        yield bullet(mark, text)
    if len(lines) > MAX_LISTED:
        yield line(f"  … and {len(lines) - MAX_LISTED:,} more", "dim")
