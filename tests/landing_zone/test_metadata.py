from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mirror_engine.landing_zone.json_reader import JsonFault, read_json
from mirror_engine.landing_zone.metadata import (
    MAX_BYTES,
    FileFormat,
    PartnerEvents,
    parse,
    parse_partner_events,
)

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


def codes(content):
    raw = content if isinstance(content, bytes) else json.dumps(content).encode()
    return [diagnostic.code for diagnostic in parse(raw, PATH)[1]]


def first(content):
    raw = content if isinstance(content, bytes) else json.dumps(content).encode()
    metadata, said = parse(raw, PATH)
    assert metadata is None
    return said[0].full_message


@pytest.mark.parametrize("keys", [{}, {"keyColumns": []}, {"keyColumns": [""]}, {"keyColumns": None}])
def test_a_table_without_keys_is_insert_only_and_noted_unless_it_says_so_itself(keys):
    assert usable(keys).key_columns == ()
    assert codes(keys) == ([] if keys.get("keyColumns") == [] else ["ME016"])


@pytest.mark.parametrize("keys", ["Id", 3, [1], ["a", ""], [["a"]], {"a": 1}, ["__ROWMARKER__"]])
def test_keys_that_are_no_names_are_rejected(keys):
    assert "keyColumns is" in first({"keyColumns": keys})


@pytest.mark.parametrize(("written", "meant"), [("true", True), ("False", False), (True, True)])
def test_booleans_may_be_text(written, meant):
    assert usable({"isUpsertDefaultRowMarker": written}).upsert_default is meant
    assert ("ME013" in codes({"isUpsertDefaultRowMarker": written})) is isinstance(written, str)


def test_all_faults_are_reported_at_once_errors_first():
    assert codes({"keyColumns": "Id", "FileFormat": "XML", "x": 1}) == ["ME011", "ME011", "ME012"]


TWICE, THERE, FOLLOWS = "write the backslash twice", "correct it there", "remove what follows"
WORD, UTF_8 = "write the word in quotation marks", "write it in UTF-8"


@pytest.mark.parametrize(
    ("content", "line", "column", "fault", "help"),
    [
        (b'{"keyColumns": ["Id"],\n "fileDetectionStrategy": LastUpdateTime}', 2, 27, "not in quotes", WORD),
        (b'{"a": True}', 1, 7, "not in quotes", "write true"),
        (b'{"EscapeCharacter": "\\",\n "NullValue": "N/A"}', 1, 21, "never closed", TWICE),
        (b'{"keyColumns": ["Id"]', 1, 22, "ends in the middle", "land the whole file"),
        (b'{"keyColumns": ["Id"]} x', 1, 24, "extra data", FOLLOWS),
        (b'{"keyColumns": []} // key', 1, 20, "extra data", "remove what follows"),
        (b'{\n# key\n"keyColumns": []}', 2, 1, "JSON has no comments", "remove the comment"),
        (b'{"keyColumns": /* key */ []}', 1, 16, "JSON has no comments", "remove the comment"),
        (b'{"keyColumns": ["Id" "b"]}', 1, 22, "',' delimiter", THERE),
        (b'{"keyColumns" ["Id"]}', 1, 15, "':' delimiter", THERE),
        (b'{"a": "NaN", "b": -Infinity}', 1, 19, "-Infinity", THERE),
        (b'{"a": "\\q"}', 1, 8, "escape", TWICE),
        (b'{"a": "x\ny"}', 1, 9, "control character", THERE),
        (b'{"a": "x', 1, 7, "nterminated string", "close the text"),
        (b'{\n"a": "\xc3\xa4\xff"}', 2, 8, "not UTF-8", UTF_8),
        (b'{"a": "\\ud800"}', 1, 8, "surrogate", THERE),
        ('{"a": 1}'.encode("utf-16"), 1, 1, "UTF-16", UTF_8),
        (b"[" * 100_000, 1, 1, "too deeply", THERE),
    ],
)
def test_broken_json_is_explained_where_it_breaks(content, line, column, fault, help):
    metadata, said = parse(content, PATH)
    assert (metadata, said[0].code, said[0].help) == (None, "ME010", help)
    details = dict(said[0].details)
    assert fault in details["fault"]
    assert (details["line"], details["char"]) == (str(line), str(column))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"null", "_metadata.json is null, expected one JSON object [ME011]"),
        (b'{"FileExtension": "a/b"}', 'FileExtension is "a/b", expected a file extension [ME011]'),
        (b'{"FileExtension": ' + b"9" * 9000 + b"}", "FileExtension is inf, expected a file extension [ME011]"),
        (b'{"FileFormat": "CSV"}', "`SchemaDefinition` is absent, expected the columns of the text [ME056]"),
    ],
)
def test_unusable_values_name_the_expected_ones(content, message):
    assert first(content).endswith(message)


