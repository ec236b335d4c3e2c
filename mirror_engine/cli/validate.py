"""`validate`: check a landing zone as Fabric would take it."""

from __future__ import annotations

import math
import os
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from mirror_engine.cli import exits
from mirror_engine.cli import output as out
from mirror_engine.cli.explain import known_code
from mirror_engine.cli.options import (
    COUNT,
    DROPPING,
    DURATION,
    READING,
    Choice,
    command,
    refuse_given,
    to_place,
    with_config,
    with_downloads,
)
from mirror_engine.errors import UsageError
from mirror_engine.landing_zone.diagnostics import Severity
from mirror_engine.landing_zone.layout import ZONE
from mirror_engine.landing_zone.text import count
from mirror_engine.storage.roots import pasted
from mirror_engine.tools.validation import Validation

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mirror_engine.cli.downloads import Downloads
    from mirror_engine.config import Config
    from mirror_engine.storage.store_url import Place
    from mirror_engine.tools.validate import ValidationReport
    from mirror_engine.tools.validation_target import ValidationTarget


@dataclass(frozen=True)
class _Options:
    """The options of one call, by the names of their flags."""

    report_format: str
    fail_on: str
    ignore: tuple[str, ...]
    expect: tuple[str, ...]
    baseline: Path | None
    write_baseline: Path | None
    check_tie_order: int
    watch: bool
    duration: float | None


@command(root="own", config=(*READING, *DROPPING, "memory_limit"), result=Validation)
@click.argument(
    "paths",
    metavar="[PATH]...",
    type=to_place,
    nargs=-1,
    help="A ROOT, a landing zone, a table folder or a file, or its URL.  [default: .]",
)
@click.option(
    "report_format",
    "--format",
    type=Choice(("text", "json", "github", "junit", "sarif")),
    default="text",
    help="Form of the report; --json is --format json.",
)
@click.option(
    "--fail-on", type=Choice(("error", "warning")), default="error", help="Lowest severity that fails the check."
)
@click.option("--ignore", metavar="CODES", multiple=True, help="Suppress these diagnostics: ME016,ME041 (repeatable).")
@click.option("--expect", metavar="TABLES", multiple=True, help="Fail if these tables get no data: HR.People,Items.")
@click.option("--baseline", metavar="FILE", type=Path, help="Suppress findings recorded in FILE.")
@click.option("--write-baseline", metavar="FILE", type=Path, help="Record all current findings in FILE.")
@click.option(
    "--check-tie-order",
    type=COUNT,
    default=0,
    help="Replay N other orders of files with equal modification times (LZ-3.5).",
)
@click.option("--watch", is_flag=True, help="Keep checking while a publisher writes, until Ctrl+C.")
@click.option("--duration", type=DURATION, help="With --watch: end after this time.")
@with_config
@with_downloads
def validate(paths: tuple[Place, ...], config: Config, downloads: Downloads, **given: Any) -> int:
    """Check a landing zone. Reads only; needs no Java.

    A dry run of the engine: reports every diagnostic with its file, row and help. Checks archived files, too. See
    explain for each diagnostic.

    Example: mirror-engine validate ./out --format github --ignore ME016

    Exit codes: 0 passed · 1 no access to a store · 2 usage error · 3 findings at or above --fail-on, or data that is
    not applied · 4 temporary: storage; retry
    """
    from mirror_engine.cli import validate_reports as forms
    from mirror_engine.tools.baseline import read_baseline, write_baseline
    from mirror_engine.tools.validate import check_landing_zone
    from mirror_engine.tools.validation_target import find_target

    paths, options = paths or (Path(),), _Options(**given)
    _check_combinations(paths, options)
    codes = frozenset(known_code(code) for codes in options.ignore for code in codes.split(","))
    known = read_baseline(options.baseline) if options.baseline else lambda *_: False
    reports: list[ValidationReport] = []
    opened = {} if options.watch else {"opened": downloads.open}
    for target in [find_target(path, config, **opened) for path in paths]:
        found = (
            _watched(target, options.duration) if options.watch else check_landing_zone(target, options.check_tie_order)
        )
        found = found.expecting(
            (name for names in options.expect for name in names.split(",")), config.delta_default_schema
        )
        found = replace(found, fail_on=Severity(options.fail_on), landing_zone=_relative(found.landing_zone))
        reports.append(found.compared_with(reports))
    if options.write_baseline:
        written = write_baseline(options.write_baseline, reports)
        out.note(f"{options.write_baseline}: {count(written, 'finding')} recorded")
        return exits.SUCCESS
    reports = [each.suppress(lambda found, each: each.code in codes or known(found, each)) for each in reports]
    done = Validation(not any(each.is_failing for each in reports), [each.checked() for each in reports])
    if out.wants_json() or options.report_format == "json":
        out.print_json(done.to_json())
    elif options.report_format == "text":
        out.report(done, done.lines(all_tables=out.verbosity() > 0))
    else:
        render = {"github": forms.github, "junit": forms.junit, "sarif": forms.sarif}[options.report_format]
        sys.stdout.write(render(*done.targets))
    return exits.SUCCESS if done.ok else exits.NEEDS_ATTENTION


def _check_combinations(paths: Sequence[Place], options: _Options) -> None:
    """Refuse options that contradict each other, or have no effect."""
    if options.duration is not None and not options.watch:
        raise UsageError("--duration requires --watch", "add --watch, or omit --duration")
    if options.watch:
        flags = {"check_tie_order": "--check-tie-order"}
        refuse_given(flags, "--watch reads each file as it lands")
    if options.write_baseline:
        flags = {"baseline": "--baseline", "ignore": "--ignore", "fail_on": "--fail-on", "report_format": "--format"}
        refuse_given(flags, "--write-baseline records all findings, and reports none")
    if options.watch and len(paths) > 1:
        raise UsageError("--watch takes one path", "give one ROOT, landing zone or table folder")
    if options.watch and isinstance(paths[0], Path) and not paths[0].exists():
        raise UsageError(f"{paths[0]} does not exist", f"create it first: mkdir -p {pasted(paths[0] / ZONE)}")
    if out.wants_json() and options.report_format not in {"text", "json"}:
        raise UsageError(f"--json cannot be combined with --format {options.report_format}", "omit one of them")


def _watched(target: ValidationTarget, duration: float | None) -> ValidationReport:
    from mirror_engine.tools.validate import watch

    out.note(f"Watching {target.path} {'until Ctrl+C' if duration is None else f'for {duration:g}s'}.")
    seconds = math.inf if duration is None else duration
    with exits.Stopping() as stopping:
        return watch(target, stopping.stop, lambda found: out.note(found.full_message), seconds)


def _relative(zone: str) -> str:
    """A landing zone's path as its reader would write it: relative to the working folder if below it, or a URL."""
    if "://" in zone:
        return zone
    path = Path(zone).absolute()
    return os.path.relpath(path).replace(os.sep, "/") if path.is_relative_to(Path.cwd()) else path.as_posix()
