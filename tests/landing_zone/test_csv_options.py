from __future__ import annotations

import json

import pytest

from mirror_engine.landing_zone.csv_dialect import TextDialect
from mirror_engine.landing_zone.metadata import parse

PATH = "Orders/_metadata.json"
TEXT = {
    "keyColumns": ["Id"],
    "FileFormat": "CSV",
    "SchemaDefinition": {"Columns": [{"Name": "Id", "DataType": "Int32"}]},
}


def usable(properties):
    metadata, said = parse(json.dumps(properties).encode(), PATH)
    assert metadata is not None, [diagnostic.full_message for diagnostic in said]
    return metadata


def codes(properties):
    return [diagnostic.code for diagnostic in parse(json.dumps(properties).encode(), PATH)[1]]


def first(properties):
    metadata, said = parse(json.dumps(properties).encode(), PATH)
    assert metadata is None
    return said[0].full_message


def options(**given_options):
    return usable({**TEXT, "FileFormatTypeProperties": given_options}).dialect


def test_declared_types_become_deltas():
    words = {
        "String": "string",
        "Int16": "short",
        "int32": "integer",
        "INT64": "long",
        "Single": "float",
        "Double": "double",
        "Boolean": "boolean",
        "DateTime": "timestamp",
        "IDate": "date",
        "ITime": "string",
        "ByteArray": "binary",
    }
    columns = [{"Name": f"c{at}", "DataType": name, "IsNullable": True} for at, name in enumerate(words)]
    metadata = usable({**TEXT, "SchemaDefinition": {"Columns": columns}})
    assert [column.type for column in metadata.declared_columns] == [*words.values()]
    assert metadata.time_columns == {"c9"}


def test_a_declared_column_is_not_null_unless_it_says_so():
    columns = [{"Name": "Id", "DataType": "Int32"}, {"Name": "City", "DataType": "String", "IsNullable": "true"}]
    metadata = usable({**TEXT, "SchemaDefinition": {"Columns": columns}})
    assert [column.nullable for column in metadata.declared_columns] == [False, True]


def test_a_declared_row_marker_changes_nothing():
    columns = [{"Name": "Id", "DataType": "Int32"}, {"Name": "__rowmarker__", "DataType": "Int32"}]
    assert usable({**TEXT, "SchemaDefinition": {"Columns": columns}}) == usable(TEXT)


def test_a_not_null_column_outside_the_key_is_warned_of():
    columns = [{"Name": "ID", "DataType": "Int32"}, {"Name": "City", "DataType": "String"}]
    _, said = parse(json.dumps({**TEXT, "SchemaDefinition": {"Columns": columns}}).encode(), PATH)
    assert [(diagnostic.code, diagnostic.column) for diagnostic in said] == [("ME059", "City")]


@pytest.mark.parametrize(
    ("column", "fault"),
    [
        ({"Name": "a", "DataType": "Decimal"}, 'DataType of column a is "Decimal", expected String, Int16'),
        ({"Name": "a"}, "DataType of column a is absent"),
        ({"DataType": "String"}, "Name of column 2 is absent"),
        ({"Name": "", "DataType": "String"}, 'Name of column 2 is "", expected a name'),
        ({"Name": "ID", "DataType": "String"}, "column Id is declared twice"),
        ({"Name": "a", "DataType": "String", "IsNullable": "maybe"}, 'IsNullable of column a is "maybe"'),
    ],
)
def test_faulty_columns_are_named(column, fault):
    columns = [{"Name": "Id", "DataType": "Int32"}, column]
    assert fault in first({**TEXT, "SchemaDefinition": {"Columns": columns}})


@pytest.mark.parametrize("definition", [{}, {"Columns": []}, {"Columns": "Id"}, {"Columns": ["Id"]}, "Id"])
def test_a_schema_without_columns_is_unusable(definition):
    assert "SchemaDefinition" in first({**TEXT, "SchemaDefinition": definition})


def test_text_options_may_be_nested_or_flat():
    flat = usable({**TEXT, "ColumnSeparator": ";", "nullvalue": "N/A"}).dialect
    assert flat == options(ColumnSeparator=";", NullValue="N/A") == TextDialect(column_separator=";", null_value="N/A")
    both = {**TEXT, "ColumnSeparator": ";", "FileFormatTypeProperties": {"ColumnSeparator": "|"}}
    assert "given twice with two values" in first(both)


SPELLINGS = {
    ("RowSeparator", "row_separator"): {"\n": "\n", "\\r\\n": "\r\n", "\r": "\r"},
    ("ColumnSeparator", "column_separator"): {"\\t": "\t", "Tab": "\t", "|": "|"},
    ("QuoteCharacter", "quote"): {"'": "'", "": ""},
    ("EscapeCharacter", "escape"): {"/": "/", '"': '"', "": ""},
    ("NullValue", "null_value"): {"NULL": "NULL"},
    ("Encoding", "encoding"): {
        "utf8": "utf-8",
        "UTF-8 without BOM": "utf-8",
        "Unicode": "utf-16-le",
        "utf-16BE": "utf-16-be",
        "us-ascii": "ascii",
        "ISO-8859-1": "iso8859-1",
        "Windows-1252": "cp1252",
        "windows-874": "cp874",
        "IBM00858": "cp858",
        "shift_jis": "shift-jis",
    },
}


@pytest.mark.parametrize(("option", "field"), SPELLINGS)
def test_text_options_are_read_in_every_spelling(option, field):
    spellings = SPELLINGS[option, field]
    assert {written: getattr(options(**{option: written}), field) for written in spellings} == spellings


OTHERS = {
    "FirstRowAsHeader": [False, "no"],
    "RowSeparator": [";"],
    "ColumnSeparator": ["", ":"],
    "QuoteCharacter": ['""'],
    "EscapeCharacter": ["^"],
    "NullValue": [0],
    "Encoding": ["klingon", "base64", "hex", "rot13", "idna", "UTF-7", "mbcs", "../etc", "utf\u00e48", "a\x00b", 65001],
}


@pytest.mark.parametrize(("option", "written"), [(option, value) for option in OTHERS for value in OTHERS[option]])
def test_other_text_options_are_rejected(option, written):
    message = first({**TEXT, "FileFormatTypeProperties": {option: written}})
    assert message.startswith(f"{PATH}: `{option}` is ")
    assert message.endswith("[ME056]")


def test_the_header_may_be_declared_as_text():
    assert codes({**TEXT, "FileFormatTypeProperties": {"FirstRowAsHeader": "true"}}) == ["ME013"]
