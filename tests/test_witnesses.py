"""Every guarantee and every threat names the tests that show it, and these tests exist."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

HOME = Path(__file__).parents[1]
TEST = re.compile(r"`(tests/[\w/]+\.py|…)(?:::(\w+))?`")
CLAIMS = {"docs/promises.md": r"^## \d\. ", "docs/threat-model.md": r"^\| (?!threat|---)"}


@cache
def functions_of(path):
    nodes = ast.walk(ast.parse((HOME / path).read_text(encoding="utf-8"))) if (HOME / path).exists() else ()
    return frozenset(node.name for node in nodes if isinstance(node, ast.FunctionDef))


@pytest.mark.parametrize("page", CLAIMS)
def test_the_tests_that_a_page_names_exist(page):
    missing, before = [], ""
    for path, name in TEST.findall((HOME / page).read_text(encoding="utf-8")):
        before = before if path == "…" else path
        if not functions_of(before) or (name and name not in functions_of(before)):
            missing.append(f"{before}::{name}")
    assert missing == []


@pytest.mark.parametrize("page", CLAIMS)
def test_every_claim_names_a_test(page):
    claims = re.split(CLAIMS[page], (HOME / page).read_text(encoding="utf-8"), flags=re.MULTILINE)[1:]
    assert len(claims) >= 8
    assert [claim[:60] for claim in claims if not TEST.search(claim)] == []
