"""Baselines: diagnostics that are suppressed because they were there when checking began."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mirror_engine.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from mirror_engine.landing_zone.diagnostics import Diagnostic
    from mirror_engine.publisher.validate import ValidationReport

FORMAT = 1
_FIELDS = ("landing_zone", "code", "path", "column")


@dataclass(frozen=True)
class Baseline:
    """Suppressed diagnostics.

    Attributes:
        folder: of the file; paths of landing zones are relative to it, so that it works from any working folder.
        suppressed: landing zone, code, path from the landing zone and column of each.
    """

    folder: Path = Path()
    suppressed: frozenset[tuple[str, ...]] = frozenset()

    @classmethod
    def read(cls, path: Path) -> Baseline:
        """Read a baseline file.

        Raises:
            UsageError: there is no such file, or it is no baseline.
        """
        try:
            content: Any = json.loads(path.read_text(encoding="utf-8"))
            entries = frozenset(tuple(entry[name] for name in _FIELDS) for entry in content["suppressed"])
        except OSError as error:
            raise UsageError(f"{path}: {error.strerror}", "Create one: --write-baseline FILE.") from None
        except (ValueError, KeyError, TypeError, RecursionError):
            raise UsageError(f"{path}: not a baseline", "Write it again: --write-baseline FILE.") from None
        return cls(path.parent, entries)

    def contains(self, report: ValidationReport, diagnostic: Diagnostic) -> bool:
        """Whether it has a diagnostic; rows and counts may differ."""
        return _entry(self.folder, report, diagnostic) in self.suppressed


def write_baseline(path: Path, reports: Iterable[ValidationReport]) -> int:
    """Write every diagnostic of the reports to a baseline file; returns how many.

    Raises:
        UsageError: the file cannot be written.
    """
    entries = {_entry(path.parent, report, diagnostic) for report in reports for diagnostic, _ in report.all()}
    content = [dict(zip(_FIELDS, entry, strict=True)) for entry in sorted(entries, key=repr)]
    try:
        path.write_text(json.dumps({"format": FORMAT, "suppressed": content}, indent=1) + "\n", encoding="utf-8")
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}") from None
    return len(entries)


def _entry(folder: Path, report: ValidationReport, diagnostic: Diagnostic) -> tuple[Any, ...]:
    landing_zone = os.path.relpath(Path(report.landing_zone).absolute(), folder.absolute()).replace(os.sep, "/")
    return landing_zone, diagnostic.code, diagnostic.path, diagnostic.column
