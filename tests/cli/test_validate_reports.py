"""One report as GitHub annotations, JUnit XML and SARIF, whatever the names are."""

from __future__ import annotations

import json
import re
from urllib.parse import unquote
from xml.etree import ElementTree as ET

import pytest

from mirror_engine.cli.validate_reports import github, junit, sarif
from mirror_engine.landing_zone.diagnostics import CATALOG, Diagnostic, Severity, diagnose
from mirror_engine.landing_zone.listing import unlisted
from mirror_engine.landing_zone.text import CONTROLS, printable
from mirror_engine.tools.validate import TableReport, ValidationReport
from mirror_engine.tools.validation import CheckedTable

SECOND = "Items/00000000000000000002.csv"
WRONG_MARKER = diagnose("ME037", SECOND, row=3, value="3", meant="")
HOSTILE = [
    "a\nb::error file=x::boom",
    "50%,title=x:y",
    "\x1b[31mred\x00",
    "Zürich/日本 𝄞.csv",
    "\udc80broken\uffff",
    "<a b='c'>&amp;]]>",
    "\r::stop-commands::x",
]
WORDS = re.compile(r"(\w+)=([^,:]*)")


def table(name, files, *diagnostics, is_text=False):
    shown = CheckedTable(name, name, f"Tables/dbo/{name}", "halted", "", files, (), 4, None, ())
    return TableReport(shown, tuple((found, 1) for found in diagnostics), is_text)


def items(*diagnostics, is_text=False):
    return table("Items", ("Items/00000000000000000001.csv", SECOND), *diagnostics, is_text=is_text)


def zone(*tables, **facts):
    return ValidationReport(tables, landing_zone="out/LandingZone", **facts).checked()


def annotations(text):
    """As GitHub's runner reads them."""
    found = []
    for line in text.splitlines():
        command, words, message = re.fullmatch(r"::(\w+) (.*?)::(.*)", line).groups()
        found.append((command, {name: unquote(value) for name, value in WORDS.findall(words)}, unquote(message)))
    return found


def test_an_annotation_names_file_line_and_code():
    line = (
        f"::error file=out/LandingZone/{SECOND},line=4,title=ME037::{SECOND}, row 3: row marker is 3, "
        "expected 0, 1, 2 or 4 [ME037]; help: delete the file and land a corrected one under the same name\n"
    )
    assert github(zone(items(WRONG_MARKER, is_text=True))) == line
    assert github(zone(items(WRONG_MARKER))) == line.replace(",line=4", "")  # a row of Parquet has none
    fault = diagnose("ME010", "Items/_metadata.json", line=3, char=7, fault="a bare word", help="quote it")
    assert items().line_of(fault) == 3
    assert items().line_of(diagnose("ME016", "Items/_metadata.json")) is None


@pytest.mark.parametrize("render", [github, junit, sarif])
def test_no_control_character_of_a_name_reaches_the_log(render):
    name = "".join(map(chr, CONTROLS))
    report = zone(table(name, (f"{name}/x.csv",), diagnose("ME023", f"{name}/x.csv")))
    assert not set(render(report)) & {chr(code) for code in CONTROLS if code != 10}


def test_every_severity_has_its_command_and_strict_counts():
    printed = [diagnose("ME016", "Items"), diagnose("ME014", "Items"), diagnose("ME014", "Items", strict=True)]
    assert [found[0] for found in annotations(github(zone(items(*printed))))] == [
        "error",
        "warning",
        "notice",
    ]  # the worst first


def test_a_diagnostic_about_the_zone_points_at_its_folder_and_is_counted():
    report = ValidationReport(diagnostics=((diagnose("ME001", ""), 2),), landing_zone="out/LandingZone/").checked()
    assert annotations(github(report))[0][1]["file"] == "out/LandingZone"
    assert "(2 times)" in github(report)
    without_zone = ValidationReport(diagnostics=((diagnose("ME001", ""), 1),)).checked()
    assert github(without_zone).startswith("::warning title=ME001::")


def suites(text):
    assert text.startswith('<?xml version="1.0" encoding="UTF-8"?>\n<testsuites ')
    return ET.fromstring(text.encode())  # noqa: S314 - of our own making


def test_what_is_below_the_threshold_fails_no_case():
    verdict = items(diagnose("ME058", SECOND), diagnose("ME008", "Items", count=0, help=""))
    lenient = suites(junit(zone(verdict)))
    assert lenient.get("failures") == "0"
    assert len(lenient.findall(".//system-out")) == 2
    strict = suites(junit(zone(verdict, fail_on=Severity.WARNING)))
    assert strict.get("failures") == "2"


def test_several_findings_in_one_file_are_one_failed_case():
    other = diagnose("ME034", SECOND, position=1, count=3)
    (suite,) = suites(junit(zone(items(WRONG_MARKER, other), fail_on=Severity.WARNING)))
    (failure,) = suite.iter("failure")
    assert (failure.text or "").count("\n") == 1


