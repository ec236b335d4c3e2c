"""`maintain` and `rebuild`: work on all Delta tables."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click
from msgspec import UNSET, UnsetType

from mirror_engine import display
from mirror_engine.cli import exits
from mirror_engine.cli import output as out
from mirror_engine.cli.options import LISTING, command, with_config, with_root
from mirror_engine.cli.progress import progress_option, shown
from mirror_engine.errors import TransientError, UsageError
from mirror_engine.landing_zone.text import count, printable
from mirror_engine.results import Count, Failure, Finding, Result, TableReference

if TYPE_CHECKING:
    from mirror_engine.config import Config
    from mirror_engine.engine.rebuild import TableRebuild
    from mirror_engine.storage.store_url import Place

SPARK = ("spark_profile", "driver_memory", "delta_jars_dir")
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


class Maintain(Result, frozen=True):
    """What was compacted and vacuumed."""

    tables: Sequence[MaintainedTable]

    def text(self) -> display.Lines:
        if not self.tables:
            yield "There are no Delta tables yet."
        for table in self.tables:
            facts = {name: getattr(table, name) for name in NUMBERS}
            done = ", ".join(
                f"{name.replace('_', ' ')} {number}" for name, number in facts.items() if number is not UNSET
            )
            if table.error is UNSET:  # each failure was printed at once
                yield f"{table.table}: {done or 'nothing to do'}"


@command(
    root="option",
    config=("default_schema", "vacuum_retention_days", "merge_engine", "spark_master", *SPARK),
    as_last_engine=("merge_engine", "spark_master", *SPARK),
    result=Maintain,
)
@click.argument("tables", metavar="[TABLE]...", nargs=-1, help="Sales.Orders, Items …; default: all tables.")
@progress_option
@with_root
@with_config
def maintain(root: Place, config: Config, tables: tuple[str, ...], progress: str) -> int:
    """Compact and vacuum the Delta tables.

    Runs OPTIMIZE, then VACUUM of data files older than --vacuum-retention: earlier versions can no longer be read.
    A table that fails does not stop the others. No engine may run on ROOT meanwhile. Uses ROOT's last merge engine,
    unless options say otherwise.

    Example: mirror-engine maintain -C ./shop Sales.Orders --vacuum-retention 1d

    Exit codes: 0 done · 1 missing prerequisite or internal error · 2 usage error: no such table · 3 a table is
    damaged · 4 temporary: storage, conflict or another engine; retry · 130 interrupted
    """
    from mirror_engine.mirror import Mirror, of_delta_table

    failed: list[MaintainedTable] = []
    codes: list[int] = []

    def fail(folder: str, error: TransientError) -> None:
        failed.append(of_delta_table(MaintainedTable, mirror, folder, *[UNSET] * 3, Failure(**error.to_json())))
        codes.append(exits.of_error(error))
        if not out.wants_json():  # at once: the next table may take long
            sys.stderr.write(exits.error_text(f"{failed[-1].table}: {error.message}", error.help))

    with shown(progress) as listener, Mirror(root, config, listeners=[listener]) as mirror:
        facts = mirror.maintain(tables, fail)
        done = [
            of_delta_table(MaintainedTable, mirror, folder, *(numbers.get(name, UNSET) for name in NUMBERS))
            for folder, numbers in facts.items()
        ]
    out.report(Maintain([*done, *failed]))
    return min(codes, default=exits.SUCCESS)  # the worst is the smallest


class Rebuild(Result, frozen=True):
    """What was dropped.

    Attributes:
        files_moved_back: from the archive
        diagnostics: rows that were lost
    """

    dropped: Sequence[TableReference]
    files_moved_back: Count
    diagnostics: Sequence[Finding]

    def text(self) -> display.Lines:
        for lost in self.diagnostics:
            yield from display.diagnostic_lines(lost)
        if self.files_moved_back:
            yield f"Moved {count(self.files_moved_back, 'change file')} back"
        yield from (f"Dropped {each.table}" for each in self.dropped)
        yield "The next sync or run reads the files that are in the landing zone."


@command(config=LISTING, result=Rebuild)
@click.option("tables", "--table", metavar="TABLE", multiple=True, help="Only this table (repeatable).")
@click.option("--replay", is_flag=True, help="Move archived change files back first, so that all rows are rebuilt.")
@click.option("--lose-rows", is_flag=True, help="Continue even if rows are lost.")
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@with_root
@with_config
def rebuild(root: Place, config: Config, tables: tuple[str, ...], *, replay: bool, lose_rows: bool, yes: bool) -> None:
    """DROP Delta tables and reload them from the landing zone.

    Does what Fabric does when mirroring is stopped and started (LZ-7.7): forgets all progress, and the next sync or run
    reads the files in the landing zone. Applied files were moved to _FilesReadyToDelete: --replay moves them back
    first. If rows would be lost (ME069), the question says how many; with --yes or --replay nothing is dropped, unless
    --lose-rows accepts the loss.

    Example: mirror-engine rebuild ./shop --replay --table Sales.Orders

    Exit codes: 0 done · 1 missing prerequisite or internal error · 2 usage error, not confirmed, or rows would be
    lost · 4 temporary: storage or another engine; retry
    """
    from mirror_engine.mirror import Mirror

    if not (yes or sys.stdin.isatty()):
        raise UsageError("rebuild drops Delta tables; confirmation required", "pass --yes in scripts")
    plans: list[TableRebuild] = []

    def ask(found: Sequence[TableRebuild]) -> None:
        plans.extend(found)
        if yes:
            return
        for part in (part for plan in found if plan.lost for part in display.diagnostic_lines(plan.lost)):
            out.stderr().print(part, crop=False)
        rows = sum(int(dict(plan.lost.details)["count"]) for plan in found if plan.lost)
        moved = count(sum(len(plan.moves) for plan in found), "change file")
        which = ", ".join(plan.table.normalized for plan in found) if tables else "every Delta table"
        before = f"Move {moved} back, then drop" if replay else "Drop"
        after = f" and lose {count(rows, 'row')}" if rows else ""
        if not click.confirm(printable(f"{before} {which} under {root}/Tables{after}?"), err=True):
            raise UsageError("not confirmed; nothing was dropped")

    with Mirror(root, config) as mirror:  # who answers the question has read what is lost
        dropped = mirror.rebuild(tables, replay=replay, lose_rows=lose_rows or not (yes or replay), confirm=ask)
    schema = config.delta_default_schema
    references = [TableReference.of(table, table.delta_folder(schema)) for table in dropped]
    moved = sum(len(plan.moves) for plan in plans)
    out.report(Rebuild(references, moved, [Finding.of(plan.lost) for plan in plans if plan.lost]))
