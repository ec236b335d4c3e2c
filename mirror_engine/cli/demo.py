"""`demo`: a publisher and the engine in one minute, with real Spark and Delta."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mirror_engine.cli import exit_codes, opening, progress
from mirror_engine.cli.history import history_grid
from mirror_engine.cli.once import report_json, report_text
from mirror_engine.cli.options import Json, configured
from mirror_engine.cli.output import grid, line, print_json, stdout
from mirror_engine.cli.signals import Stopping
from mirror_engine.cli.status_text import status_text
from mirror_engine.config import Config
from mirror_engine.errors import UsageError
from mirror_engine.monitoring.words import cell, plain

if TYPE_CHECKING:
    from rich.console import Console

    from mirror_engine.engine.run import SyncReport
    from mirror_engine.mirror import Mirror

JSON: dict[str, Any] = {
    "root": "./demo",
    "reports": [
        {"verdict": "caught_up", "exit_code": 0, "batches": 4, "files": 6, "rows": 13, "seconds": 14.1},
    ],
    "tables": [{"delta_folder": "Sales/Stores", "rows": [{"Id": 1}], "commits": 2}],
}

DemoRoot = Annotated[Path, typer.Argument(metavar="DIR", help="A folder that is new or empty.", show_default=False)]


@configured("spark_profile", "driver_memory", "delta_jars_dir")
def demo(root: DemoRoot, config: Config, *, as_json: Json = False) -> None:
    """Write a small landing zone and mirror it with Spark.

    First the initial load, then changes with all four row markers; then each table, which commit holds which files,
    and the status. Takes about a minute, and the first time the download of Delta's jars.

    Example: mirror-engine demo ./demo

    Exit codes: 0 all tables level · 1 failure · 2 wrong usage, or DIR is not empty · 3, 4 as for once ·
    130 interrupted
    """
    _make(root)
    reports = []
    with progress.shown() as listeners, opening.open_mirror(root, config, listeners) as mirror, Stopping() as stopping:
        from mirror_engine.cli.example_zone import ExampleZone  # noqa: PLC0415 - Arrow takes most of a second

        zone = ExampleZone(root)
        for land in (zone.land_initial_load, zone.land_changes):
            land()
            reports.append(mirror.sync(stopping.stop))
            if stopping.stop.is_set():
                raise typer.Exit(exit_codes.INTERRUPTED)
        if as_json:
            print_json({"root": str(root), "reports": [_report(r) for r in reports], "tables": _tables(mirror)})
        else:
            _print(stdout(), mirror, reports)
    raise typer.Exit(exit_codes.of_result(reports[-1].result))


def _make(root: Path) -> None:
    if root.exists() and (not root.is_dir() or any(root.iterdir())):
        raise UsageError(f"{root}: is not an empty folder", "Name a new one.")
    try:
        root.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"{root}: {error.strerror}", "Name another folder.") from None


def _report(report: SyncReport) -> dict[str, Any]:
    return report_json(report, exit_codes.of_result(report.result))


def _tables(mirror: Mirror) -> list[dict[str, Any]]:
    return [
        {
            "delta_folder": folder,
            "rows": [
                {name: plain(value) for name, value in row.items()} for row in mirror.read_table(folder).to_pylist()
            ],
            "commits": len(mirror.history(folder)),
        }
        for folder in mirror.tables()
    ]


def _print(console: Console, mirror: Mirror, reports: list[SyncReport]) -> None:
    for what, report in zip(("initial load", "changes"), reports, strict=True):
        console.print(line(f"{what}: {report_text(report)}"))
    for folder in mirror.tables():
        found = mirror.read_table(folder)
        shown = grid(*found.column_names)
        rows = sorted(found.to_pylist(), key=lambda row: [cell(value) for value in row.values()])
        for row in rows:
            shown.add_row(*(line(cell(value)) for value in row.values()))
        console.print()
        console.print(line(f"Tables/{folder}", "bold"))
        console.print(shown)
        console.print(history_grid(mirror.history(folder)))
    console.print()
    console.print(status_text(mirror.status(), time.time()))
