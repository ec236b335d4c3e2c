"""`maintain` and `rebuild`: work on all Delta tables."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from mirror_engine import display
from mirror_engine.cli import exits
from mirror_engine.cli import output as out
from mirror_engine.cli.options import LISTING, command, with_config, with_root
from mirror_engine.cli.progress import progress_option, shown
from mirror_engine.errors import UsageError
from mirror_engine.landing_zone.text import count, printable
from mirror_engine.monitoring.maintenance_results import MaintenanceReport, RebuildReport

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mirror_engine.config import Config
    from mirror_engine.engine.rebuild import TableRebuild
    from mirror_engine.errors import TransientError
    from mirror_engine.monitoring.maintenance_results import MaintainedTable
    from mirror_engine.storage.store_url import Place

SPARK = ("spark_profile", "driver_memory", "delta_jars_dir")


@command(
    root="option",
    config=("default_schema", "vacuum_retention_days", "merge_engine", "spark_master", *SPARK),
    as_last_engine=("merge_engine", "spark_master", *SPARK),
    result=MaintenanceReport,
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

    Exit codes: 0 done · 1 missing prerequisite, no access to a store, or internal error · 2 usage error: no such table
    · 3 a table is damaged · 4 temporary: storage, conflict or another engine; retry · 130 interrupted
    """
    from mirror_engine.mirror import Mirror

    codes: list[int] = []

    def fail(failed: MaintainedTable, error: TransientError) -> None:
        codes.append(exits.of_error(error))
        if not out.wants_json():  # at once: the next table may take long
            sys.stderr.write(exits.error_text(f"{failed.table}: {error.message}", error.help))

    with shown(progress) as listener, Mirror(root, config, listeners=[listener]) as mirror:
        out.report(mirror.maintain(tables, fail))
    return min(codes, default=exits.SUCCESS)  # the worst is the smallest


@command(config=LISTING, result=RebuildReport)
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

    Exit codes: 0 done · 1 missing prerequisite, no access to a store, or internal error · 2 usage error, not confirmed,
    or rows would be lost · 4 temporary: storage or another engine; retry
    """
    from mirror_engine.mirror import Mirror

    if not (yes or sys.stdin.isatty()):
        raise UsageError("rebuild drops Delta tables; confirmation required", "pass --yes in scripts")

    def ask(found: Sequence[TableRebuild]) -> None:
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
        done = mirror.rebuild(tables, replay=replay, lose_rows=lose_rows or not (yes or replay), confirm=ask)
    out.report(done)
