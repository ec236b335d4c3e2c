"""What shows that a rule holds: fixtures and tests that name it, and tests of its diagnostics."""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from mirror_engine.explain.pages import Rule, rules_in
from mirror_engine.landing_zone.diagnostics import CATALOG
from mirror_engine.testing.cases import load, names

if TYPE_CHECKING:
    from collections.abc import Iterator

HOME = Path(__file__).parents[2]
RULE = re.compile(r"LZ-\d+\.\d+")
# Rules that no test can show, each with its reason
NOT_SHOWN = {
    "LZ-7.9": "names what is not offered",
    "LZ-9.8": "does not apply: operations are not logged in Fabric's form",
}
# Rules that no case can show, each with what it takes; tests name them
_MONITORING = "Fabric's monitoring files"
_REQUESTS = "requests to the emulator"
NO_CASE = {
    "LZ-1.11": "readers of the Delta tables",
    "LZ-4.16": "the number of commits",
    "LZ-4.20": "a commit that the merge engine refuses",
    "LZ-7.4": "minutes of waiting",
    "LZ-7.5": _REQUESTS,
    "LZ-7.8": _REQUESTS,
    "LZ-7.10": "1,000 tables",
    "LZ-8.3": "days of waiting",
    "LZ-8.6": "days of waiting",
    "LZ-9.1": _MONITORING,
    "LZ-9.2": _MONITORING,
    "LZ-9.3": _MONITORING,
    "LZ-9.4": _REQUESTS,
    "LZ-9.5": _REQUESTS,
    "LZ-9.6": _MONITORING,
    "LZ-9.7": "the states of tables and files",
    "LZ-9.9": _REQUESTS,
    "LZ-9.10": "the change data feed",
}
_RANGE = re.compile(r"LZ-(\d+)\.(\d+) to LZ-(\d+)\.(\d+)")


@dataclass
class Evidence:
    """Fixtures and tests of a rule, and diagnostics that report what breaks it."""

    rule: Rule
    fixtures: list[str] = field(default_factory=list)
    tests: list[str] = field(default_factory=list)
    codes: list[str] = field(default_factory=list)


@cache
def evidence() -> dict[str, Evidence]:
    """Every rule with its evidence, in the order of the protocol."""
    protocol = (HOME / "docs/protocol.md").read_text(encoding="utf-8")
    found = {name: Evidence(rule) for name, rule in rules_in(protocol).items() if RULE.fullmatch(name)}
    for name in dict.fromkeys([*names(), *(code for code in CATALOG if load(code).has_session)]):
        for rule in filter(RULE.fullmatch, load(name).rules):
            found[rule].fixtures.append(name)
    for test, rules in tests().items():
        for rule in rules & found.keys():
            found[rule].tests.append(test)
    for code, definition in CATALOG.items():
        for rule in definition.rules:
            if rule in found:
                found[rule].codes.append(code)
    return found


def without_evidence() -> list[str]:
    """Rules that no fixture and no test names, though one could."""
    return [name for name, each in evidence().items() if not each.fixtures + each.tests and name not in NOT_SHOWN]


@cache
def tests() -> dict[str, set[str]]:
    """Rules that the docstring of each test or test module names, by node id."""
    found: dict[str, set[str]] = {}
    for path in sorted((HOME / "tests").rglob("test_*.py")):
        name, module = path.relative_to(HOME).as_posix(), ast.parse(path.read_text(encoding="utf-8"))
        texts = {
            name: ast.get_docstring(module),
            **{f"{name}::{each}": ast.get_docstring(node) for each, node in functions(module)},
        }
        found |= {each: rules for each, text in texts.items() if (rules := rules_of(text or ""))}
    return found


def functions(module: ast.Module) -> Iterator[tuple[str, ast.FunctionDef]]:
    """The tests of a module by name; a class's by `Class::test`."""
    classes = [node for node in module.body if isinstance(node, ast.ClassDef)]
    for prefix, body in (("", module.body), *((f"{each.name}::", each.body) for each in classes)):
        for node in body:
            if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
                yield f"{prefix}{node.name}", node


def rules_of(text: str) -> set[str]:
    """Rules that a text names; `LZ-1.3 to LZ-1.5` names three."""
    ranges = (
        f"LZ-{chapter}.{number}"
        for chapter, first, _, last in _RANGE.findall(text)
        for number in range(int(first), int(last) + 1)
    )
    return {*RULE.findall(text), *ranges}
