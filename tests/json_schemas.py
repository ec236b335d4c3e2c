"""What commands print and log as JSON, checked against its schema."""

from __future__ import annotations

import json
from functools import cache

from jsonschema import Draft202012Validator

from mirror_engine.cli.schema import schema_of


@cache
def strict(name):
    """A validator of a command's document, or of an error, with all of its fields and no others."""
    return Draft202012Validator(_closed(schema_of(name)))


def _closed(value, *, is_part=False):
    """A schema whose objects have no other properties than it names; the parts of an object are judged together."""
    if isinstance(value, list):
        return [_closed(inner, is_part=is_part) for inner in value]
    if not isinstance(value, dict):
        return value
    inner = {name: _closed(each, is_part=name in {"allOf", "anyOf"}) for name, each in value.items() if name != "$defs"}
    if "$defs" in value:
        inner["$defs"] = {name: _closed(each, is_part=True) for name, each in value["$defs"].items()}
    is_whole = not is_part and value.keys() & {"properties", "$ref", "allOf", "anyOf"}
    return inner | ({"unevaluatedProperties": False} if is_whole else {})


def faults(document):
    """Where a document or a log line differs from its schema."""
    if "event" in document:
        return [f"{error.json_path}: {error.message}" for error in strict("log").iter_errors(document)]
    name = "error" if "error" in document else document["command"].replace(" ", "-")
    return [f"{error.json_path}: {error.message}" for error in strict(name).iter_errors(document)]


def check(*outputs):
    """Check every JSON document among the lines of these outputs."""
    for line in "".join(outputs).splitlines():
        if line.startswith(('{"schema_version"', '{"time"')):
            found = faults(json.loads(line))
            assert found == [], f"{found}; its schema is made of the command's result, or in mirror_engine/cli/schemas"
