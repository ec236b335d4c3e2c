"""`init`, `demo` and `doctor`: an example to start from, and what this machine lacks."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from mirror_engine.cli import exit_codes, progress
from mirror_engine.cli import root as opening
from mirror_engine.cli.difference import rows_json
from mirror_engine.cli.inspection import history_grid, rows_grid
from mirror_engine.cli.options import argument, command
from mirror_engine.cli.output import bullet, delta_table_json, grid, line, name_of, print_json, stdout
from mirror_engine.cli.replicate import report_json, report_text
from mirror_engine.cli.signals import Stopping
from mirror_engine.errors import TransientError, UsageError
from mirror_engine.landing_zone.diagnostics import count
from mirror_engine.landing_zone.layout import OLDER_ZONE, ZONE
from mirror_engine.monitoring.words import cell

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rich.console import RenderableType

    from mirror_engine.config import Config
    from mirror_engine.engine.run import SyncReport
    from mirror_engine.mirror import Mirror
    from mirror_engine.tables.spark.doctor import Check

OF_DELTA_TABLES = frozenset({"ME080", "ME081"})  # external change; damaged


@command()
def init(root: Path, *, as_json: bool) -> None:
    """Create an example landing zone.

    Four tables, and a commented _metadata.json to read. Nothing is overwritten: a ROOT that has a landing zone is
    left alone.

    Example: mirror-engine init ./shop

    Exit codes: 0 written · 2 usage error, or there is a landing zone already
    """
    taken = next((folder for folder in (ZONE, OLDER_ZONE) if (root / folder).exists()), None)
    if taken:
        raise UsageError(f"{root / taken} already exists; nothing was written", "choose another folder")
    try:
        files = write_example(root)
    except (FileExistsError, NotADirectoryError, PermissionError) as error:
        raise UsageError(f"{error.filename}: {error.strerror}", "choose another folder") from None
    if as_json:
        print_json("init", {"root": str(root), "landing_zone": ZONE, "files": files})
        return
    at = f"-C {root} " if root != Path() else ""
    commands = (("sync", "apply it"), ("tables", "list the Delta tables"), ("show Orders", "show one table's rows"))
    for text in (
        *(f"  {path}" for path in files),
        f"Created {count(len(files), 'file')} below {root}. Next:",
        *(
            f"  mirror-engine {at}{name:12} {about}"
            for name, about in (*commands, ("run", "apply whatever lands next"))
        ),
    ):
        stdout().print(line(text))


def write_example(root: Path) -> list[str]:
    """Write the example zone; returns the paths of its files, from ROOT."""
    from mirror_engine.cli.example_zone import ExampleZone

    zone = ExampleZone(root)
    zone.explain_metadata()
    zone.land_initial_load()
    zone.land_changes()
    return sorted(path.relative_to(root).as_posix() for path in (root / ZONE).rglob("*") if path.is_file())


@command(root="own", config=("spark_profile", "driver_memory", "delta_jars_dir"))
@argument("store", "A new or empty folder.", metavar="DIR", type=Path)
@progress.progress_option
def demo(store: Path, config: Config, progress: str, *, as_json: bool) -> None:
    """Replicate the example with Spark.

    First the initial load, then changes with all four row markers; then each table, which commit applied which
    files, and the status. Takes about a minute, the first time longer: Delta's jars are downloaded.

    Example: mirror-engine demo ./demo

    Exit codes: 0 all tables have caught up · 1 missing prerequisite or internal error · 2 usage error, or DIR is not
    empty · 3, 4 as sync · 130 interrupted
    """
    if store.exists() and (not store.is_dir() or any(store.iterdir())):
        raise UsageError(f"{store} is not an empty folder", "choose a new one")
    try:
        store.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"{store}: {error.strerror}", "choose another folder") from None
    raise click.exceptions.Exit(_demo(store, config, progress, as_json=as_json))


def _demo(root: Path, config: Config, form: str, *, as_json: bool) -> int:
    from mirror_engine.cli.example_zone import ExampleZone

    reports: list[SyncReport] = []
    with progress.shown(form) as listeners, opening.open_mirror(root, config, listeners) as mirror:
        zone = ExampleZone(root)
        with Stopping() as stopping:
            for land in (zone.land_initial_load, zone.land_changes):
                land()
                reports.append(mirror.sync(stopping.stop))
                if stopping.stop.is_set():
                    return exit_codes.INTERRUPTED
        if as_json:
            document = {"root": str(root), "reports": [report_json(r, exit_codes.of_result(r.result)) for r in reports]}
            print_json("demo", {**document, "tables": [_table_json(mirror, folder) for folder in mirror.tables()]})
        else:
            for part in _demo_text(mirror, reports):
                stdout().print(part)
    return exit_codes.of_result(reports[-1].result)


def _table_json(mirror: Mirror, folder: str) -> dict[str, Any]:
    return {
        **delta_table_json(mirror.root, folder, mirror.config.delta_default_schema),
        "rows": rows_json(mirror.read_table(folder).to_pylist()),
        "commits": len(mirror.history(folder)),
    }


def _demo_text(mirror: Mirror, reports: list[SyncReport]) -> Iterator[RenderableType]:
    from mirror_engine.cli.status_text import status_text  # imports rich

    for what, report in zip(("Initial load", "Changes"), reports, strict=True):
        yield line(f"{what}: {report_text(report, len(report.states))}")
    for folder in mirror.tables():
        rows = mirror.read_table(folder)
        ordered = sorted(rows.to_pylist(), key=lambda row: [cell(value) for value in row.values()])
        yield ""
        yield line(name_of(mirror.root, folder, mirror.config.delta_default_schema)[0].normalized, "bold")
        yield rows_grid(rows.column_names, ordered)
        yield history_grid(mirror.history(folder))
    yield ""
    yield status_text(mirror.status(), time.time())


@command(config=("merge_engine", "driver_memory", "delta_jars_dir"))
def doctor(root: Path, config: Config, *, as_json: bool) -> None:
    """Check this machine and the Delta tables.

    Python, Java, Spark, Delta, jars, memory, disk, permissions, and ROOT's Delta tables. Starts no Spark.

    Example: mirror-engine doctor ./shop

    Exit codes: 0 all checks passed · 1 a prerequisite is missing · 2 usage error · 3 a Delta table needs attention
    """
    from mirror_engine.tables.spark.doctor import checks

    machine = checks(root, config)
    all_checks = [*machine, *(_delta_tables(root, config) if root.is_dir() else ())]
    failed = sum(not check.ok for check in all_checks)
    if as_json:
        entries = [
            {"name": check.name, "ok": check.ok, "found": check.found, "help": check.help or None}
            for check in all_checks
        ]
        print_json("doctor", {"ok": not failed, "checks": entries})
    else:
        shown = grid("", "Check", "Found")
        for check in all_checks:
            mark = line("ok", "green") if check.ok else line("FAIL", "bold red")
            shown.add_row(mark, check.name, line(check.found))
            if check.help and not check.ok:
                shown.add_row("", "", bullet("help:", check.help))
        stdout().print(shown)
        stdout().print(line(f"{count(failed, 'check')} failed." if failed else "All checks passed."))
    if not all(check.ok for check in machine):
        raise click.exceptions.Exit(exit_codes.FAILURE)
    raise click.exceptions.Exit(exit_codes.NEEDS_ATTENTION if failed else exit_codes.SUCCESS)


def _delta_tables(root: Path, config: Config) -> list[Check]:
    """One check for each Delta table that the engine did not leave as it is, or one for all."""
    from mirror_engine.tables.spark.doctor import Check

    try:
        with opening.open_mirror(root, config) as mirror:
            tables = mirror.status().tables
    except TransientError as error:
        return [Check("Delta tables", ok=False, found=error.message, help=error.help)]
    wrong = [
        Check(table.name.normalized, ok=False, found=found.message, help=found.help)
        for table in tables
        for found, _ in table.diagnostics
        if found.code in OF_DELTA_TABLES
    ]
    present = sum(table.delta_version is not None for table in tables)
    return wrong or [Check("Delta tables", ok=True, found=f"{count(present, 'table')}, no external change")]
