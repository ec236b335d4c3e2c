"""Reports of `validate`: text, JSON, GitHub annotations, JUnit XML and SARIF."""

from __future__ import annotations

import hashlib
import json
import re
from collections import Counter
from typing import TYPE_CHECKING, Any
from urllib.parse import quote
from xml.etree import ElementTree as ET

from mirror_engine import __version__, display
from mirror_engine.cli import output as out
from mirror_engine.cli.inspection import NO_FOLDERS
from mirror_engine.landing_zone.detection import never_arrives
from mirror_engine.landing_zone.diagnostics import SEVERITY_ORDER, Severity
from mirror_engine.landing_zone.names import TableName, shown_names
from mirror_engine.landing_zone.text import count, printable
from mirror_engine.tools.validate import TableReport, blocks_progress

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from rich.console import RenderableType

    from mirror_engine.landing_zone.diagnostics import Diagnostic
    from mirror_engine.tools.validate import Counted, ValidationReport

MAX_OF_A_CODE = 5  # places of one code that text shows in one table
MAX_TABLES, MAX_FAILING = 20, 100  # of more tables, text shows those with findings, and at most so many that fail
LANDING_ZONE = "landing zone"  # name of what belongs to no table
SARIF_SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"
_GITHUB_COMMANDS = {Severity.ERROR: "error", Severity.WARNING: "warning", Severity.INFO: "notice"}
_SARIF_LEVELS = {Severity.ERROR: "error", Severity.WARNING: "warning", Severity.INFO: "note"}
_IN_A_MESSAGE = {ord("%"): "%25", ord("\r"): "%0D", ord("\n"): "%0A"}
_IN_A_PROPERTY = {**_IN_A_MESSAGE, ord(":"): "%3A", ord(","): "%2C"}
_NOT_XML = re.compile("[\ufffe\uffff]")  # control characters are escaped before
_STANDING_STILL = ("halted", "blocked", "unconfigured")
_OUTSIDE_TABLES = "ME002"
_OF_METADATA = ("ME008", "ME012")  # of these no single file is never read
_STATE_STYLES = {"caught_up": "green", "halted": "bold red", "blocked": "bold red"}


def line_of(diagnostic: Diagnostic, table: TableReport) -> int | None:
    """The 1-based line of a row in delimited text, or of invalid JSON; None in Parquet and without a row.

    Below a header of one line a row is one line, unless cells before it contain line ends or blank lines were
    skipped.
    """
    if diagnostic.row is not None:
        return diagnostic.row + 1 if table.is_text else None
    number = dict(diagnostic.details).get("line", "") if diagnostic.code == "ME010" else ""
    return int(number) if number.isdecimal() else None


def _located(report: ValidationReport) -> Iterator[tuple[Diagnostic, int, int | None]]:
    """Every diagnostic with how often it was found and its line: the landing zone's own first."""
    yield from ((found, times, None) for found, times in report.zone_findings)
    for table in report.tables:
        yield from ((found, times, line_of(found, table)) for found, times in table.findings)


def _severity(diagnostic: Diagnostic) -> Severity:
    """How serious it is for a reader of this line only: a gap fails a check as an error does."""
    return Severity.ERROR if blocks_progress(diagnostic) else diagnostic.severity


def _message(diagnostic: Diagnostic, times: int) -> str:
    return f"{diagnostic.full_message}{display.often(times)}{f'; help: {diagnostic.help}' if diagnostic.help else ''}"


def _name(table: TableReport) -> str:
    return table.name if table.name == LANDING_ZONE else TableName.from_folder(table.name).normalized


