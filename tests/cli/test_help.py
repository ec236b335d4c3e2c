"""Help: an example and the exit codes for every command, and the page made of it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from mirror_engine.cli import exit_codes
from mirror_engine.cli.main import COMMANDS
from mirror_engine.cli.options import ALL
from mirror_engine.cli.reference import cli_page
from mirror_engine.config import flag_of


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_an_example_its_exit_codes_and_json(say, monkeypatch, name) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    said = say(name, "--help")
    assert said.code == 0
    assert f"  Example:\n    mirror-engine {name} " in said.out
    assert "  Exit codes:\n    0    " in said.out
    assert "\n    2    wrong usage" in said.out
    assert "--json" in said.out
    assert max(map(len, said.out.splitlines())) <= 80
    assert not re.search(r"<\w|\[\[|x>=|INTEGER|FLOAT|TEXT", said.out)


@pytest.mark.parametrize("name", ["once", "run"])
def test_commands_that_apply_take_every_option_but_that_of_restart(say, name) -> None:
    text = say(name, "--help").out
    assert [option for option in ALL if flag_of(option) not in text] == []


def test_the_program_lists_all_commands_and_what_exit_codes_mean(say, monkeypatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    text = say("--help").out
    assert all(f"\n  {name} " in text for name in COMMANDS)
    assert all(f"\n    {code:<4} {meaning}" in text for code, meaning in exit_codes.MEANINGS.items())
    assert "..." not in text.partition("Commands:")[2]
    assert max(map(len, text.splitlines())) <= 80


def test_the_reference_page_is_current(monkeypatch) -> None:
    monkeypatch.setenv("COLUMNS", "50")
    page = Path(__file__).parents[2] / "docs/cli.md"
    assert page.read_text(encoding="utf-8") == cli_page(), "run: python -m mirror_engine.cli.reference docs"
