"""Every line of the threat model names the tests that attack it, and they are there."""

from __future__ import annotations

import ast
import re
from pathlib import Path

HOME = Path(__file__).parents[1]
NAMED = re.compile(r"`(tests/[\w/]+\.py)::(\w+)`")


def test_every_threat_is_attacked_by_tests_that_exist() -> None:
    page = (HOME / "docs/threat-model.md").read_text(encoding="utf-8")
    threats = [line for line in page.splitlines() if line.startswith("| ")][1:]
    assert len(threats) > 20
    assert [line for line in threats if not NAMED.search(line)] == []
    missing = [f"{path}::{name}" for path, name in NAMED.findall(page) if name not in functions_of(HOME / path)]
    assert missing == []


def functions_of(path: Path) -> set[str]:
    return {node.name for node in ast.walk(ast.parse(path.read_text("utf-8"))) if isinstance(node, ast.FunctionDef)}
