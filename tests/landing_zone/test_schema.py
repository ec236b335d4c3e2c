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
    TableSchema,
    check_absent_columns,
    folded,
    lacking_updates,
    merge,
    mixed_times,
    same_name,
)

ID = Column("Id", "long")
CITY = Column("City", "string")
TABLE = TableSchema((ID, CITY))
FILE = Incoming("Orders/1.parquet", (ID, CITY), key_columns=("Id",), table_is_empty=False)


ID_NOT_NULL = replace(ID, nullable=False)
ZIP, ZIP_NOT_NULL, DAY = Column("Zip", "string"), Column("Zip", "string", nullable=False), Column("day", "string")
ID_VOID, CITY_VOID = Column("Id", VOID), Column("City", VOID)
ID_INT, CITY_INT = Column("Id", "integer"), Column("City", "integer")
BY_DAY = {"partition_columns": ("day",)}


def case(table, after, said=(), absent=(), **changes):
    """Of the table before, and a file that differs so from FILE: the columns after, or the refusal."""
    return table, after, [*said], absent, replace(FILE, **changes)


MERGES = {
    "the first file makes the schema in its own order": case(None, (CITY, ID), columns=(CITY, ID)),
    "partition columns stay last": case(
        TableSchema((ID, CITY, DAY), ("day",)), (ID, CITY, ZIP, DAY), columns=(ID, CITY, ZIP), **BY_DAY
    ),
    "a key may be a partition column": case(None, (ID, CITY, DAY), key_columns=("Id", "day"), **BY_DAY),
    "a folder column that the table has in another type": case(
        TableSchema((ID, Column("day", "date"))), "ME044", **BY_DAY
    ),
    "not null against nullable under strict": case(TABLE, "ME047", columns=(ID_NOT_NULL, CITY), strict=True),
    "not null against not null": case(
        TableSchema((ID_NOT_NULL, CITY)), (ID_NOT_NULL, CITY), columns=(ID_NOT_NULL, CITY)
    ),
    "nullable against not null": case(TableSchema((ID_NOT_NULL, CITY)), (ID_NOT_NULL, CITY)),
    "two columns of one name in other case": case(None, "ME053", columns=(ID, CITY, Column("CITY", "string"))),
    "a key that nobody has": case(None, "ME018", key_columns=("Nr",)),
    "an untyped column conflicts with no type": case(TABLE, (ID, CITY), columns=(ID, CITY_VOID), untyped_nulls=True),
    "an untyped key claims integer, as no row is without its key": case(
        None, (ID_INT, CITY), ["ME045"], columns=(ID_VOID, CITY), untyped_nulls=True
    ),
    "as no row is without columns": case(
        None, (CITY_INT,), ["ME045"], columns=(CITY_VOID,), key_columns=(), untyped_nulls=True
    ),
    "without rows neither needs a claim": case(
        None, (), columns=(ID_VOID, CITY_VOID), untyped_nulls=True, has_rows=False
    ),
    "without the option each claims all the same": case(None, (ID_INT,), ["ME045"], columns=(ID_VOID,), has_rows=False),
    "a Hive folder's column is none for rows to have": case(
        None, (CITY_INT, DAY), ["ME045"], columns=(CITY_VOID,), key_columns=(), untyped_nulls=True, **BY_DAY
    ),
    "declared columns are there though the file lacks them": case(
        None, (ID, CITY), [], (ID,), columns=(CITY,), declared=(ID, CITY), key_columns=("City",)
    ),
    **{
        f"{comes} is not merged into {known}": case(
            TableSchema((ID, Column("V", known))), "ME044", columns=(ID, Column("V", comes))
        )
        for known, comes in [
            *(("integer", "long"), ("float", "double"), ("date", "timestamp"), ("string", "integer")),
            *(("decimal(10,2)", "decimal(11,2)"), ("decimal(10,2)", "decimal(10,3)")),
            *(("integer", "string"), ("integer", "short")),
        ]
    },
}


def refused(current, incoming):
    with pytest.raises(RejectedFile) as caught:
        merge(current, incoming)
    return caught.value.diagnostic


@pytest.mark.parametrize(
    ("known", "comes", "untyped", "begins"),
    [
        ("string", VOID, False, "use `--all-null-columns untyped`, or land"),
        ("integer", "string", False, "if it held only NULL so far (ME045), rebuild the table with `--all-null-columns"),
        ("integer", "string", True, "land"),
        ("long", "string", False, "land"),
    ],
)
def test_changed_type_names_the_option_where_it_is_the_way_out(known, comes, untyped, begins):
    incoming = replace(FILE, columns=(ID, Column("V", comes)), untyped_nulls=untyped)
    with pytest.raises(RejectedFile) as rejected:
        merge(TableSchema((ID, Column("V", known))), incoming)
    assert rejected.value.diagnostic.code == "ME044"
    assert rejected.value.diagnostic.help.startswith(begins)


@pytest.mark.parametrize(("table", "after", "said", "absent", "incoming"), MERGES.values(), ids=MERGES)
def test_schemas_merge_as_the_protocol_says(table, after, said, absent, incoming):
    if isinstance(after, str):
        assert refused(table, incoming).code == after
        return
    merged = merge(table, incoming)
    assert (merged.schema.columns, [each.code for each in merged.diagnostics], merged.absent) == (after, said, absent)
    assert set(merged.spelling.values()) <= set(merged.schema.names)


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("", "it is empty"),
        ("a\x00b", "readers cannot open"),
        ("a\ud800", "readers cannot open"),
        ("_tmp_metadata_row_index", "Spark and Delta reserve it"),
        ("_metadata", "Spark and Delta reserve it"),
        ("_Source_Row_Present_", "Spark and Delta reserve it"),
        ("__delta_internal_is_row_deleted", "Spark and Delta reserve it"),
        ("__delta_rs_c_line\nbreak", "Spark and Delta reserve it"),
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
        found = refused(current, incoming)
        assert (found.code, found.column) == ("ME084", name)
        assert reason in found.message


@pytest.mark.parametrize("name", ["_change_type", "_commit_version", "_Commit_Timestamp", "__is_cdc"])
def test_names_of_the_change_data_feed_are_rejected_where_a_table_has_one(name):
    """LZ-5.12."""
    file = replace(FILE, columns=(ID, Column(name, "string")))
    assert merge(None, file).schema.names == ("Id", name)
    found = refused(None, replace(file, feeds_changes=True))
    assert (found.code, found.column) == ("ME084", name)
    assert "change data feed" in found.message


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
def test_a_missing_not_null_column_is_rejected_unless_only_keys_are_read(markers, deletes_count, refusal):
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


def test_the_first_error_is_raised_with_all_others():
    warning, error = diagnose("ME058", "a"), diagnose("ME023", "a")
    with pytest.raises(RejectedFile) as caught:
        without_errors([warning, error])
    assert (caught.value.diagnostic, caught.value.others) == (error, (warning,))
