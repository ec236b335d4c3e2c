"""The landing zone writer for production: what it lands, what it refuses, and what a crash leaves."""

from __future__ import annotations

import errno
import json
import os
import random
import re
import signal
import sqlite3
import subprocess
import sys
import time
from contextlib import suppress
from functools import partial
from pathlib import Path
from textwrap import dedent

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from azure.core.credentials import AzureNamedKeyCredential
from azure.identity import DefaultAzureCredential
from azure.storage.filedatalake import FileSystemClient, LinearRetry
from obstore.store import LocalStore
from scripted_faults import Acting, Failing, Fault, Script, faulty
from sessions import steps
from store_servers import ACCOUNT, AZURITE_KEY, ONE_BY_DAY

from mirror_engine import publish
from mirror_engine.config import Config
from mirror_engine.errors import UnknownTable
from mirror_engine.landing_zone import schema as schema_rules
from mirror_engine.landing_zone.layout import MONITORING, ZONE
from mirror_engine.mirror import Mirror
from mirror_engine.publish import MARKER, Conflict, Folder, LandingZone, Refused
from mirror_engine.tables.dry_run.memory import MemoryDeltaWriter
from mirror_engine.testing.landing_zone_writer import LandingZoneWriter
from mirror_engine.testing.mirror import MirrorInTest
from mirror_engine.testing.scenarios import (
    FaultKind,
    FaultyFiles,
    SimulatedCrash,
    Source,
    check_publisher,
    row_problems,
)

HOW_TO = Path(__file__).parents[1] / "docs/how-to/write-a-publisher.md"
ORDERS = [{"id": 1, "city": "Linz"}, {"id": 2, "city": "Wels"}]


@pytest.fixture
def landing(tmp_path):
    return LandingZone(tmp_path / ZONE)


@pytest.fixture
def in_memory(tmp_path):
    """The mirror of the zone, whose tables are in memory."""
    with MirrorInTest(tmp_path, writer=MemoryDeltaWriter()) as mirror:
        yield mirror


def mirror_of(root):
    """The mirror of a ROOT whose zone is empty so far."""
    (root / ZONE).mkdir(parents=True)
    return MirrorInTest(root, writer=MemoryDeltaWriter())


def rows_of(mirror, name="Orders"):
    mirror.sync_until_caught_up()
    return [*mirror.table(name).rows()]


def file(number):
    return f"{number:020d}.parquet"


def monitor(root, rows, at, error=""):
    """Write what a mirror says of the table Orders."""
    entry = {"sourceSchemaName": "", "sourceTableName": "Orders", "errorMessage": error}
    entry["metrics"] = {"processedRowCount": rows, "lastSyncTimeUtc": at}
    (root / MONITORING).mkdir(parents=True, exist_ok=True)
    (root / MONITORING / "tables.json").write_text(json.dumps({"tables": [entry]}))


def uploads(folder):
    """What is left of uploads below a folder."""
    return [each.name for each in folder.rglob("*.uploading")]


def publish_source(source, files, _state, **options):
    """Publish what `check_publisher` gives."""
    with LandingZone(files).table(source.name, keys=source.keys, **options) as table:
        done = table.position
        if done is None or done["generation"] != source.generation:
            table.recreate()
            done = {"generation": source.generation, "at": source.position}
            table.insert(source.rows())
            table.flush(done)
        no_values = dict.fromkeys(source.columns)
        changes = source.changes(after=done["at"])
        for change in changes:
            if change.before and (change.kind == "delete" or change.before["id"] != change.after["id"]):
                table.delete(change.before)
            if change.after:
                table.upsert({**no_values, **change.after})
        if changes:
            table.flush({**done, "at": changes[-1].position})


@pytest.mark.slow
@pytest.mark.parametrize("file_bytes", [1, publish.FILE_BYTES], ids=["a file a change", "a file a run"])
def test_writer_passes_all_scenarios(file_bytes):
    check_publisher(partial(publish_source, file_bytes=file_bytes)).assert_all_passed()


class Crashing(Folder):
    """Ends the process before or after one of its calls."""

    def __init__(self, path, at):
        super().__init__(path)
        self.left = at

    def write(self, path, content):
        self._call(partial(super().write, path, content))

    def rename(self, source, target):
        self._call(partial(super().rename, source, target))

    def delete(self, path):
        self._call(partial(super().delete, path))

    def _call(self, act):
        for each in (act, lambda: None):
            self.left -= 1
            if self.left == 0:
                raise SimulatedCrash
            each()


@pytest.mark.slow
@pytest.mark.parametrize("loads", [False, True], ids=["changes", "a load"])
def test_crash_at_every_call_loses_and_doubles_no_row(tmp_path, loads):
    """A process that ends before or after any call: the next one goes on, and the mirror equals the source."""
    source, at, has_crashed = Source(), 0, True
    with mirror_of(tmp_path) as mirror:
        while has_crashed:
            at += 1
            source.delete(2)
            source.insert(2, city="Enns")
            source.update(1, city="before")
            source.generation += loads
            files = Crashing(tmp_path / ZONE, at)
            with suppress(SimulatedCrash):
                publish_source(source, files, {}, file_bytes=1)
            has_crashed = files.left <= 0
            mirror.sync()
            source.update(1, city=f"after {at}")
            publish_source(source, Folder(tmp_path / ZONE), {}, file_bytes=1)
            assert row_problems(source, rows_of(mirror)) == [], f"crash at call {at}"
            assert uploads(tmp_path) == []
    assert at > 10


def shop(folder):
    """A SQLite database with orders."""
    database = folder / "shop.db"
    with sqlite3.connect(database) as source:
        source.execute("CREATE TABLE orders (id INTEGER PRIMARY KEY, city TEXT, amount REAL)")
        source.executemany("INSERT INTO orders VALUES (?, ?, ?)", [(key, "Linz", key / 2) for key in range(500)])
    source.close()
    return database


def change(database, chance):
    """Insert, update and delete some rows; now and then change a key."""
    with sqlite3.connect(database) as source:
        for _ in range(chance.randrange(1, 30)):
            key, other = chance.randrange(900), chance.randrange(900)
            city = chance.choice(["Linz", "Wels", None])
            match chance.randrange(4):
                case 0:
                    source.execute("INSERT OR REPLACE INTO orders VALUES (?, ?, ?)", (key, city, key / 4))
                case 1:
                    source.execute("UPDATE orders SET city = ? WHERE id = ?", (city, key))
                case 2:
                    source.execute("DELETE FROM orders WHERE id = ?", (key,))
                case 3:
                    source.execute("UPDATE OR IGNORE orders SET id = ? WHERE id = ?", (other, key))
    source.close()


