"""`status`: how every table is, and why one does not move."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.live import Live

from mirror_engine.cli import opening
from mirror_engine.cli.options import READING, Json, Root, configured
from mirror_engine.cli.output import print_json, stdout
from mirror_engine.cli.signals import Stopping
from mirror_engine.cli.status_text import status_text
from mirror_engine.config import Config

if TYPE_CHECKING:
    from mirror_engine.mirror import Mirror

_DIAGNOSTIC = {
    "code": "ME019",
    "name": "missing-file",
    "severity": "warning",
    "message": "`00000000000000000003.parquet` is missing; 1 later file pending",
    "help": "land it (a file without rows is enough), or renumber the later files",
    "location": {"path": "Items", "row": None, "column": None},
    "rules": ["LZ-3.3"],
    "details": {"name": "00000000000000000003.parquet", "count": "1"},
}
JSON: dict[str, Any] = {
    "root": "./shop",
    "zone": "Files/LandingZone",
    "partner": {"name": "Acme.Sync", "source_type": "PostgreSQL", "source_version": "17"},
    "engine_running": True,
    "last_heartbeat_at": "2026-11-02T08:15:30.123Z",
    "next_scan_at": "2026-11-02T08:15:40.123Z",
    "diagnostics": [_DIAGNOSTIC],
    "tables": [
        {
            "table": "Items",
            "landing_folder": "Items",
            "delta_path": "Tables/dbo/Items",
            "state": "blocked",
            "message": "Items is blocked: 00000000000000000003.parquet is missing; 1 later file pending",
            "help": "land 00000000000000000003.parquet (a file without rows is enough), …",
            "fabric_status": "Replicating",
            "fabric_error": None,
            "blocked_by": "Items/00000000000000000003.parquet",
            "watermarks": {"": 2},
            "next_files": {"": "00000000000000000003.parquet"},
            "pending_files": 1,
            "lag_seconds": 12.5,
            "rows_processed": 9,
            "bytes_processed": 140,
            "row_count": 7,
            "delta_version": 1,
            "last_commit_at": "2026-11-02T08:15:29.500Z",
            "files": [
                {
                    "path": "….parquet",
                    "state": "pending",
                    "reason": "00000000000000000003.parquet is missing",
                    "delta_version": None,
                    "rows": None,
                    "applied_by": None,
                    "passthrough_skipped_because": None,
                }
            ],
            "ignored": [_DIAGNOSTIC],
            "diagnostics": [_DIAGNOSTIC | {"count": 1}],
        }
    ],
}

Watch = Annotated[bool, typer.Option("--watch", help="Refresh until Ctrl+C; with --json one line each time.")]
Every = Annotated[float, typer.Option("--every", metavar="SECONDS", min=0.1, help="Time between two refreshes.")]


@configured(*READING)
def status(root: Root, config: Config, *, watch: Watch = False, every: Every = 2.0, as_json: Json = False) -> None:
    """Say how every table is, and what to do about it.

    A fresh look at the landing zone, read only; an engine may be running meanwhile. Starts no Java.

    Example: mirror-engine status ./shop --watch

    Exit codes: 0 told, whatever the states are, and after Ctrl+C with --watch · 2 wrong usage · 4 try again
    """
    with opening.open_mirror(root, config) as mirror:
        if watch:
            _watch(mirror, every, as_json=as_json)
        elif as_json:
            print_json(mirror.status().to_json())
        else:
            stdout().print(status_text(mirror.status(), time.time()))


def _watch(mirror: Mirror, seconds: float, *, as_json: bool) -> None:
    with Stopping() as stopping:
        if as_json:
            while not stopping.stop.is_set():
                print_json(mirror.status().to_json())
                stopping.stop.wait(seconds)
            return
        with Live(console=stdout(), auto_refresh=False, screen=False, vertical_overflow="visible") as live:
            while not stopping.stop.is_set():
                live.update(status_text(mirror.status(), time.time()), refresh=True)
                stopping.stop.wait(seconds)
