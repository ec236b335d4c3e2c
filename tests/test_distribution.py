"""What is published: described truly, and hints that name what exists."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import click
import pytest

import release_check
from mirror_engine.cli.main import program

HOME = Path(__file__).parents[1]
PROJECT = tomllib.loads((HOME / "pyproject.toml").read_text(encoding="utf-8"))["project"]
EXTRAS = PROJECT["optional-dependencies"]
TRADEMARKS = "Not affiliated with Microsoft. Fabric, OneLake and Entra are trademarks of Microsoft."
SHOWN = {".py", ".md", ".html", ".js", ".toml", ".yml", ".yaml", ""}
EXTRAS_NAMED = re.compile(r"(?:mirror[-_]engine|['\"\s]\.)\[([a-z, ]+)\]")
COMMAND = re.compile(r"(?:`|\$ |: |^ *|\$\(|&& |-- )mirror-engine((?: +[^\s`'\"()|;{}]+)+)", re.MULTILINE)
CODE = re.compile(r"^ *```.*?^ *```|`[^`\n]+`", re.DOTALL | re.MULTILINE)  # of a page; its prose begins lines, too


def texts():
    """Everything that is shown to users, by its name."""
    ours = [
        *(path for folder in ("mirror_engine", "docs", "tools", ".github") for path in (HOME / folder).rglob("*")),
        *(path for path in HOME.iterdir() if path.name not in {".git", "CHANGELOG.md"}),
    ]
    files = (path for path in ours if path.is_file() and path.suffix in SHOWN)
    return {path.relative_to(HOME).as_posix(): path.read_text(encoding="utf-8") for path in files}


@pytest.mark.slow
def test_every_extra_that_is_named_exists():
    named = {
        (extra.strip(), name)
        for name, text in texts().items()
        for found in EXTRAS_NAMED.findall(text)
        for extra in found.split(",")
    }
    assert {name for name in named if name[0] not in EXTRAS} == set()
    assert {"spark", "java", "emulator", "stores", "pytest"} <= {extra for extra, _ in named}


@pytest.mark.slow
def test_every_command_that_is_named_exists():
    codes = {name: "\n".join(CODE.findall(text)) if name.endswith(".md") else text for name, text in texts().items()}
    named = {
        (found, name) for name, text in codes.items() if name != "pyproject.toml" for found in COMMAND.findall(text)
    }
    assert {"README.md", "docs/validate.md", "action.yml"} <= {name for _, name in named}
    assert {each for each in named if not exists(each[0].split())} == set()


def exists(words):
    """Whether these words begin with a command of the program, or are its options alone."""
    command, context = program(), click.Context(program())
    while words and words[0] in {"-C", "-v", "-q", "--json"}:
        words = words[2:] if words[0] == "-C" else words[1:]
    while isinstance(command, click.Group):
        if not words or words[0][0] in "-…" or words[0].isupper():
            return True
        command = command.get_command(context, words.pop(0).rstrip(".,"))
    return command is not None


def test_all_is_all_that_users_need():
    own = {"clients", "dev", "docs", "fuzz", "mutmut", "readers", "release", "test", "all"}
    assert sorted(EXTRAS["all"][0].partition("[")[2][:-1].split(",")) == sorted(set(EXTRAS) - own)


def test_the_supported_versions_are_those_of_the_constraints():
    supported = [each.rpartition(" ")[2] for each in PROJECT["classifiers"] if ":: Python :: 3." in each]
    first = (HOME / "constraints.txt").read_text(encoding="utf-8").partition("\n")[0]
    assert PROJECT["requires-python"] == f">={supported[0]}"
    assert first.endswith(f"for Python {supported[0]} to {supported[-1]}.")


def test_nothing_that_is_published_claims_an_address_of_somebody_else():
    hosts = {re.match(r"https://([^/]+)", url)[1] for url in PROJECT["urls"].values()}
    assert len(hosts) == 1
    assert hosts == {"mirror-engine.example"} or not any(host.endswith(".example") for host in hosts)


@pytest.mark.parametrize("name", ["README.md", "docs/index.md", "mkdocs.yml"])
def test_the_trademark_line_is_where_readers_arrive(name):
    assert TRADEMARKS in (HOME / name).read_text(encoding="utf-8")


def test_a_build_that_depends_on_its_surroundings_is_found(tmp_path, monkeypatch):
    def build(folder, names, _):
        folder.mkdir()
        (folder / "a.whl").write_text(names["TZ"])
        return [folder / "a.whl"]

    monkeypatch.setattr(release_check, "build", build)
    with pytest.raises(release_check.NotReleasable, match=r"two builds differ: a\.whl"):
        release_check.build_twice(tmp_path)
