"""Schemas merge as protocol chapter 5 says."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mirror_engine.landing_zone.diagnostics import RejectedFile
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
ZIP, DAY = Column("Zip", "string"), Column("day", "string")
UNKNOWN_CITY = Column("City", VOID)

# the table before, how the file differs from FILE, the columns after or the refusal; diagnostics and absent columns
MERGES = {
    "the first file makes the schema in its own order": (None, {"columns": (CITY, ID)}, (CITY, ID)),
    "the same columns": (TABLE, {}, (ID, CITY)),
    "a new column joins at the end and a missing one stays": (
        *(TABLE, {"columns": (ZIP, ID)}, (ID, CITY, ZIP), ["ME054"], (CITY,)),
    ),
    "partition columns come last and are strings": (None, {"partition_columns": ("day",)}, (ID, CITY, DAY)),
    "and stay last": (
        *(TableSchema((ID, CITY, DAY), ("day",)), {"columns": (ID, CITY, ZIP), "partition_columns": ("day",)}),
        (ID, CITY, ZIP, DAY),
    ),
    "a key may be a partition column": (
        *(None, {"key_columns": ("Id", "day"), "partition_columns": ("day",)}, (ID, CITY, DAY)),
    ),
    "a folder column that the table has in another type": (
        *(TableSchema((ID, Column("day", "date"))), {"partition_columns": ("day",)}, "ME044"),
    ),
    "a new not-null column": (TABLE, {"columns": (ID, CITY, replace(ZIP, nullable=False))}, "ME046"),
    "a new not-null column of an empty table": (
        *(TABLE, {"columns": (ID, CITY, replace(ZIP, nullable=False)), "table_is_empty": True}),
        (ID, CITY, replace(ZIP, nullable=False)),
    ),
    "not null against nullable is a warning": (TABLE, {"columns": (ID_NOT_NULL, CITY)}, (ID, CITY), ["ME047"]),
    "and an error under strict": (TABLE, {"columns": (ID_NOT_NULL, CITY), "strict": True}, "ME047"),
    "not null against not null": (
        *(TableSchema((ID_NOT_NULL, CITY)), {"columns": (ID_NOT_NULL, CITY)}, (ID_NOT_NULL, CITY)),
    ),
    "nullable against not null": (TableSchema((ID_NOT_NULL, CITY)), {}, (ID_NOT_NULL, CITY)),
    "the first spelling wins": (TABLE, {"columns": (ID, Column("CITY", "string"))}, (ID, CITY), ["ME052"]),
    "two columns of one name": (None, {"columns": (ID, CITY, CITY)}, "ME053"),
    "two columns of one name in other case": (None, {"columns": (ID, CITY, Column("CITY", "string"))}, "ME053"),
    "keys are found ignoring case": (TABLE, {"key_columns": ("ID",)}, (ID, CITY), ["ME052"]),
    "a key that the file lacks": (TABLE, {"columns": (CITY,)}, "ME018"),
    "a key that nobody has": (None, {"key_columns": ("Nr",)}, "ME018"),
    "an all-null column reads as integer": (
        *(None, {"columns": (ID, UNKNOWN_CITY)}, (ID, Column("City", "integer")), ["ME045"]),
    ),
    "and so conflicts with another type": (TABLE, {"columns": (ID, UNKNOWN_CITY)}, "ME044"),
    "or makes no claim": (None, {"columns": (ID, UNKNOWN_CITY), "untyped_nulls": True}, (ID,)),
    "and so conflicts with none": (TABLE, {"columns": (ID, UNKNOWN_CITY), "untyped_nulls": True}, (ID, CITY)),
    "an untyped key claims integer, as no row is without its key": (
        *(None, {"columns": (Column("Id", VOID), CITY), "untyped_nulls": True}),
        *((Column("Id", "integer"), CITY), ["ME045"]),
    ),
    "as no row is without columns": (
        *(None, {"columns": (UNKNOWN_CITY,), "key_columns": (), "untyped_nulls": True}),
        *((Column("City", "integer"),), ["ME045"]),
    ),
    "without rows neither needs a claim": (
        *(None, {"columns": (Column("Id", VOID), UNKNOWN_CITY), "untyped_nulls": True, "has_rows": False}, ()),
    ),
    "without the option each claims all the same": (
        *(None, {"columns": (Column("Id", VOID),), "has_rows": False}, (Column("Id", "integer"),), ["ME045"]),
    ),
    "a Hive folder's column is none for rows to have": (
        *(None, {"columns": (UNKNOWN_CITY,), "key_columns": (), "partition_columns": ("day",), "untyped_nulls": True}),
        *((Column("City", "integer"), DAY), ["ME045"]),
    ),
    "declared columns are there though the file lacks them": (
        *(None, {"columns": (CITY,), "declared": (ID, CITY), "key_columns": ("City",)}, (ID, CITY), [], (ID,)),
    ),
    **{
        f"{comes} is not merged into {known}": (
            *(TableSchema((ID, Column("V", known))), {"columns": (ID, Column("V", comes))}, "ME044"),
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


@pytest.mark.parametrize("case", MERGES)
def test_schemas_merge_as_the_protocol_says(case):
    table, changes, after, *also = MERGES[case]
    incoming = replace(FILE, **changes)
    if isinstance(after, str):
        assert refused(table, incoming).code == after
        return
    merged = merge(table, incoming)
    assert merged.schema.columns == after
    codes = [said.code for said in merged.diagnostics]
    assert [codes, merged.absent] == also + [[], ()][len(also) :]
    assert set(merged.spelling.values()) <= set(merged.schema.names)


def test_the_nearest_column_is_suggested_for_a_key():
    found = refused(None, replace(FILE, columns=(CITY,), key_columns=("Citty",)))
    assert found.help == "did you mean `City`? add it to the file, or correct `keyColumns`"


def test_a_type_mismatch_speaks_fabrics_own_words():
    incoming = replace(FILE, columns=(ID, Column("City", "long", nullable=False)))
    assert refused(TABLE, incoming).message == (
        "Schema merge failure due to potential invalid input. Cause: Type mismatch for column 'City'. "
        "Incoming type: 'long' (Nullable: False), existing type: 'string' (Nullable: True)."
    )


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("", "it is empty"),
        ("a\x00b", "readers cannot open"),
        ("a\ud800", "readers cannot open"),
        ("_tmp_metadata_row_index", "columns of their own"),
        ("_metadata", "columns of their own"),
        ("_target_row_present_", "columns of their own"),
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
