"""`trace --key`: every change to a key, over files that wait, were applied, were moved away or are gone."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from quick_folder import quick_folder
from shop import Shop, name

from mirror_engine.errors import UnknownTable, UsageError
from mirror_engine.landing_zone.change import MARKER_COLUMN, Change, RowMarker, replay, same_rows
from mirror_engine.landing_zone.layout import LEDGER
from mirror_engine.publisher.trace.row import ROW_COLUMN, KeyFilter, OneKeyRows, Unread, trace_key

pytestmark = pytest.mark.slow  # whole programs: no part of the quick look


def story(shop, *key, table="Orders"):
    with shop.scene(table) as scene:
        return trace_key(scene, key or ["7"])


def told(found):
    return [(int(each.change.file[:20]), each.change.row, int(each.change.marker), each.did) for each in found.changes]


def three_files(shop):
    table = shop.orders()
    table.initial_load({"id": 1, "city": "Linz"}, {"id": 7, "city": "Wels"})
    table.apply_changes((1, {"id": 7, "city": "Graz"}), (2, {"id": 8}), (4, {"id": 7, "city": "Graz"}))
    table.apply_changes((2, {"id": 7}), (0, {"id": 1, "city": "Enns"}), (1, {"id": 7, "city": "Bregenz"}))
    return table


STORY = [
    (1, 2, 0, "inserted"),
    (2, 1, 1, "updated"),
    (2, 3, 4, "nothing"),
    (3, 1, 2, "deleted"),
    (3, 3, 1, "inserted"),
]


def test_every_change_to_the_key_is_told_in_order_with_what_it_did(shop) -> None:
    three_files(shop)
    found = story(shop)
    assert told(found) == STORY
    assert [each.columns for each in found.changes] == [(), ("city",), (), (), ()]
    assert [each.why for each in found.changes] == [
        "",
        "",
        "the row had these values already",
        "",
        "no row had the key",
    ]
    assert {each.waits for each in found.changes} == {"ready for the next cycle"}
    assert found.end == ({"id": 7, "city": "Bregenz"},)
    assert (found.applied, found.real, found.agrees) == ((), None, None)


def test_applied_files_are_told_with_their_version_and_batch_wherever_they_were_moved_to(shop) -> None:
    table = three_files(shop)
    shop.sync()
    table.upsert({"id": 7, "city": "Ried"})
    assert not (shop.root / "Files/LandingZone/Orders" / name(1)).exists()
    found = story(shop)
    assert told(found) == [*STORY, (4, 1, 4, "updated")]
    assert [each.version for each in found.changes] == [1, 1, 1, 1, 1, None]
    assert found.changes[0].batch == (name(1), name(2), name(3))
    assert found.changes[5].waits == "ready for the next cycle"
    assert found.applied == found.real == ({"id": 7, "city": "Bregenz"},)
    assert found.end == ({"id": 7, "city": "Ried"},)
    assert found.agrees is True


def test_a_delta_table_that_somebody_else_changed_is_told(shop) -> None:
    three_files(shop)
    shop.sync()
    commit = shop.writer._tables["dbo/Orders"][-1]
    commit.rows[-1]["city"] = "Eferding"
    assert story(shop).agrees is False


def test_files_behind_a_gap_are_told_as_unread_with_the_reason(shop) -> None:
    table = three_files(shop)
    shop.sync()
    table.skip_numbers()
    table.upsert({"id": 8, "city": "Ried"}, {"id": 7, "city": "Ried"})
    found = story(shop)
    assert told(found) == STORY
    assert found.unread == (Unread(name(5), "pending", f"{name(4)} is missing", ((2, RowMarker.UPSERT),)),)


def test_a_file_behind_one_that_the_replay_sees_refused_is_not_called_ready(shop) -> None:
    table = three_files(shop)
    table.land(b"")
    table.upsert({"id": 7, "city": "Ried"})
    refused, behind = story(shop).unread  # no engine has met it yet
    assert refused.state == "rejected"
    assert (behind.path, behind.why) == (name(5), f"the table is halted at Orders/{name(4)}")


def test_another_column_taken_for_the_key_is_told(shop) -> None:
    three_files(shop)
    shop.sync()
    with pytest.raises(UsageError, match="city is not a key column of Orders") as met:
        story(shop, "city=Graz")
    assert met.value.help.startswith("The key is id:")


def test_a_refused_file_is_told_with_what_is_wrong(shop) -> None:
    table = three_files(shop)
    table.land(b"")
    table.upsert({"id": 7, "city": "Ried"})
    shop.sync()
    found = story(shop)
    assert told(found) == STORY
    assert [(file.path, file.state, file.rows) for file in found.unread] == [
        (name(4), "rejected", None),
        (name(5), "pending", ((1, RowMarker.UPSERT),)),
    ]
    assert found.agrees is True


def test_a_file_overwritten_after_it_was_applied_is_named(tmp_path) -> None:
    shop = Shop(tmp_path, cleanup="off")
    table = shop.orders()
    table.insert({"id": 7, "city": "a"})
    shop.sync()
    table.insert({"id": 7, "city": "b"}, name=name(1))
    found = story(shop)
    assert (found.overwritten, found.agrees) == ((name(1),), False)


def test_files_that_a_stop_and_start_left_behind_do_not_count(shop) -> None:
    table = shop.orders()
    table.insert({"id": 7, "city": "a"})
    shop.sync()
    table.insert({"id": 7, "city": "b"})
    shop.sync()
    with shop.mirror() as mirror:
        mirror.rebuild()
    shop.sync()
    found = story(shop)
    assert told(found) == []
    assert [(file.path, file.why) for file in found.unread] == [(name(2), f"{name(1)} is missing")]


def test_several_copies_of_a_key_are_told(shop) -> None:
    table = shop.orders()
    table.insert({"id": 7, "city": "a"}, {"id": 7, "city": "b"})
    table.update({"id": 7, "city": "c"})
    table.delete({"id": 7})
    found = story(shop)
    assert [each.why for each in found.changes] == [
        "",
        "a marker 0 never replaces: 2 rows have this key now [ME039]",
        "all 2 rows with this key became this row [ME043]",
        "all 2 rows with this key went [ME043]",
    ]
    assert found.changes[2].columns == ("city",)
    assert found.end == ()


def test_where_old_files_are_gone_the_delta_table_tells_the_row_before_the_others(shop) -> None:
    table = shop.orders()
    for city in ("a", "b", "c", "d"):
        table.upsert({"id": 7, "city": city})
        shop.sync()
    shop.lose(1)
    shop.lose(2)
    found = story(shop)
    assert (found.beginning.gone, found.beginning.version) == (2, 2)
    assert found.first == ({"id": 7, "city": "b"},)
    assert told(found) == [(3, 1, 4, "updated"), (4, 1, 4, "updated")]
    assert found.changes[0].change.before == ({"id": 7, "city": "b"},)
    assert found.agrees is True


def test_no_row_of_another_key_is_kept_of_the_delta_table(shop, monkeypatch) -> None:
    table = shop.orders()
    table.initial_load(*({"id": number, "city": "a"} for number in range(20)))
    for city in ("b", "c"):
        shop.sync()
        table.upsert({"id": 7, "city": city})
    shop.sync()
    shop.lose(1)
    read, rows = [], shop.writer.rows

    def watched(table, **how):
        found = rows(table, **how)
        read.append(found.num_rows)
        return found

    monkeypatch.setattr(shop.writer, "rows", watched)
    found = story(shop)
    assert found.first == ({"id": 7, "city": "a"},)
    assert found.agrees is True
    assert read == [1, 1]


def test_a_value_of_another_type_is_refused_before_anything_is_read(shop, monkeypatch) -> None:
    table = shop.orders()
    for city in ("a", "b"):
        table.upsert({"id": 7, "city": city})
        shop.sync()
    shop.lose(1)
    monkeypatch.setattr(shop.writer, "rows", lambda *_, **__: pytest.fail("rows were read"))
    with pytest.raises(UsageError, match="no value of type"):
        story(shop, "seven")


def test_a_commit_is_replayed_whole_or_not_at_all_where_one_of_its_files_is_gone(shop) -> None:
    table = shop.orders()
    for city in ("a", "b", "c"):
        table.upsert({"id": 7, "city": city})
    shop.sync()
    table.upsert({"id": 7, "city": "d"})
    shop.sync()
    shop.lose(2)
    found = story(shop)
    assert (found.beginning.gone, found.beginning.earlier) == (1, (name(1), name(3)))
    assert found.first == ({"id": 7, "city": "c"},)
    assert told(found) == [(4, 1, 4, "updated")]
    assert found.agrees is True


def test_what_the_table_was_may_not_be_known_any_more(shop, monkeypatch) -> None:
    table = shop.orders()
    for city in ("a", "b", "c"):
        table.upsert({"id": 7, "city": city})
        shop.sync()
    shop.lose(1)
    rows = shop.writer.rows

    def vacuumed(table, *, version=None, where=None):
        if version is not None:
            raise UsageError("its log was cleaned up")
        return rows(table, where=where)

    monkeypatch.setattr(shop.writer, "rows", vacuumed)
    found = story(shop)
    assert (found.beginning.gone, found.beginning.version, found.is_known) == (1, None, False)
    assert told(found) == [(2, 1, 4, "updated"), (3, 1, 4, "updated")]
    assert [(each.is_known, each.why, each.columns) for each in found.changes] == [
        (False, "what it met is not known", ()),
        (True, "", ("city",)),
    ]
    assert found.agrees is None


def test_files_ordered_by_time_are_replayed_as_they_were_applied_even_a_late_one(shop) -> None:
    table = shop.orders(strategy="LastUpdateTimeFileDetection")
    table.upsert({"id": 7, "city": "new"}, name="b.parquet", modified_ns=2_000_000_000)
    shop.sync()
    table.upsert({"id": 7, "city": "late"}, name="a.parquet", modified_ns=1_000_000_000)
    shop.sync()
    found = story(shop)
    assert [each.change.file for each in found.changes] == ["b.parquet", "a.parquet"]
    assert found.end == ({"id": 7, "city": "late"},)
    assert found.agrees is True


def test_a_composite_key_is_given_column_by_column(shop) -> None:
    table = shop.publisher.table("Lines", keys=["OrderNo", "Line"])
    table.insert({"OrderNo": "a=b", "Line": 1, "Qty": 5}, {"OrderNo": "a=b", "Line": 2, "Qty": 6})
    found = story(shop, "line=2", "OrderNo=a=b", table="lines")
    assert found.end == ({"OrderNo": "a=b", "Line": 2, "Qty": 6},)
    assert found.key == {"OrderNo": "a=b", "Line": "2"}


@pytest.mark.parametrize(
    ("key", "message"),
    [
        (["x=1"], "--key x=1: x is not a key column of Lines"),
        (["1"], "--key 1: 1 names no column of Lines"),
        (["Line=1"], "--key: OrderNo of Lines is not given"),
        (["Line=1", "line=2"], "--key line=2: line named twice of Lines"),
        (["OrderNo=a", "Line=one"], "--key Line=one: no value of type long"),
    ],
)
def test_a_key_that_cannot_be_is_told_with_the_key_columns(shop, key, message) -> None:
    table = shop.publisher.table("Lines", keys=["OrderNo", "Line"])
    table.insert({"OrderNo": "a", "Line": 1, "Qty": 5})
    with pytest.raises(UsageError) as raised:
        story(shop, *key, table="Lines")
    assert raised.value.message == message
    assert "Line" in raised.value.help


def test_a_keyless_table_has_no_key_to_trace(shop) -> None:
    shop.publisher.table("Log").insert({"text": "a"})
    with pytest.raises(UsageError, match="Log: has no keyColumns"):
        story(shop, "1", table="Log")


def test_a_folder_without_metadata_has_no_key_yet(shop) -> None:
    shop.publisher.folder("Orders").land(b"", name=name(1))
    with pytest.raises(UsageError, match="Orders: is no table yet"):
        story(shop)


def test_a_table_that_is_not_there_is_told(shop) -> None:
    shop.orders()
    with pytest.raises(UnknownTable, match="Order: no such table"):
        story(shop, "1", table="Order")


def test_a_column_that_comes_later_is_null_before_it(shop) -> None:
    table = shop.orders()
    table.insert({"id": 7, "city": "a"})
    table.land_parquet(pa.table({"id": pa.array([7], pa.int64()), "zip": ["1"], "__rowMarker__": [1]}))
    found = story(shop)
    assert found.changes[1].columns == ("city", "zip")
    assert found.changes[1].change.before == ({"id": 7, "city": "a", "zip": None},)


KEYS = st.integers(1, 2)
CHANGES = st.tuples(st.sampled_from(list(RowMarker)), KEYS, st.sampled_from(["a", "b", None]))


@settings(max_examples=15, deadline=None)
@given(
    files=st.lists(st.lists(CHANGES, max_size=6), min_size=1, max_size=5),
    runs=st.sets(st.integers(0, 4)),
    gone=st.sets(st.integers(1, 3), max_size=2),
)
def test_the_end_of_a_trace_is_that_of_replay_whatever_is_applied_and_gone(files, runs, gone) -> None:
    with quick_folder() as folder:
        shop = Shop(Path(folder))
        table = shop.orders()
        for number, rows in enumerate(files):
            if number in runs:
                shop.sync()
            table.apply_changes(*((marker, {"id": key, "city": city}) for marker, key, city in rows))
        for number in gone:
            shop.lose(number, missing_ok=True)
        changes = [Change(marker, (key,), {"id": key, "city": city}) for rows in files for marker, key, city in rows]
        expected, effects = replay([], changes, ["id"])
        found = story(shop, "1")
        assert same_rows(found.end, [row for row in expected if row["id"] == 1])
        mine = [effect for change, effect in zip(changes, effects, strict=True) if change.key == (1,)]
        told = [(len(each.change.before), len(each.change.after)) for each in found.changes]
        assert told == [(effect.met, effect.left) for effect in mine][len(mine) - len(told) :]
        assert found.agrees is not False
        assert (len(told) == len(mine)) or found.beginning is not None


def test_rows_are_counted_through_a_file_of_many_batches() -> None:
    schema = pa.schema([("id", pa.int64()), (MARKER_COLUMN, pa.int8())])
    store = OneKeyRows(schema, KeyFilter({"id": "7"}))
    for ids in ([1, 7], [], [7, 2, 7]):
        store.add(
            pa.RecordBatch.from_arrays([pa.array(ids, pa.int64()), pa.array([0] * len(ids), pa.int8())], schema=schema)
        )
    rows = pa.Table.from_batches(store.batches(), store.schema)
    assert rows.column(ROW_COLUMN).to_pylist() == [2, 3, 5]
    assert rows.schema.names == ["id", ROW_COLUMN, MARKER_COLUMN]


def test_a_table_without_the_key_is_not_taken_for_an_empty_one(shop) -> None:
    """A new not-null column is refused where rows lie (LZ-5.5), whosever they are."""
    table = shop.orders()
    table.insert({"id": 1, "city": "a"})
    new = pa.field("zip", pa.string(), nullable=False)
    fields = [pa.field("id", pa.int64()), pa.field("city", pa.string()), new]
    table.land_parquet(
        pa.Table.from_arrays([pa.array([7]), pa.array(["b"]), pa.array(["1"])], schema=pa.schema(fields))
    )
    shop.sync()
    found = story(shop)
    assert told(found) == []
    assert [(file.path, file.state) for file in found.unread] == [(name(2), "rejected")]


def test_files_that_neither_ledger_nor_log_remember_are_counted_by_their_numbers(shop, monkeypatch) -> None:
    table = shop.orders()
    for city in ("a", "b", "c", "d"):
        table.upsert({"id": 7, "city": city})
        shop.sync()
    for number in (1, 2):
        shop.lose(number)
    (shop.root / LEDGER).unlink()
    history = shop.writer.history
    monkeypatch.setattr(shop.writer, "history", lambda table, **_: history(table)[:2])
    found = story(shop)
    assert (found.beginning.gone, found.beginning.version) == (2, 2)
    assert found.first == ({"id": 7, "city": "b"},)
    assert told(found) == [(3, 1, 4, "updated"), (4, 1, 4, "updated")]
    assert found.agrees is True


def test_a_zone_that_begins_late_by_its_options_has_lost_nothing(tmp_path) -> None:
    shop = Shop(tmp_path, first_file="lowest")
    table = shop.orders()
    table.skip_numbers(4)
    table.insert({"id": 7, "city": "a"})
    shop.sync()
    found = story(shop)
    assert found.beginning is None
    assert told(found) == [(5, 1, 0, "inserted")]


def test_text_files_count_rows_behind_the_header(shop) -> None:
    columns = [
        {"Name": "Id", "DataType": "Int32", "IsNullable": False},
        {"Name": "City", "DataType": "String", "IsNullable": True},
    ]
    table = shop.publisher.table("Places", keys=["Id"], file_format="CSV", columns=columns)
    table.land_csv("Id,City,__rowMarker__\n1,Linz,0\n7,Wels,0\n7,,2\n")
    found = story(shop, table="Places")
    assert told(found) == [(1, 2, 0, "inserted"), (1, 3, 2, "deleted")]


def test_a_key_in_several_partitions_is_traced_through_all(shop) -> None:
    table = shop.publisher.table("Days", keys=["day", "id"], partitioned=True)
    for day in ("a", "b", "a"):
        table.upsert({"id": 7, "city": "x"}, partition=f"day={day}")
    shop.sync()
    found = story(shop, "day=a", "id=7", table="Days")
    assert [each.change.file for each in found.changes] == [f"day=a/{name(1)}", f"day=a/{name(2)}"]
    assert found.agrees is True


def test_a_name_that_was_used_again_is_told_by_what_was_applied(shop) -> None:
    table = shop.orders()
    table.insert({"id": 7, "city": "a"})
    table.insert({"id": 8, "city": "b"})
    shop.sync()
    table.insert({"id": 7, "city": "never read"}, name=name(1))
    found = story(shop)
    assert [(change.did, change.change.after, change.waits) for change in found.changes] == [
        ("inserted", ({"id": 7, "city": "a"},), "")
    ]
    assert found.agrees is True
