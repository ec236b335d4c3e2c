"""`once`: apply all that can be applied now."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import typer

from mirror_engine.cli import exit_codes, opening, progress
from mirror_engine.cli.options import WORKING, Json, Root, configured
from mirror_engine.cli.output import bullet, line, print_json, stdout
from mirror_engine.cli.roots import check_root
from mirror_engine.cli.signals import Stopping
from mirror_engine.cli.status_text import style_of
from mirror_engine.config import Config
from mirror_engine.landing_zone.diagnostics import count
from mirror_engine.landing_zone.states import CaughtUp, Empty
from mirror_engine.monitoring.words import describe, help_for

if TYPE_CHECKING:
    from mirror_engine.engine.run import SyncReport
    from mirror_engine.landing_zone.names import TableName
    from mirror_engine.landing_zone.states import TableState

JSON = {
    "verdict": "refused",
    "exit_code": 3,
    "batches": 2,
    "files": 5,
    "rows": 17,
    "seconds": 9.84,
    "tables": [
        {
            "table": "Items",
            "landing_folder": "Items",
            "state": "blocked",
            "message": "Items is blocked: …",
            "help": "land …",
        }
    ],
}


@configured(*WORKING)
def once(root: Root, config: Config, *, as_json: Json = False) -> None:
    """Apply all that can be applied now, then exit.

    Example: mirror-engine once ./shop --max-batch-files 1

    Exit codes: 0 all tables level · 1 failure · 2 wrong usage · 3 a table is latched or blocked, all others
    were applied · 4 try again · 130 interrupted, after the commit at hand
    """
    with progress.shown() as listeners, opening.open_mirror(root, config, listeners) as mirror:
        check_root(root)
        with Stopping() as stopping:
            report = mirror.sync(stopping.stop)
    code = stopping.exit_code(exit_codes.of_result(report.result))
    if stopping.stop.is_set():
        code = exit_codes.INTERRUPTED
    if as_json:
        print_json(report_json(report, code) | {"tables": [_table_json(*table) for table in report.states.items()]})
    else:
        _print(report)
    raise typer.Exit(code)


def report_json(report: SyncReport, code: int) -> dict[str, Any]:
    """A report as plain values."""
    return {
        "verdict": report.result.value,
        "exit_code": code,
        "batches": report.commits,
        "files": report.files_applied,
        "rows": report.rows_applied,
        "seconds": round(report.duration_seconds, 3),
    }


def report_text(report: SyncReport) -> str:
    """A report in one sentence."""
    done = f"{count(report.files_applied, 'file')}, {count(report.rows_applied, 'row')}"
    return f"{report.result.value}: {done} in {count(report.commits, 'commit')}, {report.duration_seconds:.1f} s"


def _table_json(table: TableName, state: TableState) -> dict[str, Any]:
    return {
        "table": table.normalized,
        "landing_folder": table.folder,
        "state": state.code,
        "message": describe(table, state),
        "help": help_for(state, engine_running=False) or None,
    }


def _print(report: SyncReport) -> None:
    console = stdout()
    for table, state in report.states.items():
        if not isinstance(state, (CaughtUp, Empty)):
            console.print(line(describe(table, state), style_of(state)))
            help_text = help_for(state, engine_running=False)
            if help_text:
                console.print(bullet("->", help_text))
    console.print(line(report_text(report)))