def _encodable(text: str) -> str:
    """A path without what UTF-8 cannot encode: lone surrogates of a name that is not Unicode."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


def github(*reports: ValidationReport) -> str:
    """Workflow commands of GitHub Actions: each line becomes an annotation of its file.

    GitHub shows ten annotations of a kind for each step; the log has them all.
    """
    lines = []
    for report in reports:
        for found, times, number in _located(report):
            properties = {"file": printable(report.path_of(found)), "line": str(number or ""), "title": found.code}
            shown = ",".join(f"{name}={value.translate(_IN_A_PROPERTY)}" for name, value in properties.items() if value)
            message = _message(found, times).translate(_IN_A_MESSAGE)
            lines.append(f"::{_GITHUB_COMMANDS[_severity(found)]} {shown}::{message}\n")
    return "".join(lines)


def junit(*reports: ValidationReport) -> str:
    """JUnit XML: a test suite for each table, a test case for each path; what is below `fail_on` fails nothing."""
    root = ET.Element("testsuites", name="mirror-engine validate")
    for report in reports:
        zone = (TableReport(LANDING_ZONE, "", diagnostics=report.diagnostics),) if report.diagnostics else ()
        for table in (*zone, *report.tables):
            name = f"{report.landing_zone}/{_name(table)}" if len(reports) > 1 else _name(table)
            root.append(_suite(table, report, name))
    for number in ("tests", "failures", "errors"):
        root.set(number, str(sum(int(suite.get(number, "0")) for suite in root)))
    ET.indent(root)
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{ET.tostring(root, encoding="unicode")}\n'


def _suite(table: TableReport, report: ValidationReport, name: str) -> ET.Element:
    unapplied = dict(table.not_applied)
    findings: dict[str, list[Counted]] = {path: [] for path in (*table.files, *unapplied)}
    for found, times in table.findings:
        findings.setdefault(found.path, []).append((found, times))
    suite = ET.Element("testsuite", name=_xml_text(name))
    if table.state:
        properties = ET.SubElement(suite, "properties")
        for fact, value in (("state", table.state), ("rows", str(table.rows))):
            ET.SubElement(properties, "property", name=fact, value=_xml_text(value))
    for path, counted in findings.items():
        case = ET.SubElement(suite, "testcase", classname=_xml_text(_name(table)), name=_xml_text(path or LANDING_ZONE))
        failing = [entry for entry in counted if report.fails(entry[0])]
        passing = [entry for entry in counted if not report.fails(entry[0])]
        if failing:
            failure = {"type": failing[0][0].code, "message": _xml_text(_message(*failing[0]))}
            ET.SubElement(case, "failure", failure).text = _xml_lines(failing)
        elif path in unapplied:
            # a file of a table that stopped fails with it; one that waits for metadata was not checked yet
            reason = _xml_text(f"not applied: {unapplied[path]}")
            kind, more = ("failure", {"type": "not applied"}) if table.is_stuck else ("skipped", {})
            ET.SubElement(case, kind, more, message=reason)
        if passing:
            ET.SubElement(case, "system-out").text = _xml_lines(passing)
    kinds = {"tests": "testcase", "failures": "testcase/failure", "errors": "error", "skipped": "testcase/skipped"}
    for number, path in kinds.items():
        suite.set(number, str(len(suite.findall(path))))
    return suite


def _xml_lines(counted: Sequence[Counted]) -> str:
    return "\n".join(_xml_text(f"{found.severity.value}: {_message(found, times)}") for found, times in counted)


def _xml_text(text: str) -> str:
    return _NOT_XML.sub("\ufffd", printable(text))


def sarif(*reports: ValidationReport) -> str:
    """SARIF 2.1.0, for code scanning: one run with the pages of all codes that were found, then the results."""
    codes = sorted({found.code for report in reports for found, _ in report.findings()})
    driver = {"name": "mirror-engine", "version": __version__, "rules": [_sarif_rule(code) for code in codes]}
    results = [
        _sarif_result(found, times, number, report.path_of(found)) | {"ruleIndex": codes.index(found.code)}
        for report in reports
        for found, times, number in _located(report)
    ]
    run = {"tool": {"driver": driver}, "columnKind": "unicodeCodePoints", "results": results}
    document = {"$schema": SARIF_SCHEMA, "version": "2.1.0", "runs": [run]}
    return json.dumps(document, ensure_ascii=False, indent=2) + "\n"


def _sarif_rule(code: str) -> dict[str, Any]:
    from mirror_engine.explain.pages import explanation

    page = explanation(code)
    return {
        "id": code,
        "name": page.definition.name,
        "shortDescription": {"text": page.title},
        "fullDescription": {"text": page.why},
        "help": {"text": f"{page.why}\n\n{page.what_to_do}", "markdown": page.markdown},
        "defaultConfiguration": {"level": _SARIF_LEVELS[page.definition.severity]},
        "properties": {"tags": list(page.definition.rules)},
    }


def _sarif_result(diagnostic: Diagnostic, times: int, number: int | None, path: str) -> dict[str, Any]:
    location: dict[str, Any] = {"artifactLocation": {"uri": quote(_encodable(path)) or "."}}
    if number is not None:
        location["region"] = {"startLine": number}
    # the same in every run that finds the same thing in the same place, however the counts in its message change
    place = (diagnostic.code, diagnostic.path, str(diagnostic.row or ""), diagnostic.column or "")
    fingerprint = hashlib.sha256(_encodable("\0".join(place)).encode()).hexdigest()[:32]
    return {
        "ruleId": diagnostic.code,
        "level": _SARIF_LEVELS[_severity(diagnostic)],
        "message": {"text": _message(diagnostic, times)},
        "locations": [{"physicalLocation": location}],
        "occurrenceCount": times,
        "partialFingerprints": {"mirrorEngineDiagnostic/v1": fingerprint},
    }


def text(report: ValidationReport) -> display.Lines:
    """Table by table, the most serious findings first, each with its help; then a summary."""
    if report.diagnostics:
        yield display.line(f"{report.landing_zone}:", "bold")
        yield from _findings(report.zone_findings, TableReport("", ""), report)
    names = shown_names(TableName.from_folder(table.name) for table in report.tables)
    shown = _shown(report)
    for table in shown:
        yield _heading(table, names[TableName.from_folder(table.name)])
        yield from _findings(table.findings, table, report)
        if table.fabric_error:
            yield display.bullet("Fabric:", table.fabric_error, "dim")
    if more := len(report.tables) - len(shown):
        clean = len({table.name for table in report.tables if not table.diagnostics} - {table.name for table in shown})
        others = f"{count(more, 'more table')}: {clean:,} without findings"
        yield display.line(
            f"… and {others}{f', {more - clean:,} with some' if more > clean else ''}; -v shows all", "dim"
        )
    if not (report.tables or report.diagnostics):
        yield NO_FOLDERS
    yield ""
    yield from _summary(report)


def _shown(report: ValidationReport) -> Sequence[TableReport]:
    """The tables that text lists, in the zone's order: of many those that fail, and some others with findings."""
    if len(report.tables) <= MAX_TABLES or out.verbosity() > 0:
        return report.tables
    failing = {table.name for table in report.tables if any(report.fails(found) for found, _ in table.diagnostics)}
    noted = [table.name for table in report.tables if table.diagnostics and table.name not in failing]
    chosen = {*sorted(failing)[:MAX_FAILING], *noted[:MAX_TABLES]}
    return [table for table in report.tables if table.name in chosen]


