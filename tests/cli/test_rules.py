"""`rules`: every rule of the protocol with its sources and diagnostics, as text and as JSON."""

from __future__ import annotations

import json

from mirror_engine.explain.pages import rules


def test_rules_lists_each_rule_once_with_sources_and_diagnostics(cli):
    found = json.loads(cli("rules", "--json").out)["rules"]
    assert [rule["name"] for rule in found] == [name for name in rules() if "." in name]
    marker = next(rule for rule in found if rule["name"] == "LZ-4.12")
    assert "ME037" in marker["diagnostics"]
    assert marker["sources"]
    assert all(source in rule["text"] for rule in found for source in rule["sources"])


def test_rules_prints_their_tables_below_them(cli):
    lines = cli("rules").out.splitlines()
    at = next(number for number, line in enumerate(lines) if line.startswith("  LZ-4.1 "))
    assert any(line.startswith("  |0 insert|append|") for line in lines[at : at + 9])
