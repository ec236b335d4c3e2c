"""Diagnostics as JUnit XML: a test suite for each table, a test case for each path that was judged or spoken of."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING
from xml.etree import ElementTree as ET

from mirror_engine.cli.reports.base import THE_ZONE, message_of
from mirror_engine.landing_zone.diagnostics import printable
from mirror_engine.publisher.validate import TableReport

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from mirror_engine.publisher.validate import Counted, ValidationReport

PROGRAM = "mirror-engine validate"
DECLARATION = '<?xml version="1.0" encoding="UTF-8"?>'
# what XML 1.0 has no way to say; control characters are escaped before
_NO_XML = re.compile("[\ufffe\uffff]")


def render(*judged: ValidationReport) -> str:
    """One XML document. What is below `fail_on` is in the case's output and fails nothing."""
    suites = [suite for verdicts in judged for suite in _suites(verdicts, is_one_of_several=len(judged) > 1)]
    root = ET.Element("testsuites", name=PROGRAM)
    root.extend(suites)
    for number in ("tests", "failures", "errors"):
        root.set(number, str(sum(int(suite.get(number, "0")) for suite in suites)))
    ET.indent(root)
    return f"{DECLARATION}\n{ET.tostring(root, encoding='unicode')}\n"


def _suites(verdicts: ValidationReport, *, is_one_of_several: bool) -> Iterator[ET.Element]:
    """A suite for each table, after that of the zone; of several zones each says which."""
    zone = (TableReport(THE_ZONE, "", diagnostics=verdicts.diagnostics),) if verdicts.diagnostics else ()
    for table in (*zone, *verdicts.tables):
        suite = _suite(table, verdicts)
        if is_one_of_several:
            suite.set("name", _text(f"{verdicts.landing_zone}/{table.name}"))
        yield suite


def _suite(table: TableReport, verdicts: ValidationReport) -> ET.Element:
    unapplied = dict(table.not_applied)
    said: dict[str, list[Counted]] = {path: [] for path in (*table.files, *unapplied)}
    for found, times in table.diagnostics:
        said.setdefault(found.path, []).append((found, times))
    cases = [_case(table, path, counted, verdicts) for path, counted in said.items()]
    for case, path in zip(cases, said, strict=True):
        if path in unapplied and case.find("failure") is None:
            _not_applied(case, table, unapplied[path])
    failures, skipped = (str(sum(case.find(kind) is not None for case in cases)) for kind in ("failure", "skipped"))
    numbers = {"tests": str(len(cases)), "failures": failures, "errors": "0", "skipped": skipped}
    suite = ET.Element("testsuite", {"name": _text(table.name), **numbers})
    if table.state:
        properties = ET.SubElement(suite, "properties")
        for name, value in (("state", table.state), ("rows", str(table.rows))):
            ET.SubElement(properties, "property", name=name, value=_text(value))
    suite.extend(cases)
    return suite


def _not_applied(case: ET.Element, table: TableReport, why: str) -> None:
    """A file that a table left standing fails, as the table does; one that waits for metadata is not judged yet."""
    if table.is_stuck:
        case.insert(0, ET.Element("failure", type="not applied", message=_text(f"not applied: {why}")))
    else:
        case.insert(0, ET.Element("skipped", message=_text(f"not applied: {why}")))


def _case(table: TableReport, path: str, said: Sequence[Counted], verdicts: ValidationReport) -> ET.Element:
    case = ET.Element("testcase", classname=_text(table.name), name=_text(path or THE_ZONE))
    failing = [counted for counted in said if verdicts.fails(counted[0])]
    if failing:
        first = failing[0][0]
        failure = ET.SubElement(case, "failure", type=first.code, message=_text(message_of(*failing[0])))
        failure.text = _lines(failing)
    passing = [counted for counted in said if not verdicts.fails(counted[0])]
    if passing:
        ET.SubElement(case, "system-out").text = _lines(passing)
    return case


def _lines(said: Sequence[Counted]) -> str:
    return "\n".join(_text(f"{found.severity.value}: {message_of(found, times)}") for found, times in said)


def _text(text: str) -> str:
    return _NO_XML.sub("\ufffd", printable(text))
