"""`compare`: planted differences are found with key, file and rule; honest mirrors are equal."""

from __future__ import annotations

import json
import os
import shutil
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from hypothesis import given, settings
from hypothesis import strategies as st
from quick_folder import quick_folder
from shop import SharedMemoryWriter
from store_publisher import everything

from mirror_engine import Config
from mirror_engine.errors import UnknownTable
from mirror_engine.landing_zone.layout import ENGINE, SCRATCH, TABLES, ZONE
from mirror_engine.mirror import Mirror
from mirror_engine.monitoring.fabric_files import TABLES_FILE
from mirror_engine.storage.local import LocalStorage
from mirror_engine.storage.stores import open_storage
from mirror_engine.tables.merge.arrow import ArrowWriter
from mirror_engine.testing.landing_zone_writer import LandingZoneWriter
from mirror_engine.tools.compare import zone as compare_module
from mirror_engine.tools.compare.fabric_tables import StorageTables
from mirror_engine.tools.compare.zone import compare_zone

pytestmark = pytest.mark.slow
TYPES = {
    "Id": pa.int64(),
    "City": pa.string(),
    "Amount": pa.decimal128(9, 2),
    "Weight": pa.float64(),
    "At": pa.timestamp("us", "UTC"),
    "Count": pa.int64(),
}
NOON = datetime(2026, 11, 2, 12, 0, 0, 123456, tzinfo=UTC)
SOLD = datetime(2026, 11, 2, 8, 15, 29, 500000, tzinfo=UTC)
ITEMS = [
    {"Name": "Sku", "DataType": "String"},
    {"Name": "Note", "DataType": "String", "IsNullable": True},
    {"Name": "Sold", "DataType": "DateTime", "IsNullable": True},
]


def order(number, city="Linz", **cells):
    cells = {
        "Count": number + 2**16,
        "Amount": Decimal(number) + Decimal("0.25"),
        "Weight": number / 8,
        "At": NOON + timedelta(hours=number),
        **cells,
    }
    return {"Id": number, "City": city, **cells}


class Fabric:
    """A mirrored database whose Delta tables were written by another program, and can be falsified."""

    def __init__(self, root, **options):
        self.root, self.config = root, Config(**options)
        self.publisher = LandingZoneWriter(root)

    def mirror(self):
        """Let the tables be as they should, without a trace of this engine; files are archived."""
        with Mirror(self.root, self.config, writer=ArrowWriter(self.root / TABLES, self.root / SCRATCH)) as mirror:
            mirror.sync()
            rows = {folder: mirror.read_table(folder) for folder in mirror.tables()}
        for folder, table in rows.items():
            shutil.rmtree(self.root / TABLES / folder)
            write_deltalake(str(self.root / TABLES / folder), table)
        shutil.rmtree(self.root / ENGINE)
        return self

    def rows(self, folder="dbo/Orders"):
        return DeltaTable(str(self.root / TABLES / folder)).to_pyarrow_table()

    def plant(self, change, folder="dbo/Orders"):
        """Replace a table's content: `change` takes rows, or a whole Arrow table, and returns such."""
        table = self.rows(folder)
        changed = change(table) if change.__name__ == "of_table" else change(table.to_pylist())
        changed = changed if isinstance(changed, pa.Table) else pa.Table.from_pylist(changed, table.schema)
        write_deltalake(str(self.root / TABLES / folder), changed, mode="overwrite", schema_mode="overwrite")

    def says(self, **rows):
        """Let Fabric say how many rows it has processed."""
        tables = [
            {"normalizedTableName": name, "metrics": {"processedRowCount": count}} for name, count in rows.items()
        ]
        (self.root / TABLES_FILE).write_text(json.dumps({"tables": tables}))

    def compare(self, *tables, **options):
        work = self.root.parent / "work"
        fabric = StorageTables(ArrowWriter(self.root / TABLES, work / "read"))
        found = compare_zone(LocalStorage(self.root), fabric, self.config, work, tables=tables, **options)
        return {each.table: each for each in found}


@pytest.fixture(autouse=True)
def _cache(tmp_path, monkeypatch):
    monkeypatch.setenv("MIRROR_ENGINE_CACHE", str(tmp_path / "own-cache"))