# Publishes in a child for each line that it reads, again and again, until the child is killed; small files
PUBLISHER = """
import os, sys
import mirror_engine.publish as p
from shop_publisher import publish
p.LandingZone.table.__kwdefaults__["file_bytes"], p.DICTS = 20_000, 40
for line in sys.stdin:
    if not (child := os.fork()):
        print(os.getpid(), flush=True)
        sys.stdout = open(os.devnull, "w")
        while True:
            publish(*sys.argv[1:])
            if line == "once\\n":
                os._exit(0)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""


@pytest.mark.slow
@pytest.mark.parametrize("kills", [5, pytest.param(200, marks=[pytest.mark.nightly, pytest.mark.timeout(1200)])])
def test_publisher_killed_at_random_loses_and_doubles_no_row(tmp_path, kills):
    """SIGKILL at any moment of the how-to's own publisher, with files of a few rows each."""
    program = next(step.text for step in steps(HOW_TO) if step.kind == "shop_publisher.py")
    assert len(program.splitlines()) < 60
    (tmp_path / "shop_publisher.py").write_text(program)
    database, root, chance = shop(tmp_path), tmp_path / "mirror", random.Random(7)
    command = [sys.executable, "-c", PUBLISHER, database, root / ZONE]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True, "bufsize": 1}
    with mirror_of(root) as mirror, subprocess.Popen(command, cwd=tmp_path, **pipes) as process:
        for _ in range(kills):
            process.stdin.write("go\n")
            child = int(process.stdout.readline())
            for _ in range(chance.randrange(4)):
                change(database, chance)
            time.sleep(chance.random() * 0.05)
            os.kill(child, signal.SIGKILL)
            assert int(process.stdout.readline()) == -signal.SIGKILL
            with suppress(UnknownTable):
                mirror.sync()
        process.stdin.write("once\n")
        assert [process.stdout.readline() for _ in range(2)][1] == "0\n"
        process.stdin.close()
        with sqlite3.connect(database) as source:
            expected = source.execute("SELECT * FROM orders ORDER BY id").fetchall()
        source.close()
        assert [tuple(row.values()) for row in rows_of(mirror, "Sales.Orders")] == expected


@pytest.mark.slow
def test_publisher_of_the_how_to_publishes_inserts_updates_and_deletes(tmp_path):
    program = next(step.text for step in steps(HOW_TO) if step.kind == "shop_publisher.py")
    names = {"__name__": "shop_publisher"}
    exec(compile(program, "shop_publisher.py", "exec"), names)  # noqa: S102 - of our own page
    database, root, chance = shop(tmp_path), tmp_path / "mirror", random.Random(1)
    with mirror_of(root) as mirror:
        for _ in range(4):
            names["publish"](str(database), str(root / ZONE))
            mirror.sync_until_caught_up()
            mirror.advance(days=7)
            change(database, chance)
        names["publish"](str(database), str(root / ZONE))
        with sqlite3.connect(database) as source:
            expected = source.execute("SELECT * FROM orders ORDER BY id").fetchall()
            assert source.execute("SELECT count(*) FROM changed").fetchone() == (0,)
        source.close()
        assert [tuple(row.values()) for row in rows_of(mirror, "Sales.Orders")] == expected


TABLE = pa.table({"id": pa.array([1, 2]), "city": ["Linz", "Wels"]})


class Stream:
    """What polars and others give: an Arrow stream, with text in views."""

    def __arrow_c_stream__(self, requested_schema=None):
        views = TABLE.set_column(1, "city", TABLE["city"].cast(pa.string_view()))
        return views.__arrow_c_stream__(requested_schema)


@pytest.mark.parametrize(
    "rows",
    [TABLE, TABLE.to_batches()[0], TABLE.to_reader(max_chunksize=1), Stream(), ORDERS, (row for row in ORDERS)],
    ids=["table", "batch", "reader", "stream", "dicts", "generator"],
)
def test_rows_may_be_arrow_or_dicts(landing, in_memory, rows):
    with landing.table("Orders", keys=["id"]) as table:
        table.upsert(rows)
    assert rows_of(in_memory) == ORDERS
    in_memory.assert_no_diagnostics()


@pytest.mark.parametrize("library", ["pandas", "polars"])  # neither comes with the extra `test`
def test_rows_may_be_a_data_frame(landing, in_memory, library):
    frame = pytest.importorskip(library).DataFrame(ORDERS)
    with landing.table("Orders", keys=["id"]) as table:
        table.upsert(frame[1:])
        table.upsert(frame[:1])
    assert rows_of(in_memory) == ORDERS
    in_memory.assert_no_diagnostics()


def test_changes_are_applied_in_the_order_of_the_calls(landing, in_memory):
    with landing.table("Sales.Orders", keys=["id"]) as table:
        table.insert(ORDERS)
        table.update({"id": 1, "city": "Graz"})
        table.delete({"id": 2})
        table.upsert({"id": 2, "city": "Perg"})
        table.delete(pa.table({"id": [1]}))
    assert rows_of(in_memory, "Sales.Orders") == [{"id": 2, "city": "Perg"}]
    in_memory.assert_no_diagnostics()


def test_initial_load_has_no_marker_and_later_files_have_it_last(landing, tmp_path):
    with landing.table("Orders", keys=["id"]) as table:
        table.insert(ORDERS)
        table.flush()
        table.delete({"id": 1})
    with landing.table("Orders", keys=["id"]) as table:  # as of another process
        table.insert({"id": 3, "city": None, "note": "new"})
    names = [pq.read_schema(tmp_path / ZONE / "Orders" / file(number)).names for number in (1, 2, 3)]
    assert names == [["id", "city"], ["id", "city", MARKER], ["id", "city", "note", MARKER]]


