"""What `maintain` and `rebuild` return."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from msgspec import UNSET, UnsetType

from mirror_engine.display import diagnostic_lines
from mirror_engine.landing_zone.text import count
from mirror_engine.results import Count, Failure, Finding, Result, TableReference

if TYPE_CHECKING:
    from mirror_engine.display import Lines

NUMBERS = ("files_added", "files_removed", "files_deleted")  # of maintenance


class MaintainedTable(TableReference, frozen=True):
    """A table that was compacted and vacuumed, or could not be.

    Attributes:
        files_removed: from the newest version
        files_deleted: from the disk
        error: why it could not be maintained
    """

    files_added: Count | UnsetType = UNSET
    files_removed: Count | UnsetType = UNSET
    files_deleted: Count | UnsetType = UNSET
    error: Failure | UnsetType = UNSET


class MaintenanceReport(Result, frozen=True):
    """What was compacted and vacuumed."""

    tables: Sequence[MaintainedTable]

    def text(self) -> Lines:
        if not self.tables:
            yield "There are no Delta tables yet."
        for table in self.tables:
            facts = {name: getattr(table, name) for name in NUMBERS}
            done = ", ".join(
                f"{name.replace('_', ' ')} {number}" for name, number in facts.items() if number is not UNSET
            )
            if table.error is UNSET:  # who asked for all tables was told of each failure at once
                yield f"{table.table}: {done or 'nothing to do'}"


class RebuildReport(Result, frozen=True):
    """What was dropped.

    Attributes:
        files_moved_back: from the archive
        diagnostics: rows that were lost
    """

    dropped: Sequence[TableReference]
    files_moved_back: Count
    diagnostics: Sequence[Finding]

    def text(self) -> Lines:
        for lost in self.diagnostics:
            yield from diagnostic_lines(lost.as_diagnostic)
        if self.files_moved_back:
            yield f"Moved {count(self.files_moved_back, 'change file')} back"
        yield from (f"Dropped {each.table}" for each in self.dropped)
        yield "The next sync or run reads the files that are in the landing zone."