@pytest.fixture
def fabric(tmp_path):
    """Six files of orders, of which Fabric has applied all; each key and file has its use."""
    fabric = Fabric(tmp_path / "root")
    fabric.orders = table = fabric.publisher.table("Orders", keys=["Id"], types=TYPES)
    table.insert(*(order(number, **({"City": None} if number == 12 else {})) for number in range(1, 21)))
    table.insert(*(order(number) for number in range(21, 31)))
    table.apply_changes(*((4, order(number, "Wels")) for number in (1, 2, 3, 4)), (4, order(5, "")))
    table.apply_changes(*((4, order(number, "Graz")) for number in (2, 3, 4)), (4, order(6, "Ried")))
    table.apply_changes((2, {"Id": 10}), (1, order(11, "Enns", Amount=Decimal("99.99"))), (0, order(31)))
    table.insert(order(40), order(41))
    items = fabric.publisher.table("Items", keys=["Sku"], columns=ITEMS, file_format="CSV", extension="csv")
    items.land(b'Sku,Note,Sold\r\nA,"",\r\nB,x,2026-11-02T08:15:29.5\r\n')
    items.land(b"Sku,Note,Sold\r\nC,y,\r\n")
    return fabric.mirror()


class Planted(NamedTuple):
    change: object
    kind: str
    rule: str
    file: int | None
    keys: tuple = ()
    other: int | None = None
    column: str | None = None
    count: int | None = None
    table: str = "Orders"


def name(number, ending="parquet"):
    return f"{number:020}.{ending}"


def with_row(*numbers, by="Id", **cells):
    return lambda rows: [{**row, **cells} if row[by] in numbers else row for row in rows]


def adding(*more):
    return lambda rows: [*rows, *more]


def without(*numbers):
    return lambda rows: [row for row in rows if row["Id"] not in numbers]


def doubling(*numbers):
    return lambda rows: rows + [row for row in rows if row["Id"] in numbers]


def of_column(column, made):
    def of_table(table):
        cells = made(table.column(column))
        return table.set_column(table.column_names.index(column), column, cells)

    return of_table


def whole(column, made, kind, rule, file=None):
    """A column as a whole, of 32 rows."""
    return Planted(of_column(column, made), kind, rule, file, column=column, count=32)


def one(number, kind, rule, file=1, **cell):
    """One cell of an order."""
    return Planted(with_row(number, **cell), kind, rule, file, (number,), column=next(iter(cell)))


def item(sku, kind, rule, **cell):
    """One cell of an item, in text."""
    change = with_row(sku, by="Sku", **cell)
    return Planted(change, kind, rule, 1, (sku,), column=next(iter(cell)), table="Items")


def in_seconds(cells):
    return cells.cast(pa.timestamp("s", "UTC"), safe=False).cast(pa.timestamp("us", "UTC"))


def an_hour_later(cells):
    return pa.chunked_array([pa.array([cell + timedelta(hours=1) for cell in cells.to_pylist()], cells.type)])


SECOND_FILE = tuple(range(21, 31))
STALE = {"City": "Linz", "Amount": Decimal("11.25")}  # of order 11 before its update
PLANTED = {
    "a lost delete": Planted(adding(order(10)), "lost_delete", "LZ-4.1", 5, (10,)),
    "a lost update": Planted(with_row(11, **STALE), "lost_update", "LZ-4.1", 5, (11,)),
    "a lost insert": Planted(without(40), "lost_insert", "LZ-4.1", 6, (40,)),
    "a doubled insert": Planted(doubling(31), "doubled_change", "LZ-4.18", 5, (31,)),
    "a file that was left out": Planted(without(*SECOND_FILE), "file_lost", "LZ-4.18", 2, SECOND_FILE),
    "a file applied twice": Planted(doubling(*SECOND_FILE), "file_twice", "LZ-4.18", 2, SECOND_FILE),
    # those keys of both files have the content of 3
    "two files in the wrong order": Planted(with_row(2, 3, 4, City="Wels"), "order", "LZ-4.2", 4, (2, 3, 4), other=3),
    "a wrong cast": one(3, "cast", "LZ-5.8", 4, Weight=0.0),
    "a column of another type": whole("Weight", lambda cells: cells.cast(pa.float32()), "column_type", "LZ-5.2", 1),
    "a missing column": whole("Weight", lambda cells: pa.nulls(len(cells), pa.float64()), "null_value", "LZ-4.5"),
    "NULL instead of ''": one(5, "empty_is_null", "LZ-6.8", 3, City=None),
    "'' and NULL in text": item("A", "empty_is_null", "LZ-6.8", Note=None),
    "a truncated time in text": item("B", "truncated_time", "LZ-6.9", Sold=SOLD.replace(microsecond=0)),
    "'' instead of NULL": one(12, "null_is_empty", "LZ-6.8", City=""),
    "a number that wrapped around": one(19, "cast", "LZ-5.8", Count=19 + 2**16 - 2**32),
    "a truncated timestamp": one(7, "truncated_time", "LZ-5.8", At=order(7)["At"].replace(microsecond=123000)),
    "all timestamps truncated": whole("At", in_seconds, "truncated_time", "LZ-5.8"),
    "a shifted timestamp": whole("At", an_hour_later, "shifted_time", "LZ-5.8"),
    "a row of no file": Planted(adding(order(77)), "no_file", "LZ-4.2", None, (77,)),
    "a changed row": Planted(with_row(8, City="Nowhere"), "other", "LZ-4.2", 1, (8,)),
}


