"""The page of promises names tests that there are."""

from __future__ import annotations

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
NAMED = re.compile(r"`(tests/[\w/]+\.py|…)(?:::(\w+))?`")


def named():
    """Every test the page names, `…` standing for the file named before."""
    before = ""
    for path, name in NAMED.findall((ROOT / "docs/promises.md").read_text()):
        before = before if path == "…" else path
        yield before, name


def functions_of(path):
    tree = ast.parse((ROOT / path).read_text())
    return {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}


def test_every_test_that_the_page_of_promises_names_is_there():
    found = list(named())
    assert len(found) > 40
    missing = [f"{path}::{name}" for path, name in found if name and name not in functions_of(path)]
    missing += [path for path, _ in found if not (ROOT / path).exists()]
    assert not missing


def test_every_promise_names_a_test():
    page = (ROOT / "docs/promises.md").read_text()
    promises = re.split(r"^## (?=\d\. )", page, flags=re.MULTILINE)[1:]
    assert len(promises) == 8
    assert all(NAMED.search(promise) for promise in promises)