def test_types_are_landed_as_the_mirror_reads_them(landing, in_memory):
    instant = pa.scalar(1_700_000_000_123_456_789, pa.timestamp("ns"))
    columns = {
        "id": pa.array([1], pa.uint64()),
        "small": pa.array([255], pa.uint8()),
        "word": pa.array(["a"]).dictionary_encode(),
        "at": pa.array([instant.value], pa.timestamp("ns", tz="Europe/Vienna")),
        "naive": pa.array([instant.value], pa.timestamp("ns")),
        "before 1970": pa.array([-1], pa.timestamp("ns")),
        "day": pa.array([86_400_000], pa.date64()),
        "nothing": pa.nulls(1),
    }
    with landing.table("Orders", keys=["id"]) as table:
        table.upsert(pa.table(columns))
    in_memory.sync_until_caught_up()
    in_memory.assert_no_diagnostics()
    found = in_memory.table("Orders").arrow()
    assert [str(kind) for kind in found.schema.types] == [
        "decimal128(20, 0)",
        "int16",
        "string",
        *["timestamp[us, tz=UTC]"] * 3,
        "date32[day]",
    ]
    times = [found[name].cast(pa.int64()).to_pylist() for name in ("at", "naive", "before 1970")]
    assert times == [[1_700_000_000_123_456], [1_700_000_000_123_456], [-1]]  # cut towards the past


EMPTY = TABLE.schema.empty_table()


@pytest.mark.parametrize(
    "rows", [EMPTY, pa.RecordBatch.from_pylist([], TABLE.schema), EMPTY.to_reader()], ids=["table", "batch", "reader"]
)
def test_arrow_without_rows_pins_the_schema(landing, in_memory, rows):
    with landing.table("Orders", keys=["id"]) as table:
        table.upsert(rows)
        table.flush(1)
        with pytest.raises(Refused, match=r"column `city` is int64, the table has string \[ME044\]"):
            table.upsert({"id": 1, "city": 1})
    assert rows_of(in_memory) == []
    assert in_memory.table("Orders").arrow().schema.types == TABLE.schema.types
    in_memory.assert_no_diagnostics()


def test_arrow_without_rows_pins_no_other_columns_of_deletes(landing):
    table = landing.table("Orders", keys=["id"])
    table.delete(EMPTY)
    table.upsert(EMPTY.select([]))  # no column, no claim
    table.upsert({"id": 1, "city": 7})
    table.upsert(EMPTY.select(["id"]))  # no row lacks a column
    assert table.flush().rows == 1


@pytest.mark.parametrize(
    ("rows", "code"),
    [
        (lambda: pa.table({"id": [2], "extra": [1]}), "ME041"),
        (lambda: pytest.importorskip("pandas").DataFrame({"id": [2], "extra": [1]}), "ME041"),
        (lambda: {"id": None, "city": "Graz", "extra": 1}, "ME040"),
        (lambda: {"id": 2, "city": 7, "extra": 1}, "ME044"),
    ],
    ids=["table", "frame", "key", "type"],
)
def test_refused_rows_add_no_column(landing, rows, code):
    table = landing.table("Orders", keys=["id"])
    table.upsert({"id": 1, "city": "Wien"})
    with pytest.raises(Refused, match=code):
        table.upsert(rows())
    table.upsert({"id": 2, "city": "Graz"})
    assert table.flush().rows == 2


@pytest.mark.slow
def test_column_of_nulls_waits_for_a_type_and_others_may_come_later(landing, in_memory):
    with landing.table("Orders", keys=["id"]) as table:
        table.insert({"id": 1, "note": None})
        table.flush(1)
    with landing.table("Orders", keys=["id"]) as table:
        table.upsert([{"id": 1, "note": None}, {"id": 2, "note": None}])
        table.upsert([{"id": 2, "note": "known", "more": 1.5}])
    assert rows_of(in_memory) == [{"id": 1, "note": None, "more": None}, {"id": 2, "note": "known", "more": 1.5}]
    in_memory.assert_no_diagnostics(ignore=["ME054"])


FIRST = {"id": [1], "city": ["Linz"], "amount": pa.array([1], pa.int32())}
DRIFTS = {
    "ME018": {"ID_": [1], "city": ["Wels"]},
    "ME040": {**FIRST, "id": pa.array([None], pa.int64())},
    "ME041": {"id": [1], "city": ["Wels"]},
    "ME044": {**FIRST, "city": [7]},
    "ME044 wider": {**FIRST, "amount": pa.array([1], pa.int64())},
    "ME044 decimal": {**FIRST, "amount": pa.array([1], pa.decimal128(9, 2))},
    "ME049": {**FIRST, "tags": [["a"]]},
    "ME053": {**FIRST, "CITY": ["Wels"]},
}


def lands_unchecked(root, second):
    """What `validate` reports of the second of two files."""
    orders = LandingZoneWriter(root).table("Orders", keys=["id"])
    orders.land_parquet(pa.table(FIRST))
    orders.land_parquet(pa.table({**second, MARKER: pa.array([4], pa.int32())}))
    with Mirror(root) as mirror:
        return [*mirror.validate().targets[0].findings()]


@pytest.mark.parametrize("case", DRIFTS)
def test_drift_is_refused_as_validate_reports_it(tmp_path, landing, case):
    code, second = case[:5], DRIFTS[case]
    reported = next(found for found in lands_unchecked(tmp_path / "unchecked", second) if found.code == code)
    table = landing.table("Orders", keys=["id"])
    table.insert(pa.table(FIRST))
    table.flush(1)
    table = landing.table("Orders", keys=["id"])
    with pytest.raises(Refused) as refused:
        table.upsert(pa.table(second))
    assert refused.value.code == code
    words = reported.message.replace("LIST", "list<item: string>")
    assert str(refused.value).startswith(f"Orders: {words} [{code}]\n  -> ")
    assert landing.files.list("Orders") == [file(1), "_metadata.json"]


@pytest.mark.parametrize(
    ("row", "code"),
    [
        ({"id": 1, "city": 7, "amount": 1}, "ME044"),
        ({"id": 1, "city": "a", "amount": 2**40}, "ME044"),
        ({"id": 1, "city": "a", "amount": 1.5}, "ME044"),
        ({"id": 1, "city": "a", "amount": 1, "__RowMarker__": 2}, "ME036"),
        ({"id": 1, "city": "a", "amount": 1, "_metadata": "a text"}, "ME084"),
        ({"id": 1, "city": "a", "amount": 1, "": 1}, "ME084"),
        ({"id": 1, "city": "a", "amount": 1, "a\0b": 1}, "ME084"),
        ({"id": 1, "city": ["a text"], "amount": 1}, "ME044"),
        ({"id": None, "city": "a", "amount": 1}, "ME040"),
        ({"id": 1, "amount": 1}, "ME041"),
        ({}, "ME018"),
    ],
)
def test_dict_that_does_not_fit_is_refused_without_its_values(landing, row, code):
    table = landing.table("Orders", keys=["id"])
    table.insert(pa.table(FIRST))
    with pytest.raises(Refused) as refused:
        table.upsert(row)
    assert refused.value.code == code
    assert "a text" not in str(refused.value)
    table.upsert({"ID": 2, "City": None, "amount": 7.0})  # in any case, and a number that fits