@pytest.mark.parametrize("what", PLANTED)
def test_planted_difference_is_found_with_key_file_and_rule(fabric, what):
    plant = PLANTED[what]
    ending = "csv" if plant.table == "Items" else "parquet"
    fabric.plant(plant.change, f"dbo/{plant.table}")
    compared = fabric.compare()
    assert [each for each, found in compared.items() if found.verdict != "equal"] == [plant.table]
    found = compared[plant.table]
    assert found.verdict == "different"
    (finding,) = found.findings
    assert (finding.kind, finding.rule) == (plant.kind, plant.rule)
    assert finding.file == (plant.file and name(plant.file, ending))
    assert finding.other_file == (plant.other and name(plant.other))
    assert finding.column == plant.column
    if plant.keys:
        column = "Sku" if plant.table == "Items" else "Id"
        assert sorted(key.digest for key in finding.keys) == sorted(f"{column} = {key}" for key in plant.keys)
        assert {key.file for key in finding.keys} == {finding.file}
        assert all(key.row for key in finding.keys) or plant.kind == "no_file"
    assert finding.count == (plant.count or len(plant.keys))
    assert found.not_traced == 0
    assert found.not_yet == ()


def test_honest_mirror_is_equal(fabric):
    compared = fabric.compare()
    assert {each: (found.verdict, found.findings) for each, found in compared.items()} == {
        "Orders": ("equal", ()),
        "Items": ("equal", ()),
    }
    assert compared["Orders"].counts.equal == fabric.rows().num_rows == 32
    assert compared["Orders"].files == 6


def test_nullability_and_the_order_of_columns_do_not_count(fabric):
    def of_table(table):
        fields = [table.schema.field(name).with_nullable(name != "Id") for name in reversed(table.column_names)]
        return table.select([field.name for field in fields]).cast(pa.schema(fields))

    fabric.plant(of_table)
    assert {found.verdict for found in fabric.compare().values()} == {"equal"}


def test_all_at_once_are_told_apart(fabric):
    fabric.plant(adding(order(10), order(77)))
    fabric.plant(with_row(11, **STALE))
    fabric.plant(of_column("At", in_seconds))
    (found,) = fabric.compare("orders").values()
    kinds = {finding.kind: finding.count for finding in found.findings}
    assert kinds == {"truncated_time": 34 - 2, "lost_delete": 1, "lost_update": 1, "no_file": 1}


def test_lost_change_of_a_number_is_no_cast(fabric):
    fabric.plant(with_row(11, **STALE, Weight=order(11)["Weight"]))
    fabric.plant(with_row(8, Weight=1.5, Count=0))
    (found,) = fabric.compare("Orders").values()
    assert {(each.kind, each.column, each.keys[0].digest) for each in found.findings} == {
        ("lost_update", None, "Id = 11"),
        ("other", None, "Id = 8"),
    }


def test_more_keys_than_are_looked_at_are_counted(fabric, monkeypatch):
    monkeypatch.setattr(compare_module, "MAX_TRACED", 4)
    fabric.plant(PLANTED["a file that was left out"].change)
    (found,) = fabric.compare("Orders").values()
    assert [(each.kind, each.count, len(each.keys)) for each in found.findings] == [("file_lost", 10, 4)]
    assert found.not_traced == 0
    fabric.plant(without(*range(12, 20)))
    (found,) = fabric.compare("Orders").values()
    assert found.not_traced > 0


