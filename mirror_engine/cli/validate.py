"""`validate`: what the service would make of a publisher's output."""

from __future__ import annotations

import gc
import math
import os
import sys
import threading
from dataclasses import replace
from enum import Enum
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mirror_engine.cli import exit_codes
from mirror_engine.cli.codes import known_code
from mirror_engine.cli.options import READING, Json, configured
from mirror_engine.cli.output import line, print_json, stderr, stdout
from mirror_engine.cli.signals import Stopping
from mirror_engine.config import Config
from mirror_engine.errors import UsageError
from mirror_engine.landing_zone.diagnostics import Severity
from mirror_engine.landing_zone.layout import ZONE

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mirror_engine.publisher.baseline import Baseline
    from mirror_engine.publisher.target import ValidationTarget
    from mirror_engine.publisher.validate import ValidationReport

_DIAGNOSTIC = {
    "code": "ME037",
    "name": "invalid-row-marker",
    "severity": "error",
    "message": "row marker is 3, expected 0, 1, 2 or 4",
    "help": "delete the file and land a corrected one under the same name",
    "location": {"path": "Items/00000000000000000002.csv", "row": 2, "column": None},
    "rules": ["LZ-4.12"],
    "details": {"value": "3"},
    "count": 1,
}
JSON: dict[str, Any] = {
    "ok": False,
    "targets": [
        {
            "landing_zone": "out/LandingZone",
            "ok": False,
            "counts": {"error": 1, "warning": 0, "info": 0},
            "suppressed": 0,
            "tables": [
                {
                    "table": "Items",
                    "state": "halted",
                    "message": "latched: …",
                    "files": ["Items/00000000000000000001.csv"],
                    "not_applied": [{"path": "Items/00000000000000000002.csv", "reason": "row marker is 3, …"}],
                    "rows": 3,
                    "fabric_error": None,
                    "diagnostics": [_DIAGNOSTIC],
                }
            ],
            "diagnostics": [],
        }
    ],
}


class Format(str, Enum):
    """What is printed."""

    TEXT = "text"
    JSON = "json"
    GITHUB = "github"
    JUNIT = "junit"
    SARIF = "sarif"


class Threshold(str, Enum):
    """What fails a check."""

    ERROR = "error"
    WARNING = "warning"


LARGE_FILE_BYTES = 32 * 1024 * 1024
MIN_NEW_OBJECTS = 500_000  # before garbage is looked for: a command that ends soon leaves little

Paths = Annotated[
    list[Path],
    typer.Argument(metavar="PATH", help="A ROOT, a landing zone, a table folder or a file.", show_default=False),
]
Formatted = Annotated[Format, typer.Option("--format", metavar="FORMAT", help="text, json, github, junit or sarif.")]
FailOn = Annotated[Threshold, typer.Option("--fail-on", metavar="SEVERITY", help="error or warning: ends with 3.")]
Ignore = Annotated[
    list[str] | None,
    typer.Option(
        "--ignore", metavar="CODES", help="Pass over diagnostics: ME016,ME041; may be repeated.", show_default=False
    ),
]
KnownFile = Annotated[
    Path | None,
    typer.Option("--baseline", metavar="FILE", help="Pass over what that file knows.", show_default=False),
]
NewBaseline = Annotated[
    Path | None,
    typer.Option("--write-baseline", metavar="FILE", help="Write down all that is found.", show_default=False),
]
Shuffles = Annotated[
    int,
    typer.Option("--shuffle-ties", metavar="N", min=0, help="Try N other orders of files of one time (LZ-3.5)."),
]
KeysOnly = Annotated[
    bool, typer.Option("--keys-only", help="Of files over 32 MiB read keys, markers and not-null columns alone.")
]
Watch = Annotated[bool, typer.Option("--watch", help="Look on while a publisher writes, until Ctrl+C.")]
Seconds = Annotated[
    float | None,
    typer.Option("--for", metavar="SECONDS", min=0.0, help="With --watch: end by itself.", show_default=False),
]


