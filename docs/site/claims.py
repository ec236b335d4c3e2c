"""The tables of the comparison page, made of `docs/explanation/claims.toml`.

Run as a program it writes them into the page.
"""

from __future__ import annotations

import re
import sys
from functools import cache
from typing import Any

from reference import DOCS, table

if sys.version_info >= (3, 11):
    import tomllib
else:  # Python 3.10 has no TOML reader of its own
    import tomli as tomllib  # type: ignore[import-not-found,unused-ignore]


PAGE = DOCS / "explanation/comparison.md"


@cache
def claims() -> dict[str, Any]:
    """The tools, and every claim with its source and date."""
    found: dict[str, Any] = tomllib.loads((DOCS / "explanation/claims.toml").read_text(encoding="utf-8"))
    return found


def comparison() -> str:
    """A row for each question, a column for each tool; a cell links its source and tells its date."""
    tools, found = claims()["tools"], claims()["claim"]
    cells = {(each["row"], each["tool"]): f"[{each['says']}]({_link(each)})" for each in found}
    rows = ([row, *(cells.get((row, tool), "-") for tool in tools)] for row in dict.fromkeys(r for r, _ in cells))
    return table(["", *tools], rows)


def arrivals() -> str:
    """Times from a file's landing to its rows' being visible, ours and Fabric's."""
    found = claims()["arrival"]
    rows = ([each["who"], each["seconds"], each["conditions"], f"[{each['date']}]({_link(each)})"] for each in found)
    return table(["who", "seconds", "conditions", "source"], rows)


def _link(claim: dict[str, str]) -> str:
    """The source, as a page of docs/explanation links it, and the date as what is shown over it."""
    source = claim["source"]
    return f'{source if source.startswith("https:") else "../" + source} "{claim["date"]}"'


def filled(page: str) -> str:
    """The page with both tables as the claims have them today."""
    for name, made in (("comparison", comparison()), ("arrivals", arrivals())):
        between = re.compile(f"(?<=<!-- {name} -->\n).*?(?=<!-- /{name} -->)", re.DOTALL)
        page = between.sub(lambda _, text=made: f"{text}\n", page)  # type: ignore[misc]
    return page


if __name__ == "__main__":
    PAGE.write_text(filled(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
