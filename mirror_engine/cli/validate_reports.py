"""Reports of `validate` for other programs: GitHub annotations, JUnit XML and SARIF."""

from __future__ import annotations

import hashlib
import json
import re
from typing import TYPE_CHECKING, Any
from urllib.parse import quote
from xml.etree import ElementTree as ET

from mirror_engine import __version__, display
from mirror_engine.landing_zone.diagnostics import Severity
from mirror_engine.landing_zone.text import printable
from mirror_engine.tools.validation import blocks_progress

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from mirror_engine.tools.validation import CheckedFinding, CheckedZone

LANDING_ZONE = "landing zone"  # name of what belongs to no table
SARIF_SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"
_GITHUB_COMMANDS = {Severity.ERROR: "error", Severity.WARNING: "warning", Severity.INFO: "notice"}
_SARIF_LEVELS = {Severity.ERROR: "error", Severity.WARNING: "warning", Severity.INFO: "note"}
_IN_A_MESSAGE = {ord("%"): "%25", ord("\r"): "%0D", ord("\n"): "%0A"}
_IN_A_PROPERTY = {**_IN_A_MESSAGE, ord(":"): "%3A", ord(","): "%2C"}
_NOT_XML = re.compile("[\ufffe\uffff]")  # control characters are escaped before


def _severity(found: CheckedFinding) -> Severity:
    """The severity for a reader of this line alone: a gap fails a check, like an error."""
    return Severity.ERROR if blocks_progress(found.as_diagnostic) else found.severity


def _message(found: CheckedFinding) -> str:
    text = found.as_diagnostic.full_message
    return f"{text}{display.often(found.count)}{f'; help: {found.help}' if found.help else ''}"


