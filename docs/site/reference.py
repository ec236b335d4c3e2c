"""Reference pages made from the code: commands, options, JSON, diagnostics, fixtures, states and log events.

Run as a program it writes `mirror_engine/explain/rules.md`, the rules that `mirror-engine explain` quotes.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from json_examples import ERROR, documents

from mirror_engine.cli import exits, schema
from mirror_engine.cli.main import ALL_COMMANDS, COMMANDS, PROGRAM, program
from mirror_engine.cli.options import CONTEXT, WIDTH, default_text
from mirror_engine.config import ENVIRONMENT_PREFIX, flag_of, option_name, options
from mirror_engine.explain.pages import explanation, rules_in, sections_of
from mirror_engine.landing_zone.diagnostics import CATALOG, diagnose
from mirror_engine.landing_zone.listing import unlisted
from mirror_engine.landing_zone.names import TableName
from mirror_engine.landing_zone.progress import Progress
from mirror_engine.landing_zone.states import (
    Behind,
    Blocked,
    CaughtUp,
    Deleted,
    Empty,
    Halted,
    Loading,
    Unconfigured,
    Unlisted,
)
from mirror_engine.landing_zone.text import front_matter
from mirror_engine.monitoring import state_text
from mirror_engine.monitoring.fabric_files import fabric_status
from mirror_engine.testing.cases import load, names, text_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from mirror_engine.landing_zone.diagnostics import Severity
    from mirror_engine.landing_zone.states import TableState

HOME = Path(__file__).parents[2]
DOCS = HOME / "docs"
GLOBAL_TOPICS = ("Global options", *dict.fromkeys(option.topic for option in options().values()))
CLI, DIAGNOSTICS, SCHEMAS = "reference/cli", "reference/diagnostics", "reference/schemas"
FIXTURES = "reference/fixtures"
_FIXTURE_NAMES = [name for name in names() if name not in CATALOG]  # a code's case is on its own page


def reference_pages() -> dict[str, str]:
    """A page for each command, diagnostic and fixture, as Markdown by its path below docs/."""
    return {
        **{f"{CLI}/{name.replace(' ', '-')}.md": command_page(name) for name in ALL_COMMANDS},
        **{f"{DIAGNOSTICS}/{code}.md": diagnostic_page(code) for code in CATALOG},
        **{f"{FIXTURES}/{name}.md": fixture_page(name) for name in _FIXTURE_NAMES},
    }


def fixture_list() -> str:
    """Every golden fixture with its title."""
    return table(("fixture", "what it shows"), ((f"[{name}]({name}.md)", load(name).title) for name in _FIXTURE_NAMES))


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


def commands() -> str:
    """The program's own help up to its commands, then these by heading."""
    parts = [fenced("text", help_of(()).partition("\n\nReplicate:")[0])]
    for heading, group in COMMANDS.items():
        rows = ((f"[`{name}`]({name.replace(' ', '-')}.md)", about) for name, (_, about) in group.items())
        parts.append(f"## {heading}\n\n{table(('command', ''), rows)}")
    return "\n\n".join(parts)


def exit_codes() -> str:
    """The exit codes that all commands have."""
    return table(("code", "meaning"), ((str(code), meaning) for code, meaning in exits.MEANINGS.items()))


def command_page(name: str) -> str:
    """The help of one command, links to the options that it shares with others, and its JSON."""
    sections = help_of(tuple(name.split())).split("\n\n")
    shared = [topic for text in sections if (topic := text.partition(":\n")[0]) in GLOBAL_TOPICS]
    own = "\n\n".join(text for text in sections if text.partition(":\n")[0] not in GLOBAL_TOPICS)
    places = {topic: "index.md" if topic == "Global options" else "../configuration.md" for topic in shared}
    links = (f"[{topic}]({place}#{topic.lower().replace(' ', '-')})" for topic, place in places.items())
    page = f"---\nhide: [toc]\n---\n\n# {name}\n\n{fenced('text', own)}\n\nMore options: {', '.join(links)}.\n"
    file = name.replace(" ", "-")
    if file in schema.NAMES:
        page += f"\n## JSON\n\n`--json` prints a document of [this schema](../../{SCHEMAS}/{file}.schema.json).\n"
    if example := documents().get(name):
        page += f"\nAn example, with the first entries of each list:\n\n{_json(example)}\n"
    return page


def global_options() -> str:
    """The options that all commands have."""
    sections = help_of(("sync",)).split("\n\n")
    return fenced("text", next(text for text in sections if text.startswith("Global options:")))


def help_of(path: Sequence[str]) -> str:
    """Help as a terminal of `WIDTH` columns shows it."""
    command: click.Command | None = program()
    context = click.Context(program(), info_name=PROGRAM, terminal_width=WIDTH, **CONTEXT)
    for name in path:
        command = command.get_command(context, name) if isinstance(command, click.Group) else None
        context = click.Context(command or program(), info_name=name, parent=context)
    return "\n".join(text.rstrip() for text in (command or program()).get_help(context).splitlines())


def option_list() -> str:
    """Every option by topic: its names, allowed values and default."""
    parts = []
    for topic in dict.fromkeys(option.topic for option in options().values()):
        parts.append(f"## {topic}")
        for name, option in options().items():
            if option.topic == topic:
                shown = {
                    "flag": f"`{flag_of(name)}`",
                    "variable": f"`{ENVIRONMENT_PREFIX}{option_name(name).upper()}`",
                    "allowed": option.kind.allowed,
                    "default": f"`{default_text(name) or '(empty)'}`",
                }
                heading = f"### `{option_name(name)}` {{#{option_name(name)}}}"
                parts.append(f"{heading}\n\n{option.about}\n\n{facts(shown)}")
    return "\n\n".join(parts)


