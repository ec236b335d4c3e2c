"""`init`, `doctor`, `maintain` and `rebuild`: an example, checks of this machine, and work on all Delta tables."""

from __future__ import annotations

import errno
import os
import shlex
import shutil
import sys
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from mirror_engine.cli import exits
from mirror_engine.cli import output as out
from mirror_engine.cli.log import progress_option, shown
from mirror_engine.cli.options import LISTING, command
from mirror_engine.errors import StorageUnavailable, TransientError, UsageError
from mirror_engine.landing_zone.diagnostics import Trait, count, printable
from mirror_engine.landing_zone.layout import OLDER_ZONE, ZONE
from mirror_engine.monitoring.words import as_json, table_json
from mirror_engine.storage.roots import check_place

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from rich.console import RenderableType

    from mirror_engine.config import Config
    from mirror_engine.engine.rebuild import TableRebuild
    from mirror_engine.storage.store_url import Place
    from mirror_engine.tables.spark.doctor import Check

EXAMPLE = Path(__file__).with_name("example")
EXAMPLE_METADATA = "_metadata.example.jsonc"  # in ROOT: in a table folder it would be an ignored file
ELSEWHERE = "choose another folder"
SPARK = ("spark_profile", "driver_memory", "delta_jars_dir")
NEXT = {
    "sync": "apply it",
    "status": "show the state of each table",
    "show Orders": "show one table's rows",
    "run": "apply whatever lands next",
}


@command(place="any")
def init(root: Path) -> None:
    """Create an example landing zone.

    Four tables, and a commented _metadata.json to read. Nothing is overwritten: a ROOT that has a landing zone is
    left alone.

    Example: mirror-engine init ./shop

    Exit codes: 0 written · 2 usage error, or there is a landing zone already · 4 temporary: the disk is full
    """
    check_place(root)
    if taken := next((folder for folder in (ZONE, OLDER_ZONE) if (root / folder).exists()), None):
        raise UsageError(f"{root / taken} already exists; nothing was written", ELSEWHERE)
    with writing():
        _land_example(root)
        with (root / EXAMPLE_METADATA).open("xb") as file:
            file.write((EXAMPLE / EXAMPLE_METADATA).read_bytes())
    paths = [root / EXAMPLE_METADATA, *(root / ZONE).rglob("*")]
    files = sorted(path.relative_to(root).as_posix() for path in paths if path.is_file())
    at = f"-C {shlex.quote(str(root))} " if root != Path() else ""
    text = [f"  {path}" for path in files]
    text += [f"Created {count(len(files), 'file')} below {root}. Next:"]
    text += [f"  mirror-engine {at}{name:12} {about}" for name, about in NEXT.items()]
    out.report({"root": str(root), "landing_zone": ZONE, "files": files}, text)


@contextmanager
def writing() -> Iterator[None]:
    """Turn the errors of a folder that cannot be written into those of usage, or of a full disk."""
    try:
        yield
    except OSError as error:
        where = f"{error.filename2 or error.filename}: {error.strerror}"  # of a copy, the second is the target
        if error.errno in {errno.ENOSPC, errno.EDQUOT}:
            raise StorageUnavailable(where, "Free disk space, or choose another folder.") from None
        raise UsageError(where, ELSEWHERE) from None


def _land_example(root: Path) -> None:
    """Copy the example into a landing zone.

    Four tables, with and without a schema folder, Parquet and CSV, keyed and insert-only. Their first files are initial
    loads without the marker column (LZ-4.13). Later ones have all four row markers, a key change, a new column, and
    marker-free rows that are upserts.
    """
    zone = EXAMPLE / "LandingZone"
    for source in sorted(path for path in zone.rglob("*") if path.is_file()):
        target = root / ZONE / source.relative_to(zone)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source, target)
        os.utime(target, ns=(time.time_ns(),) * 2)  # files that are written within a tick of the kernel's have one time


@command(place="any", config=("merge_engine", "driver_memory", "delta_jars_dir"))
def doctor(root: Path, config: Config) -> int:
    """Check this machine and the Delta tables.

    Python, Java, Spark, Delta, jars, memory, disk, permissions, and ROOT's Delta tables. Starts no Spark.

    Example: mirror-engine doctor ./shop

    Exit codes: 0 all checks passed · 1 a prerequisite is missing · 2 usage error · 3 a Delta table needs attention
    """
    from mirror_engine.tables.spark.choice import refuse_idle_options
    from mirror_engine.tables.spark.doctor import checks

    refuse_idle_options(config, None, root)
    machine = checks(root, config)
    all_checks = [*machine, *(_delta_tables(root, config) if root.is_dir() else ())]
    failed = sum(not check.ok for check in all_checks)
    rows: list[tuple[RenderableType, ...]] = []
    for check in all_checks:
        rows.append((out.line("ok", "green") if check.ok else out.line("FAIL", "bold red"), check.name, check.found))
        if check.help and not check.ok:
            rows.append(("", "", out.bullet("help:", check.help)))
    end = f"{count(failed, 'check')} failed." if failed else "All checks passed."
    out.report({"ok": not failed, "checks": as_json(all_checks)}, [out.Grid(["", "Check", "Found"], rows), end])
    if not all(check.ok for check in machine):
        return exits.FAILURE
    return exits.NEEDS_ATTENTION if failed else exits.SUCCESS