HALF = "half \ud800 character"
VALUE = pa.schema({"id": pa.int64(), "value": pa.float32()})
TIME = pa.schema({"id": pa.int64(), "value": pa.timestamp("us", tz="UTC")})
LATE = pa.table({"id": [1], "value": pa.array([2**62], pa.timestamp("s"))})
LINZ = {"id": 1, "city": "Linz"}
REFUSED = {  # the schema, rows, and what is said: no value
    "several types": (None, [LINZ, {"id": 2, "city": 3}], "column `city` is of several types"),
    "several shapes": (None, [{"id": 1, "note": "a"}, {"id": 2}], "updates omit note"),
    "a number out of range": (VALUE, [{"id": 1, "value": 1e300}], "[ME044]"),
    "a time out of range": (TIME, LATE, "[ME044]"),
    "half a character": (None, [LINZ, {"id": 2, "city": HALF}], "Orders, row 2: value in column `city` is not text in"),
    "half a character late": (
        None,
        ({**LINZ, "city": HALF} if row == 10_001 else LINZ for row in range(1, 10_003)),
        "Orders, row 10001: value",
    ),
    "half a character in a name": (
        None,
        [{"id": 1, HALF: 1}],
        "no table can have a column `half \\ud800 character`: readers cannot",
    ),
}


@pytest.mark.parametrize(("schema", "rows", "said"), REFUSED.values(), ids=REFUSED)
def test_values_that_no_column_can_hold_are_refused(landing, schema, rows, said):
    with pytest.raises(Refused) as refused:
        landing.table("Orders", keys=["id"], schema=schema).upsert(rows)
    assert said in str(refused.value)
    assert not [value for value in (HALF, str(2**62), "1e300") if value in str(refused.value)]


def test_changes_of_a_table_without_keys_are_refused(landing):
    with pytest.raises(Refused, match=r"requires `keyColumns` \[ME038\]"):
        landing.table("Keyless").delete({"id": 1})


def test_data_frame_with_values_that_do_not_fit_is_refused_without_them(landing):
    frame = pytest.importorskip("pandas").DataFrame
    table = landing.table("Orders", keys=["id"])
    with pytest.raises(Refused, match=r"Orders, row 2: value in column `city` is not text in UTF-8 \[ME060\]"):
        table.upsert(frame({"id": [1, 2], "city": ["Linz", HALF]}))
    with pytest.raises(Refused, match="column `city` is of several types") as refused:
        table.upsert(frame({"id": [1, 2], "city": [7, "a text"]}))
    assert "a text" not in str(refused.value)
    with pytest.raises(Refused, match="ME084"):
        table.upsert(frame({"id": [1], HALF: [1]}))
    table.upsert(frame())
    assert table.flush() == ((), 0, None)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (pa.array([b"\xff"]).view(pa.string()), "text in UTF-8"),
        (pa.array([2**40], pa.int64()).cast(pa.timestamp("s")), "a time in the years 1 to 9999"),
        (pa.array([-1_000_000], pa.int32()).view(pa.date32()), "a date in the years 1 to 9999"),
    ],
)
def test_arrow_values_that_halt_the_mirror_are_refused(tmp_path, landing, values, message):
    rows = pa.table({"id": [1], "value": values})
    with pytest.raises(Refused, match=rf"value in column `value` is not {message} \[ME060\]"):
        landing.table("Orders", keys=["id"]).upsert(rows)
    LandingZoneWriter(tmp_path / "unchecked").table("Orders", keys=["id"]).land_parquet(rows)
    with Mirror(tmp_path / "unchecked") as mirror:
        assert "ME060" in [found.code for found in mirror.validate().targets[0].findings()]


def test_rows_without_a_typed_column_are_refused(landing):
    table = landing.table("Notes")
    table.insert([{"note": None}])
    with pytest.raises(Refused, match=r"no column has a type.* \[ME024\]"):
        table.flush()
    table.insert([{"note": "a"}])
    assert table.flush().rows == 2


def test_marker_of_another_publisher_in_any_case_is_not_a_column(landing, tmp_path, in_memory):
    LandingZoneWriter(tmp_path).table("Orders", keys=["id"]).land_parquet(
        pa.table({"id": [1], "city": ["Linz"], "__ROWMARKER__": pa.array([0], pa.int32())})
    )
    with landing.table("Orders", keys=["id"]) as table:
        table.delete({"id": 1})
        table.upsert({"id": 2, "city": "Wels"})
    assert rows_of(in_memory) == [{"id": 2, "city": "Wels"}]


@pytest.mark.slow
def test_declared_schema_is_pinned_before_the_first_row(landing, in_memory):
    schema = pa.schema({"id": pa.int32(), "note": pa.string()})
    with landing.table("Orders", keys=["id"], schema=schema) as table:
        table.upsert({"id": 1, "note": None})
    with pytest.raises(Refused, match="column `note` is int64, the table has string"):
        landing.table("Orders", keys=["id"], schema=pa.schema({"id": pa.int32(), "note": pa.int64()}))
    with landing.table("Empty", keys=["id"], schema=schema):
        pass
    assert rows_of(in_memory) == [{"id": 1, "note": None}]
    assert in_memory.table("Orders").arrow().schema.types == schema.types
    assert rows_of(in_memory, "Empty") == []


@pytest.mark.parametrize(
    ("content", "error", "message"),
    [
        (b'{"keyColumns": ["ID"]}', None, ""),
        (b'{"KeyColumns": ["key"]}', Refused, r"keyColumns changed from key to id \[ME017\]"),
        (b"{}", Refused, "keyColumns changed from none to id"),
        (b"{", Refused, r"\[ME010\]"),
        (b'{"keyColumns": ["id"], "FileFormat": "CSV"}', ValueError, "see fileformat"),
        (b'{"keyColumns": ["id"], "FileExtension": "pq"}', ValueError, "see fileextension"),
        (b'{"keyColumns": ["id"], "FileExtension": ".parquet"}', None, ""),
        (b'{"keyColumns": ["id"], "SchemaDefinition": {}}', ValueError, "see schemadefinition"),  # LZ-2.13
        (b'{"keyColumns": ["id"], "isPartitionEnabled": "true"}', ValueError, "see ispartitionenabled"),
    ],
)
def test_metadata_of_another_table_is_refused(landing, content, error, message):
    landing.files.write("Orders/_metadata.json", content)
    if error is None:
        landing.table("Orders", keys=["id"])
    else:
        with pytest.raises(error, match=message):
            landing.table("Orders", keys=["id"])
    assert landing.files.read("Orders/_metadata.json") == content


