"""MkDocs hooks: pages made from the code are added, and all pages get their links."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from api import api, error_tree
from evidence import HOME, without_evidence
from links import OVERVIEW, linked, part_of
from llms import llms
from mkdocs.plugins import get_plugin_logger
from mkdocs.structure.files import File
from named_tests import test_pages
from reference import (
    CLI,
    DIAGNOSTICS,
    commands,
    diagnostics,
    exit_codes,
    fixture_list,
    global_options,
    json_commands,
    json_error,
    log_events,
    option_list,
    reference_pages,
    schema_files,
    schemas,
    states,
)
from rules import rule_list, with_ids

from mirror_engine.cli.main import ALL_COMMANDS
from mirror_engine.landing_zone.diagnostics import CATALOG

if TYPE_CHECKING:
    from collections.abc import Callable

    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files
    from mkdocs.structure.nav import Navigation
    from mkdocs.structure.pages import Page


log = get_plugin_logger("mirror-engine")
# What comes in the place of `<!-- made: name -->` in a page
MADE: dict[str, Callable[[], str]] = {
    "api": api,
    "commands": commands,
    "diagnostics": diagnostics,
    "error tree": error_tree,
    "exit codes": exit_codes,
    "fixtures": fixture_list,
    "global options": global_options,
    "json commands": json_commands,
    "json error": json_error,
    "log events": log_events,
    "options": option_list,
    "rules": rule_list,
    "schemas": schemas,
    "states": states,
}
BOOSTS = {  # of pages in the search: how-to guides first, fixtures, tests and decisions last
    **dict.fromkeys(("how-to/", "tutorials/", "validate.md", "testing.md", "emulator.md", "trace.md"), 2),
    **dict.fromkeys(("compare.md", "stores.md", "cluster.md"), 2),
    **dict.fromkeys(("reference/fixtures/", "reference/tests/", "decisions/"), 0.3),
}
_PLACE = re.compile(r"<!-- made: ([a-z ]+) -->")
_PART = re.compile(r"<!-- part of (\S+): (\w+) -->")


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Fill in the lists of the navigation: commands, diagnostics, and decisions in the order of their index."""
    index = (Path(config.docs_dir) / "decisions" / "index.md").read_text(encoding="utf-8")
    lists = {
        "commands": [f"{CLI}/{name.replace(' ', '-')}.md" for name in ALL_COMMANDS],
        "diagnostics": [f"{DIAGNOSTICS}/{code}.md" for code in CATALOG],
        "decisions": [f"decisions/{name}" for name in re.findall(r"\]\(([\w-]+\.md)\)", index)],
    }
    config.nav = _filled(config.nav or [], lists)
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages that are made whole; warn of rules that nothing shows."""
    for name in without_evidence():
        log.warning("%s: no fixture and no test names it", name)
    made = {**reference_pages(), **test_pages(), **schema_files(), OVERVIEW: overview()}
    for path, text in made.items():
        files.append(File.generated(config, path, content=text))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:  # noqa: ARG001 - MkDocs passes them by name
    """Turn names of rules and diagnostics into links; give the protocol's rules their ids."""
    path = page.file.src_uri
    boost = next((boost for folder, boost in BOOSTS.items() if path.startswith(folder)), None)
    if boost is not None:
        page.meta.setdefault("search", {"boost": boost})
    if path == "protocol.md":
        markdown = with_ids(markdown)
    markdown = _PART.sub(lambda match: part_of(match[1], match[2], path), markdown)
    markdown = _PLACE.sub(lambda match: MADE[match[1]](), markdown)
    return linked(markdown, path, "../README.md" if path == OVERVIEW else "")


def on_nav(nav: Navigation, config: MkDocsConfig, files: Files) -> None:  # noqa: ARG001 - MkDocs passes them by name
    """Keep the navigation for `llms.txt`, which needs every page read."""
    config.extra["nav"] = nav


def on_post_build(config: MkDocsConfig) -> None:
    """Write `llms.txt`."""
    (Path(config.site_dir) / "llms.txt").write_text(llms(config.extra["nav"], config), encoding="utf-8")


def overview() -> str:
    """README.md as a page."""
    text = (HOME / "README.md").read_text(encoding="utf-8")
    return text.replace("# mirror-engine\n", "# In sixty seconds\n", 1)


def _filled(nav: list[Any], lists: dict[str, list[str]]) -> list[Any]:
    """A navigation in which `{"...": "commands"}` became the pages of that list."""
    filled: list[Any] = []
    for entry in nav:
        match entry:
            case {"...": str(name)}:
                filled += lists[name]
            case dict():
                filled.append(
                    {
                        title: _filled(inner, lists) if isinstance(inner, list) else inner
                        for title, inner in entry.items()
                    }
                )
            case _:
                filled.append(entry)
    return filled
