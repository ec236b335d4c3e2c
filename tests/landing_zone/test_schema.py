"""Schemas merge as protocol chapter 5 says."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mirror_engine.landing_zone.diagnostics import RejectedFile, diagnose, without_errors
from mirror_engine.landing_zone.schema import (
    VOID,
    Column,
    Incoming,
    Merged,
    TableSchema,
    check_absent_columns,
    folded,
    lacking_updates,
    listed,
    merge,
    mixed_times,
    same_name,
)

ID = Column("Id", "long")
CITY = Column("City", "string")
TABLE = TableSchema((ID, CITY))
FILE = Incoming("Orders/1.parquet", (ID, CITY), key_columns=("Id",), table_is_empty=False)


def codes(merged):
    return [said.code for said in merged.diagnostics]


def refused(current, incoming):
    with pytest.raises(RejectedFile) as caught:
        merge(current, incoming)
    return caught.value


def test_the_first_file_makes_the_schema_in_its_own_order_without_a_word():
    merged = merge(None, replace(FILE, columns=(CITY, ID)))
    assert merged == Merged(TableSchema((CITY, ID)), {"City": "City", "Id": "Id"})


def test_the_same_columns_have_no_diagnostic():
    assert merge(TABLE, FILE) == Merged(TABLE, {"Id": "Id", "City": "City"})


@pytest.mark.parametrize(
    ("known", "comes"),
    [
        ("integer", "long"),
        ("float", "double"),
        ("decimal(10,2)", "decimal(11,2)"),
        ("decimal(10,2)", "decimal(10,3)"),
        ("date", "timestamp"),
        ("string", "integer"),
        ("integer", "string"),
        ("integer", "short"),
    ],
)
def test_any_other_type_is_rejected_widening_included(known, comes):
    error = refused(TableSchema((ID, Column("V", known))), replace(FILE, columns=(ID, Column("V", comes))))
    assert error.diagnostic.code == "ME044"
    assert error.diagnostic.column == "V"


def test_a_type_mismatch_speaks_fabrics_own_words():
    error = refused(TABLE, replace(FILE, columns=(ID, Column("City", "long", nullable=False))))
    assert error.diagnostic.message == (
        "Schema merge failure due to potential invalid input. Cause: Type mismatch for column 'City'. "
        "Incoming type: 'long' (Nullable: False), existing type: 'string' (Nullable: True)."
    )


def test_a_new_nullable_column_joins_at_the_end_and_a_missing_one_stays():
    merged = merge(TABLE, replace(FILE, columns=(Column("Zip", "string"), ID)))
    assert merged.schema.names == ("Id", "City", "Zip")
    assert merged.absent == (CITY,)
    assert [said.message for said in merged.diagnostics] == ["columns added: Zip; columns missing: City"]


def test_partition_columns_stay_last_and_are_strings():
    first = merge(None, replace(FILE, partition_columns=("day",)))
    assert first.schema == TableSchema((ID, CITY, Column("day", "string")), ("day",))
    later = merge(first.schema, replace(FILE, columns=(ID, CITY, Column("Zip", "string")), partition_columns=("day",)))
    assert later.schema.names == ("Id", "City", "Zip", "day")
    assert later.absent == ()


def test_a_key_may_be_a_partition_column():
    assert codes(merge(None, replace(FILE, key_columns=("Id", "day"), partition_columns=("day",)))) == []


def test_a_folder_column_that_the_table_has_in_another_type_is_rejected():
    assert (
        refused(TableSchema((ID, Column("day", "date"))), replace(FILE, partition_columns=("day",))).diagnostic.code
        == "ME044"
    )


@pytest.mark.parametrize(("empty", "code"), [(False, "ME046"), (True, None)])
def test_a_new_not_null_column_needs_an_empty_table(empty, code):
    incoming = replace(FILE, columns=(ID, CITY, Column("Zip", "string", nullable=False)), table_is_empty=empty)
    if code:
        assert refused(TABLE, incoming).diagnostic.code == code
    else:
        assert not merge(TABLE, incoming).schema.columns[-1].nullable


def test_not_null_against_nullable_is_a_warning_and_an_error_under_strict():
    incoming = replace(FILE, columns=(replace(ID, nullable=False), CITY))
    merged = merge(TABLE, incoming)
    assert codes(merged) == ["ME047"]
    assert merged.schema == TABLE
    assert refused(TABLE, replace(incoming, strict=True)).diagnostic.code == "ME047"


def test_not_null_against_not_null_is_as_it_should_be():
    columns = (replace(ID, nullable=False), CITY)
    assert codes(merge(TableSchema(columns), replace(FILE, columns=columns))) == []


def test_nullable_against_not_null_is_accepted_and_the_table_stays_not_null():
    table = TableSchema((replace(ID, nullable=False), CITY))
    assert merge(table, FILE) == Merged(table, {"Id": "Id", "City": "City"})


def test_the_first_spelling_wins():
    merged = merge(TABLE, replace(FILE, columns=(ID, Column("CITY", "string"))))
    assert merged.schema == TABLE
    assert merged.spelling == {"Id": "Id", "CITY": "City"}
    assert codes(merged) == ["ME052"]


@pytest.mark.parametrize("twin", ["City", "CITY"])
def test_two_columns_of_one_name_in_one_file_are_rejected(twin):
    assert refused(None, replace(FILE, columns=(ID, CITY, Column(twin, "string")))).diagnostic.code == "ME053"


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("", "it is empty"),
        ("a\x00b", "readers cannot open"),
        ("a\ud800", "readers cannot open"),
        ("_tmp_metadata_row_index", "columns of their own"),
        ("_metadata", "columns of their own"),
        ("deletionVectorId", "columns of their own"),
        ("_Source_Row_Present_", "columns of their own"),
        ("_target_row_present_", "columns of their own"),
        ("_row_dropped_", "columns of their own"),
        ("__delta_internal_is_row_deleted", "columns of their own"),
        ("__delta_rs_c_line\nbreak", "columns of their own"),
    ],
)
def test_names_that_no_table_can_have_are_rejected(name, reason):
    """LZ-5.12, wherever they come from; tables of other programs have them, too."""
    column = Column(name, "long")
    for current, incoming in [
        (None, replace(FILE, columns=(ID, column))),
        (None, replace(FILE, declared=(column,))),
        (None, replace(FILE, partition_columns=(name,))),
        (TableSchema((ID, CITY, column)), FILE),
    ]:
        found = refused(current, incoming).diagnostic
        assert (found.code, found.column) == ("ME084", name)
        assert reason in found.message


def test_keys_are_found_ignoring_case_and_missed_when_absent():
    assert codes(merge(TABLE, replace(FILE, key_columns=("ID",)))) == ["ME052"]
    assert refused(TABLE, replace(FILE, columns=(CITY,))).diagnostic.code == "ME018"
    assert refused(None, replace(FILE, key_columns=("Nr",))).diagnostic.code == "ME018"


def test_an_all_null_column_reads_as_integer():
    merged = merge(None, replace(FILE, columns=(ID, Column("City", VOID))))
    assert merged.schema.find("City") == Column("City", "integer")
    assert codes(merged) == ["ME045"]
    assert refused(TABLE, replace(FILE, columns=(ID, Column("City", VOID)))).diagnostic.code == "ME044"


def test_an_all_null_column_makes_no_claim_where_it_shall_not():
    incoming = replace(FILE, columns=(ID, Column("City", VOID)), untyped_nulls=True)
    first = merge(None, incoming)
    assert first == Merged(TableSchema((ID,)), {"Id": "Id"})
    assert merge(TABLE, incoming) == Merged(TABLE, {"Id": "Id", "City": "City"})


def test_an_untyped_key_claims_integer_all_the_same_as_no_table_is_without_its_key():
    incoming = replace(FILE, columns=(Column("Id", VOID), CITY), untyped_nulls=True)
    assert merge(None, incoming).schema.columns[0] == Column("Id", "integer")
    assert merge(None, replace(incoming, columns=(Column("V", VOID),), key_columns=())).schema.names == ("V",)


def test_declared_columns_are_there_though_the_file_lacks_them():
    merged = merge(None, replace(FILE, columns=(CITY,), declared=(ID, CITY), key_columns=("City",)))
    assert merged.schema == TABLE
    assert merged.absent == (ID,)
    assert codes(merged) == []


@pytest.mark.parametrize(
    ("markers", "deletes_count", "refusal"),
    [
        ({}, False, False),
        ({2: 3}, False, False),
        ({2: 3, 0: 0}, False, False),
        ({2: 3}, True, True),
        ({0: 1}, False, True),
        ({4: 1, 2: 1}, False, True),
        ({}, True, True),
    ],
)
def test_a_missing_not_null_column_is_rejected_unless_only_keys_are_read(
    markers,
    deletes_count,
    refusal,
):
    incoming = replace(FILE, columns=(ID,))
    merged = merge(TableSchema((ID, replace(CITY, nullable=False))), incoming)
    if refusal:
        with pytest.raises(RejectedFile, match="ME046"):
            check_absent_columns(merged, incoming, markers, deletes_count=deletes_count)
    else:
        check_absent_columns(merged, incoming, markers, deletes_count=deletes_count)


@pytest.mark.parametrize(("marker", "said"), [(0, []), (1, ["ME041"]), (2, []), (4, ["ME041"])])
def test_only_updates_and_upserts_report_missing_columns(marker, said):
    incoming = replace(FILE, columns=(ID,))
    found = lacking_updates(merge(TABLE, incoming), incoming, {marker: 1})
    assert [diagnostic.code for diagnostic in found] == said


def test_times_mix_when_the_other_kind_came_before():
    none = frozenset()
    assert mixed_times(frozenset("ab"), frozenset("c"), frozenset("c"), frozenset("a")) == ("a", "c")
    assert mixed_times(frozenset("a"), none, frozenset("a"), none) == ()
    zoned = TableSchema((ID, Column("T", "timestamp")))
    naive = replace(FILE, columns=(ID, Column("T", "timestamp_ntz")))
    assert merge(zoned, naive).schema == zoned


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("Id", "iD", True),
        ("Größe", "GRÖSSE", False),
        ("GRÖẞE", "größe", True),
        ("Straße", "Strasse", False),
        ("ΟΔΟΣ", "οδοσ", True),
        ("ı", "I", True),  # noqa: RUF001 - the dotless letter is meant
        ("İd", "ID", True),
        ("a", "á", False),
    ],
)
def test_names_compare_letter_by_letter_as_spark_compares_them(one, other, same):
    assert same_name(one, other) is same


@given(st.text())
def test_folding_keeps_the_length_and_is_done_once(name):
    assert len(folded(name)) == len(name)
    assert folded(folded(name)) == folded(name)


def test_a_long_list_of_names_is_cut():
    assert listed([str(n) for n in range(22)]).endswith("19 and 2 more")


def test_the_first_error_is_raised_with_all_others():
    warning, error = diagnose("ME058", "a"), diagnose("ME023", "a")
    assert without_errors([warning]) == (warning,)
    with pytest.raises(RejectedFile) as caught:
        without_errors([warning, error])
    assert (caught.value.diagnostic, caught.value.others) == (error, (warning,))
