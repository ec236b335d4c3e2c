"""A table's change data feed says what `replay` does, whichever engine merges and whoever reads (LZ-9.10)."""

from __future__ import annotations

import itertools
import random
from collections import Counter

import pyarrow as pa
import pytest
from delta_protocol import protocol_faults
from delta_scenario import KEYS, SIMPLE, Scenario, aged, changes_of, passthrough_rows, schema_of
from deltalake import DeltaTable
from independent_readers import content, fed

from mirror_engine import Config, Mirror, RunResult
from mirror_engine.landing_zone.change import Change, RowMarker, replay, same_key
from mirror_engine.tables.base import ChangeBatch
from mirror_engine.tables.merge import spark as spark_engine
from mirror_engine.tables.merge.arrow import ArrowWriter
from mirror_engine.tables.merge.spark import SparkDeltaWriter
from mirror_engine.testing.landing_zone_writer import LandingZoneWriter


def net_changes(before, batch, names, keys):
    """Net changes of a batch to a table's rows (LZ-9.10): each kind and row, counted; and the rows after it.

    Args:
        before: the table's rows.
        batch: rows of one file: the marker, then the values.
        names: of the columns.
        keys: of the key columns.
    """
    changes = changes_of(names, keys, batch)
    after, _ = replay(before, changes, keys)
    fed: Counter[tuple[str, frozenset[object]]] = Counter()
    by_key: dict[object, list[Change]] = {}
    for change in changes:
        by_key.setdefault(same_key(change.key), []).append(change)
    for key, own in by_key.items():
        old, new = (_rows_of(key, table, keys) for table in (before, after))
        setting = [change for change in own if change.marker != RowMarker.INSERT]
        if key is None or not setting:
            inserted = new - old
        elif any(change.marker == RowMarker.DELETE for change in own):
            inserted = new
            fed.update({("delete", row): count for row, count in old.items()})
        else:
            replaced = Counter({content(setting[-1].row): old.total()})
            inserted = new - replaced
            fed.update({("update_preimage", row): count for row, count in old.items()})
            fed.update({("update_postimage", row): count for row, count in replaced.items() if count})
        fed.update({("insert", row): count for row, count in inserted.items()})
    return fed, after


def _rows_of(key, table, keys):
    return Counter(content(row) for row in table if same_key(tuple(row[name] for name in keys)) == key)


@pytest.fixture
def feeding_writer(tmp_path):
    return ArrowWriter(tmp_path / "Tables", tmp_path / "scratch", "on")


class Turns:
    """Two engines on the same tables, each of which applies every other batch."""

    def __init__(self, writer, scratch):
        local = ArrowWriter(writer._root, scratch, "on")
        self._turns = itertools.cycle([local, writer])
        self.path = writer.path

    def apply(self, *arguments):
        return next(self._turns).apply(*arguments)


def replayed(table, *batches, rows=()):
    """Apply batches, each in one commit; per version what `replay` says that its feed says."""
    expected, names = {}, table.schema.names
    for batch in batches:
        said, rows = net_changes(rows, batch, names, table.keys)
        version = table.change(*batch).version
        if said:
            expected[version] = said
    return expected


def random_batches(choose, cells, count):
    return [
        [(choose.choice((0, 0, 1, 2, 4)), *map(choose.choice, cells)) for _ in range(choose.randrange(1, 15))]
        for _ in range(count)
    ]


def read_by_deltalake(folder, since=0):
    return fed(pa.table(DeltaTable(str(folder)).load_cdf(starting_version=since)))


def read_by_spark(spark, folder):
    return fed(
        spark.read.option("readChangeFeed", "true")
        .option("startingVersion", 0)
        .format("delta")
        .load(str(folder))
        .toArrow()
    )


@pytest.mark.parametrize(("form", "kind"), [*zip(itertools.cycle(["rewritten", "marked"]), KEYS, strict=False)])
@pytest.mark.slow
def test_arrow_feeds_random_changes_of_every_type(feeding_writer, request, form, kind):
    if form == "marked":
        request.getfixturevalue("marking")
    table = Scenario(feeding_writer, schema_of(f"k:{kind}", f"c:{kind}", "v:long"), ["k"])
    cells = [*KEYS[kind], None]
    expected = replayed(table, *random_batches(random.Random(kind), [cells, cells, range(3)], 4))
    assert read_by_deltalake(table.folder) == expected
    assert [fault for fault in protocol_faults(table.folder) if not fault.startswith("statistics")] == []