@pytest.mark.parametrize(
    ("given_properties", "extension"),
    [({}, "parquet"), (TEXT, "csv"), ({**TEXT, "FileExtension": ".TXT"}, "txt"), ({"FileExtension": "pq"}, "pq")],
)
def test_extensions_lose_their_dot_and_their_case(given_properties, extension):
    assert usable(given_properties).extension == extension


INFERRED = {key: value for key, value in TEXT.items() if key != "FileFormat"}


@pytest.mark.parametrize(
    ("given_properties", "file_format", "said"),
    [
        ({**INFERRED, "FileExtension": "dat"}, FileFormat.CSV, ["ME083"]),
        ({**INFERRED, "FileExtension": "snappy.parquet"}, FileFormat.PARQUET, ["ME015"]),
        ({**INFERRED, "FileFormat": "Parquet"}, FileFormat.PARQUET, ["ME015"]),
    ],
)
def test_without_a_format_declared_types_and_text_extensions_mean_csv(given_properties, file_format, said):
    assert usable(given_properties).file_format is file_format
    assert [code for code in codes(given_properties) if code != "ME059"] == said
    assert codes({"keyColumns": ["Id"], "FileExtension": "txt"}) == ["ME056", "ME083"]


@given(st.binary(max_size=60) | st.text('{}[]",:\\ \nabNul', max_size=40).map(str.encode))
def test_any_bytes_are_json_or_a_fault_within_them(content):
    where = (1, 1)
    try:
        read_json(content)
    except JsonFault as fault:
        where = (fault.line, fault.column)
    assert (1, 1) <= where <= (content.count(b"\n") + 1, len(content) + 1)


def options(**given_options):
    return usable({**TEXT, "FileFormatTypeProperties": given_options}).dialect


def test_a_declared_column_is_not_null_unless_it_says_so():
    columns = [{"Name": "Id", "DataType": "Int32"}, {"Name": "City", "DataType": "String", "IsNullable": "true"}]
    metadata = usable({**TEXT, "SchemaDefinition": {"Columns": columns}})
    assert [column.nullable for column in metadata.declared_columns] == [False, True]


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


def test_a_text_option_nested_and_flat_has_one_value():
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


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (
            b'{"partnerName": "Acme", "sourceInfo": {"sourceType": "PostgreSQL", "sourceVersion": "17"}}',
            PartnerEvents("Acme", "PostgreSQL", "17"),
        ),
        (b'\xef\xbb\xbf{"PARTNERNAME": "Acme", "sourceInfo": "none"}', PartnerEvents("Acme")),
        (b'{"partnerName": 3}', PartnerEvents()),
        (b"{}", PartnerEvents()),
    ],
)
def test_free_text_of_partner_events_is_kept(content, expected):
    """LZ-1.8."""
    assert parse_partner_events(content) == expected


@pytest.mark.parametrize("content", [b"", b"[]", b"{", b'"\xff"', b"[" * 100_000, b"{}" + b" " * MAX_BYTES])
def test_other_partner_events_are_unreadable(content):
    assert parse_partner_events(content) is None


@pytest.mark.parametrize("written", [1, "yes", [], {}, 0.0])
def test_other_values_are_no_booleans(written):
    assert "isPartitionEnabled is" in first({"isPartitionEnabled": written})


def test_a_repeated_key_counts_once():
    assert usable({"keyColumns": ["Id", "id", "Line"]}).key_columns == ("Id", "Line")