def test_metadata_of_two_publishers_at_once_is_a_conflict(tmp_path):
    folder = Folder(tmp_path)
    other = partial(folder.write, "Orders/_metadata.json", b'{"keyColumns": ["key"]}')
    with pytest.raises(Conflict):
        LandingZone(faulty(folder, Acting("create", other))).table("Orders", keys=["id"])
    assert json.loads((tmp_path / "Orders/_metadata.json").read_bytes()) == {"keyColumns": ["key"]}


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "../Tables", "_Orders", ".Orders", "Sales.", "Sales._Orders"])
def test_name_of_no_table_is_refused_and_deletes_nothing(landing, tmp_path, name):
    landing.files.write("_partnerEvents.json", b"{}")
    for act in (landing.table, landing.drop):
        with pytest.raises(ValueError, match="names no table: write Sales"):
            act(name)
    assert [each.name for each in tmp_path.rglob("*")] == ["Files", "LandingZone", "_partnerEvents.json"]


def test_keys_as_text_are_refused(landing, tmp_path):
    with pytest.raises(TypeError, match=r'give a list of columns, \["id"\]'):
        landing.table("Orders", keys="id")
    assert not (tmp_path / ZONE).exists()


@pytest.mark.slow
def test_names_are_compared_as_the_mirror_compares_them(landing):
    letters = map(chr, range(0x20000))
    assert [letter for letter in letters if publish._folded(letter) != schema_rules.folded(letter)] == []
    table = landing.table("Orders", keys=["ΟΔΟΣ"])
    table.upsert({"οδος": 1, "Straße": 1, "strasse": 2})
    for names in (("ΟΔΟΣ", "οδος"), ("\u00b5", "\u03bc"), ("s", "\u017f")):
        with pytest.raises(Refused, match="differ only in case"):
            landing.table("Stores").insert(dict.fromkeys(names, 1))


def test_names_that_no_table_can_have_are_those_of_the_mirror():
    assert publish._RESERVED == schema_rules._RESERVED
    names = ["", "a\0b", HALF, "_Metadata", "__DELTA_rs_x", "_\u017fource_row_present_", "_row_dropped", "note"]
    faults = [schema_rules._fault_of(name, feeds_changes=False) for name in names]
    assert [publish._fault_of(name) for name in names] == faults


def test_metadata_and_partner_events_land_before_data(tmp_path):
    files = faulty(Folder(tmp_path), script := Script())
    landing = LandingZone(files, partner="Acme.Sync", source={"sourceType": "SQLite"})
    with landing.table("Sales.Orders", keys=["id"]) as table:
        table.upsert(ORDERS)
    folder = "Sales.schema/Orders"
    created = ["_partnerEvents.json", f"{folder}/_metadata.json", f"{folder}/{file(1)}"]
    LandingZone(files, partner="Acme.Sync", source={"sourceType": "SQLite"})
    assert [call for call in script.calls if "create" in call] == [f"create {path}" for path in created]
    LandingZone(files, partner="Acme.Shop")
    assert json.loads(files.read("_partnerEvents.json"))["partnerName"] == "Acme.Shop"


def test_flush_returns_what_is_durable(landing):
    table = landing.table("Orders", keys=["id"], file_bytes=1)
    table.upsert(TABLE)
    assert table.position is None
    table.upsert({"id": 3, "city": "Graz"})
    assert table.flush({"lsn": 7}) == (tuple(f"Orders/{file(number)}" for number in (1, 2, 3)), 3, {"lsn": 7})
    assert table.flush({"lsn": 8}) == ((), 0, {"lsn": 7})  # it does not move without rows
    table = landing.table("Orders", keys=["id"])
    table.delete({"id": 3})
    assert table.flush({"lsn": 8}) == ((f"Orders/{file(4)}",), 1, {"lsn": 8})
    assert landing.table("Orders", keys=["id"]).position == {"lsn": 8}


def test_exception_in_the_block_lands_nothing(landing):
    def fail():
        with landing.table("Orders", keys=["id"]) as table:
            table.upsert(ORDERS)
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    assert landing.files.list("Orders") == ["_metadata.json"]


@pytest.mark.slow
@pytest.mark.parametrize("cleanup", ["ready", "processed", "both", "off"])
def test_numbers_go_on_after_cleanup(tmp_path, landing, cleanup):
    """LZ-8.1: the newest file stays."""
    with MirrorInTest(tmp_path, Config(cleanup=cleanup), writer=MemoryDeltaWriter()) as mirror:
        for number in (1, 2, 3):
            with landing.table("Orders", keys=["id"]) as table:
                table.upsert({"id": number, "n": number})
            mirror.sync_until_caught_up()
            mirror.advance(days=7 if number == 2 else 0)
        mirror.sync_until_caught_up()
        with landing.table("Orders", keys=["id"]) as table:
            table.upsert({"id": 4, "n": 4})
            assert table.flush().files == (f"Orders/{file(4)}",)
        assert [row["id"] for row in rows_of(mirror)] == [1, 2, 3, 4]


@pytest.mark.parametrize("archive", ["_FilesReadyToDelete", "_ProcessedFiles"])
def test_deleted_newest_file_is_refused(landing, archive):
    """Its number would be given again, and the mirror never reads a number twice (ME022)."""
    table = landing.table("Orders", keys=["id"])
    for number in (1, 2):
        table.upsert(ORDERS)
        table.flush(number)
    landing.files.rename(f"Orders/{file(1)}", f"Orders/{archive}/{file(1)}")
    landing.files.delete(f"Orders/{file(2)}")
    with pytest.raises(Refused, match="ME073"):
        landing.table("Orders", keys=["id"])
    landing.files.rename(f"Orders/{archive}/{file(1)}", f"Orders/{file(1)}")
    assert landing.table("Orders", keys=["id"]).position == 1


@pytest.mark.parametrize(("content", "code"), [(b"", "ME023"), (b"PAR1 half", "ME024")])
def test_newest_file_that_is_not_whole_is_refused(landing, content, code):
    landing.files.write(f"Orders/{file(3)}", content)
    with pytest.raises(Refused, match=rf"Orders/{file(3)}: file .*\[{code}\]\n.*delete it, and open"):
        landing.table("Orders", keys=["id"])


