"""Diagnostics as workflow commands of GitHub Actions: each becomes an annotation of its file.

GitHub shows ten annotations of a kind for each step; the log has them all.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mirror_engine.cli.reports.base import encodable, located, message_of, severity_of
from mirror_engine.landing_zone.diagnostics import Severity

if TYPE_CHECKING:
    from mirror_engine.landing_zone.diagnostics import Diagnostic
    from mirror_engine.publisher.validate import ValidationReport

COMMANDS = {Severity.ERROR: "error", Severity.WARNING: "warning", Severity.INFO: "notice"}
_IN_A_MESSAGE = {ord("%"): "%25", ord("\r"): "%0D", ord("\n"): "%0A"}
_IN_A_PROPERTY = {**_IN_A_MESSAGE, ord(":"): "%3A", ord(","): "%2C"}


def render(*judged: ValidationReport) -> str:
    """One line for each diagnostic; `""` where there is none."""
    return "".join(
        f"{_command(found, verdicts.path_of(found), line)}::{message_of(found, times).translate(_IN_A_MESSAGE)}\n"
        for verdicts in judged
        for found, times, line in located(verdicts)
    )


def _command(diagnostic: Diagnostic, path: str, line: int | None) -> str:
    properties = {"file": encodable(path), "line": "" if line is None else str(line), "title": diagnostic.code}
    told = (f"{name}={value.translate(_IN_A_PROPERTY)}" for name, value in properties.items() if value)
    return f"::{COMMANDS[severity_of(diagnostic)]} {','.join(told)}"