def test_a_commit_of_fabric_while_the_zone_is_read_does_not_count(fabric):
    class Committing(ArrowWriter):
        def rows(self, table, **options):
            if table == "dbo/Orders":
                fabric.plant(adding(order(77)))
            return super().rows(table, **options)

    work = fabric.root.parent / "work"
    tables = StorageTables(Committing(fabric.root / TABLES, work))
    (found,) = compare_zone(LocalStorage(fabric.root), tables, fabric.config, work, tables=["Orders"])
    assert found.verdict == "equal"


def test_of_an_archived_file_and_a_new_one_the_archived_is_the_applied_one(fabric):
    (fabric.publisher / "Orders" / name(1)).write_bytes((fabric.publisher / "Orders" / name(6)).read_bytes())
    assert fabric.compare("Orders")["Orders"].verdict == "equal"


def test_files_that_fabric_has_not_applied_are_no_difference(fabric):
    fabric.orders.insert(order(50))
    fabric.orders.apply_changes((4, order(1, "Nowhere")), (2, {"Id": 2}))
    (found,) = fabric.compare("Orders").values()
    assert (found.verdict, found.not_yet) == ("not_yet", (name(7), name(8)))
    fabric.plant(adding(order(50)))
    (found,) = fabric.compare("Orders").values()
    assert (found.verdict, found.not_yet) == ("not_yet", (name(8),))
    fabric.plant(adding(order(10)))
    (found,) = fabric.compare("Orders").values()
    assert (found.verdict, found.not_yet) == ("different", (name(8),))
    assert [(each.kind, each.count) for each in found.findings] == [("lost_delete", 1)]


def test_what_fabric_says_it_has_processed_is_applied(fabric):
    fabric.orders.insert(order(50))
    assert fabric.compare("Orders")["Orders"].verdict == "not_yet"
    fabric.says(Orders=20 + 10 + 5 + 4 + 3 + 2 + 1)
    (found,) = fabric.compare("Orders").values()
    assert [(each.kind, each.file) for each in found.findings] == [("lost_insert", name(7))]


def test_a_new_table_that_fabric_has_not_made_yet(fabric):
    fabric.publisher.table("New", keys=["Id"], types=TYPES).insert(order(1))
    assert (fabric.compare("New")["New"].verdict, fabric.compare("New")["New"].not_yet) == ("not_yet", (name(1),))
    shutil.rmtree(fabric.root / TABLES / "dbo/Orders")
    (found,) = fabric.compare("Orders").values()
    assert [(each.kind, each.rule, each.count) for each in found.findings] == [("table_missing", "LZ-1.4", 32)]


def test_a_table_without_a_folder_and_one_without_metadata(fabric):
    shutil.rmtree(fabric.publisher / "Items")
    (fabric.publisher / "Orders/_metadata.json").unlink()
    compared = fabric.compare()
    assert (compared["dbo.Items"].findings[0].kind, compared["dbo.Items"].findings[0].rule) == (
        "table_unknown",
        "LZ-7.2",
    )
    assert (compared["Orders"].verdict, compared["Orders"].state) == ("unknown", "unconfigured")
    with pytest.raises(UnknownTable):
        fabric.compare("Nothing")


def test_partitions_are_behind_each_for_itself(tmp_path):
    fabric = Fabric(tmp_path / "root")
    table = fabric.publisher.table("Visits", keys=["day", "id"], types={"id": pa.int64()}, partitioned=True)
    for day in (1, 2):
        for number in (1, 2):
            table.insert({"id": number}, partition=f"day={day}")
    fabric.mirror()
    table.insert({"id": 3}, partition="day=2")
    table.insert({"id": 4}, partition="day=2")
    (found,) = fabric.compare().values()
    assert (found.verdict, found.not_yet) == ("not_yet", (f"day=2/{name(3)}", f"day=2/{name(4)}"))
    fabric.plant(lambda rows: [*rows, {"id": 3, "day": "2"}], "dbo/Visits")
    assert fabric.compare()["Visits"].not_yet == (f"day=2/{name(4)}",)
    fabric.plant(lambda rows: [row for row in rows if row != {"id": 2, "day": "1"}], "dbo/Visits")
    (found,) = fabric.compare().values()
    assert [(each.kind, each.file) for each in found.findings] == [("lost_insert", f"day=1/{name(2)}")]