@pytest.mark.slow
@pytest.mark.parametrize("is_under_way", [False, True], ids=["before", "meanwhile"])
@pytest.mark.parametrize("files", [1, 2])  # of two, the mirror archives the first: its name is free again
def test_file_of_another_publisher_is_a_conflict(tmp_path, in_memory, files, is_under_way):
    def publish_elsewhere():
        for number in range(files):
            with LandingZone(tmp_path / ZONE).table("Orders", keys=["id"]) as other:
                other.upsert({"id": number, "city": "Linz"})
        in_memory.sync_until_caught_up()

    meanwhile = Acting("create .*parquet", publish_elsewhere if is_under_way else None)
    table = LandingZone(faulty(Folder(tmp_path / ZONE), meanwhile)).table("Orders", keys=["id"])
    table.upsert({"id": 7, "city": "Wels"})
    if not is_under_way:
        publish_elsewhere()
    for _ in range(2):
        with pytest.raises(Conflict, match=rf"Orders/{file(files)} was landed by another publisher: open the table"):
            table.flush(7)
    assert len(rows_of(in_memory)) == files
    with LandingZone(tmp_path / ZONE).table("Orders", keys=["id"]) as table:
        assert table.position is None
        table.upsert({"id": 7, "city": "Wels"})
    assert len(rows_of(in_memory)) == files + 1


def test_table_that_another_publisher_recreated_is_a_conflict(landing):
    first = landing.table("Orders", keys=["id"])
    first.upsert(ORDERS)
    first.flush(7)
    first.upsert(ORDERS)
    landing.table("Orders", keys=["id"]).recreate()
    with pytest.raises(Conflict, match="Orders was recreated by another publisher"):
        first.flush(8)
    assert landing.files.list("Orders") == ["_metadata.json"]


def test_recreate_that_fails_lands_no_former_rows(landing, monkeypatch):
    table = landing.table("Orders", keys=["id"])
    table.upsert(ORDERS)
    monkeypatch.setattr(landing.files, "create", lambda *_: os.open("absent", os.O_RDONLY))
    with pytest.raises(FileNotFoundError):
        table.recreate()
    monkeypatch.undo()
    assert table.flush().files == ()


def test_lost_answer_is_no_failure_and_lost_request_is_resent(tmp_path):
    table = LandingZone(FaultyFiles(tmp_path, FaultKind.LOST_ANSWER)).table("Orders", keys=["id"])
    table.upsert(ORDERS)
    assert table.flush().files == (f"Orders/{file(1)}",)
    files = FaultyFiles(tmp_path, FaultKind.REFUSED)
    table = LandingZone(files).table("Orders", keys=["id"])
    table.upsert(ORDERS)
    with pytest.raises(ConnectionRefusedError):
        table.flush(7)
    assert files.list("Orders") == [file(1), "_metadata.json"]  # no temporary file is left
    assert table.flush(7) == ((f"Orders/{file(2)}",), 2, 7)


def test_lost_answer_followed_by_more_rows_is_no_conflict(tmp_path, in_memory):
    away = Failing("create|read", ConnectionResetError, fault=Fault.LOST_ANSWER)
    away.is_over = True
    table = LandingZone(faulty(Folder(tmp_path / ZONE), away)).table("Orders", keys=["id"])
    table.insert({"id": 1, "city": "Linz"})
    away.is_over = False
    with pytest.raises(ConnectionResetError):
        table.flush(7)
    assert table.position is None
    away.is_over = True
    table.insert({"id": 2, "city": "Wels"})
    assert table.flush(8) == ((f"Orders/{file(1)}", f"Orders/{file(2)}"), 2, 8)
    assert rows_of(in_memory) == ORDERS
    in_memory.assert_no_diagnostics()


def test_upload_that_a_crash_cut_is_deleted_by_the_next_publisher(landing, tmp_path):
    table = landing.table("Orders", keys=["id"])
    cut, foreign = publish._temporary("Orders/x"), "Orders/_00000000000000000001.uploading"
    for name in (cut, foreign):
        landing.files.write(name, b"PAR1")
    table.upsert(ORDERS)
    table.flush()
    assert len(uploads(tmp_path)) == 2  # it may be another publisher's, under way
    table = landing.table("Orders", keys=["id"])
    assert len(uploads(tmp_path)) == 2  # who opens a table may only wait
    table.upsert(ORDERS)
    table.flush()
    assert uploads(tmp_path) == ["_00000000000000000001.uploading"]


@pytest.mark.parametrize("number", [errno.EPERM, errno.ENOTSUP, errno.ENOSYS])
def test_file_system_without_hard_links_is_named(landing, tmp_path, monkeypatch, number):
    def link(*_):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "link", link)
    monkeypatch.setattr(Path, "is_mount", lambda path: path == tmp_path)
    with pytest.raises(OSError, match=f"the file system at {tmp_path} has no hard links: use another"):
        landing.table("Orders", keys=["id"])
    assert landing.files.list("Orders") == []


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="this system does not name open files")
def test_new_folders_are_flushed_to_disk(landing, tmp_path, monkeypatch):
    (tmp_path / ZONE).mkdir(parents=True)
    flushed = []
    monkeypatch.setattr(os, "fsync", lambda opened: flushed.append(Path(f"/proc/self/fd/{opened}").readlink()))
    landing.table("Sales.Orders", keys=["id"])
    place = tmp_path / ZONE
    assert {place, place / "Sales.schema", place / "Sales.schema/Orders"} <= {*flushed}


def test_recreate_begins_a_new_table(landing, in_memory):
    with landing.table("Orders", keys=["id"]) as table:
        table.upsert(ORDERS)
        table.flush(7)
        in_memory.sync_until_caught_up()
        table.upsert({"id": 9, "city": "Graz"})
        table.recreate()
        assert table.position is None
        table.insert({"id": "A", "city": 1})
        assert table.flush(1).files == (f"Orders/{file(1)}",)
    assert rows_of(in_memory) == [{"id": "A", "city": 1}]


def test_drop_makes_way_for_other_keys(landing, in_memory):
    with landing.table("Sales.Orders", keys=["id"]) as table:
        table.upsert(ORDERS)
    in_memory.sync_until_caught_up()
    landing.drop("Sales.Orders")
    with landing.table("Sales.Orders", keys=["city"]) as table:
        table.upsert({"city": 1})
        table.flush()
        with pytest.raises(TimeoutError, match="0 of 1 rows"):
            table.wait(0)
    assert rows_of(in_memory, "Sales.Orders") == [{"city": 1}]
    landing.table("Sales.Orders", keys=["city"]).wait(0)


