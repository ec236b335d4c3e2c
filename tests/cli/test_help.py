"""Help: an example and the exit codes for every command, and the page made of it."""

from __future__ import annotations

import re

import pytest

from mirror_engine.cli import exits
from mirror_engine.cli.main import ALL_COMMANDS, COMMANDS, SHELLS
from mirror_engine.cli.options import ALL
from mirror_engine.config import flag_of


@pytest.mark.parametrize("name", ALL_COMMANDS)
def test_every_command_has_an_example_exit_codes_and_json(cli, monkeypatch, name):
    monkeypatch.setenv("COLUMNS", "80")
    printed = cli(*name.split(), "--help")
    assert printed.code == 0
    assert f"  Example:\n    mirror-engine {name} " in printed.out
    assert "  Exit codes:\n    0    " in printed.out
    assert "\n    2    usage error" in printed.out
    assert "--json" in printed.out
    assert max(map(len, printed.out.splitlines())) <= 85
    assert not re.search(r"<\w|\[\[|x>=|INTEGER|FLOAT|TEXT|\{ROOT\}", printed.out)
    about = next(names[name][1] for names in COMMANDS.values() if name in names)
    assert about.split()[0] in {printed.out.splitlines()[2].split()[0], "Print"}


@pytest.mark.parametrize(
    "name", ["sync", "run", "status", "plan", "show", "history", "diff", "compare", "generate", "pull", "validate"]
)
def test_commands_of_a_store_say_how_they_end_without_access(cli, name):
    assert re.search(r"\n    1 .*no access to a store", cli(name, "--help").out)


@pytest.mark.parametrize("name", ["sync", "run", "emulator start", "emulator exec"])
def test_commands_that_apply_take_every_option(cli, name):
    text = cli(*name.split(), "--help").out
    absent = [option for option in ALL if flag_of(option) not in text]
    assert absent == (["poll_interval_seconds", "auto_maintain"] if name == "sync" else [])  # it ends


def test_commands_list_no_option_that_has_no_effect_there(cli):
    reading = ("plan", "trace row", "rebuild", "status", "wait")
    assert all("--poll-interval" not in cli(*name.split(), "--help").out for name in reading)


def test_options_are_grouped_by_topic(cli):
    text = cli("sync", "--help").out
    headings = ["\nOptions:", "\nLanding zone:", "\nBatches:", "\nClean-up:", "\nSpark:", "\nGlobal options:"]
    places = [text.index(heading) for heading in headings]
    assert places == sorted(places)


def test_the_program_lists_all_commands_and_exit_codes(cli, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    text = cli("--help").out
    assert all(f"\n  {name} " in text for name in ALL_COMMANDS)
    assert all(f"\n{heading}:" in text for heading in COMMANDS)
    assert all(f"\n    {code:<4} {meaning}" in text for code, meaning in exits.MEANINGS.items())
    assert max(map(len, text.splitlines())) <= 80


@pytest.mark.parametrize("shell", SHELLS)
def test_completion_scripts_are_printed(cli, shell):
    printed = cli("--completion", shell)
    assert (printed.code, "_MIRROR_ENGINE_COMPLETE" in printed.out) == (0, True)


def test_completion_knows_commands_of_groups(cli, monkeypatch):
    monkeypatch.setenv("_MIRROR_ENGINE_COMPLETE", "bash_complete")
    monkeypatch.setenv("COMP_WORDS", "mirror-engine trace ")
    monkeypatch.setenv("COMP_CWORD", "2")
    assert cli().out.split() == ["plain,row", "plain,file", "plain,what-if"]
