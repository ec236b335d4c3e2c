"""`explain`: the long form of a diagnostic, in a terminal and for programs."""

from __future__ import annotations

import json

from mirror_engine.landing_zone.diagnostics import CATALOG


def test_a_code_is_explained_in_any_case(cli) -> None:
    printed = cli("explain", "me014")
    assert printed.code == 0
    assert printed.out.startswith(
        "ME014 conditional-update-column  warning, error under strict\nConditionalUpdateColumn does nothing\n"
    )
    for heading in ("Why it matters", "What to do", "Example: _metadata.json", "Fixed: _metadata.json"):
        assert f"\n\n{heading}\n  " in printed.out
    assert "\n  LZ-2.7 Honour these properties." in printed.out
    assert "unexplained: no effect, ME014" in printed.out


def test_a_pipe_gets_no_trailing_spaces(cli) -> None:
    assert [line for line in cli("explain", "ME001", "ME039").out.splitlines() if line != line.rstrip()] == []


def test_several_codes_come_one_after_the_other(cli) -> None:
    out = cli("explain", "ME037", "ME019").out
    assert out.index("ME037 invalid-row-marker  error") < out.index("ME019 missing-file  warning")


def test_without_a_code_all_are_listed(cli) -> None:
    printed = cli("explain")
    assert printed.code == 0
    assert [line.split()[0] for line in printed.out.splitlines()[1:]] == list(CATALOG)


def test_an_unknown_code_names_the_nearest_and_the_list(cli) -> None:
    printed = cli("explain", "ME14")
    assert printed.code == 2
    assert printed.err == (
        'error: unknown diagnostic "ME14"\n  help: did you mean ME014? mirror-engine explain lists all\n'
    )
    assert cli("explain", "???").err.endswith("  help: mirror-engine explain lists all\n")
    assert cli("explain", "ME014", "ME14").out == ""


def test_programs_get_the_same_as_json(cli) -> None:
    (document,) = json.loads(cli("explain", "ME014", "--json").out)["explanations"]
    assert document["code"] == "ME014"
    assert document["severity_strict"] == "error"
    assert document["rules"][0]["name"] == "LZ-2.7"
    assert "ConditionalUpdateColumn" in document["example"]["text"]
    assert [page["code"] for page in json.loads(cli("explain", "--json").out)["explanations"]] == list(CATALOG)


def test_a_code_is_found_by_its_name(cli) -> None:
    assert cli("explain", "Invalid-Row-Marker").out.startswith("ME037 ")
    assert "did you mean invalid-row-marker?" in cli("explain", "invalid-row-markr").err
