"""`maintain` and `rebuild`: compact and vacuum the Delta tables, or drop them and load them again."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import click

from mirror_engine.cli import exit_codes, progress
from mirror_engine.cli import root as opening
from mirror_engine.cli.error_handler import code_of, error_text
from mirror_engine.cli.inspection import NO_TABLES
from mirror_engine.cli.options import READING, argument, command, flag
from mirror_engine.cli.output import delta_table_json, diagnostic_lines, line, name_of, print_json, stdout, table_json
from mirror_engine.errors import UsageError
from mirror_engine.events import DiagnosticRaised
from mirror_engine.monitoring.words import plain

if TYPE_CHECKING:
    from pathlib import Path

    from mirror_engine.config import Config
    from mirror_engine.errors import TransientError
    from mirror_engine.events import Event
    from mirror_engine.landing_zone.diagnostics import Diagnostic


@command(
    root="option",
    config=("default_schema", "vacuum_retention_days", "spark_profile", "driver_memory", "delta_jars_dir"),
)
@argument("tables", "Sales.Orders, Items …; default: all tables.", metavar="TABLE", nargs=-1)
@progress.progress_option
def maintain(root: Path, config: Config, tables: tuple[str, ...], progress: str, *, as_json: bool) -> None:
    """Compact and vacuum the Delta tables.

    OPTIMIZE, then VACUUM of data files older than --vacuum-retention: earlier versions can no longer be read.
    A table that fails does not stop the others. No engine may run on ROOT meanwhile.

    Example: mirror-engine maintain -C ./shop Sales.Orders --vacuum-retention 1d

    Exit codes: 0 done · 1 missing prerequisite or internal error · 2 usage error: no such table · 3 a table is
    damaged · 4 temporary: storage, conflict or another engine; retry · 130 interrupted
    """
    failed: dict[str, TransientError] = {}
    schema = config.delta_default_schema

    def note(folder: str, error: TransientError) -> None:
        failed[folder] = error
        if not as_json:  # at once: the next table may take long
            name = name_of(root, folder, schema)[0].normalized
            sys.stderr.write(error_text(f"{name}: {error.message}", error.help))

    facts = _maintain(root, config, tables, progress, note)
    if as_json:
        done: list[dict[str, Any]] = [
            {**delta_table_json(root, folder, schema), **{name: plain(value) for name, value in numbers.items()}}
            for folder, numbers in facts.items()
        ]
        done += [
            {
                **delta_table_json(root, folder, schema),
                "error": {"code": code_of(error), "message": error.message, "help": error.help or None},
            }
            for folder, error in failed.items()
        ]
        print_json("maintain", {"tables": done})
    else:
        for folder, numbers in facts.items():
            text = ", ".join(f"{name.replace('_', ' ')} {value}" for name, value in numbers.items())
            stdout().print(line(f"{name_of(root, folder, schema)[0].normalized}: {text or 'nothing to do'}"))
        if not facts and not failed:
            stdout().print(line(NO_TABLES))
    raise click.exceptions.Exit(exit_codes.of_errors(failed.values()))


def _maintain(root: Path, config: Config, tables: tuple[str, ...], form: str, note: Any) -> Any:
    with progress.shown(form) as listeners, opening.open_mirror(root, config, listeners) as mirror:
        return mirror.maintain(tables, note)


@command(config=READING)
@flag("-y", "--yes", help="Do not ask.")
def rebuild(root: Path, config: Config, *, yes: bool, as_json: bool) -> None:
    """DROP all Delta tables and reload them from the landing zone.

    As Fabric does when mirroring is stopped and started (LZ-7.7). All progress is forgotten; the next sync or run
    reads the files that are still in the landing zone. Rows of deleted files are lost, and reported as ME069. To
    rebuild one table, let its publisher delete and recreate its folder.

    Example: mirror-engine rebuild ./shop --yes

    Exit codes: 0 done · 1 missing prerequisite or internal error · 2 usage error, or not confirmed · 4 temporary:
    storage or another engine; retry
    """
    diagnostics: list[Diagnostic] = []

    def note(event: Event) -> None:
        if isinstance(event, DiagnosticRaised):
            diagnostics.append(event.diagnostic)

    with opening.open_mirror(root, config, [note]) as mirror:
        if not yes:
            _confirm(root)
        dropped = mirror.rebuild()
    if as_json:
        tables = [table_json(table, config.delta_default_schema) for table in dropped]
        print_json("rebuild", {"dropped": tables, "diagnostics": [found.to_json() for found in diagnostics]})
        return
    for diagnostic in diagnostics:
        for part in diagnostic_lines(diagnostic):
            stdout().print(part)
    for table in dropped:
        stdout().print(line(f"Dropped {table.normalized}"))
    stdout().print(line("The next sync or run reads the files that are still in the landing zone."))


def _confirm(root: Path) -> None:
    if not sys.stdin.isatty():
        raise UsageError("rebuild drops every Delta table; confirmation required", "pass --yes in scripts")
    if not click.confirm(f"Drop every Delta table under {root}/Tables?", err=True):
        raise UsageError("not confirmed; nothing was dropped")