def test_the_zone_s_own_diagnostics_are_a_suite_before_all_others():
    first, _ = suites(junit(ValidationReport((items(),), ((unlisted(""), 1),)).checked()))
    assert (first.get("name"), first[0].get("name")) == ("landing zone", "landing zone")


RULE = {"id", "name", "shortDescription", "fullDescription", "help", "defaultConfiguration", "properties"}
LEVELS = {"none", "note", "warning", "error"}


def scanned(report):
    """The one run, after what the schema of SARIF 2.1.0 requires of the parts in use, and GitHub of an upload."""
    text = sarif(report)
    text.encode()
    document = json.loads(text)
    assert (document["version"], "sarif-2.1.0" in document["$schema"], len(document)) == ("2.1.0", True, 3)
    (run,) = document["runs"]
    assert (set(run), run["columnKind"]) == ({"tool", "results", "columnKind"}, "unicodeCodePoints")
    rules = run["tool"]["driver"]["rules"]
    ids = [rule["id"] for rule in rules]
    assert run["tool"]["driver"]["name"]
    assert len(ids) == len(set(ids))
    for rule in rules:
        assert set(rule) == RULE
        assert all(rule[text]["text"] for text in ("shortDescription", "fullDescription", "help"))
        assert len(rule["fullDescription"]["text"]) <= 1024
        assert rule["defaultConfiguration"]["level"] in LEVELS
        assert all(isinstance(tag, str) for tag in rule["properties"]["tags"])
    for result in run["results"]:
        assert result["message"]["text"]
        assert result["level"] in LEVELS
        assert ids[result["ruleIndex"]] == result["ruleId"]
        assert result["occurrenceCount"] >= 1
        assert all(isinstance(value, str) for value in result["partialFingerprints"].values())
        for location in result["locations"]:
            place = location["physicalLocation"]
            assert re.fullmatch(r"[A-Za-z0-9._~%-][A-Za-z0-9._~/%-]*", place["artifactLocation"]["uri"])
            assert place.get("region", {"startLine": 1})["startLine"] >= 1
    return dict(run)


def test_sarif_has_rule_level_location_and_line():
    run = scanned(zone(items(WRONG_MARKER, diagnose("ME016", "Items/_metadata.json"), is_text=True)))
    assert [rule["id"] for rule in run["tool"]["driver"]["rules"]] == ["ME016", "ME037"]
    assert "There is no marker 3" in run["tool"]["driver"]["rules"][1]["help"]["markdown"]
    first, second = run["results"]
    assert (first["ruleId"], first["level"], second["level"]) == ("ME037", "error", "note")
    assert first["locations"][0]["physicalLocation"] == {
        "artifactLocation": {"uri": f"out/LandingZone/{SECOND}"},
        "region": {"startLine": 4},
    }
    assert "region" not in second["locations"][0]["physicalLocation"]


def test_a_fingerprint_stays_when_only_a_count_changes():
    def fingerprint(diagnostic):
        return scanned(zone(items(diagnostic)))["results"][0]["partialFingerprints"]

    assert fingerprint(diagnose("ME039", SECOND, count=3)) == fingerprint(diagnose("ME039", SECOND, count=4))
    assert fingerprint(diagnose("ME039", SECOND, count=3)) != fingerprint(diagnose("ME039", "Other", count=3))


def test_a_clean_zone_has_no_annotations_and_a_run_without_results():
    assert github(zone(items())) == ""
    run = scanned(zone(items()))
    assert (run["results"], run["tool"]["driver"]["rules"]) == ([], [])


@pytest.mark.parametrize("name", HOSTILE, ids=range(len(HOSTILE)))
def test_no_name_breaks_out_of_its_place(name):
    report = zone(table(name, (name,), diagnose("ME006", name)))
    shown = name.replace("\udc80", "\\udc80")
    text = github(report)
    assert (text.encode().count(b"\n"), "\r" in text) == (1, False)
    ((command, words, _),) = annotations(text)
    assert (command, set(words), words["file"]) == ("notice", {"file", "title"}, f"out/LandingZone/{printable(name)}")
    (suite,) = suites(junit(report))
    assert len(suite.findall("testcase")) == 1
    (result,) = scanned(report)["results"]
    uri = result["locations"][0]["physicalLocation"]["artifactLocation"]["uri"]
    assert unquote(uri) == f"out/LandingZone/{shown}"


def test_every_code_can_be_reported():
    for code in CATALOG:
        report = zone(items(Diagnostic(code, "Items", 1, None, tuple((name, "1") for name in DETAILS))))
        assert len(annotations(github(report))) == 1
        assert len(scanned(report)["results"]) == 1
        assert suites(junit(report)).get("tests") == "3"


DETAILS = {word for line in CATALOG.values() for word in re.findall(r"\{(\w+)[:}]", line.message + line.help)}
