"""Known diagnostics that a check passes over: what was there when checking began."""

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


@dataclass(frozen=True)
class Baseline:
    """What is known already.

    Attributes:
        folder: where the file lies, from which it tells the zones: so it may be used from any working folder.
        known: zone, code, path from the zone and column of each.
    """

    folder: Path = Path()
    known: frozenset[tuple[str, str, str, str | None]] = frozenset()

    @classmethod
    def read(cls, path: Path) -> Baseline:
        """What a baseline file knows.

        Raises:
            UsageError: there is no such file, or it is no baseline.
        """
        try:
            content: Any = json.loads(path.read_text(encoding="utf-8"))
            known = frozenset((each["zone"], each["code"], each["path"], each["column"]) for each in content["known"])
        except OSError as error:
            raise UsageError(f"{path}: {error.strerror}", "Make one: --write-baseline FILE.") from None
        except (ValueError, KeyError, TypeError, RecursionError):
            raise UsageError(f"{path}: is no baseline", "Make it anew: --write-baseline FILE.") from None
        return cls(path.parent, known)

    def knows(self, verdicts: ValidationReport, found: Diagnostic) -> bool:
        """Whether it has a diagnostic; rows and counts may differ."""
        return _told(self.folder, verdicts, found) in self.known


def write_down(path: Path, verdicts: Iterable[ValidationReport]) -> int:
    """Write down every diagnostic there is; returns how many.

    Raises:
        UsageError: the file cannot be written.
    """
    known = sorted({_told(path.parent, verdict, found) for verdict in verdicts for found, _ in verdict.all()}, key=repr)
    entries = [dict(zip(("zone", "code", "path", "column"), each, strict=True)) for each in known]
    try:
        path.write_text(json.dumps({"format": FORMAT, "known": entries}, indent=1) + "\n", encoding="utf-8")
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}") from None
    return len(known)


def _told(folder: Path, verdicts: ValidationReport, found: Diagnostic) -> tuple[str, str, str, str | None]:
    zone = os.path.relpath(Path(verdicts.zone).absolute(), folder.absolute()).replace(os.sep, "/")
    return zone, found.code, found.path, found.column
