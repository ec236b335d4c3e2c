"""`validate`: check a landing zone as Fabric would take it."""

from __future__ import annotations

import gc
import math
import os
import sys
import threading
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from mirror_engine.cli import exit_codes
from mirror_engine.cli.explain import known_code
from mirror_engine.cli.options import READING, argument, choice_option, command, count_option, flag, option, time_option
from mirror_engine.cli.output import line, print_json, stderr, stdout
from mirror_engine.cli.signals import Stopping
from mirror_engine.errors import UsageError
from mirror_engine.landing_zone.diagnostics import Severity, count
from mirror_engine.landing_zone.layout import ZONE

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mirror_engine.config import Config
    from mirror_engine.publisher.target import ValidationTarget
    from mirror_engine.publisher.validate import Baseline, ValidationReport

FORMATS = ("text", "json", "github", "junit", "sarif")
LARGE_FILE_BYTES = 32 * 1024 * 1024
MIN_NEW_OBJECTS = 500_000  # before a garbage collection: a command that ends soon leaves little


@command(root="own", config=(*READING, "memory_limit"))
@argument(
    "paths", "A ROOT, a landing zone, a table folder or a file.  [default: .]", metavar="PATH", type=Path, nargs=-1
)
@choice_option(
    "report_format", "--format", choices=FORMATS, default="text", help="Form of the report; --json is --format json."
)
@choice_option("--fail-on", choices=("error", "warning"), default="error", help="Least severity that ends with 3.")
@option(
    "ignore", "--ignore", metavar="CODES", multiple=True, help="Suppress these diagnostics: ME016,ME041 (repeatable)."
)
@option("--baseline", metavar="FILE", type=Path, help="Suppress findings recorded in FILE.")
@option("--write-baseline", metavar="FILE", type=Path, help="Record all current findings in FILE.")
@count_option(
    "--check-tie-order", default=0, help="Replay N other orders of files with equal modification times (LZ-3.5)."
)
@flag("--keys-only", help="Skip non-key columns in files over 32 MiB (faster, finds less).")
@flag("--watch", help="Keep checking while a publisher writes, until Ctrl+C.")
@time_option("--duration", help="With --watch: end after this time.")
def validate(
    paths: tuple[Path, ...],
    config: Config,
    report_format: str,
    fail_on: str,
    ignore: tuple[str, ...],
    baseline: Path | None,
    write_baseline: Path | None,
    check_tie_order: int,
    duration: float | None,
    *,
    keys_only: bool,
    watch: bool,
    as_json: bool,
) -> None:
    """Check a landing zone. Reads only; needs no Java.

    A dry run of the engine: every diagnostic with its file, row and help; see explain for each. Files that were moved
    after they were applied are checked, too.

    Example: mirror-engine validate ./out --format github --ignore ME016

    Exit codes: 0 passed · 2 usage error · 3 findings at or above --fail-on, or a table is blocked or halted · 4
    temporary: storage; retry
    """
    gc.set_threshold(MIN_NEW_OBJECTS)
    from mirror_engine.tables.arrow_types import without_pandas

    without_pandas()
    from mirror_engine.publisher import validate as checks
    from mirror_engine.publisher.target import find_target

    paths = paths or (Path(),)
    _check_usage(paths, duration, report_format, watch=watch, as_json=as_json)
    codes = frozenset(known_code(code) for codes in ignore for code in codes.split(","))
    known = checks.Baseline.read(baseline) if baseline else checks.Baseline()
    targets = [find_target(path, config) for path in paths]
    if watch:
        reports = [_watched(targets[0], duration)]
    else:
        reports = [_checked(target, check_tie_order, keys_only=keys_only) for target in targets]
    reports = [
        replace(report, fail_on=Severity(fail_on), landing_zone=_relative(report.landing_zone)) for report in reports
    ]
    if write_baseline:
        written = checks.write_baseline(write_baseline, reports)
        stderr().print(line(f"{write_baseline}: {count(written, 'finding')} recorded"))
        return
    reports = [_unsuppressed(report, codes, known) for report in reports]
    _print(paths, reports, "json" if as_json else report_format, config)
    if any(report.is_failing for report in reports):
        raise click.exceptions.Exit(exit_codes.NEEDS_ATTENTION)


def _check_usage(
    paths: Sequence[Path], duration: float | None, report_format: str, *, watch: bool, as_json: bool
) -> None:
    if duration is not None and not watch:
        raise UsageError("--duration requires --watch", "add --watch, or omit --duration")
    if watch and len(paths) > 1:
        raise UsageError("--watch takes one path", "give one ROOT, landing zone or table folder")
    if watch and not paths[0].exists():
        raise UsageError(f"{paths[0]} does not exist", f"create it first: mkdir -p {paths[0] / ZONE}")
    if as_json and report_format not in {"text", "json"}:
        raise UsageError(f"--json cannot be combined with --format {report_format}", "omit one of them")


def _checked(target: ValidationTarget, orders: int, *, keys_only: bool) -> ValidationReport:
    from mirror_engine.publisher.validate import check_landing_zone

    return check_landing_zone(target, orders, LARGE_FILE_BYTES if keys_only else math.inf)


def _watched(target: ValidationTarget, duration: float | None) -> ValidationReport:
    from mirror_engine.publisher.validate import watch

    console = stderr()
    console.print(line(f"Watching {target.path} {'until Ctrl+C' if duration is None else f'for {duration:g}s'}."))
    with Stopping() as stopping:
        timer = threading.Timer(duration or 0.0, stopping.stop.set)
        if duration is not None:
            timer.start()
        try:
            return watch(target, stopping.stop, lambda found: console.print(line(found.full_message)))
        finally:
            timer.cancel()


def _unsuppressed(report: ValidationReport, codes: frozenset[str], known: Baseline) -> ValidationReport:
    return report.suppress(lambda found: found.code in codes or known.contains(report, found))


def _relative(zone: str) -> str:
    """A landing zone's path as its reader would write it: relative to the working folder, if it is below."""
    path = Path(zone).absolute()
    return os.path.relpath(path).replace(os.sep, "/") if path.is_relative_to(Path.cwd()) else path.as_posix()


def _print(paths: Sequence[Path], checked: Sequence[ValidationReport], report_format: str, config: Config) -> None:
    from mirror_engine.cli import reports

    if report_format == "json":
        print_json("validate", reports.as_json(checked, config.delta_default_schema))
    elif report_format == "text":
        for path, report in zip(paths, checked, strict=True):
            if len(checked) > 1:
                stdout().print(line(f"{path}:", "bold"))
            for part in reports.text(report):
                stdout().print(part)
    else:
        render = {"github": reports.github, "junit": reports.junit, "sarif": reports.sarif}[report_format]
        sys.stdout.write(render(*checked))
