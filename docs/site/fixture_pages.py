"""A page for each golden fixture: its file, with its front matter as words and the paths of its blocks as titles."""

from __future__ import annotations

import re

from reference import facts, table

from mirror_engine.explain.examples import CASES
from mirror_engine.testing.cases import load, names

FIXTURES = "reference/fixtures"
_FENCE = re.compile(r"^(```|~~~)(\w+)((?: \w+=\S+)*)(?: (.+))?$", re.MULTILINE)
_TITLES = {"diagnostics": "In the end", "earlier": "On the way", "removed": "Deleted", "undecided": "Not decided"}


def fixture_pages() -> dict[str, str]:
    """Every fixture's page by its path below docs/."""
    return {f"{FIXTURES}/{name}.md": fixture_page(name) for name in names()}


def fixture_list() -> str:
    """Every golden fixture with its title."""
    return table(("fixture", "what it shows"), ((f"[{name}]({name}.md)", load(name).title) for name in names()))


def fixture_page(name: str) -> str:
    """One fixture."""
    case = load(name)
    title, body = (CASES / f"{name}.md").read_text(encoding="utf-8").split("---\n", 2)[2].strip().split("\n", 1)
    shown = {
        "rules": ", ".join(case.rules),
        "example of": ", ".join(case.codes),
        "options": ", ".join(f"`{option}={value}`".lower() for option, value in case.options.items()),
        "fixture": f"`fixtures/{name}.md`",
    }
    return f"{title}\n\n{facts(shown)}\n{_FENCE.sub(_titled, body)}\n"


def _titled(match: re.Match[str]) -> str:
    """A fence whose information is a title that the site shows."""
    fence, kind, options, path = match.groups(default="")
    title = f"Tables/{path}" if kind == "table" else path or _TITLES.get(kind, kind.capitalize())
    language = "json" if kind == "json" else "text"
    return (
        f'{fence}{language} title="{title}{f" ({kind}{options})" if options or kind in {"base64", "escaped"} else ""}"'
    )
