"""Table and schema folders, and who owns a Delta folder (LZ-1.3 to LZ-1.5)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mirror_engine.errors import UnknownTable
from mirror_engine.landing_zone.names import (
    TableName,
    conflicts,
    find_table,
    meant_schema,
    ownership_order,
    schema_of,
    seems_metadata,
    shown_names,
)


def bare(table):
    return TableName("", table)


@pytest.mark.parametrize(
    ("name", "folder", "normalized", "in_dbo", "flat"),
    [
        (TableName("Sales", "Stores"), "Sales.schema/Stores", "Sales.Stores", "Sales/Stores", "Sales/Stores"),
        (bare("Items"), "Items", "Items", "dbo/Items", "Items"),
    ],
)
def test_a_table_folder_leads_to_a_delta_folder(name, folder, normalized, in_dbo, flat):
    assert (name.folder, name.normalized) == (folder, normalized)
    assert (name.delta_folder("dbo"), name.delta_folder("")) == (in_dbo, flat)
    assert TableName.from_folder(folder) == name


@pytest.mark.parametrize(
    ("names", "default_schema", "expected"),
    [
        ([bare("A"), bare("B"), TableName("S", "A")], "dbo", {}),
        ([bare("Items"), TableName("dbo", "Items")], "dbo", {bare("Items"): TableName("dbo", "Items")}),
        ([bare("Items"), TableName("dbo", "Items")], "", {}),
        ([bare("items"), bare("Items")], "dbo", {bare("items"): bare("Items")}),
        ([TableName("sales", "T"), TableName("Sales", "t")], "dbo", {TableName("sales", "T"): TableName("Sales", "t")}),
        (
            [bare("a"), bare("A"), TableName("DBO", "a")],
            "dbo",
            {bare("a"): TableName("DBO", "a"), bare("A"): TableName("DBO", "a")},
        ),
        ([bare("s"), TableName("S", "T"), TableName("S", "U")], "", {bare("s"): TableName("S", "T")}),
        ([bare("S"), TableName("S", "T")], "dbo", {}),
    ],
)
def test_the_folder_in_a_schema_then_the_first_by_name_owns_a_delta_folder(names, default_schema, expected):
    assert conflicts(names, default_schema) == expected
    assert conflicts(reversed(names), default_schema) == expected


letters = st.sampled_from(["a", "A", "b", "dbo"])
tables = st.lists(st.builds(TableName, st.sampled_from(["", "a", "A", "dbo"]), letters), unique=True)


@given(tables, st.sampled_from(["", "dbo"]))
def test_other_tables_share_no_delta_folder_and_contain_none(names, default_schema):
    refused = conflicts(names, default_schema)
    kept = [name.delta_folder(default_schema).casefold() for name in names if name not in refused]
    assert len(set(kept)) == len(kept)
    assert not {place.rpartition("/")[0] for place in kept} & set(kept)
    assert not set(refused.values()) & set(refused)
    assert all(ownership_order(owner) < ownership_order(second) for second, owner in refused.items())


@pytest.mark.parametrize(
    ("folder", "schema"), [("a.b.schema", "a.b"), (".schema", None), ("Sales.Schema", None), ("schema", None)]
)
def test_a_schema_folder_has_the_exact_suffix(folder, schema):
    assert schema_of(folder) == schema


def test_tables_of_one_name_are_told_apart_by_their_folders() -> None:
    dotted, in_schema, other = TableName("", "shop.Item"), TableName("shop", "Item"), TableName("", "Orders")
    assert shown_names([dotted, in_schema, other]) == {
        dotted: "shop.Item",
        in_schema: "shop.schema/Item",
        other: "Orders",
    }
    assert shown_names([in_schema]) == {in_schema: "shop.Item"}
    folders = ["dbo/shop.Item", "shop/Item"]
    with pytest.raises(UnknownTable) as raised:
        find_table("shop.Item", folders, "dbo")
    assert raised.value.help == "Give one of these: dbo/shop.Item, shop/Item"
    assert [find_table(folder, folders, "dbo") for folder in folders] == folders


@pytest.mark.parametrize(
    ("folder", "meant"),
    [("shop.Schema", "shop.schema"), ("shop.schemas", "shop.schema"), ("HR", "HR.schema"), ("a.b", "a.b.schema")],
)
def test_the_schema_folder_that_was_meant_is_named(folder, meant) -> None:
    assert meant_schema(folder) == meant


@pytest.mark.parametrize(
    "name", ["metadata.json", "_Metadata.json", "_metadata.jsn", "_metadatas.json", "_METADATA.JSON"]
)
def test_a_misspelled_metadata_file_is_known(name) -> None:
    assert seems_metadata(name)


@pytest.mark.parametrize("name", ["_metadata.json", "schema.json", "00000000000000000001.parquet", "data.json"])
def test_another_file_is_no_misspelled_metadata(name) -> None:
    assert not seems_metadata(name)
