"""One line of the register: how grave, by which rule, what is said and what to do."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum


class Severity(str, Enum):
    """How grave a diagnostic is; the values are what people and programs read."""

    ERROR = "error"  # the table latches; a new folder stays unarmed
    WARNING = "warning"
    INFO = "info"


SEVERITY_ORDER = (Severity.INFO, Severity.WARNING, Severity.ERROR)  # the gravest last


@dataclass(frozen=True)
class DiagnosticDefinition:
    """One line of the register.

    Attributes:
        code: `MEnnn`, never reused.
        severity: by default.
        strict: the severity under `strict`.
        rules: the protocol's rules behind it.
        text: what was found, with the names of its details in braces; `{count:file}` reads `1 file`, `2 files`.
        remedy: what to do, likewise, in a sentence; empty where nothing is to be done.
    """

    code: str
    severity: Severity
    strict: Severity
    rules: tuple[str, ...]
    text: str
    remedy: str

    @property
    def wording(self) -> str:
        """The text as it reads before it is filled in: `{count} files`."""
        return re.sub(r"\{(\w+):([^}]+)\}", r"{\1} \2s", self.text)


ERROR, WARNING, INFO = Severity


def entry(  # noqa: PLR0913, PLR0917 - a line of a table
    code: str, severity: Severity, rules: tuple[str, ...], text: str, remedy: str, strict: Severity | None = None
) -> DiagnosticDefinition:
    """A line; `strict` only where it differs."""
    return DiagnosticDefinition(code, severity, strict or severity, rules, text, remedy)
