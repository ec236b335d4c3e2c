"""`trace row`: every change to a key, in pending, applied, archived and deleted files."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from quick_folder import quick_folder
from shop import Shop, name

from mirror_engine.errors import UsageError
from mirror_engine.landing_zone.change import MARKER_COLUMN, Change, RowMarker, replay, same_rows
from mirror_engine.landing_zone.layout import LEDGER
from mirror_engine.tools.trace.results import MarkedRow, NotApplied
from mirror_engine.tools.trace.row import ROW_COLUMN, OneKeyRows, rows_with_key, trace_row

pytestmark = pytest.mark.slow  # whole programs: no part of the quick look


def history_of(shop, *key, table="Orders"):
    with shop.trace(table) as trace:
        return trace_row(trace, key or ["7"])


def effects_of(history):
    changes = history.changes
    return [(int(it.file[:20]), it.row, int(it.marker), it.effect) for it in changes]


def three_files(shop):
    table = shop.orders()
    table.initial_load({"id": 1, "city": "Linz"}, {"id": 7, "city": "Wels"})
    table.apply_changes((1, {"id": 7, "city": "Graz"}), (2, {"id": 8}), (4, {"id": 7, "city": "Graz"}))
    table.apply_changes((2, {"id": 7}), (0, {"id": 1, "city": "Enns"}), (1, {"id": 7, "city": "Bregenz"}))
    return table


HISTORY = [
    (1, 2, 0, "inserted"),
    (2, 1, 1, "updated"),
    (2, 3, 4, "nothing"),
    (3, 1, 2, "deleted"),
    (3, 3, 1, "inserted"),
]


def test_every_change_to_the_key_is_listed_in_order_with_its_effect(shop):
    three_files(shop)
    history = history_of(shop)
    assert effects_of(history) == HISTORY
    assert [it.changed_columns for it in history.changes] == [(), ("city",), (), (), ()]
    assert [it.reason for it in history.changes] == [
        None,
        None,
        "the row had these values already",
        None,
        "no row had the key",
    ]
    assert {it.pending_because for it in history.changes} == {"ready for the next cycle"}
    assert history.result == ({"id": 7, "city": "Bregenz"},)
    assert (history.applied, history.delta, history.matches_delta) == ((), None, None)


def test_archived_files_are_listed_with_their_version_and_commit(shop):
    table = three_files(shop)
    shop.sync()
    table.upsert({"id": 7, "city": "Ried"})
    assert not (shop.root / "Files/LandingZone/Orders" / name(1)).exists()
    history = history_of(shop)
    assert effects_of(history) == [*HISTORY, (4, 1, 4, "updated")]
    assert [it.delta_version for it in history.changes] == [1, 1, 1, 1, 1, None]
    assert history.changes[0].files_of_commit == (name(1), name(2), name(3))
    assert history.changes[5].pending_because == "ready for the next cycle"
    assert history.applied == history.delta == ({"id": 7, "city": "Bregenz"},)
    assert history.result == ({"id": 7, "city": "Ried"},)
    assert history.matches_delta is True


def test_a_rejected_file_and_those_behind_it_are_listed_with_the_reason(shop):
    table = three_files(shop)
    shop.sync()
    table.land(b"")
    table.upsert({"id": 8, "city": "Ried"}, {"id": 7, "city": "Ried"})
    for _ in range(2):  # at first only the replay has read the file
        history = history_of(shop)
        assert effects_of(history) == HISTORY
        assert history.not_applied == (
            NotApplied(name(4), "rejected", "file is empty (0 bytes)", None),
            NotApplied(name(5), "pending", f"the table is halted at Orders/{name(4)}", [MarkedRow(2, 4, "upsert")]),
        )
        assert history.matches_delta is True
        shop.sync()


@pytest.mark.parametrize(("cleanup", "overwritten", "city"), [("off", (name(1),), "b"), ("ready", (), "a")])
def test_of_a_name_used_twice_the_applied_file_counts_while_it_is_there(tmp_path, cleanup, overwritten, city):
    shop = Shop(tmp_path, cleanup=cleanup)
    table = shop.orders()
    table.insert({"id": 7, "city": "a"})
    table.insert({"id": 8, "city": "b"})
    shop.sync()
    table.insert({"id": 7, "city": "b"}, name=name(1))
    history = history_of(shop)
    (change,) = history.changes
    assert (change.effect, change.after, change.pending_because) == ("inserted", ({"id": 7, "city": city},), None)
    assert (history.overwritten, history.matches_delta) == (overwritten, not overwritten)


def test_archived_files_from_before_a_rebuild_do_not_count(shop):
    table = shop.orders()
    table.insert({"id": 7, "city": "a"})
    shop.sync()
    table.insert({"id": 7, "city": "b"})
    shop.sync()
    with shop.mirror() as mirror:
        mirror.rebuild(lose_rows=True)
    shop.sync()
    history = history_of(shop)
    assert effects_of(history) == []
    assert [(file.path, file.reason) for file in history.not_applied] == [(name(2), f"{name(1)} is missing")]


def test_duplicate_keys_are_explained(shop):
    table = shop.orders()
    table.insert({"id": 7, "city": "a"}, {"id": 7, "city": "b"})
    table.update({"id": 7, "city": "c"})
    table.delete({"id": 7})
    history = history_of(shop)
    assert [it.reason for it in history.changes] == [
        None,
        "duplicate key: 2 rows have it now [ME039]",
        "all 2 rows with this key became this row [ME043]",
        "all 2 rows with this key were deleted [ME043]",
    ]
    assert history.changes[2].changed_columns == ("city",)
    assert history.result == ()


def landed(shop, *batches):
    """Upserts of rows 1 to 9, a file for each letter and a commit for each batch."""
    table = shop.orders()
    for batch in batches:
        for city in batch:
            table.upsert(*({"id": number, "city": city} for number in range(1, 10)))
        shop.sync()


def spied(shop, monkeypatch):
    """The numbers of rows that are read from the Delta table."""
    read, rows = [], shop.writer.rows

    def counted(table, **how):
        result = rows(table, **how)
        read.append(result.num_rows)
        return result

    monkeypatch.setattr(shop.writer, "rows", counted)
    return read


@pytest.mark.parametrize("is_forgotten", [False, True])
def test_without_old_files_the_replay_starts_with_the_row_of_the_delta_table(shop, monkeypatch, is_forgotten):
    """Files that neither ledger nor log know any more are counted by their numbers; other rows are not kept."""
    landed(shop, "a", "b", "c", "d")
    shop.lose(1)
    shop.lose(2)
    if is_forgotten:
        (shop.root / LEDGER).unlink()
        known = shop.writer.history
        monkeypatch.setattr(shop.writer, "history", lambda table, **_: known(table)[:2])
    read = spied(shop, monkeypatch)
    history = history_of(shop)
    assert (history.replay_start.deleted_files, history.replay_start.delta_version) == (2, 2)
    assert history.rows_at_start == history.changes[0].before == ({"id": 7, "city": "b"},)
    assert effects_of(history) == [(3, 7, 4, "updated"), (4, 7, 4, "updated")]
    assert history.matches_delta is True
    assert read == [1, 1]


def test_a_commit_with_a_deleted_file_is_not_replayed(shop, monkeypatch):
    landed(shop, "abc", "d")
    shop.lose(2)
    history = history_of(shop)
    assert (history.replay_start.deleted_files, history.replay_start.not_replayed) == (1, (name(1), name(3)))
    assert history.rows_at_start == ({"id": 7, "city": "c"},)
    assert effects_of(history) == [(4, 7, 4, "updated")]
    assert history.matches_delta is True
    read = spied(shop, monkeypatch)
    with pytest.raises(UsageError, match="no value of type"):
        history_of(shop, "seven")
    assert read == []  # a value of another type is refused before


def test_without_old_files_and_versions_the_first_match_is_not_known(shop, monkeypatch):
    landed(shop, "a", "b", "c")
    shop.lose(1)
    rows = shop.writer.rows

    def vacuumed(table, *, version=None, **options):
        if version is not None:
            raise UsageError("its log was cleaned up")
        return rows(table, **options)

    monkeypatch.setattr(shop.writer, "rows", vacuumed)
    history = history_of(shop)
    assert (history.replay_start.deleted_files, history.replay_start.delta_version) == (1, None)
    assert not history.replay_start.has_rows
    assert effects_of(history) == [(2, 7, 4, "updated"), (3, 7, 4, "updated")]
    assert [(it.matched_rows, it.before, it.reason, it.changed_columns) for it in history.changes] == [
        (None, None, "the rows it matched are not known", ()),
        (1, ({"id": 7, "city": "b"},), None, ("city",)),
    ]
    assert history.matches_delta is None


def test_a_zone_that_may_begin_with_any_number_has_no_deleted_files(tmp_path):
    shop = Shop(tmp_path, first_file="lowest")
    columns = [{"Name": column, "DataType": "String", "IsNullable": True} for column in ("Id", "City")]
    table = shop.publisher.table("Orders", keys=["Id"], file_format="CSV", columns=columns)
    table.skip_numbers(4)
    table.land_csv("Id,City,__rowMarker__\n1,Linz,0\n7,Wels,0\n7,,2\n")
    shop.sync()
    history = history_of(shop)
    assert history.replay_start is None
    assert effects_of(history) == [(5, 2, 0, "inserted"), (5, 3, 2, "deleted")]  # the header is not counted


def test_files_ordered_by_time_are_replayed_as_they_were_applied_even_a_late_one(shop):
    table = shop.orders(strategy="LastUpdateTimeFileDetection")
    table.upsert({"id": 7, "city": "new"}, name="b.parquet", modified_ns=2_000_000_000)
    shop.sync()
    table.upsert({"id": 7, "city": "late"}, name="a.parquet", modified_ns=1_000_000_000)
    shop.sync()
    history = history_of(shop)
    assert [it.file for it in history.changes] == ["b.parquet", "a.parquet"]
    assert history.result == ({"id": 7, "city": "late"},)
    assert history.matches_delta is True


def test_a_folder_without_metadata_has_no_key_yet(shop):
    shop.publisher.folder("Orders").land(b"", name=name(1))
    with pytest.raises(UsageError, match="Orders: has no usable"):
        history_of(shop)


def test_a_column_that_comes_later_is_null_before_it(shop):
    table = shop.orders()
    table.insert({"id": 7, "city": "a"})
    table.land_parquet(pa.table({"id": pa.array([7], pa.int64()), "zip": ["1"], "__rowMarker__": [1]}))
    history = history_of(shop)
    assert history.changes[1].changed_columns == ("city", "zip")
    assert history.changes[1].before == ({"id": 7, "city": "a", "zip": None},)


KEYS = st.integers(1, 2)
CHANGES = st.tuples(st.sampled_from(list(RowMarker)), KEYS, st.sampled_from(["a", "b", None]))


@settings(max_examples=15)
@given(
    files=st.lists(st.lists(CHANGES, max_size=6), min_size=1, max_size=5),
    runs=st.sets(st.integers(0, 4)),
    gone=st.sets(st.integers(1, 3), max_size=2),
)
def test_the_result_of_a_trace_is_that_of_replay_whatever_is_applied_and_deleted(files, runs, gone):
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
        history = history_of(shop, "1")
        assert same_rows(history.result, [row for row in expected if row["id"] == 1])
        matches = [
            (effect.matched, effect.remaining)
            for change, effect in zip(changes, effects, strict=True)
            if change.key == (1,)
        ]
        traced = [(len(it.before), len(it.after)) for it in history.changes]
        assert traced == matches[len(matches) - len(traced) :]
        assert history.matches_delta is not False
        assert (len(traced) == len(matches)) or history.replay_start is not None


def test_rows_are_counted_through_a_file_of_many_batches():
    schema = pa.schema([("id", pa.int64()), (MARKER_COLUMN, pa.int8())])
    store = OneKeyRows(schema, partial(rows_with_key, {"id": "7"}))
    for ids in ([1, 7], [], [7, 2, 7]):
        store.add(
            pa.RecordBatch.from_arrays([pa.array(ids, pa.int64()), pa.array([0] * len(ids), pa.int8())], schema=schema)
        )
    rows = pa.Table.from_batches(store.batches(), store.schema)
    assert rows.column(ROW_COLUMN).to_pylist() == [2, 3, 5]
    assert rows.schema.names == ["id", ROW_COLUMN, MARKER_COLUMN]


@pytest.mark.parametrize("batch_files", [1, 2])
def test_a_table_without_the_key_is_not_taken_for_an_empty_one(tmp_path, batch_files):
    """A new not-null column is rejected if the table has rows (LZ-5.5), of whatever key."""
    shop = Shop(tmp_path, max_batch_files=batch_files)
    table = shop.orders()
    table.insert({"id": 1, "city": "a"})
    new = pa.field("zip", pa.string(), nullable=False)
    fields = [pa.field("id", pa.int64()), pa.field("city", pa.string()), new]
    table.land_parquet(
        pa.Table.from_arrays([pa.array([7]), pa.array(["b"]), pa.array(["1"])], schema=pa.schema(fields))
    )
    shop.sync()
    history = history_of(shop)
    assert effects_of(history) == []
    assert [(file.path, file.state) for file in history.not_applied] == [(name(2), "rejected")]


def test_a_key_in_several_partitions_is_traced_through_all(shop):
    table = shop.publisher.table("Days", keys=["day", "id"], partitioned=True)
    for day in ("a", "b", "a"):
        table.upsert({"id": 7, "city": "x"}, partition=f"day={day}")
    shop.sync()
    history = history_of(shop, "day=a", "id=7", table="Days")
    assert [it.file for it in history.changes] == [f"day=a/{name(1)}", f"day=a/{name(2)}"]
    assert history.matches_delta is True
