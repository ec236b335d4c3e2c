"""Writes generated pages: docs/cli.md, docs/diagnostics.md, and the rules that `explain` shows.

Run it as `python tests/reference_pages.py`.
"""

from __future__ import annotations

from pathlib import Path

import click

from mirror_engine.cli import exits
from mirror_engine.cli.main import COMMANDS, PROGRAM, program
from mirror_engine.cli.options import CONTEXT, WIDTH, default_text
from mirror_engine.config import CONFIG_FILE, ENVIRONMENT_PREFIX, flag_of, option_name, options
from mirror_engine.explain.pages import explanation, rules_in
from mirror_engine.landing_zone.diagnostics import CATALOG

HOME = Path(__file__).parents[1]
DOCS = HOME / "docs"
JSON_EXAMPLES = DOCS / "examples/json"  # of each command's document; a test compares their shape with real output
ERRORS = "`error: …` and `help: …` on stderr, never a traceback; with `--json` one document:"
GENERATED = "<!-- Generated: python tests/reference_pages.py -->"
GLOBAL_TOPICS = ("Global options", *dict.fromkeys(option.topic for option in options().values()))


def cli_page():
    """docs/cli.md: the help of each command without shared options, its JSON, and all options once."""
    intro = (
        "Output: results on stdout, everything else on stderr; where stdout cannot be written, stderr says so, and\n"
        "commands that only read end with 1. Times are UTC. With `--json` each command prints one\n"
        "JSON document on a line; `schema_version` changes when a field is renamed or removed."
    )
    parts = [f"# The command line\n\n{GENERATED}\n\n{intro}", _fenced("text", _help(()))]
    for heading, names in COMMANDS.items():
        parts += [f"## {heading}", *map(_command_section, names)]
    codes = _table(("code", "meaning"), ((str(code), meaning) for code, meaning in exits.MEANINGS.items()))
    error = (JSON_EXAMPLES / "error.json").read_text(encoding="utf-8").strip()
    parts += [f"## Exit codes\n\n{codes}", f"## Errors\n\n{ERRORS}\n\n{_fenced('json', error)}", _options_section()]
    return "\n\n".join(parts) + "\n"


def _command_section(name):
    example = JSON_EXAMPLES / f"{name.replace(' ', '-')}.json"
    shown = example.read_text(encoding="utf-8").strip() if example.exists() else ""
    printed = f"\n\nWith `--json`:\n\n{_fenced('json', shown)}" if shown else ""
    return f"### {name}\n\n{_fenced('text', _help(tuple(name.split())))}{printed}"


def _help(path):
    """Help as a terminal of `WIDTH` columns shows it; of a command without the options that are listed once."""
    command = program()
    context = click.Context(command, info_name=PROGRAM, terminal_width=WIDTH, **CONTEXT)
    for name in path:
        command = command.get_command(context, name)
        context = click.Context(command, info_name=name, parent=context)
    sections = command.get_help(context).split("\n\n")
    kept = [text for text in sections if not path or text.partition(":\n")[0] not in GLOBAL_TOPICS]
    topics = [text.partition(":\n")[0] for text in sections if text not in kept]
    more = [f"Also: {', '.join(topics)}; see Options below."] if len(topics) > 1 else []
    return "\n".join(text.rstrip() for text in "\n\n".join([*kept, *more]).splitlines())


def _options_section():
    intro = (
        "## Options\n\nA flag wins over its variable, a variable over "
        f"`{CONFIG_FILE}` (in ROOT, or `--config`). `status`, `wait`, `plan` and `trace` take the options of the "
        "running engine, unless a flag says otherwise. Durations are `500ms`, `60s`, `5m`, `2h`, `7d`, or seconds; "
        "sizes are `256MB`, `1GiB`, or bytes."
    )
    parts = [intro]
    for topic in dict.fromkeys(option.topic for option in options().values()):
        rows = (
            (
                f"`{option_name(name)}`",
                f"`{flag_of(name)}`",
                f"`{ENVIRONMENT_PREFIX}{option_name(name).upper()}`",
                option.kind.allowed,
                f"`{default_text(name) or '(empty)'}`",
                option.about,
            )
            for name, option in options().items()
            if option.topic == topic
        )
        table = _table(("name in TOML", "flag", "variable", "allowed", "default", "what it does"), rows)
        parts.append(f"### {topic}\n\n{table}")
    return "\n\n".join(parts)


def diagnostics_page():
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


def _explained(code):
    """The page of one diagnostic, under a heading that can be linked to."""
    page = explanation(code)
    entry = page.definition
    facts = f"`{entry.name}`: {entry.template} ({page.severity}; {', '.join(entry.rules)})"
    return f"## {code}\n\n**{page.title}.** {facts}\n\n{page.markdown}"


def _severity(usual, strict):
    return usual.value if usual is strict else f"{usual.value}, {strict.value} under `strict`"


def _table(headings, rows):
    lines = [f"|{'|'.join(headings)}|", f"|{'|'.join('---' for _ in headings)}|"]
    lines += [f"|{'|'.join(text.replace('|', chr(92) + '|') for text in row)}|" for row in rows]
    return "\n".join(lines)


def _fenced(language, text):
    return f"```{language}\n{text}\n```"


def rules_page(protocol):
    """The rules of the protocol and nothing else, for the package."""
    parts = []
    for rule in rules_in(protocol).values():
        chapter = rule.name.removeprefix("LZ-")
        heading = f"- {rule.name} {rule.text}" if "." in chapter else f"## {chapter}. \n\n{rule.text}"
        parts.append("\n".join([heading, *rule.rows]))
    return "\n".join(parts) + "\n"


def main():
    """Write both pages into docs/, and the rules of docs/protocol.md into the package."""
    rules = rules_page((DOCS / "protocol.md").read_text(encoding="utf-8"))
    (HOME / "mirror_engine/explain/rules.md").write_text(rules, encoding="utf-8")
    (DOCS / "cli.md").write_text(cli_page(), encoding="utf-8")
    (DOCS / "diagnostics.md").write_text(diagnostics_page(), encoding="utf-8")


if __name__ == "__main__":
    main()
