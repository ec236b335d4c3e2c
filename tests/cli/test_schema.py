"""JSON schemas: valid ones, of what is printed, and of one opinion with the parsers of files."""

from __future__ import annotations

import inspect
import json
import tomllib
from itertools import product
from pathlib import Path
from typing import get_args

import pytest
from jsonschema import Draft202012Validator

from mirror_engine.cli.main import ALL_COMMANDS, command_named
from mirror_engine.cli.schema import NAMES, schema_of
from mirror_engine.config import CONFIG_FILE, load, option_name, options
from mirror_engine.errors import ConfigError
from mirror_engine.landing_zone.metadata import PROPERTIES, TYPES, FileFormat, Strategy, parse, parse_partner_events
from mirror_engine.landing_zone.states import TableState
from mirror_engine.results import Part
from mirror_engine.testing import cases

HOME = Path(__file__).parents[2]
METADATA, PARTNER, CONFIG = (Draft202012Validator(schema_of(name)) for name in ("metadata", "partner-events", "config"))
# What JSON Schema cannot say: two spellings of one name, two columns of one name, .NET's names of encodings
BEYOND = {"ME011: given twice", "ME011: declared twice", "ME056: Encoding"}


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_each_is_a_schema_that_says_what_it_is_of_and_needs_no_other_file(name, cli):
    found = schema_of(name)
    Draft202012Validator.check_schema(found)
    assert found["description"]
    assert json.loads(cli("schema", name.replace("-", " ")).out) == found
    assert json.loads(cli("schema", name, "--json").out)["schemas"][0]["schema"] == found
    references = json.dumps(found).split('"$ref": "')[1:]
    assert {each.partition('"')[0] for each in references} == {f"#/$defs/{each}" for each in found.get("$defs", ())}


def parts_below(kind):
    return [part for each in kind.__subclasses__() for part in (each, *parts_below(each))]


def test_docstrings_describe_fields_that_exist():
    for name in ALL_COMMANDS:
        command_named(name)  # imports its results
    assert len(parts_below(Part)) > 10
    for kind in parts_below(Part):
        listed = inspect.cleandoc(kind.__doc__ or "").partition("Attributes:\n")[2]
        named = {line.partition(": ")[0].strip() for line in listed.splitlines() if line[4:5].strip()}
        assert named <= {*kind.__struct_fields__}, kind


def test_unknown_schema_name_is_an_error_and_names_are_listed(cli):
    assert [line.split()[0] for line in cli("schema").out.splitlines()[1:]] == list(NAMES)
    wrong = cli("schema", "metadat")
    assert (wrong.code, "did you mean metadata?" in wrong.err) == (2, True)
    assert "did you mean" not in cli("schema", "xyz").err


def test_states_types_and_properties_are_those_of_the_code():
    states = [state.code for state in get_args(TableState)]
    assert sorted(schema_of("status")["$defs"]["StatusTable"]["properties"]["state"]["enum"]) == sorted(states)
    properties = schema_of("metadata")["properties"]
    text = schema_of("metadata")["then"]["properties"]
    assert properties.keys() | text.keys() == PROPERTIES
    for name, words in (("fileDetectionStrategy", Strategy), ("FileFormat", FileFormat)):
        assert f'"enum": {json.dumps([word.value for word in words])}' in json.dumps(properties[name])
    assert f'"enum": {json.dumps(list(TYPES))}' in json.dumps(schema_of("metadata")["$defs"])


def is_beyond(diagnostics):
    """Whether metadata is rejected for nothing but what a schema cannot say."""
    errors = [found for found in diagnostics if found.severity.value == "error"]
    return all(
        any(f"{found.code}: " in each and each.partition(": ")[2] in found.message for each in BEYOND)
        for found in errors
    )


def agree(content):
    """Judge metadata by parser and schema."""
    metadata, diagnostics = parse(content, "T/_metadata.json")
    try:
        errors = list(METADATA.iter_errors(json.loads(content.decode("utf-8-sig"))))
    except ValueError:
        assert metadata is None
        return
    if metadata is None and not errors:
        assert is_beyond(diagnostics), (content, diagnostics)
    else:
        assert (metadata is None) == bool(errors), (content, diagnostics, errors)