def _delta_tables(root: Path, config: Config) -> list[Check]:
    """One check for each Delta table that the engine did not leave as it is, or one for all."""
    from mirror_engine.mirror import Mirror
    from mirror_engine.tables.spark.doctor import Check

    try:
        with Mirror(root, config) as mirror:
            tables = mirror.status().tables
    except TransientError as error:
        return [Check("Delta tables", ok=False, found=error.message, help=error.help)]
    wrong = [
        Check(table.name.normalized, ok=False, found=found.message, help=found.help)
        for table in tables
        for found, _ in table.diagnostics
        if found.has(Trait.DELTA)
    ]
    present = sum(table.delta_version is not None for table in tables)
    return wrong or [Check("Delta tables", ok=True, found=f"{count(present, 'table')}, no external change")]


@command(
    root="option",
    config=("default_schema", "vacuum_retention_days", "merge_engine", "spark_master", *SPARK),
    as_last_engine=("merge_engine", "spark_master", *SPARK),
)
@click.argument("tables", metavar="[TABLE]...", nargs=-1, help="Sales.Orders, Items …; default: all tables.")
@progress_option
def maintain(root: Place, config: Config, tables: tuple[str, ...], progress: str) -> int:
    """Compact and vacuum the Delta tables.

    OPTIMIZE, then VACUUM of data files older than --vacuum-retention: earlier versions can no longer be read.
    A table that fails does not stop the others. No engine may run on ROOT meanwhile. Works with the merge engine that
    ROOT had last, unless options say otherwise.

    Example: mirror-engine maintain -C ./shop Sales.Orders --vacuum-retention 1d

    Exit codes: 0 done · 1 missing prerequisite or internal error · 2 usage error: no such table · 3 a table is
    damaged · 4 temporary: storage, conflict or another engine; retry · 130 interrupted
    """
    from mirror_engine.mirror import Mirror

    failures: list[tuple[dict[str, Any], TransientError]] = []

    def fail(folder: str, error: TransientError) -> None:
        reference = out.delta_table_json(mirror, folder)
        failures.append((reference, error))
        if not out.wants_json():  # at once: the next table may take long
            sys.stderr.write(exits.error_text(f"{reference['table']}: {error.message}", error.help))

    with shown(progress) as listener, Mirror(root, config, listeners=[listener]) as mirror:
        facts = mirror.maintain(tables, fail)
        done = [(out.delta_table_json(mirror, folder), numbers) for folder, numbers in facts.items()]
    documents = [{**reference, **as_json(numbers)} for reference, numbers in done]
    documents += [{**reference, "error": error.to_json()} for reference, error in failures]
    text = []
    for reference, numbers in done:
        shown_numbers = ", ".join(f"{name.replace('_', ' ')} {value}" for name, value in numbers.items())
        text.append(f"{reference['table']}: {shown_numbers or 'nothing to do'}")
    out.report({"tables": documents}, text if documents else ["There are no Delta tables yet."])
    return min((exits.of_error(error) for _, error in failures), default=exits.SUCCESS)  # the worst is the smallest


@command(config=LISTING)
@click.option("tables", "--table", metavar="TABLE", multiple=True, help="Only this table (repeatable).")
@click.option("--replay", is_flag=True, help="Move archived change files back first, so that all rows are rebuilt.")
@click.option("--lose-rows", is_flag=True, help="Go on where rows are lost.")
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
def rebuild(root: Place, config: Config, tables: tuple[str, ...], *, replay: bool, lose_rows: bool, yes: bool) -> None:
    """DROP Delta tables and reload them from the landing zone.

    As Fabric does when mirroring is stopped and started (LZ-7.7). All progress is forgotten; the next sync or run
    reads the files in the landing zone. Applied files were moved to _FilesReadyToDelete: --replay moves them back
    first. Where rows would be lost (ME069), the question says how many; with --yes or --replay nothing is dropped
    then, unless --lose-rows accepts it.

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
        for part in _lost_lines(found):
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
    moved = sum(len(plan.moves) for plan in plans)
    out.report(
        {
            "dropped": [table_json(table, table.delta_folder(config.delta_default_schema)) for table in dropped],
            "files_moved_back": moved,
            "diagnostics": as_json([plan.lost for plan in plans if plan.lost]),
        },
        [
            *_lost_lines(plans),
            *([f"Moved {count(moved, 'change file')} back"] if moved else ()),
            *(f"Dropped {table.normalized}" for table in dropped),
            "The next sync or run reads the files that are in the landing zone.",
        ],
    )


def _lost_lines(plans: Iterable[TableRebuild]) -> out.Lines:
    for plan in plans:
        if plan.lost:
            yield from out.diagnostic_lines(plan.lost)