def _heading(table: TableReport, name: str) -> RenderableType:
    from rich.text import Text

    total = len(table.files) + len(table.not_applied)
    applied = f"{len(table.files)} of {count(total, 'file')} applied" if table.not_applied else count(total, "file")
    numbers = f", {applied} ({count(table.rows, 'row')})" if total else ""
    state = display.line(table.state.replace("_", " "), _STATE_STYLES.get(table.state, "yellow"))
    return Text.assemble(display.line(name, "bold"), ": ", state, numbers)


def _findings(diagnostics: Iterable[Counted], table: TableReport, report: ValidationReport) -> display.Lines:
    by_code: dict[str, list[Counted]] = {}
    for found, times in diagnostics:
        by_code.setdefault(found.code, []).append((found, times))
    for same in by_code.values():
        helps = [found.help for found, _ in same[:MAX_OF_A_CODE]]
        for (found, times), following in zip(same, [*helps[1:], ""], strict=False):
            label = f"{found.severity.value}[{found.code}]:"
            rules = f" ({', '.join(found.rules)})"
            yield display.bullet(
                label, f"{found.message}{display.often(times)}{rules}", mark_style=display.STYLES[found.severity]
            )
            place, number = report.path_of(found), line_of(found, table)
            if number is not None:
                place += f":{number}" + ("" if found.row is None else f" (row {found.row})")
            elif found.row is not None:
                place += f", row {found.row}"
            if place:
                yield display.place("  -->", place)
            if found.help and found.help != following:
                yield display.bullet("  help:", found.help)
        if len(same) > MAX_OF_A_CODE:
            yield display.bullet("  ...", f"and {len(same) - MAX_OF_A_CODE:,} more {same[0][0].code}", "dim")