# inserts, key changes, duplicates, upserts, deletes and inserts again, nothing
LOG = [
    [(0, 1, "Linz"), (0, 2, "Wels"), (0, 2, "Wels"), (0, 3, "Ried"), (0, None, "Enns")],
    [(1, 1, "Graz"), (2, 3, None), (0, 4, "Bad Ischl"), (4, 2, "Wels"), (4, 5, "Melk")],
    [(2, 4, None), (0, 40, "Bad Ischl"), (2, 5, None), (0, 5, "Melk"), (0, 1, "Linz"), (1, 1, "Hall")],
    [(2, 99, None)],
    [(2, 2, None), (4, 1, "Hall"), (4, None, "Enns"), (0, 6, "Zell"), (1, 6, "Zell am See"), (2, 6, None)],
]


@pytest.mark.spark
@pytest.mark.parametrize(("form", "parts"), [("rewritten", []), ("marked", ["in City"])], ids=["whole", "partitioned"])
def test_spark_reads_the_feed_of_mapped_tables_of_arrow(feeding_writer, spark, request, form, parts):
    if form == "marked":
        request.getfixturevalue("marking")
    table = Scenario(feeding_writer, schema_of("my Id", "in City:string", partitions=parts), ["my Id"])
    expected = replayed(table, *LOG)
    assert len(expected) == 4
    assert read_by_spark(spark, table.folder) == expected
    assert protocol_faults(table.folder) == []


@pytest.mark.spark
@pytest.mark.parametrize("form", ["mapped", "marked rows"])
def test_spark_reads_from_the_feed_of_each_commit_what_replay_does(fresh, spark, tmp_path, monkeypatch, form):
    """Spark merges mapped tables; where it marks rows, it and deltalake take turns."""
    monkeypatch.setattr(fresh, "_feed", "on")
    monkeypatch.setattr(spark_engine, "VECTORS_FROM_ROWS", 0 if form == "marked rows" else 1_000_000)
    names, parts = (("my Id", "in City"), ["in City"]) if form == "mapped" else (("Id", "City"), [])
    engine = Turns(fresh, tmp_path) if form == "marked rows" else fresh
    table = Scenario(engine, schema_of(names[0], f"{names[1]}:string", partitions=parts), names[:1])
    expected = replayed(table, *LOG)
    assert len(expected) == 4
    assert read_by_spark(spark, table.folder) == expected
    if form == "marked rows":
        assert list(table.folder.glob("deletion_vector*"))
    else:
        assert protocol_faults(table.folder) == []


@pytest.mark.slow
@pytest.mark.parametrize("names", [("Id", "a`b"), ("`Id`", "City"), ("`", "``")])
@pytest.mark.parametrize("wanted", ["on", "keep"])
def test_backtick_in_a_column_name_does_not_halt_the_feed_on_spark(tmp_path, names, wanted):
    """LZ-1.10: Delta's MERGE does not quote it in change data, so Spark is not asked."""
    writer = SparkDeltaWriter(tmp_path / "Tables", tmp_path / "scratch", no_spark, change_data_feed=wanted)
    table = Scenario(writer, schema_of(names[0], f"{names[1]}:string"), names[:1])
    table.apply()
    if wanted == "keep":
        DeltaTable(str(table.folder)).alter.set_table_properties({"delta.enableChangeDataFeed": "true"})
        table.version = writer.snapshot("dbo/T").version
    since = table.version
    expected = replayed(table, *LOG)
    assert len(expected) == 4
    assert read_by_deltalake(table.folder, since) == expected
    faults = protocol_faults(table.folder)
    assert [
        fault for fault in faults if not fault.startswith("features")
    ] == []  # deltalake's own, where it set the feed


def no_spark():
    pytest.fail("Spark started")


