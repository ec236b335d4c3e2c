"""`schema`: JSON schemas of files that publishers and users write, and of what commands print with `--json` and log.

Those of documents are made of the commands' results, that of the options of `Config`. Those of a publisher's files and
of the log are in `schemas/`, without what follows from a rule, which is added here.
"""

from __future__ import annotations

import inspect
import json
import re
import sys
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any, get_args

import click
from msgspec import UNSET, UnsetType

from mirror_engine import display
from mirror_engine.cli.main import ALL_COMMANDS, command_named
from mirror_engine.cli.options import command, default_text
from mirror_engine.cli.output import SCHEMA_VERSION, report, wants_json
from mirror_engine.config import any_case, option_name, options
from mirror_engine.errors import UsageError
from mirror_engine.results import CommandError, Part, Result

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import UnionType

    Schema = dict[str, Any]

DIALECT = "https://json-schema.org/draft/2020-12/schema"
CONFIG, ERROR, LOG = "config", "error", "log"
OF_FILES = ("metadata", "partner-events")
_OUTPUTS = {name.replace(" ", "-"): name for name in ALL_COMMANDS if name != "emulator exec"}  # it prints nothing
NAMES = (*OF_FILES, CONFIG, *_OUTPUTS, ERROR, LOG)
_NULL: Schema = {"type": "null"}
_DEFINITION = "#/$defs/"


class NamedSchema(Part, frozen=True):
    """A JSON schema.

    Attributes:
        schema: where it was asked for
    """

    name: str
    about: str
    schema: Mapping[str, Any] | UnsetType = UNSET


class Schemas(Result, frozen=True):
    """The JSON schemas that there are, or one of them."""

    schemas: Sequence[NamedSchema]

    def text(self) -> display.Lines:
        yield display.Grid(["Name", "Schema of"], [[each.name, each.about] for each in self.schemas])


@command(root="own", result=Schemas)
@click.argument(
    "name", required=False, help=f"{', '.join((*OF_FILES, CONFIG, LOG))}, or a command: status, trace-row …"
)
def schema(name: str | None) -> None:
    """Print a JSON schema.

    For editors: the schema of _metadata.json (metadata), _partnerEvents.json (partner-events) or mirror-engine.toml
    (config). For programs: the schema of a command's --json document, or of a log line (log). Without a name, lists all
    names.

    Example: mirror-engine schema metadata > metadata.schema.json

    Exit codes: 0 printed · 2 usage error: there is no such schema
    """
    if name is None:
        report(Schemas([NamedSchema(each, schema_of(each)["description"]) for each in NAMES]))
        return
    known = name.replace(" ", "-")
    if known not in NAMES:
        near = get_close_matches(known, NAMES, n=1)
        meant = f"did you mean {near[0]}? " if near else ""
        raise UsageError(f'unknown schema "{name}"', f"{meant}mirror-engine schema lists all")
    found = schema_of(known)
    if wants_json():
        report(Schemas([NamedSchema(known, found["description"], found)]))
    else:
        sys.stdout.write(json.dumps(found, indent=2, ensure_ascii=False) + "\n")


@cache
def schema_of(name: str) -> Schema:
    """The whole JSON schema of one of `NAMES`."""
    if name == CONFIG:
        return _config()
    if name in OF_FILES:
        found = _each(_widened_part, _read(name))
    elif name == LOG:
        found = _complete(_read(name))
    else:
        result = command_named(_OUTPUTS[name]).result if name in _OUTPUTS else CommandError
        command = (
            {"const": _OUTPUTS[name]}
            if name in _OUTPUTS
            else {"enum": [*ALL_COMMANDS, None], "description": "that failed"}
        )
        found = _derived(result, {"schema_version": {"const": SCHEMA_VERSION}, "command": command})
    if not found.get("$defs", True):
        del found["$defs"]
    return {"$schema": DIALECT, "title": f"mirror-engine: {name}", **found}


def _config() -> Schema:
    """The schema of `mirror-engine.toml`."""
    properties: Schema = {"$schema": {"type": "string", "description": "Path of this schema, for editors."}}
    for name, option in options().items():
        default = default_text(name)
        about = f"{option.about} Allowed: {option.kind.allowed}." + (f" Default: {default}." if default else "")
        properties[option_name(name)] = {"description": about, **option.kind.schema}
    about = "Options of a mirror: `mirror-engine.toml`."
    closed = {"properties": properties, "additionalProperties": False}
    return {"$schema": DIALECT, "title": f"mirror-engine: {CONFIG}", "description": about, "type": "object", **closed}


