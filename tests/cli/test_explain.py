"""`explain`: the long form of a diagnostic, in a terminal and for programs."""

from __future__ import annotations

import json

from mirror_engine.landing_zone.diagnostics import CATALOG


def test_a_code_is_explained_in_any_case(say) -> None:
    said = say("explain", "me014")
    assert said.code == 0
    assert said.out.startswith("ME014  warning, error under strict\nConditionalUpdateColumn does nothing\n")
    for heading in ("Why it matters", "What to do", "Example: _metadata.json", "Fixed: _metadata.json"):
        assert f"\n\n{heading}\n  " in said.out
    assert "\n  LZ-2.7 Honour these properties." in said.out
    assert "unexplained: no effect, ME014" in said.out


def test_a_pipe_gets_no_trailing_spaces(say) -> None:
    assert [line for line in say("explain", "ME001", "ME039").out.splitlines() if line != line.rstrip()] == []


def test_several_codes_come_one_after_the_other(say) -> None:
    out = say("explain", "ME037", "ME019").out
    assert out.index("ME037  error") < out.index("ME019  warning")


def test_without_a_code_all_are_listed(say) -> None:
    said = say("explain")
    assert said.code == 0
    assert [line.split()[0] for line in said.out.splitlines()[1:]] == list(CATALOG)


def test_an_unknown_code_names_the_nearest_and_the_list(say) -> None:
    said = say("explain", "ME14")
    assert said.code == 2
    assert said.err == ("ME14: no such diagnostic\n  -> Did you mean ME014? `mirror-engine explain` lists them all.\n")
    assert say("explain", "keyColumns").err.endswith("  -> `mirror-engine explain` lists them all.\n")
    assert say("explain", "ME014", "ME14").out == ""


def test_programs_get_the_same_as_json(say) -> None:
    (told,) = json.loads(say("explain", "ME014", "--json").out)["explanations"]
    assert told["code"] == "ME014"
    assert told["severity_strict"] == "error"
    assert told["rules"][0]["name"] == "LZ-2.7"
    assert "ConditionalUpdateColumn" in told["example"]["text"]
    assert [page["code"] for page in json.loads(say("explain", "--json").out)["explanations"]] == list(CATALOG)
