"""How-tos end with a session to paste; tests/test_sessions.py runs it."""

from __future__ import annotations

import re
from pathlib import Path

from sessions import steps

DOCS = Path(__file__).parents[1] / "docs"
SESSIONS = ("cannot-write", "keep-longer", "long-strings", "move-item", "renamed", "sql-shows-old-rows")


def test_each_how_to_of_this_file_ends_with_something_to_paste():
    pages = {name: (DOCS / f"how-to/{name}.md").read_text(encoding="utf-8") for name in SESSIONS}
    assert [name for name, text in pages.items() if "```console" not in text.rpartition("\n## ")[2]] == []
    unrun = {name: re.findall(r"^ *```(?!console|\w+ title=)(\w+)", text, re.MULTILINE) for name, text in pages.items()}
    assert {name: found for name, found in unrun.items() if found} == {"keep-longer": ["text"]}


def test_the_scheduled_pull_is_a_command_of_its_session():
    page = DOCS / "how-to/keep-longer.md"
    minute, hour, *others, command = re.search(r"```text\n(.*)\n", page.read_text(encoding="utf-8"))[1].split(" ", 5)
    assert (int(minute) < 60, int(hour) < 24, others) == (True, True, ["*", "*", "*"])
    local = re.sub(r"abfss://\S+ /backup/mirror", "shop backup", command)
    assert local in {step.text.strip() for step in steps(page)}