@pytest.mark.slow
def test_the_metadata_of_every_fixture_is_judged_as_by_the_parser():
    files = [file for name in cases.names() for stage in cases.load(name).stages for file in stage.files]
    contents = {file.content for file in files if file.path.endswith("/_metadata.json")}
    assert len(contents) > 60
    for content in contents:
        agree(content)


WORDS = "true FALSE yes x . .csv CSV csv.gz a.parquet a/b s.json delimitedtext PARQUET TAB UTF-8 \\R\\N | '"
VALUES = [None, True, False, 1, 1.5, *WORDS.split(), "", " csv", "\r\n", "lastupdatetimefiledetection"]
VALUES += [[], [""], ["id"], ["id", ""], ["__ROWMARKER__"], [1]]
VALUES += [{}, {"Columns": []}, {"Columns": {}}, {"columns": [{"name": "a", "datatype": "int32"}]}]
VALUES += [{"Columns": [column]} for column in ({"Name": "a"}, {"Name": "__RowMarker__"})]
VALUES += [{"Columns": [{"Name": "", "DataType": "String"}]}, {"$schema": "s"}, {"Encoding": 1, "x": 2}]
VALUES += [{"Columns": [{"Name": "a", "DataType": "Int32", "IsNullable": "maybe"}]}, {"firstrowasheader": False}]
VALUES += [{"FirstRowAsHeader": "TRUE", "ColumnSeparator": ";"}]
GOOD = {"Columns": [{"Name": "a", "DataType": "Int32", "IsNullable": True}]}
GROUNDS = [{}, {"SchemaDefinition": GOOD}, {"FileFormat": "Parquet", "SchemaDefinition": {"Columns": 1}}]
GROUNDS += [{"FileFormat": "CSV", "SchemaDefinition": GOOD}, {"fileformat": "DelimitedText", "schemadefinition": GOOD}]


@pytest.mark.parametrize("ground", GROUNDS, ids=json.dumps)
@pytest.mark.slow
def test_any_value_of_any_property_is_judged_as_by_the_parser(ground):
    for name, value in product([*sorted(PROPERTIES), "Unknown", "KEYCOLUMNS", "fileextension"], VALUES):
        other = {key: known for key, known in ground.items() if key.casefold() != name.casefold()}
        agree(json.dumps({**other, name: value}).encode())


@pytest.mark.parametrize("value", [[], "x", None, 1])
def test_metadata_and_partner_events_are_objects(value):
    agree(json.dumps(value).encode())
    assert not PARTNER.is_valid(value)
    assert parse_partner_events(json.dumps(value).encode()) is None


def test_partner_events_in_the_documented_form_are_valid():
    text = next(
        line for line in (HOME / "docs/protocol.md").read_text("utf-8").splitlines() if '{"partnerName"' in line
    )
    assert PARTNER.is_valid(json.loads(text))
    assert not PARTNER.is_valid({"PartnerName": 1})


TOML = ["true", "false", "1", "0", "-1", "1.5", "31", "300", "[1]", "''", "' 7 d '"]
TEXTS = "1 on YES auto off idle none lowest 5s 500MS 7d 1GiB 256mb 1.5k 2g x/y dbo "
TEXTS += "spark keep fabric cluster insert-only untyped ntz both local[2]"
TOML += [f"'{text}'" for text in TEXTS.split()]


@pytest.mark.slow
def test_every_value_of_every_option_is_judged_as_by_the_configuration(tmp_path):
    for name, text in product([*map(option_name, options()), "unknown"], TOML):
        (tmp_path / CONFIG_FILE).write_text(f'"$schema" = "config.schema.json"\n{name} = {text}\n', encoding="utf-8")
        document = tomllib.loads((tmp_path / CONFIG_FILE).read_text(encoding="utf-8"))
        try:
            load(tmp_path, {}, {})
            is_good = True
        except ConfigError:
            is_good = False
        assert CONFIG.is_valid(document) is is_good, (name, text)


def test_a_schema_named_in_metadata_is_no_finding():
    content = b'{"$schema": "./metadata.schema.json", "keyColumns": ["id"]}'
    assert parse(content, "T/_metadata.json")[1] == ()