def _derived(result: type[Result] | UnionType | None, envelope: Schema) -> Schema:
    """Derive the schema of one or several result classes: types from annotations, descriptions from docstrings."""
    from msgspec.json import schema_components

    results: Sequence[type[Result]] = get_args(result) or (result,)
    _, parts = schema_components(results, ref_template=f"{_DEFINITION}{{name}}")
    kinds: dict[str, type[Part]] = {}
    pending: list[type[Part]] = [Part]
    while pending:
        below: list[type[Part]] = pending.pop().__subclasses__()
        kinds |= {each.__name__: each for each in below}
        pending += below
    parts = {name: _described(kinds[name], part) if name in kinds else part for name, part in sorted(parts.items())}
    if len(results) > 1:
        about = " ".join(parts[each.__name__]["description"] for each in results)
        several = [{"$ref": f"{_DEFINITION}{each.__name__}"} for each in results]
        found: Schema = {"description": about, "type": "object", "properties": {}, "required": [], "anyOf": several}
    else:
        found = parts.pop(results[0].__name__)
    whole = {"properties": envelope | found["properties"], "required": [*envelope, *found["required"]]}
    return {**found, **whole, "$defs": parts}


def _described(kind: type[Part], part: Schema) -> Schema:
    """The schema of a class with the descriptions of its fields, inherited ones included."""
    meanings: dict[str, str] = {}
    for parent in reversed(kind.__mro__):
        listed = inspect.cleandoc(parent.__doc__ or "").partition("Attributes:\n")[2]
        items = re.sub(r"\n {8,}", " ", listed).splitlines()  # of more lines than one
        meanings |= {name.strip(): about for name, _, about in (item.partition(": ") for item in items)}
    properties = {
        name: {each: value for each, value in inner.items() if each != "default"}
        | ({"description": meanings[name]} if name in meanings else {})
        for name, inner in part["properties"].items()
    }
    about = inspect.cleandoc(kind.__doc__ or "").partition("\n\nAttributes:")[0]
    fields, defaults = kind.__struct_fields__, kind.__struct_defaults__
    optional = {name for name, value in zip(reversed(fields), reversed(defaults), strict=False) if value is UNSET}
    required = [name for name in fields if name not in optional]
    return {"description": " ".join(about.split()), "type": "object", "properties": properties, "required": required}


def _read(name: str) -> Schema:
    found: Schema = json.loads((files("mirror_engine.cli") / f"schemas/{name}.json").read_text(encoding="utf-8"))
    return found


def _each(change: Callable[[Schema], Schema], value: Any) -> Any:
    """A JSON value with every object in it changed, the inner ones first."""
    if isinstance(value, dict):
        return change({name: _each(change, inner) for name, inner in value.items()})
    return [_each(change, inner) for inner in value] if isinstance(value, list) else value


def _complete(found: Schema) -> Schema:
    """Complete an output schema: every property is always present unless stated otherwise."""

    def with_required(part: Schema) -> Schema:
        has_names = isinstance(part.get("properties"), dict) and "required" not in part
        return {**part, "required": [*part["properties"]]} if has_names else part

    completed: Schema = _each(with_required, found)
    return completed


def _widened_part(part: Schema) -> Schema:
    """Part of a schema of a publisher's file: names and words in any case, null, booleans as text (LZ-2.2, LZ-2.8)."""
    if isinstance(properties := part.get("properties"), dict):
        properties = {name: inner if name == "$schema" else _or_null(inner) for name, inner in properties.items()}
        others = {f"^(?!{name}$){any_case(name)}$": inner for name, inner in properties.items() if name != "$schema"}
        part = {**part, "properties": properties, "patternProperties": others}
    if isinstance(required := part.pop("required", None), list):  # present in some case, and not null
        present = [{"not": {"patternProperties": {f"^{any_case(name)}$": _NULL}}} for name in required]
        part = {**part, "allOf": [*part.get("allOf", ()), *present]}
    if words := [word for word in part.get("enum", ()) if isinstance(word, str) and re.search("[a-z]", word)]:
        pattern = "|".join(map(any_case, words))
        known = {"anyOf": [{"enum": part.pop("enum")}, {"type": "string", "pattern": f"^(?:{pattern})$"}]}
        part = {**part, **known}
    if part.get("type") == "boolean":
        part = {**part, "type": ["boolean", "string"], "pattern": f"^(?:{any_case('true')}|{any_case('false')})$"}
    return part


def _or_null(part: Schema) -> Schema:
    about: Schema = {name: part[name] for name in ("description", "default", "deprecated") if name in part}
    return {**about, "anyOf": [{name: inner for name, inner in part.items() if name not in about}, _NULL]}