def test_rows_of_a_keyless_table_are_compared_as_a_whole(tmp_path):
    fabric = Fabric(tmp_path / "root")
    table = fabric.publisher.table("Log", types={"text": pa.string(), "level": pa.int32()})
    for number in range(4):
        table.insert(
            {"text": f"t{number}", "level": number}, {"text": None, "level": number}, {"text": "same", "level": 0}
        )
    fabric.mirror()
    assert fabric.compare()["Log"].verdict == "equal"
    fabric.plant(lambda rows: [*rows, {"text": "t1", "level": 1}], "dbo/Log")
    (finding,) = fabric.compare()["Log"].findings
    assert (finding.kind, finding.file, finding.keys[0].row) == ("doubled_change", name(2), 1)
    fabric.plant(lambda rows: [row for row in rows if row["level"] != 1 or not row["text"]], "dbo/Log")
    (found,) = fabric.compare().values()
    assert {(each.kind, each.file) for each in found.findings} == {("lost_insert", name(2))}


def test_a_file_that_came_late_is_no_difference_where_time_orders_files(tmp_path):
    fabric = Fabric(tmp_path / "root")
    table = fabric.publisher.table("Orders", keys=["Id"], types=TYPES, strategy="LastUpdateTimeFileDetection")
    table.upsert(order(1), order(2), order(3), name="b.parquet", modified_ns=2 * 10**18)
    fabric.mirror()
    table.upsert(order(1, "late"), order(2, "late"), order(9), name="a.parquet", modified_ns=10**18)
    fabric.plant(lambda rows: [order(1, "late"), order(2, "late"), rows[2], order(9)])
    (found,) = fabric.compare().values()
    assert (found.verdict, found.late) == ("equal", ("a.parquet",))
    fabric.plant(without(3))
    (found,) = fabric.compare().values()
    assert (found.verdict, found.late, found.findings[0].kind) == ("different", ("a.parquet",), "lost_update")


def test_keys_left_are_compared_without_their_history(fabric):
    for number in (1, 2):
        (fabric.publisher / "Orders/_FilesReadyToDelete" / name(number)).unlink()
    (found,) = fabric.compare("Orders").values()
    assert (found.verdict, found.is_partial) == ("equal", True)
    fabric.plant(lambda rows: [*(row for row in rows if row["Id"] not in (15, 3)), order(10)])
    (found,) = fabric.compare("Orders").values()
    kinds = {(each.kind, each.keys[0].digest) for each in found.findings}
    assert kinds == {("lost_delete", "Id = 10"), ("stale", "Id = 3")}


def test_keyless_compare_misses_only_rows_of_remaining_files(tmp_path):
    fabric = Fabric(tmp_path / "root")
    table = fabric.publisher.table("Log", types={"text": pa.string()})
    for number in range(3):
        table.insert({"text": f"t{number}"})
    fabric.mirror()
    (fabric.publisher / "Log/_FilesReadyToDelete" / name(1)).unlink()
    assert (fabric.compare()["Log"].verdict, fabric.compare()["Log"].is_partial) == ("equal", True)
    fabric.plant(lambda rows: [row for row in rows if row["text"] != "t1"], "dbo/Log")
    (finding,) = fabric.compare()["Log"].findings
    assert (finding.kind, finding.file) == ("lost_insert", name(2))


def test_a_history_by_time_is_gone_where_fabric_has_processed_more(tmp_path):
    fabric = Fabric(tmp_path / "root")
    table = fabric.publisher.table("Orders", keys=["Id"], types=TYPES, strategy="LastUpdateTimeFileDetection")
    for number in (1, 2):
        table.upsert(order(number), name=f"{number}.parquet", modified_ns=number * 10**18)
    fabric.mirror()
    (fabric.publisher / "Orders/_FilesReadyToDelete/1.parquet").unlink()
    fabric.says(Orders=2)
    (found,) = fabric.compare().values()
    assert (found.verdict, found.is_partial) == ("equal", True)


