"""What the page says: the same values and words as `mirror-engine status`, ready for its templates."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from mirror_engine.landing_zone.register import Severity
from mirror_engine.landing_zone.states import Latched, Unarmed
from mirror_engine.monitoring.cells import cell

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa

    from mirror_engine.landing_zone.diagnostics import Diagnostic
    from mirror_engine.monitoring.shown import ShownItem
    from mirror_engine.monitoring.status import FileStatus, TableStatus

MOST_CHARACTERS = 200  # of one cell
MOST_COLUMNS = 50
MOST_FILES = 100  # of one kind
MOST_NAMED = 4  # change files of one commit
SEVERITIES = {Severity.ERROR: "error", Severity.WARNING: "warning", Severity.INFO: "note"}


@dataclass(frozen=True)
class Some:
    """The first of many things.

    Attributes:
        listed: those that are shown.
        more: how many there are besides.
    """

    listed: Sequence[Any]
    more: int

    @staticmethod
    def of(things: Sequence[Any], most: int = MOST_FILES) -> Some:
        """As many as fit."""
        return Some(things[:most], max(0, len(things) - most))


@dataclass(frozen=True)
class FirstRows:
    """A table's first rows as text.

    Attributes:
        columns: their names.
        more_columns: how many are left out.
        rows: cells; None for NULL.
    """

    columns: Sequence[str]
    more_columns: int
    rows: Sequence[Sequence[str | None]]

    @staticmethod
    def of(table: pa.Table) -> FirstRows:
        """Cut to what a page can hold."""
        columns = [_texts(column) for column in table.columns[:MOST_COLUMNS]]
        rows = list(zip(*columns, strict=True))
        return FirstRows(table.column_names[:MOST_COLUMNS], max(0, table.num_columns - MOST_COLUMNS), rows)


def last_diagnostic(table: TableStatus) -> Diagnostic | None:
    """What a table stands still for; else what was last said of it."""
    if isinstance(table.state, (Latched, Unarmed)):
        return table.state.diagnostic
    return table.diagnostics[-1][0] if table.diagnostics else None


def applied(table: TableStatus) -> Sequence[FileStatus]:
    """The files that are in the table, those that came last first."""
    return [file for file in reversed(table.files) if file.state == "applied"]


def named(files: Sequence[str]) -> str:
    """A commit's change files; of many, the first and the last and how many there are."""
    if len(files) <= MOST_NAMED:
        return ", ".join(files) or "-"
    return f"{files[0]} … {files[-1]} ({len(files):,} files)"


def address(item: ShownItem, table: TableStatus) -> str:
    """The path of a table's page."""
    return f"/tables/{item.id}/{quote(table.name.folder, errors='replace')}"


def _texts(column: pa.ChunkedArray) -> list[str | None]:
    try:
        values = column.to_pylist()
    except (ValueError, OverflowError):  # times beyond the years that Python knows
        values = column.cast("string").to_pylist()
    return [None if value is None else _cut(value) for value in values]


def _cut(value: object) -> str:
    """A value as text, of which no more is made than is shown."""
    text = cell(value[: MOST_CHARACTERS + 1] if isinstance(value, (str, bytes)) else value)
    return text if len(text) <= MOST_CHARACTERS else f"{text[:MOST_CHARACTERS]}…"
