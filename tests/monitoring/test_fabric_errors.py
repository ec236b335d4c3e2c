"""Refusals in Fabric's words: shapes E1 to E10 of chapter 10."""

from __future__ import annotations

import re

import pytest

from mirror_engine.landing_zone.diagnostics import CATALOG, Diagnostic, diagnose
from mirror_engine.landing_zone.names import TableName
from mirror_engine.landing_zone.schema import Column, type_mismatch
from mirror_engine.monitoring.fabric_files import fabric_message

STORES = TableName("Sales", "Stores")
FOLDER = STORES.folder
TAIL = ", ErrorCode: InternalError, ErrorCode: InputValidationError ArtifactId: G"
DATA = "We encountered an error while parsing data file being used, please fix the file and try again. The error is: "
METADATA = DATA.replace("data file", "metadata file")


def message(diagnostic: Diagnostic) -> str:
    return fabric_message(diagnostic, STORES, "G")[1]


def test_e1_an_empty_parquet_file() -> None:
    said = message(diagnose("ME023", f"{FOLDER}/1.parquet"))
    assert said.startswith(
        f"We encountered an error while opening the Parquet file 'Files/LandingZone/{FOLDER}/1.parquet'"
    )
    assert "'Invalid: Parquet file size is 0 bytes'" in said


def test_e2_an_empty_text_file() -> None:
    said = message(diagnose("ME023", f"{FOLDER}/1.csv"))
    assert said.startswith(
        f"{DATA}Exception reading the data file. Exception: No data rows available. "
        "IReader state: ColumnCount: 0 CurrentIndex: -1"
    )
    assert said.endswith(TAIL)


def test_e3_metadata_that_vanished() -> None:
    assert message(diagnose("ME009", f"{FOLDER}/_metadata.json")) == (
        f"{METADATA}Exception reading the metadata file: _metadata.json, Exception: "
        f"PathNotFound Files/LandingZone/{FOLDER}/_metadata.json{TAIL}"
    )


def test_e4_metadata_that_is_no_json() -> None:
    said = message(diagnose("ME010", f"{FOLDER}/_metadata.json", line=3, char=5, fault="a bare word", help="quote it"))
    assert said == (
        f"{METADATA}Exception reading the metadata file: _metadata.json, Exception: a bare word, line 3, column 5{TAIL}"
    )


def test_e5_a_type_that_does_not_merge() -> None:
    reason = type_mismatch(Column("Id", "long", nullable=False), Column("Id", "integer"))
    code, said = fabric_message(diagnose("ME044", f"{FOLDER}/2.parquet", column="Id", reason=reason), STORES, "G")
    assert code == "SchemaMergeFailure"
    assert said == (
        "ErrorCode: SchemaMergeFailure, Message: Failed to write table 'Sales\\Stores' due to schema mismatch. "
        "Schema merge failure due to potential invalid input. Cause: Type mismatch for column 'Id'. "
        "Incoming type: 'long' (Nullable: False), existing type: 'integer' (Nullable: True). ArtifactId: G"
    )


@pytest.mark.parametrize(("default", "named"), [("dbo", "'dbo\\Items'"), ("", "'Items'")])
def test_e5_names_a_bare_table_by_its_delta_schema(default: str, named: str) -> None:
    said = fabric_message(diagnose("ME044", "Items/1", reason="r"), TableName("", "Items"), "G", default_schema=default)
    assert named in said[1]


@pytest.mark.parametrize(
    ("delta_type", "fault", "expected"),
    [
        ("integer", "", "System.FormatException: Input string was not in a correct format."),
        ("double", "", "System.FormatException: Input string was not in a correct format."),
        (
            "short",
            "out of range",
            "System.OverflowException: Value was either too large or too small for an Int16.",
        ),
        ("timestamp", "", "String was not recognized as a valid DateTime."),
        ("date", "", "String was not recognized as a valid DateTime."),
    ],
)
def test_e6_a_cell_that_is_not_of_its_type(delta_type: str, fault: str, expected: str) -> None:
    said = message(diagnose("ME060", f"{FOLDER}/1.csv", row=2, column="Qty", type=delta_type, fault=fault))
    assert said.startswith(
        f"{DATA}Exception reading the data file. Exception: ReadDataRowsAsync: Failed to read data rows. "
        f"Exception: {expected}"
    )
    assert "row 2" in said
    assert "Qty" in said


def test_e7_a_table_without_data() -> None:
    assert message(diagnose("ME068", FOLDER, time="20 days")) == (
        "This table has been stuck in Snapshotting for 20 days"
    )


def test_e10_any_other_refusal_has_the_diagnostics_own_text() -> None:
    said = message(diagnose("ME037", f"{FOLDER}/2.parquet", row=3, value="3"))
    assert said == (f"{DATA}{FOLDER}/2.parquet, row 3: row marker is 3, expected 0, 1, 2 or 4 [ME037]{TAIL}")


def test_refused_metadata_is_called_metadata() -> None:
    assert message(diagnose("ME017", f"{FOLDER}/_metadata.json", before="A", after="B")).startswith(METADATA)


@pytest.mark.parametrize("code", CATALOG)
def test_every_code_has_a_message_that_names_the_place(code: str) -> None:
    details = dict.fromkeys(("time", "fault", "line", "char", "reason"), "x")
    words = CATALOG[code].message + CATALOG[code].help
    details |= {re.split("[:}]", part)[0]: "x" for part in words.split("{")[1:]}
    error_code, said = fabric_message(diagnose(code, f"{FOLDER}/1.csv", **details), STORES, "G")
    assert error_code
    assert "G" in said or code == "ME068"