def test_fabric_read_on_where_the_replay_halts(fabric):
    fabric.orders.apply_changes((4, order(60)), (3, order(61)))
    assert fabric.compare("Orders")["Orders"].verdict == "equal"
    fabric.plant(adding(order(60), order(61)))
    (found,) = fabric.compare("Orders").values()
    (finding,) = found.findings
    assert (finding.kind, finding.file, finding.count) == ("rejected_here", name(7), 2)
    assert (finding.rule, found.diagnostic) == ("LZ-4.12", "ME037")


def test_duplicate_keys_and_null_keys_and_updates_by_column(tmp_path):
    fabric = Fabric(tmp_path / "root")
    types = {"id": pa.int64(), "city": pa.string(), "zip": pa.int32()}
    table = fabric.publisher.table("T", keys=["id"], types=types)
    rows = {number: {"id": number, "city": "a", "zip": number} for number in (1, 2, 3)}
    table.insert(*rows.values(), rows[1], {"id": None, "city": "n", "zip": 0})
    table.insert(rows[2])
    table.upsert({"id": 1, "city": "b", "zip": 9})
    table.land_parquet(pa.table({"id": [3], "city": ["c"], "__rowMarker__": [4]}))
    fabric.mirror()
    assert fabric.compare()["T"].verdict == "equal"

    def changed(rows):
        kept = [row for row in rows if row["id"] not in (1, 2, 3)]
        one = [{"id": 1, "city": "a", "zip": 1}, {"id": 1, "city": "b", "zip": 9}]
        return [*kept, *one, {"id": 2, "city": "a", "zip": 2}, {"id": 3, "city": "c", "zip": 3}]

    fabric.plant(changed, "dbo/T")
    (found,) = fabric.compare().values()
    rules = {(each.kind, each.rule) for each in found.findings}
    assert rules >= {("copies", "LZ-4.4"), ("kept_values", "LZ-4.5")}


CHANGES = st.tuples(st.sampled_from([0, 1, 2, 4]), st.integers(1, 5), st.sampled_from(["a", "b", ""]))
FILES = st.lists(st.lists(CHANGES, min_size=1, max_size=5), min_size=1, max_size=6)
FALSIFIED = st.sampled_from(["a row is gone", "a row is there twice", "a cell is another one", "a row of no file"])


@settings(max_examples=int(os.environ.get("MIRROR_TEST_COMPARED", "10")))
@given(FILES, st.integers(1, 6), FALSIFIED, st.integers(0, 20))
def test_falsified_key_is_found_in_any_mirror(files, applied, how, at):
    with quick_folder() as folder:
        root, fabric = Path(folder, "root"), SharedMemoryWriter()
        table = LandingZoneWriter(root).table("T", keys=["id"], types={"id": pa.int64(), "text": pa.string()})
        for number, changes in enumerate(files, start=1):
            table.apply_changes(*((marker, {"id": key, "text": text}) for marker, key, text in changes))
            if number == min(applied, len(files)):
                Mirror(root, Config(), writer=fabric).sync()
        (found,) = compare_zone(LocalStorage(root), StorageTables(fabric), Config(), Path(folder, "work"), limit=100)
        assert (found.findings, set(found.not_yet) <= {name(each) for each in range(applied + 1, 7)}) == ((), True)
        Mirror(root, Config(), writer=fabric).sync()
        rows = fabric.rows("dbo/T").to_pylist()
        fabric.write_as_another("dbo/T", falsified(rows, how, at))
        (found,) = compare_zone(LocalStorage(root), StorageTables(fabric), Config(), Path(folder, "work"), limit=100)
        keys = {key.digest for each in found.findings for key in each.keys}
        wanted = rows[at % len(rows)]["id"] if rows and how != "a row of no file" else 9
        assert (found.verdict, keys) == ("different", {f"id = {wanted}"})


def falsified(rows, how, at):
    if not rows or how == "a row of no file":
        return [*rows, {"id": 9, "text": "x"}]
    at %= len(rows)
    row = {**rows[at], "text": "other"}
    others = [*rows[:at], *rows[at + 1 :]]
    return {"a row is gone": others, "a row is there twice": [*rows, rows[at]]}.get(how, [*others, row])