def _summary(report: ValidationReport) -> display.Lines:
    files = sum(len(table.files) for table in report.tables)
    pending = sum(len(table.not_applied) for table in report.tables)
    rows = sum(table.rows for table in report.tables)
    checked = f"{count(len(report.tables), 'table')}, {count(files + pending, 'file')}, {count(rows, 'row')}"
    severities = [severity for severity in reversed(SEVERITY_ORDER) if report.count(severity)]
    if severities:
        found = ", ".join(count(report.count(severity), severity.value) for severity in severities)
        yield display.line(f"Found {found} ({checked}).", display.STYLES[severities[0]])
    elif files or pending or report.suppressed:
        yield display.line(f"No problems found ({checked}).", "green")
    else:
        yield f"Nothing has landed yet ({checked})."
    if report.suppressed:
        yield display.line(f"{count(report.suppressed, 'finding')} suppressed.", "dim")
    if severities:
        shown = [found for found, _ in report.findings()]
        first = next(filter(report.fails, shown), shown[0])
        yield display.line(f"For details: mirror-engine explain {first.code}", "dim")
    if report.is_failing:
        yield display.line(f"Failed: {', '.join(why_failed(report))}.", "bold red")


def why_failed(report: ValidationReport) -> Iterator[str]:
    """What fails the check: tables that stand still, files that are never read, and all else by its severity."""
    standing = [table for table in report.tables if table.state in _STANDING_STILL and table.is_stuck]
    for state, number in sorted(Counter(table.state for table in standing).items()):
        yield f"{count(number, 'table')} {'is' if number == 1 else 'are'} {state}"
    never = [found for found, _ in report.all() if never_arrives(found) and found.code not in _OF_METADATA]
    told = {found for table in standing for found, _ in table.diagnostics}
    waiting = {path for table in standing if table.state != "halted" for path, _ in table.not_applied}
    unread = {path for table in report.tables for path, _ in table.not_applied if _is_below(path, never)} - waiting
    unread |= {found.path for found, _ in report.diagnostics if found in never and found.code == _OUTSIDE_TABLES}
    if unread:
        yield f"{count(len(unread), 'file')} {'is' if len(unread) == 1 else 'are'} never read"
    others: dict[Severity, list[str]] = {}
    for found, _ in report.findings():
        if report.fails(found) and found not in told and not any(_is_below(path, [found]) for path in unread):
            others.setdefault(found.severity, []).append(found.code)
    for severity in sorted(others, key=SEVERITY_ORDER.index, reverse=True):
        codes = dict.fromkeys(others[severity])
        yield f"{count(len(others[severity]), severity.value)} ({', '.join(codes)})"


def _is_below(path: str, findings: Iterable[Diagnostic]) -> bool:
    return any(path == found.path or path.startswith(f"{found.path}/") for found in findings)
