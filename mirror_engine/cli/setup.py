"""`init` and `doctor`: an example, and checks of this machine."""

from __future__ import annotations

import errno
import os
import shlex
import shutil
import time
from collections.abc import Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from mirror_engine import display
from mirror_engine.cli import exits
from mirror_engine.cli import output as out
from mirror_engine.cli.options import command, with_config, with_root
from mirror_engine.errors import StorageUnavailable, TransientError, UsageError
from mirror_engine.landing_zone.diagnostics import Trait
from mirror_engine.landing_zone.layout import OLDER_ZONE, ZONE
from mirror_engine.landing_zone.text import count
from mirror_engine.results import Check, Result
from mirror_engine.storage.roots import check_place

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rich.console import RenderableType

    from mirror_engine.config import Config

EXAMPLE = Path(__file__).with_name("example")
EXAMPLE_METADATA = "_metadata.example.jsonc"  # in ROOT: in a table folder it would be an ignored file
ELSEWHERE = "choose another folder"
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
@with_root
def init(root: Path) -> None:
    """Create an example landing zone.

    Writes four tables, and a commented _metadata.json to read. Overwrites nothing: a ROOT with a landing zone is left
    unchanged.

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
@with_root
@with_config
def doctor(root: Path, config: Config) -> int:
    """Check this machine and the Delta tables.

    Checks Python, Java, Spark, Delta, jars, memory, disk, permissions, and ROOT's Delta tables. Starts no Spark.

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
    """Return one check for each Delta table with a finding, or one for all."""
    from mirror_engine.mirror import Mirror, status_of

    try:
        with Mirror(root, config) as mirror:
            tables = status_of(mirror).tables
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
