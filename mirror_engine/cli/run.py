"""`run`: keep the tables level until told to stop."""

from __future__ import annotations

import logging
from typing import Annotated

import typer

from mirror_engine.cli import exit_codes, opening
from mirror_engine.cli.log import Log, LogFormat
from mirror_engine.cli.once import report_json
from mirror_engine.cli.options import WORKING, Json, Root, configured
from mirror_engine.cli.output import print_json
from mirror_engine.cli.roots import check_root_to_come
from mirror_engine.cli.signals import Stopping
from mirror_engine.config import Config

JSON = {"verdict": "caught_up", "exit_code": 0, "batches": 40, "files": 212, "rows": 90417, "seconds": 3605.2}

Format = Annotated[LogFormat, typer.Option("--log-format", metavar="FORMAT", help="Of lines on stderr: text or json.")]


@configured(*WORKING)
def run(root: Root, config: Config, *, log_format: Format = LogFormat.TEXT, as_json: Json = False) -> None:
    """Apply what lands until told to stop.

    SIGTERM or Ctrl+C ends it after the commit at hand, a second one at once. File-system events wake it; without
    them it looks every --poll-interval seconds.

    Events are logged on stderr, one line each; with --json the final report goes to stdout.

    Example: mirror-engine run ./shop --poll-interval 5 --log-format json

    Exit codes: 0 stopped by SIGTERM · 1 failure · 2 wrong usage · 4 another engine works on this ROOT · 130 stopped
    by Ctrl+C
    """
    logging.getLogger().addHandler(logging.NullHandler())  # libraries' own words would break the lines
    log = Log(log_format)
    with Stopping() as stopping, opening.open_mirror(root, config, [log]) as mirror:
        check_root_to_come(root)
        log.say("info", "started", root=str(root), poll_interval_seconds=config.poll_interval_seconds)
        report = mirror.run(stopping.stop)
    told = report_json(report, stopping.exit_code(exit_codes.SUCCESS))
    log.say("info", "stopped", **{name: value for name, value in told.items() if name != "exit_code"})
    if as_json:
        print_json(told)
    raise typer.Exit(told["exit_code"])
