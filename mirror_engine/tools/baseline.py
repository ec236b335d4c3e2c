"""Baselines: findings that are known, and suppressed in later checks."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mirror_engine.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from mirror_engine.landing_zone.diagnostics import Diagnostic
    from mirror_engine.tools.validate import ValidationReport

BASELINE_FORMAT = 1
_BASELINE_FIELDS = ("landing_zone", "code", "path", "column")


def read_baseline(path: Path) -> Callable[[ValidationReport, Diagnostic], bool]:
    """Read a baseline file; returns a test whether it has a diagnostic (row and count may differ). `UsageError`."""
    try:
        content: Any = json.loads(path.read_text(encoding="utf-8"))
        entries = frozenset(tuple(entry[name] for name in _BASELINE_FIELDS) for entry in content["suppressed"])
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}", "Create one: --write-baseline FILE.") from None
    except (ValueError, KeyError, TypeError, RecursionError):
        raise UsageError(f"{path}: not a baseline", "Write it again: --write-baseline FILE.") from None
    return lambda report, diagnostic: _baseline_entry(path.parent, report, diagnostic) in entries


def write_baseline(path: Path, reports: Iterable[ValidationReport]) -> int:
    """Write every diagnostic of the reports to a baseline file; returns how many. Raises `UsageError`."""
    entries = {_baseline_entry(path.parent, report, diagnostic) for report in reports for diagnostic, _ in report.all()}
    content = [dict(zip(_BASELINE_FIELDS, entry, strict=True)) for entry in sorted(entries, key=repr)]
    try:
        path.write_text(
            json.dumps({"format": BASELINE_FORMAT, "suppressed": content}, indent=1) + "\n", encoding="utf-8"
        )
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}") from None
    return len(entries)


def _baseline_entry(folder: Path, report: ValidationReport, diagnostic: Diagnostic) -> tuple[Any, ...]:
    """What a baseline has; paths are relative to its folder, so that it works from any working folder."""
    landing_zone = report.landing_zone
    if "://" not in landing_zone:
        landing_zone = os.path.relpath(Path(landing_zone).absolute(), folder.absolute()).replace(os.sep, "/")
    return landing_zone, diagnostic.code, diagnostic.path, diagnostic.column