def test_crash_while_a_folder_is_deleted_leaves_no_lower_number(landing, monkeypatch):
    """Else the next file has a number that the mirror has read already, and never reads again (LZ-3.4)."""
    for number in (1, 2):
        table = landing.table("Orders", keys=["id"])
        table.upsert(ORDERS)
        table.flush(number)
    landing.files.rename(f"Orders/{file(1)}", f"Orders/_FilesReadyToDelete/{file(1)}")

    def rmtree(place, **_):
        next(Path(place).glob("*.parquet")).unlink()
        raise SimulatedCrash

    monkeypatch.setattr(publish.shutil, "rmtree", rmtree)
    with pytest.raises(SimulatedCrash):
        table.recreate()
    monkeypatch.undo()
    table = landing.table("Orders", keys=["id"])
    assert table.position is None
    assert len(uploads(landing.files.path)) == 1
    table.recreate()
    assert uploads(landing.files.path) == []


@pytest.mark.slow
def test_wait_returns_once_all_rows_are_applied(landing, in_memory):
    """After `recreate`, those of the new table: the mirror still has the count of the former one."""

    def waits(rows):
        for waiting in (table, landing.table("Sales.Orders", keys=["id"])):
            with pytest.raises(TimeoutError, match=rows):
                waiting.wait(0)
        in_memory.sync_until_caught_up()
        for waiting in (table, landing.table("Sales.Orders", keys=["id"])):
            waiting.wait(0)

    table = landing.table("Sales.Orders", keys=["id"])
    for rows in ("0 of 2 rows", "2 of 4 rows"):
        table.upsert(ORDERS)
        table.flush()
        waits(rows)
    table.recreate()
    table.insert(ORDERS)
    table.flush()
    waits("0 of 2 rows")


def test_wait_does_not_count_the_last_files_of_a_former_table(landing, tmp_path):
    monitor(tmp_path, 5_000, "2026-11-02T08:00:00")
    table = landing.table("Orders", keys=["id"])
    table.insert(ORDERS)
    table.flush()
    for rows, at in ((5_000, "2026-11-02T08:00:00"), (5_010, "2026-11-02T08:00:20"), (0, "0001-01-01T00:00:00")):
        monitor(tmp_path, rows, at)
        for waiting in (table, landing.table("Orders", keys=["id"])):
            with pytest.raises(TimeoutError, match="Orders: 0 of 2 rows were processed after 0 s"):
                waiting.wait(0)
    monitor(tmp_path, 2, "2026-11-02T08:02:00")
    table.wait(0)


def test_wait_for_an_empty_table_ends_once_it_is_there(landing, tmp_path):
    table = landing.table("Orders", keys=["id"], schema=pa.schema({"id": pa.int64()}))
    table.wait(0)  # nothing has landed
    table.flush()
    monitor(tmp_path, 0, "0001-01-01T00:00:00")
    with pytest.raises(TimeoutError, match="0 of 0 rows"):
        table.wait(0)
    monitor(tmp_path, 0, "2026-11-02T08:00:00")
    table.wait(0)


def test_wait_without_the_former_count_is_refused(tmp_path):
    alone = faulty(Folder(tmp_path), Failing(r"read \.\.", PermissionError))
    table = LandingZone(alone).table("Orders", keys=["id"])
    table.insert(ORDERS)
    assert table.flush(1).rows == 2
    with pytest.raises(RuntimeError, match=r"a table that began while tables\.json could not be read; recreate\(\)"):
        LandingZone(tmp_path).table("Orders", keys=["id"]).wait(0)


@pytest.mark.slow
def test_wait_reports_a_halted_table_and_files_of_others(landing, in_memory, tmp_path):
    orders = LandingZoneWriter(tmp_path).table("Orders", keys=["id"])
    orders.upsert(*ORDERS)
    with pytest.raises(RuntimeError, match="files of another publisher are not counted"):
        landing.table("Orders", keys=["id"]).wait(0)
    stores = landing.table("Stores", keys=["id"])
    stores.insert(ORDERS)
    stores.flush()
    LandingZoneWriter(tmp_path).folder("Stores").land(b"", name=file(2))
    in_memory.sync()
    with pytest.raises(RuntimeError, match="Stores is halted"):
        stores.wait(0)
    stores.recreate()
    stores.insert(ORDERS)
    stores.flush()
    with pytest.raises(TimeoutError, match="0 of 2 rows"):  # the halted table is the former one
        stores.wait(0)
    in_memory.sync()
    stores.wait(0)


@pytest.mark.slow
def test_files_have_a_sane_size_and_memory_is_bounded(tmp_path):
    """In small what 1,000,000 rows do: memory depends on the size of a file, not on the number of rows."""
    megabyte = 1_000_000
    rows = pa.table({"id": np.arange(50_000), "city": ["x" * 50] * 50_000})
    held = []
    table = LandingZone(tmp_path).table("Orders", keys=["id"], file_bytes=megabyte)
    before = pa.total_allocated_bytes()
    for _ in range(4):
        table.insert(rows)
        held.append(pa.total_allocated_bytes() - before)
    files = table.flush().files
    assert max(held) < 2 * megabyte
    assert 11 <= len(files) <= 16
    counts = [pq.read_metadata(tmp_path / path).num_rows for path in files]
    assert sum(counts) == 200_000
    assert min(counts[:-1]) > 12_000


def test_many_small_changes_do_not_fill_memory(landing):
    table = landing.table("Orders", keys=["id"], file_bytes=40_960)
    for number in range(25):
        table.upsert({"id": number})
    assert len(table.flush().files) == 3  # 10 changes each, and the rest


@pytest.mark.slow
def test_module_works_as_a_copy_with_pyarrow_alone(tmp_path):
    (tmp_path / "publish.py").write_text(Path(publish.__file__).read_text())
    program = """
        import sys
        from publish import LandingZone
        with LandingZone("zone").table("Orders", keys=["id"]) as table:
            table.upsert({"id": 1})
        print({name.partition(".")[0] for name in sys.modules} & {"mirror_engine", "azure", "obstore", "deltalake"})
    """
    done = subprocess.run(
        [sys.executable, "-c", dedent(program)], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert done.stdout == "set()\n"
    assert (tmp_path / "zone/Orders" / file(1)).exists()


def test_two_uploads_of_one_number_have_names_of_their_own():
    """Otherwise a publisher could rename what another one has uploaded, and both would take it for theirs."""
    names = {publish._temporary(f"Orders/{file(1)}") for _ in range(9)}
    assert len(names) == 9
    assert all(name.startswith("Orders/_") for name in names)


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("s3://bucket/Files/LandingZone", "s3: not OneLake"),
        ("https://onelake.dfs.fabric.microsoft.com/workspace/item", "which ends in /Files/LandingZone"),
    ],
)
def test_url_of_no_landing_zone_is_refused(url, message):
    with pytest.raises(ValueError, match=message):
        LandingZone(url)


