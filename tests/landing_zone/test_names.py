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
    ownership_order,
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
    for places in ([one.delta_folder(default_schema).casefold() for one in pair] for pair in refused.items()):
        assert places[0] == places[1] or places[0] == places[1].rpartition("/")[0], "none is refused without need"
    assert conflicts(reversed(names), default_schema) == refused


def test_schema_folder_owns_a_delta_folder_before_the_first_by_name():
    assert sorted([bare("A"), TableName("S", "a"), TableName("S", "A")], key=ownership_order) == [
        TableName("S", "A"),
        TableName("S", "a"),
        bare("A"),
    ]


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


@pytest.mark.parametrize("name", ["_metadata.json", "schema.json", "00000000000000000001.parquet", "data.json"])
def test_another_file_is_no_misspelled_metadata(name) -> None:
    assert not seems_metadata(name)