def _encodable(text: str) -> str:
    """A path without what UTF-8 cannot encode: lone surrogates of a name that is not Unicode."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


def github(*zones: CheckedZone) -> str:
    """Workflow commands of GitHub Actions: each line becomes an annotation of its file.

    GitHub shows ten annotations of a kind for each step; the log has them all.
    """
    lines = []
    for zone in zones:
        for found in zone.findings():
            properties = {"file": printable(zone.path_of(found)), "line": str(found.line or ""), "title": found.code}
            shown = ",".join(f"{name}={value.translate(_IN_A_PROPERTY)}" for name, value in properties.items() if value)
            lines.append(
                f"::{_GITHUB_COMMANDS[_severity(found)]} {shown}::{_message(found).translate(_IN_A_MESSAGE)}\n"
            )
    return "".join(lines)


def junit(*zones: CheckedZone) -> str:
    """JUnit XML: a test suite per table, a test case per path. Findings below `fail_on` fail nothing."""
    root = ET.Element("testsuites", name="mirror-engine validate")
    for zone in zones:
        above = f"{zone.landing_zone}/" if len(zones) > 1 else ""
        if zone.diagnostics:
            root.append(_suite(f"{above}{LANDING_ZONE}", LANDING_ZONE, _cases(zone.diagnostics), {}, is_stuck=False))
        for table in zone.tables:
            unapplied = {file.path: file.reason for file in table.not_applied}
            cases = _cases(table.diagnostics, (*table.files, *unapplied))
            suite = _suite(f"{above}{table.table}", table.table, cases, unapplied, is_stuck=table.is_stuck)
            properties = ET.Element("properties")
            for fact, value in (("state", table.state), ("rows", str(table.rows))):
                ET.SubElement(properties, "property", name=fact, value=_xml_text(value))
            suite.insert(0, properties)
            root.append(suite)
    for number in ("tests", "failures", "errors"):
        root.set(number, str(sum(int(suite.get(number, "0")) for suite in root)))
    ET.indent(root)
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{ET.tostring(root, encoding="unicode")}\n'


def _cases(diagnostics: Iterable[CheckedFinding], paths: Iterable[str] = ()) -> dict[str, list[CheckedFinding]]:
    """The findings on each path."""
    cases: dict[str, list[CheckedFinding]] = {path: [] for path in paths}
    for found in diagnostics:
        cases.setdefault(found.path, []).append(found)
    return cases


def _suite(
    name: str,
    table: str,
    cases: Mapping[str, Sequence[CheckedFinding]],
    unapplied: Mapping[str, str],
    *,
    is_stuck: bool,
) -> ET.Element:
    suite = ET.Element("testsuite", name=_xml_text(name))
    for path, findings in cases.items():
        case = ET.SubElement(suite, "testcase", classname=_xml_text(table), name=_xml_text(path or LANDING_ZONE))
        failing = [found for found in findings if found.fails]
        passing = [found for found in findings if not found.fails]
        if failing:
            failure = {"type": failing[0].code, "message": _xml_text(_message(failing[0]))}
            ET.SubElement(case, "failure", failure).text = _xml_lines(failing)
        elif path in unapplied:
            # a file of a table that stopped fails with it; one that waits for metadata was not checked yet
            reason = _xml_text(f"not applied: {unapplied[path]}")
            kind, more = ("failure", {"type": "not applied"}) if is_stuck else ("skipped", {})
            ET.SubElement(case, kind, more, message=reason)
        if passing:
            ET.SubElement(case, "system-out").text = _xml_lines(passing)
    kinds = {"tests": "testcase", "failures": "testcase/failure", "errors": "error", "skipped": "testcase/skipped"}
    for number, path in kinds.items():
        suite.set(number, str(len(suite.findall(path))))
    return suite


def _xml_lines(findings: Iterable[CheckedFinding]) -> str:
    return "\n".join(_xml_text(f"{found.severity.value}: {_message(found)}") for found in findings)


def _xml_text(text: str) -> str:
    return _NOT_XML.sub("\ufffd", printable(text))


def sarif(*zones: CheckedZone) -> str:
    """SARIF 2.1.0, for code scanning: one run with the pages of all codes that were found, then the results."""
    codes = sorted({found.code for zone in zones for found in zone.findings()})
    driver = {"name": "mirror-engine", "version": __version__, "rules": [_sarif_rule(code) for code in codes]}
    results = [
        _sarif_result(found, zone.path_of(found)) | {"ruleIndex": codes.index(found.code)}
        for zone in zones
        for found in zone.findings()
    ]
    run = {"tool": {"driver": driver}, "columnKind": "unicodeCodePoints", "results": results}
    document = {"$schema": SARIF_SCHEMA, "version": "2.1.0", "runs": [run]}
    return json.dumps(document, ensure_ascii=False, indent=2) + "\n"


def _sarif_rule(code: str) -> dict[str, Any]:
    from mirror_engine.explain.pages import explanation

    page = explanation(code)
    return {
        "id": code,
        "name": page.name,
        "shortDescription": {"text": page.title},
        "fullDescription": {"text": page.why},
        "help": {"text": f"{page.why}\n\n{page.what_to_do}", "markdown": page.markdown},
        "defaultConfiguration": {"level": _SARIF_LEVELS[page.severity]},
        "properties": {"tags": [rule.name for rule in page.rules]},
    }


def _sarif_result(found: CheckedFinding, path: str) -> dict[str, Any]:
    location: dict[str, Any] = {"artifactLocation": {"uri": quote(_encodable(path)) or "."}}
    if found.line is not None:
        location["region"] = {"startLine": found.line}
    # the same in every run that finds the same thing in the same place, however the counts in its message change
    place = (found.code, found.path, str(found.row or ""), found.location.column or "")
    fingerprint = hashlib.sha256(_encodable("\0".join(place)).encode()).hexdigest()[:32]
    return {
        "ruleId": found.code,
        "level": _SARIF_LEVELS[_severity(found)],
        "message": {"text": _message(found)},
        "locations": [{"physicalLocation": location}],
        "occurrenceCount": found.count,
        "partialFingerprints": {"mirrorEngineDiagnostic/v1": fingerprint},
    }