@configured(*READING, "memory_limit")
def validate(  # noqa: PLR0913 - one each for what one may want to say
    paths: Paths,
    config: Config,
    *,
    report: Formatted = Format.TEXT,
    fail_on: FailOn = Threshold.ERROR,
    ignore: Ignore = None,
    baseline: KnownFile = None,
    write_baseline: NewBaseline = None,
    shuffle_ties: Shuffles = 0,
    keys_only: KeysOnly = False,
    watch: Watch = False,
    seconds: Seconds = None,
    as_json: Json = False,
) -> None:
    """Judge a landing zone, and change nothing.

    What the service would make of it: every diagnostic with its file, row and remedy; `explain` tells more of each.
    Starts no Java. Files that were moved away after they had been applied are read, too.

    Example: mirror-engine validate ./out --format github --ignore ME016

    Exit codes: 0 nothing fails · 3 something at or above --fail-on, or a table is blocked or latched · 2 wrong usage ·
    4 try again
    """
    gc.set_threshold(MIN_NEW_OBJECTS)
    from mirror_engine.tables.arrow_types import without_pandas  # noqa: PLC0415 - Arrow and its like take a moment

    without_pandas()
    from mirror_engine.publisher import baseline as baselines  # noqa: PLC0415 - Arrow
    from mirror_engine.publisher.target import find_target  # noqa: PLC0415 - likewise

    _check_watching(paths, seconds, watch=watch)
    _check_report(report, as_json=as_json)
    codes = frozenset(known_code(code) for codes in ignore or () for code in codes.split(","))
    known = baselines.Baseline.read(baseline) if baseline else baselines.Baseline()
    places = [find_target(path, config) for path in paths]
    if watch:
        judged = [_watched(places[0], seconds)]
    else:
        judged = [_judged(place, shuffle_ties, keys_only=keys_only) for place in places]
    severity = Severity(fail_on.value)
    judged = [replace(each, fail_on=severity, landing_zone=_from_here(each.landing_zone)) for each in judged]
    if write_baseline:
        count = baselines.write_baseline(write_baseline, judged)
        stderr().print(line(f"{write_baseline}: {count} diagnostics written down"))
        return
    judged = [_kept(verdicts, codes, known) for verdicts in judged]
    _print(paths, judged, Format.JSON if as_json else report)
    if any(verdicts.is_failing for verdicts in judged):
        raise typer.Exit(exit_codes.NEEDS_ATTENTION)


def _check_watching(paths: Sequence[Path], seconds: float | None, *, watch: bool) -> None:
    if seconds is not None and not watch:
        raise UsageError("--for says how long to look on: it needs --watch", "Add --watch, or leave --for out.")
    if watch and len(paths) > 1:
        raise UsageError("--watch looks on at one path only", "Give one ROOT, landing zone or table folder.")
    if watch and not paths[0].exists():
        raise UsageError(f"{paths[0]}: no such folder yet", f"Make it before you watch: mkdir -p {paths[0] / ZONE}")


def _check_report(report: Format, *, as_json: bool) -> None:
    if as_json and report not in {Format.TEXT, Format.JSON}:
        raise UsageError(f"--json and --format {report.value} are two forms of one report", "Leave one of them out.")


def _judged(place: ValidationTarget, shuffles: int, *, keys_only: bool) -> ValidationReport:
    from mirror_engine.publisher.validate import check_landing_zone  # noqa: PLC0415 - Arrow and its like take a moment

    return check_landing_zone(place, shuffles, LARGE_FILE_BYTES if keys_only else math.inf)


def _watched(place: ValidationTarget, seconds: float | None) -> ValidationReport:
    from mirror_engine.publisher.watch import watch  # noqa: PLC0415 - likewise

    errors = stderr()
    errors.print(line(f"watching {place.path} until {'Ctrl+C' if seconds is None else f'{seconds:g} s are over'}"))
    with Stopping() as stopping:
        timer = threading.Timer(seconds, stopping.stop.set) if seconds is not None else None
        if timer:
            timer.start()
        try:
            return watch(place, stopping.stop, lambda found: errors.print(line(found.full_message)))
        finally:
            if timer:
                timer.cancel()


def _kept(verdicts: ValidationReport, codes: frozenset[str], known: Baseline) -> ValidationReport:
    """Without what is to be passed over: by its code, or because it was there before."""
    return verdicts.suppress(lambda found: found.code in codes or known.contains(verdicts, found))


def _from_here(zone: str) -> str:
    """The zone as the reader of a report would write it: from here, where it lies below."""
    path = Path(zone).absolute()
    return os.path.relpath(path).replace(os.sep, "/") if path.is_relative_to(Path.cwd()) else path.as_posix()


def _print(paths: Sequence[Path], judged: Sequence[ValidationReport], report: Format) -> None:
    if report is Format.TEXT:
        from mirror_engine.cli.reports.text import verdicts_text  # noqa: PLC0415 - nobody waits for the others

        for path, verdicts in zip(paths, judged, strict=True):
            if len(judged) > 1:  # whose it is
                stdout().print(line(f"{path}:", "bold"))
            stdout().print(verdicts_text(verdicts))
    elif report is Format.JSON:
        told = [verdicts.to_json() for verdicts in judged]
        print_json({"ok": all(each["ok"] for each in told), "targets": told})
    else:
        sys.stdout.write(import_module(f"mirror_engine.cli.reports.{report.value}").render(*judged))