@pytest.mark.parametrize("is_known", [False, True])
def test_files_added_unchanged_are_inserts_of_the_feed(feeding_writer, tmp_path, is_known):
    table = Scenario(feeding_writer, SIMPLE, ["Id"])
    if is_known:
        table.apply()
    table.batch += 1
    added = passthrough_rows(tmp_path, table.file(SIMPLE.names, (0, 1, "Linz"), (0, 2, "Wels")))
    outcome = feeding_writer.apply("dbo/T", ChangeBatch((added,), SIMPLE, ("Id",)), table.record(added))
    assert outcome.applied_by == "passthrough"
    said, _ = net_changes([], [(0, 1, "Linz"), (0, 2, "Wels")], SIMPLE.names, ["Id"])
    assert read_by_deltalake(table.folder) == {outcome.version: said}


@pytest.mark.slow
def test_change_data_stays_as_long_as_old_data_files_do(feeding_writer):
    table = Scenario(feeding_writer, SIMPLE, ["Id"])
    table.change((0, 1, "Linz"))
    table.change((1, 1, "Wels"))
    table.change((1, 1, "Enns"))
    folder = table.folder
    older, newer = sorted((folder / "_change_data").rglob("*.parquet"), key=lambda file: file.stat().st_mtime_ns)
    aged([older], 2)
    feeding_writer.maintain("dbo/T", 24.0)
    assert not older.exists()
    assert newer.exists()
    feeding_writer.make_durable("dbo/T", -1)  # what was vacuumed is no damage
    assert table.found() == [(1, "Enns")]


@pytest.mark.slow
@pytest.mark.parametrize("wanted", ["keep", "on", "off"])
def test_a_feed_that_somebody_else_turned_on_ends_only_where_that_is_asked_for(tmp_path, wanted):
    writer = ArrowWriter(tmp_path / "Tables", tmp_path / "scratch", wanted)
    table = Scenario(writer, SIMPLE, ["Id"])
    table.change((0, 1, "Linz"))
    folder = table.folder
    if wanted != "on":
        DeltaTable(str(folder)).alter.set_table_properties({"delta.enableChangeDataFeed": "true"})
    table.version = writer.snapshot("dbo/T").version
    table.change((1, 1, "Wels"))
    has_feed = wanted != "off"
    properties = DeltaTable(str(folder)).metadata().configuration
    assert properties.get("delta.enableChangeDataFeed", "false") == str(has_feed).lower()
    assert (folder / "_change_data").exists() is has_feed


def test_feed_begins_with_the_next_change(feeding_writer):
    table = Scenario(feeding_writer, SIMPLE, ["Id"])
    feeding_writer._feed = "keep"
    table.change((0, 1, "Linz"))
    feeding_writer._feed = "on"
    rows = [{"Id": 1, "City": "Linz"}]
    expected = replayed(table, [(1, 1, "Wels"), (0, 2, "Enns")], rows=rows)
    assert [entry.operation for entry in feeding_writer.history("dbo/T")] == [
        "MERGE",
        "WRITE",
        "CREATE TABLE",
    ]
    found = pa.table(DeltaTable(str(table.folder)).load_cdf(starting_version=2))
    assert fed(found) == expected
    assert protocol_faults(table.folder) == []
    table.change((1, 1, "Graz"))
    assert feeding_writer.history("dbo/T", limit=1)[0].version == 3


@pytest.mark.slow
def test_a_mirror_with_the_option_feeds_and_keeps_the_names_that_the_feed_needs(tmp_path):
    """LZ-5.12: in a table that has, or had, a feed."""
    zone = LandingZoneWriter(tmp_path)
    table = zone.table("T", keys=["Id"])
    for feed, name, result in [
        ("on", "City", RunResult.CAUGHT_UP),
        ("off", "Zip", RunResult.CAUGHT_UP),
        ("off", "_change_type", RunResult.NEEDS_ATTENTION),
    ]:
        table.upsert({"Id": 1, name: "Linz"})
        with Mirror(tmp_path, Config(merge_engine="arrow", change_data_feed=feed)) as mirror:
            assert mirror.sync().result is result
    assert [entry.operation for entry in mirror.history("T")][:2] == ["MERGE", "WRITE"]
