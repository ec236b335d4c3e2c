"""A page for each golden fixture: its facts, what lands, and the result."""

from __future__ import annotations

from reference import facts, table

from mirror_engine.explain.pages import sections_of
from mirror_engine.landing_zone.diagnostics import CATALOG
from mirror_engine.landing_zone.text import front_matter
from mirror_engine.testing.cases import load, names, text_of

FIXTURES = "reference/fixtures"
_NAMES = [name for name in names() if name not in CATALOG]  # a code's case is on its own page


def fixture_pages() -> dict[str, str]:
    """Every fixture's page by its path below docs/."""
    return {f"{FIXTURES}/{name}.md": fixture_page(name) for name in _NAMES}


def fixture_list() -> str:
    """Every golden fixture with its title."""
    return table(("fixture", "what it shows"), ((f"[{name}]({name}.md)", load(name).title) for name in _NAMES))


def fixture_page(name: str) -> str:
    """One fixture."""
    case = load(name)
    sections = sections_of(front_matter(text_of(name))[1])
    title, *others = sections
    shown = {
        "rules": ", ".join(case.rules),
        "options": ", ".join(f"`{option}={value}`".lower() for option, value in case.options.items()),
        "fixture": f"`fixtures/{name}.md`",
    }
    parts = [f"# {title}", facts(shown), *(block.text for block in sections[title].blocks)]
    return "\n\n".join([*parts, *(sections[each].markdown for each in others)]) + "\n"