def test_million_rows_are_compared_without_an_object_for_each(tmp_path, monkeypatch):
    count = 300_000
    monkeypatch.setattr(compare_module, "plain_rows", counting(compare_module.plain_rows, rows := []))
    fabric = Fabric(tmp_path / "root")
    table = fabric.publisher.table("Big", keys=["id"])
    ids = np.arange(count)
    table.land_parquet(pa.table({"id": ids, "text": pa.array(ids).cast(pa.string())}))
    fabric.mirror()
    fabric.plant(dropping(range(1000)), "dbo/Big")
    (found,) = fabric.compare(limit=3).values()
    assert (found.counts.missing, found.counts.equal) == (1000, count - 1000)
    assert found.findings[0].count == 1000 - found.not_traced
    assert found.not_traced == 1000 - compare_module.MAX_TRACED
    assert sum(rows) < 5_000


def counting(function, counts):
    def counted(rows):
        counts.append(rows.num_rows)
        return function(rows)

    return counted


def dropping(ids):
    def of_table(table):
        return table.filter(pa.compute.invert(pa.compute.is_in(table.column("id"), pa.array(list(ids)))))

    return of_table


def test_report_has_no_value_of_a_row(fabric, cli):
    fabric.plant(lambda rows: [*rows, order(10, "Secret City", Amount=Decimal("8675.30"))])
    text = cli("compare", fabric.root)
    document = cli("compare", fabric.root, "--json")
    assert text[0] == document[0] == 3
    assert "LZ-4.1" in text[1]
    for words in (*text[1:], *document[1:]):
        assert not [value for value in ("Secret", "8675", "Linz", "Id = ", '"Id": 10') if value in words]
    (key,) = json.loads(document[1])["tables"][1]["findings"][0]["keys"]
    assert key == {"digest": key["digest"], "file": name(5), "row": 1}
    assert len(key["digest"]) == 12
    assert key["digest"] in text[1]
    code, _, error = cli("compare", fabric.root, "--show-keys")
    assert (code, "on a terminal only" in error) == (2, True)


def test_partition_values_in_paths_are_digests(tmp_path, cli):
    fabric = Fabric(tmp_path / "root")
    table = fabric.publisher.table("Visits", keys=["id"], types={"id": pa.int64()}, partitioned=True)
    for number in (1, 2):
        table.insert({"id": number}, partition="patient=Huber")
    fabric.mirror()
    fabric.plant(lambda rows: rows[:1], "dbo/Visits")
    code, out, _ = cli("compare", fabric.root, "--json")
    assert (code, "Huber" in out, "patient=" in out) == (3, False, True)
    assert "Huber" not in cli("compare", fabric.root)[1]


def test_exit_code_is_0_for_equal_tables_and_2_without_a_zone(fabric, tmp_path, cli):
    assert cli("compare", fabric.root)[0] == 0
    (tmp_path / "empty").mkdir()
    assert cli("compare", tmp_path / "empty")[0] == 2
    before = sorted((str(path), path.stat().st_mtime_ns) for path in fabric.root.rglob("*"))
    cli("compare", fabric.root)
    assert sorted((str(path), path.stat().st_mtime_ns) for path in fabric.root.rglob("*")) == before


@pytest.fixture
def stored(fabric, s3_server):
    """The same in a store, by a function that copies files of ROOT there."""
    with s3_server.in_use():
        url = s3_server.new_root()
        storage = open_storage(url)

        def stored(folder=""):
            for path in sorted(filter(Path.is_file, (fabric.root / folder).rglob("*"))):
                storage.write(path.relative_to(fabric.root).as_posix(), path.read_bytes())
            return url

        yield stored


def test_zone_in_a_store_is_pulled_and_compared_and_not_written(fabric, stored, cli):
    url = stored()
    before = everything(url)
    assert cli("compare", url, "--max-download", "10B")[0] == 2
    code, out, error = cli("compare", url)
    assert (code, out) == (0, cli("compare", fabric.root)[1]), error
    here = fabric.root.parent / "here"
    assert cli("pull", url, here)[0] == 0
    assert len(list((here / ZONE / "Orders").glob("*.parquet"))) == 6
    assert everything(url) == before
    fabric.plant(adding(order(10)))
    stored(TABLES)
    code, out, _ = cli("compare", url, "Orders", "--json")
    (finding,) = json.loads(out)["tables"][0]["findings"]
    assert (code, finding["kind"], finding["rule"], finding["file"]) == (3, "lost_delete", "LZ-4.1", name(5))
