"""Diagnostics as SARIF 2.1.0, for code scanning: the codes that were met with their long form, then where."""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from mirror_engine._version import __version__
from mirror_engine.cli.reports.base import encodable, located, message_of, severity_of
from mirror_engine.explain.pages import explanation
from mirror_engine.landing_zone.diagnostics import Severity

if TYPE_CHECKING:
    from mirror_engine.landing_zone.diagnostics import Diagnostic
    from mirror_engine.publisher.validate import ValidationReport

SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"
TOOL = "mirror-engine"
LEVELS = {Severity.ERROR: "error", Severity.WARNING: "warning", Severity.INFO: "note"}
FINGERPRINT = "mirrorEngineDiagnostic/v1"


def render(*judged: ValidationReport) -> str:
    """One JSON document of one run."""
    codes = sorted({found.code for verdicts in judged for found, _ in verdicts.all()})
    driver = {"name": TOOL, "version": __version__, "rules": [_rule(code) for code in codes]}
    results = [
        _result(found, times, line, verdicts.path_of(found)) | {"ruleIndex": codes.index(found.code)}
        for verdicts in judged
        for found, times, line in located(verdicts)
    ]
    run = {"tool": {"driver": driver}, "columnKind": "unicodeCodePoints", "results": results}
    return json.dumps({"$schema": SCHEMA, "version": "2.1.0", "runs": [run]}, ensure_ascii=False, indent=2) + "\n"


def _rule(code: str) -> dict[str, Any]:
    page = explanation(code)
    return {
        "id": code,
        "shortDescription": {"text": page.title},
        "fullDescription": {"text": page.why},
        "help": {"text": f"{page.why}\n\n{page.what_to_do}", "markdown": page.markdown},
        "defaultConfiguration": {"level": LEVELS[page.definition.severity]},
        "properties": {"tags": list(page.definition.rules)},
    }


def _result(diagnostic: Diagnostic, times: int, line: int | None, path: str) -> dict[str, Any]:
    place: dict[str, Any] = {"artifactLocation": {"uri": quote(encodable(path)) or "."}}
    if line is not None:
        place["region"] = {"startLine": line}
    return {
        "ruleId": diagnostic.code,
        "level": LEVELS[severity_of(diagnostic)],
        "message": {"text": message_of(diagnostic, times)},
        "locations": [{"physicalLocation": place}],
        "occurrenceCount": times,
        "partialFingerprints": {FINGERPRINT: _fingerprint(diagnostic)},
    }


def _fingerprint(diagnostic: Diagnostic) -> str:
    """The same in every run that finds the same thing in the same place, however the counts in its text may change."""
    place = (diagnostic.code, diagnostic.path, str(diagnostic.row or ""), diagnostic.column or "")
    return hashlib.sha256(encodable("\0".join(place)).encode()).hexdigest()[:32]
