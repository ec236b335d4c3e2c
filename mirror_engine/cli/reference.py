"""Writes what is generated: docs/cli.md, docs/diagnostics.md, and the rules that `explain` tells.

Run it as `python -m mirror_engine.cli.reference docs`.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from mirror_engine.cli import exit_codes
from mirror_engine.cli.main import COMMANDS, PROGRAM, program
from mirror_engine.cli.options import default_text
from mirror_engine.config import CONFIG_FILE, ENVIRONMENT_PREFIX, Config, flag_of, option_name, options
from mirror_engine.explain.pages import explanation
from mirror_engine.explain.rules import RULES_FILE, rules_page
from mirror_engine.landing_zone.diagnostics import CATALOG, Severity

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

PACKAGE = Path(__file__).parents[1]
WIDTH = 100
GENERATED = "<!-- Generated: python -m mirror_engine.cli.reference docs -->"


def cli_page() -> str:
    """docs/cli.md: the help of every command as it is printed, what it prints with --json, all options."""
    parts = [
        f"# The command line\n\n{GENERATED}",
        _fenced("", _help(())),
        *map(_command_section, COMMANDS),
        _errors_section(),
        _options_section(),
    ]
    return "\n\n".join(parts) + "\n"


def diagnostics_page() -> str:
    """docs/diagnostics.md: a table of all codes, then the page of each."""
    intro = (
        "What `validate`, `status` and the log report about a landing zone. *Error*: the table is halted, a new\n"
        "folder stays unconfigured. Braces are filled in. The rules are those of [protocol.md](protocol.md).\n"
        "`mirror-engine explain ME014` prints the same in a terminal."
    )
    rows = (
        (
            f"[{entry.code}](#{entry.code.lower()})",
            entry.name,
            _severity(entry.severity, entry.severity_strict),
            entry.template,
            entry.help or "-",
            ", ".join(entry.rules),
        )
        for entry in CATALOG.values()
    )
    table = _table(("code", "name", "severity", "message", "help", "rules"), rows)
    pages = "\n\n".join(_explained(code) for code in CATALOG)
    return f"# Diagnostics\n\n{GENERATED}\n\n{intro}\n\n{table}\n\n{pages}\n"


def main(arguments: list[str]) -> None:
    """Write both pages into the folder named, and the rules of its protocol.md into the package."""
    folder = Path(arguments[0])
    rules = rules_page((folder / "protocol.md").read_text(encoding="utf-8"))
    (PACKAGE / "explain" / RULES_FILE).write_text(rules, encoding="utf-8")
    (folder / "cli.md").write_text(cli_page(), encoding="utf-8")
    (folder / "diagnostics.md").write_text(diagnostics_page(), encoding="utf-8")


def _explained(code: str) -> str:
    """The page of one diagnostic, under a heading that can be linked to."""
    page = explanation(code)
    facts = (
        f"`{page.definition.name}`: {page.definition.template} ({page.severity}; {', '.join(page.definition.rules)})"
    )
    return f"## {code}\n\n**{page.title}.** {facts}\n\n{page.markdown}"


def _command_section(name: str) -> str:
    shape = getattr(sys.modules[f"mirror_engine.cli.{name}"], "JSON", None)
    printed = f"\n\nWith `--json`:\n\n{_fenced('json', _json(shape))}"
    return f"## {name}\n\n{_fenced('', _help((name,)))}{printed}"


def _help(path: tuple[str, ...]) -> str:
    """The help as a terminal of `WIDTH` columns shows it."""
    command: Any = program()
    context = typer.Context(command, info_name=PROGRAM, terminal_width=WIDTH, help_option_names=["-h", "--help"])
    for name in path:
        command = command.commands[name]
        context = typer.Context(command, info_name=name, parent=context)
    return "\n".join(text.rstrip() for text in command.get_help(context).splitlines())


def _errors_section() -> str:
    error = {"error": {"kind": "ConfigError", "message": "…", "help": "…", "exit_code": exit_codes.USAGE}}
    return "## Errors\n\nA message and help on stderr, never a traceback; with `--json` one object:\n\n" + _fenced(
        "json", _json(error)
    )


def _options_section() -> str:
    rows = (
        (
            f"`{option_name(name)}`",
            f"`{flag_of(name)}`",
            f"`{ENVIRONMENT_PREFIX}{option_name(name).upper()}`",
            option.kind.allowed,
            f"`{default_text(name, getattr(Config, name)) or '(empty)'}`",
            option.about,
        )
        for name, option in options().items()
    )
    return (
        f"## Options\n\nA flag wins over its variable, a variable over `{CONFIG_FILE}` (in ROOT, or `--config`).\n\n"
        + _table(("name in TOML", "flag", "variable", "allowed", "default", "what it does"), rows)
    )


def _severity(usual: Severity, strict: Severity) -> str:
    return usual.value if usual is strict else f"{usual.value}, {strict.value} under `strict`"


def _table(headings: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    return "\n".join(_lines(headings, rows))


def _lines(headings: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> Iterator[str]:
    yield f"|{'|'.join(headings)}|"
    yield f"|{'|'.join('---' for _ in headings)}|"
    for row in rows:
        yield f"|{'|'.join(text.replace('|', chr(92) + '|') for text in row)}|"


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, indent=2)


def _fenced(language: str, text: str) -> str:
    return f"```{language or 'text'}\n{text}\n```"


if __name__ == "__main__":
    main(sys.argv[1:])
