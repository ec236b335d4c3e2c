"""`init`, `doctor`, `maintain` and `rebuild`: an example, checks of this machine, and work on all Delta tables."""

from __future__ import annotations

import errno
import os
import shlex
import shutil
import sys
import time
from collections.abc import Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click
from msgspec import UNSET, UnsetType

from mirror_engine import display
from mirror_engine.cli import exits
from mirror_engine.cli import output as out
from mirror_engine.cli.log import progress_option, shown
from mirror_engine.cli.options import LISTING, command
from mirror_engine.errors import StorageUnavailable, TransientError, UsageError
from mirror_engine.landing_zone.diagnostics import Trait, count, printable
from mirror_engine.landing_zone.layout import OLDER_ZONE, ZONE
from mirror_engine.results import Check, Count, Failure, Finding, Result, TableReference
from mirror_engine.storage.roots import check_place

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rich.console import RenderableType

    from mirror_engine.config import Config
    from mirror_engine.engine.rebuild import TableRebuild
    from mirror_engine.storage.store_url import Place

EXAMPLE = Path(__file__).with_name("example")
EXAMPLE_METADATA = "_metadata.example.jsonc"  # in ROOT: in a table folder it would be an ignored file
ELSEWHERE = "choose another folder"
SPARK = ("spark_profile", "driver_memory", "delta_jars_dir")
NUMBERS = ("files_added", "files_removed", "files_deleted")  # of maintenance
NEXT = {
    "sync": "apply it",
    "status": "show the state of each table",
    "show Orders": "show one table's rows",
    "run": "apply whatever lands next",
}


class Init(Result, frozen=True):
    """A new example landing zone.

    Attributes:
        landing_zone: from ROOT
        files: from ROOT
    """

    root: str
    landing_zone: str
    files: Sequence[str]

    def text(self) -> display.Lines:
        yield from (f"  {path}" for path in self.files)
        yield f"Created {count(len(self.files), 'file')} below {self.root}. Next:"
        at = f"-C {shlex.quote(self.root)} " if self.root != "." else ""
        yield from (f"  mirror-engine {at}{name:12} {about}" for name, about in NEXT.items())


@command(place="any", result=Init)
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
    out.report(Init(str(root), ZONE, files))


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


class Doctor(Result, frozen=True):
    """Checks of this machine, and of the Delta tables."""

    ok: bool
    checks: Sequence[Check]

    def text(self) -> display.Lines:
        rows: list[tuple[RenderableType, ...]] = []
        for check in self.checks:
            mark = display.line("ok", "green") if check.ok else display.line("FAIL", "bold red")
            rows.append((mark, check.name, check.found))
            if check.help and not check.ok:
                rows.append(("", "", display.bullet("help:", check.help)))
        yield display.Grid(["", "Check", "Found"], rows)
        failed = sum(not check.ok for check in self.checks)
        yield f"{count(failed, 'check')} failed." if failed else "All checks passed."


@command(place="any", config=("merge_engine", "driver_memory", "delta_jars_dir"), result=Doctor)
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
    is_well = all(check.ok for check in all_checks)
    out.report(Doctor(is_well, all_checks))
    if not all(check.ok for check in machine):
        return exits.FAILURE
    return exits.SUCCESS if is_well else exits.NEEDS_ATTENTION


def _delta_tables(root: Path, config: Config) -> list[Check]:
    """One check for each Delta table that the engine did not leave as it is, or one for all."""
    from mirror_engine.mirror import Mirror

    try:
        with Mirror(root, config) as mirror:
            tables = mirror.status().tables
    except TransientError as error:
        return [Check("Delta tables", ok=False, found=error.message, help=error.help or None)]
    wrong = [
        Check(table.name.normalized, ok=False, found=found.message, help=found.help or None)
        for table in tables
        for found, _ in table.diagnostics
        if found.has(Trait.DELTA)
    ]
    present = sum(table.delta_version is not None for table in tables)
    return wrong or [Check("Delta tables", ok=True, found=f"{count(present, 'table')}, no external change")]


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
def maintain(root: Place, config: Config, tables: tuple[str, ...], progress: str) -> int:
    """Compact and vacuum the Delta tables.

    OPTIMIZE, then VACUUM of data files older than --vacuum-retention: earlier versions can no longer be read.
    A table that fails does not stop the others. No engine may run on ROOT meanwhile. Works with the merge engine that
    ROOT had last, unless options say otherwise.

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
