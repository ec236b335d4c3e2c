"""Where the cases are (fixtures/README.md), and which one is the example of a code."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

_IN_THE_WHEEL = Path(__file__).parents[1] / "cases"
CASES = _IN_THE_WHEEL if _IN_THE_WHEEL.is_dir() else Path(__file__).parents[2] / "fixtures"
_CODES = re.compile(r"^codes: (.+)$", re.MULTILINE)


@cache
def examples() -> dict[str, str]:
    """The name of the case that is the example of a code, by code: `mirror-engine explain ME037 --try DIR` lands it."""
    named = ((path.stem, _CODES.search(path.read_text(encoding="utf-8"))) for path in sorted(CASES.glob("[!R]*.md")))
    return {code: name for name, codes in named if codes for code in codes[1].split(", ")}