def json_commands() -> str:
    """The commands that print JSON, each with its example."""
    return ", ".join(
        f"[`{name}`](cli/{name.replace(' ', '-')}.md#json)" for name in ALL_COMMANDS if name in documents()
    )


def schema_files() -> dict[str, str]:
    """Every JSON schema as a file, by its path below docs/."""
    return {
        f"{SCHEMAS}/{name}.schema.json": json.dumps(schema.schema_of(name), indent=2, ensure_ascii=False) + "\n"
        for name in schema.NAMES
    }


def schemas() -> str:
    """A table of all JSON schemas."""
    rows = ((f"[{name}](schemas/{name}.schema.json)", schema.schema_of(name)["description"]) for name in schema.NAMES)
    return table(("schema", "of"), rows)


def json_error() -> str:
    """What a command with `--json` prints on stderr where it fails."""
    return _json(documents()[ERROR])


def _json(document: Mapping[str, Any]) -> str:
    return fenced("json", json.dumps(document, indent=2, ensure_ascii=False))


def log_events() -> str:
    """Every event of the log with its level and fields."""
    rows = []
    for each in schema.schema_of(schema.LOG)["anyOf"]:
        known = {**each["properties"]}
        name, level = known.pop("event")["const"], known.pop("level")
        levels = " or ".join(level.get("enum") or [level["const"]])
        rows.append((f"`{name}`", levels, ", ".join(f"`{field}`" for field in known), each["description"]))
    return table(("event", "level", "fields", "when"), rows)


def diagnostics() -> str:
    """A table of all codes."""
    rows = (
        (
            f"[{entry.code}]({entry.code}.md)",
            entry.name,
            severity(entry.severity, entry.severity_strict),
            entry.template,
        )
        for entry in CATALOG.values()
    )
    return table(("code", "name", "severity", "message"), rows)


def diagnostic_page(code: str) -> str:
    """One diagnostic: its facts and its explanation."""
    page, entry = explanation(code), CATALOG[code]
    shown = {
        "name": f"`{entry.name}`",
        "severity": severity(entry.severity, entry.severity_strict),
        "message": entry.template,
        "help": entry.help,
        "rules": ", ".join(entry.rules),
        "shown by": f"`{case.shown_by}`" if (case := load(code)).shown_by else "",
    }
    return f"# {code}: {page.title}\n\n{facts(shown)}\n\n{page.markdown}\n"


def states() -> str:
    """Every state of a table: its sentence, its help, and the status that Fabric shows."""
    file, known = "00000000000000000003.csv", Progress("one", "")
    committed = replace(known, delta_version=1)
    examples: list[tuple[str, TableState, Progress | None]] = [
        (
            "",
            Unconfigured(
                diagnose(
                    "ME008", "Sales.schema/Orders", count=3, help="add `_metadata.json`; it may arrive after the files"
                ),
                3,
            ),
            None,
        ),
        ("", Empty(expired=False), known),
        ("after 14 days: ", Empty(expired=True), known),
        ("", Loading(2), known),
        ("", Behind(2), committed),
        ("", CaughtUp(), committed),
        ("", Blocked(file, 2), committed),
        ("", Halted(diagnose("ME037", f"Sales.schema/Orders/{file}", row=1, value="7", meant=""), 2), committed),
        ("", Deleted(diagnose("ME065", "Sales.schema/Orders", effect="its Delta table will be dropped")), committed),
        ("", Unlisted(unlisted("Sales.schema/Orders", "is a symbolic link")), committed),
    ]
    sections: dict[str, dict[str, str]] = {}
    for when, state, progress in examples:
        shown = {
            "when": " ".join((state.__doc__ or "").split()),
            f"{when}sentence": state_text.describe(TableName("Sales", "Orders"), state),
            f"{when}help": state_text.help_for(state, engine_running=False),
            f"{when}Fabric's table status": fabric_status(state, progress) or "not listed",
        }
        sections[state.code] = sections.get(state.code, {}) | shown
    return "\n\n".join(f"## `{code}` {{#{code}}}\n\n{facts(shown)}" for code, shown in sections.items())


def severity(usual: Severity, strict: Severity) -> str:
    """`warning, error under `strict``."""
    return usual.value if usual is strict else f"{usual.value}, {strict.value} under `strict`"


def table(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A Markdown table; bars in cells are escaped."""
    lines = [f"|{'|'.join(headings)}|", f"|{'|'.join('---' for _ in headings)}|"]
    lines += [f"|{'|'.join(text.replace('|', chr(92) + '|') for text in row)}|" for row in rows]
    return "\n".join(lines)


def facts(shown: Mapping[str, str]) -> str:
    """A table of names and values, without those that are empty."""
    return table(("", ""), ((name, text) for name, text in shown.items() if text))


def fenced(language: str, text: str) -> str:
    """A fenced block."""
    return f"```{language}\n{text}\n```"


def rules_page(protocol: str) -> str:
    """The rules of the protocol and nothing else, for the package."""
    parts = []
    for rule in rules_in(protocol).values():
        chapter = rule.name.removeprefix("LZ-")
        heading = f"- {rule.name} {rule.text}" if "." in chapter else f"## {chapter}. \n\n{rule.text}"
        parts.append("\n".join([heading, *(f"    - {note}" for note in rule.notes), *rule.rows]))
    return "\n".join(parts) + "\n"


if __name__ == "__main__":
    protocol = (DOCS / "protocol.md").read_text(encoding="utf-8")
    (HOME / "mirror_engine/explain/rules.md").write_text(rules_page(protocol), encoding="utf-8")