def zone_of(server, root):
    """The landing zone of a ROOT in a store, as a publisher names it."""
    path = f"{root.path}/{ZONE}"
    match server.name:
        case "OneLake":
            return LandingZone(f"https://{root.host}/{root.container}/{path}", partner="Acme.Sync")
        case "ADLS Gen2":
            key = AzureNamedKeyCredential(ACCOUNT, AZURITE_KEY)
            client = FileSystemClient(server.environment["AZURE_STORAGE_ENDPOINT"], root.container, key)
            return LandingZone(client, path, partner="Acme.Sync")
        case _:
            return LandingZone(root.object_store(), ZONE, partner="Acme.Sync")


@pytest.mark.slow
@ONE_BY_DAY
def test_writer_numbers_conflicts_and_recreates_in_every_store(store):
    root = store.new_root()
    publishes_to(lambda: zone_of(store, root), root)


def name_is_taken(files, path):
    """Try to create a file whose name is taken: it stays, and nothing is left of the upload."""
    before = files.list(path.rpartition("/")[0]), files.read(path)
    with pytest.raises(Exception, match=r"(?i)exist|condition"):
        files.create(path, b"PAR1")
    assert (files.list(path.rpartition("/")[0]), files.read(path)) == before


def publishes_to(open_zone, root):
    """Try a way to a landing zone: numbers, a conflict, a new table, and when all is applied."""
    landing = open_zone()
    first, second = (landing.table("Sales.a b%", keys=["id"]) for _ in range(2))
    for table, city in ((first, "Linz"), (second, "Wels")):
        table.insert({"id": 1, "city": city})
    assert first.flush(7) == ((f"Sales.schema/a b%/{file(1)}",), 1, 7)
    with pytest.raises(Conflict):
        second.flush(8)
    name_is_taken(landing.files, f"Sales.schema/a b%/{file(1)}")
    with Mirror(root, writer=MemoryDeltaWriter()) as mirror:
        mirror.sync()
        with open_zone().table("Sales.a b%", keys=["id"]) as table:
            assert table.position == 7
            table.upsert({"id": 2, "city": "Graz"})
            assert table.flush(9).files == (f"Sales.schema/a b%/{file(2)}",)
            mirror.sync()
            table.wait(0)
            assert mirror.read_table("Sales/a b%").num_rows == 2
            table.recreate()
            table.insert({"id": 5, "city": "Enns"})
            table.flush(1)
            mirror.sync()
            table.wait(0)
        assert mirror.read_table("Sales/a b%").to_pylist() == [{"id": 5, "city": "Enns"}]
        assert not [*mirror.validate().targets[0].findings()]
    LandingZone(landing.files, partner="Acme.Shop")
    assert json.loads(landing.files.read("_partnerEvents.json"))["partnerName"] == "Acme.Shop"


@pytest.mark.slow
def test_writer_waits_for_the_engine_of_the_emulator(onelake):
    with LandingZone(onelake.connection.landing_zone).table("Sales.Orders", keys=["id"]) as table:
        table.upsert(ORDERS)
        table.flush(1)
        table.wait(30, every=0.05)
    assert onelake.mirror.table("Sales.Orders").rows() == ORDERS


@pytest.mark.slow
@pytest.mark.parametrize("nth", [1, 2], ids=["metadata", "change file"])
def test_lost_answer_of_the_emulator_is_no_failure(onelake, nth):
    """The rename is done, its answer is cut, and the library's own retry finds that its source is gone."""
    onelake.inject_fault(f"lost_response operation=rename nth={nth}")
    host, workspace, landing = re.fullmatch("(https://[^/]+)/([^/]+)/(.+)", onelake.connection.landing_zone).groups()
    client = FileSystemClient(host, workspace, DefaultAzureCredential(), retry_policy=LinearRetry(backoff=0))
    with LandingZone(client, landing).table("Orders", keys=["id"]) as table:
        table.upsert(ORDERS)
    onelake.mirror.sync_until_caught_up()
    assert onelake.mirror.table("Orders").rows() == ORDERS


def test_writer_publishes_by_a_store_of_obstore_that_keeps_no_empty_folder(tmp_path):
    landing = LandingZone(LocalStore(tmp_path, mkdir=True), ZONE, partner="Acme.Sync")
    first, second = (landing.table("Sales.Orders", keys=["id"]) for _ in range(2))
    for table in (first, second):
        table.insert(ORDERS)
    assert first.flush(7) == ((f"Sales.schema/Orders/{file(1)}",), 2, 7)
    with pytest.raises(Conflict):
        second.flush(8)
    name_is_taken(landing.files, f"Sales.schema/Orders/{file(1)}")
    table = landing.table("Sales.Orders", keys=["id"])
    assert table.position == 7
    table.delete({"id": 1})
    assert table.flush(9).files == (f"Sales.schema/Orders/{file(2)}",)
    with MirrorInTest(tmp_path, writer=MemoryDeltaWriter()) as mirror:
        assert rows_of(mirror, "Sales.Orders") == ORDERS[1:]
    table.wait(0)
    with pytest.raises(NotImplementedError, match="keeps an empty folder"):
        table.recreate()


class Hierarchical:
    """Of obstore's calls those that a deletion uses, as in ADLS Gen2: a folder stays without its files."""

    def __init__(self):
        self.paths = {"T", "T/a"}

    def list(self, _prefix):
        return [[{"path": "T/a"}]]

    def list_with_delimiter(self, _prefix):
        return {"common_prefixes": [], "objects": []}

    def delete(self, path):
        self.paths.remove(path)

    def head(self, path):
        if path not in self.paths:
            raise FileNotFoundError


def test_recreate_is_refused_where_a_store_keeps_empty_folders():
    with pytest.raises(NotImplementedError, match="T: the store keeps an empty folder"):
        publish._Objects(Hierarchical(), "").delete("T")
