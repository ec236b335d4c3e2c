"""Files added unchanged come out as if their rows had been applied; what may not be added unchanged is not."""

from __future__ import annotations

import errno
import itertools
import json
import math
import re
import threading
from collections import Counter
from decimal import Decimal
from struct import pack
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from delta_protocol import protocol_faults, read_history
from deltalake import DeltaTable, write_deltalake
from independent_readers import by_deltalake, by_duckdb
from test_fixtures import outcome

import mirror_engine.engine.turns
from mirror_engine import Config, Mirror, RunResult
from mirror_engine.errors import StorageUnavailable
from mirror_engine.events import RetryScheduled
from mirror_engine.landing_zone.change import same_rows
from mirror_engine.landing_zone.layout import SCRATCH, TABLES
from mirror_engine.storage.local import LocalStorage
from mirror_engine.tables import passthrough
from mirror_engine.tables.base import MIN_ACCOUNTED_ROW_BYTES
from mirror_engine.tables.dry_run.memory import MemoryDeltaWriter
from mirror_engine.tables.merge import arrow
from mirror_engine.tables.merge.arrow import ArrowWriter
from mirror_engine.tables.passthrough import PassthroughReader

UTC = pa.timestamp("us", "UTC")
NAIVE = pa.timestamp("us")
MOST = Decimal("-9999999999999999.99")
KEYED = {"keyColumns": ["id"]}


@pytest.fixture(autouse=True)
def files_of_every_size(monkeypatch):
    monkeypatch.setattr(passthrough, "MIN_BYTES", 1)
    monkeypatch.setattr(mirror_engine.engine.turns, "FIRST_PAUSE_SECONDS", 0.0)


class PassthroughZone:
    """One table folder, and a mirror of it."""

    def __init__(self, root, writer=None, metadata=None):
        self.root, self.writer = root, writer or MemoryDeltaWriter()
        self.folder = root / "Files/LandingZone/T"
        self.folder.mkdir(parents=True)
        (self.folder / "_metadata.json").write_text(json.dumps(metadata or KEYED))
        self.landed = 0
        self.config: dict[str, Any] = {}

    def land(self, table, **options):
        self.landed += 1
        path = self.folder / f"{self.landed:020}.parquet"
        pq.write_table(table, path, **{"store_schema": False, **options})
        return path

    def mirror(self):
        return Mirror(self.root, Config(**self.config), writer=self.writer)

    def sync(self):
        with self.mirror() as mirror:
            return mirror.sync().result

    def outcome(self):
        """All there is to compare with another way to the same table."""
        with self.mirror() as mirror:
            status = mirror._status().tables[0]
            return {
                "rows": mirror.read_table("T").to_pylist(),
                "columns": self.writer.snapshot("dbo/T").schema.columns,
                "said": sorted((said.full_message, count) for said, count in status.diagnostics),
                "bytes": status.bytes_processed,
                "processed": status.rows_processed,
                "files": sorted((file.path, file.state, file.rows) for file in status.files),
            }

    def ways(self):
        """How each file got there, and why not as it lay."""
        with self.mirror() as mirror:
            commits = mirror.history("T")
        return {
            path: f"{commit.applied_by} {commit.passthrough_skipped_because.get(path, '')}".strip()
            for commit in commits
            for path in commit.files
        }


def rows(start, count, **more):
    ids = list(range(start, start + count))
    columns: dict[str, Any] = {
        "id": pa.array(ids, pa.int64()),
        "name": pa.array([None if n % 3 == 0 else f"näme {n}" for n in ids]),
        "at": pa.array([n * 1_000_001 for n in ids], UTC),
        "price": pa.array([None] * count, pa.decimal128(9, 2)),
        **{name: pa.array(values) for name, values in more.items()},
    }
    return pa.table(columns)


def landings(zone):
    """An initial load, repeated keys, a new column, NULL keys, then changes of what was staged."""
    zone.land(rows(0, 50), row_group_size=20)
    zone.land(rows(40, 20))
    zone.sync()
    zone.land(rows(60, 5, more=[1.5, None, 7.5, -0.0, 2.0]), use_dictionary=False)
    zone.land(rows(70, 1).set_column(0, "id", pa.array([None], pa.int64())))
    zone.sync()
    marked = rows(45, 4).append_column("__rowMarker__", pa.array([1, 2, 4, 0], pa.int32()))
    zone.land(marked)
    zone.land(rows(100, 3).drop_columns(["name"]))
    zone.sync()


@pytest.mark.slow
def test_files_added_unchanged_come_out_as_applied_rows_do(tmp_path):
    """LZ-4.19."""
    staged, read = PassthroughZone(tmp_path / "staged"), PassthroughZone(tmp_path / "read")
    read.config = {"passthrough": False}
    for zone in (staged, read):
        landings(zone)
    found, expected = staged.outcome(), read.outcome()
    assert same_rows(found.pop("rows"), expected.pop("rows"))
    assert found == expected
    assert {way.partition(" ")[0] for way in staged.ways().values()} == {"passthrough", "merge"}
    assert {way.partition(" ")[2] for way in read.ways().values()} == {"passthrough is off"}


def test_files_of_one_kind_make_one_commit_and_status_says_how_each_was_applied(tmp_path):
    zone = PassthroughZone(tmp_path)
    zone.config = {"cleanup": "off"}  # status lists files that are still in the folder
    for number in range(3):
        zone.land(rows(10 * number, 10))
    zone.land(rows(30, 5).append_column("__rowMarker__", pa.array([0] * 5, pa.int32())))
    zone.land(rows(40, 5))
    assert zone.sync() is RunResult.CAUGHT_UP
    with zone.mirror() as mirror:
        versions = {file.path[18:20]: file.delta_version for file in mirror._status().tables[0].files}
        ways = [(file.applied_by, file.passthrough_skipped_because) for file in mirror._status().tables[0].files]
    assert versions == {"01": 0, "02": 0, "03": 0, "04": 1, "05": 2}
    assert ways == [*[("passthrough", None)] * 3, ("append", "it has row markers"), ("passthrough", None)]


def batches(zone):
    """The numbers of each commit's files, oldest first."""
    with zone.mirror() as mirror:
        commits = mirror.history("T")
    return [[int(path[:20]) for path in commit.files] for commit in reversed(commits) if commit.files]


@pytest.mark.slow
@pytest.mark.parametrize("local", [False, True], ids=["memory", "arrow"])
def test_passthrough_batch_is_bounded_by_max_batch_size(tmp_path, monkeypatch, local):
    zone = PassthroughZone(tmp_path, local_writer(tmp_path) if local else None)
    for number in range(6):
        zone.land(rows(1000 * number, 1000))
    zone.config = {"max_batch_size": 2 * 1000 * MIN_ACCOUNTED_ROW_BYTES}
    held = []
    apply = type(zone.writer).apply

    def noted(self, table, batch, record, check):
        held.append(sum(copy.stat().st_size for copy in (tmp_path / SCRATCH).glob("copy-*")))
        return apply(self, table, batch, record, check)

    monkeypatch.setattr(type(zone.writer), "apply", noted)
    assert zone.sync() is RunResult.CAUGHT_UP
    assert batches(zone) == [[1, 2], [3, 4], [5, 6]]
    assert set(zone.ways().values()) == {"passthrough"}
    assert 0 < max(held) <= zone.config["max_batch_size"]


def verify_at_once(monkeypatch, files):
    """So many files are verified side by side."""
    monkeypatch.setattr(pa, "cpu_count", lambda: files)


def test_full_disk_at_the_third_copy_commits_the_two_before(tmp_path, monkeypatch):
    verify_at_once(monkeypatch, 1)
    zone = PassthroughZone(tmp_path, local_writer(tmp_path))
    for number in range(4):
        zone.land(rows(10 * number, 10))
    copy, copied = passthrough.digest, itertools.count(1)

    def full(source, target):
        copied_digest = copy(source, target)
        if next(copied) == 3:
            raise OSError(errno.ENOSPC, "No space left on device")
        return copied_digest

    monkeypatch.setattr(passthrough, "digest", full)
    assert zone.sync() is RunResult.CAUGHT_UP
    assert batches(zone) == [[1, 2], [3, 4]]
    assert list((tmp_path / SCRATCH).glob("*")) == []


@pytest.mark.slow
@pytest.mark.parametrize("local", [False, True], ids=["memory", "arrow"])
def test_large_files_between_small_ones_are_copied_once(tmp_path, monkeypatch, local):
    verify_at_once(monkeypatch, 1)
    zone = PassthroughZone(tmp_path, local_writer(tmp_path) if local else None)
    small, large = (zone.land(rows(10_000 * count, count)) for count in (3, 3000))
    third = rows(
        100_000, 3000, v=[1.5, float("nan")] * 1500
    )  # of the fourth file only the rows say that it is not eligible
    for table in (rows(0, 3), rows(50_000, 3000), third, rows(1, 3)):
        zone.land(table)
    monkeypatch.setattr(passthrough, "MIN_BYTES", (small.stat().st_size + large.stat().st_size) // 2)
    opened: Counter[int] = Counter()
    open_file, read = LocalStorage.open, PassthroughReader._verified

    def opening(self, path, *only):
        if path.endswith(".parquet"):
            opened[int(path[-28:-8])] += 1
        return open_file(self, path, *only)

    verified: list[str] = []

    def verifying(self, copy, request, content_digest):
        verified.append(request.file.path)
        return read(self, copy, request, content_digest)

    monkeypatch.setattr(LocalStorage, "open", opening)
    monkeypatch.setattr(PassthroughReader, "_verified", verifying)
    assert zone.sync() is RunResult.CAUGHT_UP
    assert batches(zone) == [[1], [2], [3], [4], [5, 6]]
    assert [int(path[:20]) for path in verified] == [2, 4, 5], "each once"
    # a look at the footer ends a batch of rows; then it is copied, or its rows are read
    assert opened == {1: 1, 2: 2, 3: 1, 4: 2, 5: 2, 6: 1}


@pytest.mark.slow
def test_files_are_verified_side_by_side_and_added_in_order(tmp_path, monkeypatch):
    verify_at_once(monkeypatch, 3)
    together, read = threading.Barrier(3, timeout=20), PassthroughReader._verified
    zone = PassthroughZone(tmp_path, local_writer(tmp_path))
    for number in range(6):
        zone.land(rows(10 * number, 10, **{f"c{number}": [number] * 10}))

    def verified(self, *given):
        together.wait()
        return read(self, *given)

    monkeypatch.setattr(PassthroughReader, "_verified", verified)
    assert zone.sync() is RunResult.CAUGHT_UP
    assert batches(zone) == [[1, 2, 3, 4, 5, 6]]
    assert set(zone.ways().values()) == {"passthrough"}
    names = [column.name for column in zone.writer.snapshot("dbo/T").schema.columns]
    assert names == ["id", "name", "at", "price", *(f"c{number}" for number in range(6))]
    assert sorted(row["id"] for row in zone.outcome()["rows"]) == list(range(60))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "result", "expected"),
    [
        ("its rows do not fit", RunResult.CAUGHT_UP, [[1], [2], [3, 4, 5]]),
        ("it is damaged", RunResult.NEEDS_ATTENTION, [[1]]),
        ("the disk is full", RunResult.CAUGHT_UP, [[1], [2, 3, 4, 5]]),
    ],
)
def test_failure_of_one_file_leaves_none_of_those_verified_beside_it(tmp_path, monkeypatch, kind, result, expected):
    verify_at_once(monkeypatch, 3)
    zone = PassthroughZone(tmp_path, local_writer(tmp_path))
    for number in range(5):
        odd = {"v": [1.0, float("nan")] * 5} if kind == "its rows do not fit" and number == 1 else {"v": [1.0] * 10}
        path = zone.land(rows(10 * number, 10, **odd))
        if kind == "it is damaged" and number == 1:
            content = bytearray(path.read_bytes())
            content[4:200] = bytes(196)
            path.write_bytes(content)
    copy, failed = passthrough.digest, itertools.count()

    def full(source, target):
        copied = copy(source, target)
        if kind == "the disk is full" and f"{2:020}" in source.raw._path and not next(failed):
            raise OSError(errno.ENOSPC, "No space left on device")
        return copied

    held, apply = [], type(zone.writer).apply

    def noted(self, table, batch, record, check):
        held.append((len(batch.files), sum(1 for _ in (tmp_path / SCRATCH).glob("copy-*"))))
        return apply(self, table, batch, record, check)

    monkeypatch.setattr(passthrough, "digest", full)
    monkeypatch.setattr(type(zone.writer), "apply", noted)
    assert zone.sync() is result
    assert batches(zone) == expected
    assert held[0] == (1, 1), "copies beyond the batch are gone"
    assert list((tmp_path / SCRATCH).glob("copy-*")) == []


LANDED = rows(100, 3)


@pytest.mark.parametrize(
    ("kind", "cells", "lowest", "highest", "has_nan"),
    [
        (pa.float64(), [2.5, None, -0.0, 7.0], -0.0, 7.0, False),
        (pa.float32(), [2.5, math.nan, -1.0, None], -1.0, 2.5, True),
        (pa.decimal128(18, 2), [MOST, None, Decimal("0.01")], MOST, Decimal("0.01"), False),
        (pa.decimal128(38, 1), [Decimal(f"{'9' * 37}.9"), Decimal(0)], 0, Decimal(f"{'9' * 37}.9"), False),
        (pa.int64(), [-(2**63), None, 2**63 - 1], -(2**63), 2**63 - 1, False),
        (pa.string(), ["b", None, "", "é"], b"", "é".encode(), False),
        (pa.bool_(), [True, None], True, True, False),
    ],
    ids=str,
)
def test_facts_of_a_column_are_those_of_all_its_batches(kind, cells, lowest, highest, has_nan):
    """NULL counts for none of them, and NaN is no extreme."""
    facts = passthrough._ChunkFacts()
    for some in (cells, [None], cells[::-1]):
        facts.add(pa.array(some, kind))
    assert (facts.lowest, facts.highest) == (lowest, highest)
    assert facts.has_nan is has_nan
    assert facts.nulls == 2 * cells.count(None) + 1


def retyped(name, kind, values=None):
    cells = pa.array(values, kind) if values else LANDED[name].cast(kind)
    return LANDED.set_column(LANDED.column_names.index(name), name, cells)


# why, the file, and how it is written
NOT_ELIGIBLE: dict[str, tuple[pa.Table, dict[str, Any]]] = {
    "column at is TIMESTAMP in microseconds, naive": (retyped("at", NAIVE), {}),
    "column at is TIMESTAMP in milliseconds, utc": (retyped("at", pa.timestamp("ms", "UTC"), [1, 2, 3]), {}),
    "column at is TIMESTAMP in nanoseconds": (retyped("at", pa.timestamp("ns", "UTC")), {}),
    "column u is UINT16": (rows(100, 3, u=pa.array([1, 2, 3], pa.uint16())), {}),
    "column at is INT96": (LANDED, {"use_deprecated_int96_timestamps": True}),
    "column n is NULL": (rows(100, 3, n=pa.nulls(3)), {}),
    "column f is FIXED_LEN_BYTE_ARRAY(2)": (rows(100, 3, f=pa.array([b"ab"] * 3, pa.binary(2))), {}),
    "column Name is spelled otherwise in the table": (LANDED.rename_columns(["id", "Name", "at", "price"]), {}),
    "its codec is LZ4": (LANDED, {"compression": "lz4"}),
    "DELTA_BINARY_PACKED": (LANDED, {"use_dictionary": False, "column_encoding": {"id": "DELTA_BINARY_PACKED"}}),
    "its dates may count in another calendar": (
        LANDED.replace_schema_metadata({"org.apache.spark.legacyDateTime": ""}),
        {"store_schema": True},
    ),
    "it has no rows": (LANDED.slice(0, 0), {}),
    "a column of the table has another name in files, or none": (rows(100, 3, **{"a b": [1, 2, 3]}), {}),
    "column d holds NaN, which its footer leaves out": (rows(100, 3, d=[1.0, float("nan"), None]), {}),
}


@pytest.mark.slow
@pytest.mark.parametrize("reason", NOT_ELIGIBLE)
def test_a_file_that_is_not_eligible_takes_the_rows_path_and_says_why(tmp_path, reason):
    table, options = NOT_ELIGIBLE[reason]
    zone = PassthroughZone(tmp_path)
    zone.land(rows(0, 10))
    zone.land(table, **options)
    assert zone.sync() is RunResult.CAUGHT_UP
    ways = zone.ways()
    way = ways[max(ways)]
    assert not way.startswith("passthrough")
    assert reason in way


def test_upserts_and_partitions_take_the_rows_path(tmp_path):
    for name, metadata, reason in (
        ("upserts", {"keyColumns": ["id"], "isUpsertDefaultRowMarker": True}, "its rows are upserts"),
        ("partitions", {"keyColumns": [], "isPartitionEnabled": "true"}, "the table is partitioned"),
    ):
        zone = PassthroughZone(tmp_path / name, metadata=metadata)
        path = zone.land(rows(0, 3))
        if name == "partitions":
            (zone.folder / "day=1").mkdir()
            path.rename(zone.folder / "day=1" / path.name)
        assert zone.sync() is RunResult.CAUGHT_UP
        assert [way.partition(" ")[2] for way in zone.ways().values()] == [reason]


def days(cells):
    return pa.table({"id": range(10_000), "day": pa.array(cells, pa.int32()).cast(pa.date32())})


DAYS = [0] * 9_999 + [2**31 - 1]  # the last one is in no year up to 9999
REQUIRED = pa.schema([pa.field("id", pa.int64(), nullable=False), ("day", pa.date32()), ("v", pa.string())])
REJECTED: dict[str, tuple[Any, str]] = {
    "NULL in a NOT NULL column": (lambda: pa.table({"id": [1, None]}), "ME048"),
    "rows that expand too far": (lambda: pa.table({"id": range(10_000), "v": ["x" * 3000] * 10_000}), "ME075"),
    "a damaged page": (lambda: pa.table({"id": np.random.default_rng(1).integers(0, 2**60, 20_000)}), "ME024"),
    "the last value": (lambda: days(DAYS), "ME060"),
    "the first": (lambda: days(DAYS[::-1]), "ME060"),
}


@pytest.mark.slow
@pytest.mark.parametrize("case", REJECTED)
def test_a_file_that_the_protocol_rejects_is_found_before_the_commit(tmp_path, case):
    make, code = REJECTED[case]
    zone = PassthroughZone(tmp_path)
    zone.config = {"max_row_size": 200_000}
    zone.land(pa.table({"id": [1], "day": [None], "v": [None]}, REQUIRED))
    assert zone.sync() is RunResult.CAUGHT_UP
    path = zone.land(make(), use_dictionary=case != "a damaged page", row_group_size=5_000, write_page_checksum=True)
    if case == "a damaged page":
        content = bytearray(path.read_bytes())
        page = len(content) - int.from_bytes(content[-8:-4], "little") - 8 - 100
        content[page : page + 40] = bytes(byte ^ 0xFF for byte in content[page : page + 40])
        path.write_bytes(content)
    assert zone.sync() is RunResult.NEEDS_ATTENTION
    with zone.mirror() as mirror:
        state: Any = mirror._status().tables[0].state
        assert state.diagnostic.code == code
        assert mirror.read_table("T").num_rows == 1


THOUSAND = range(1000)
BEYOND = "holds other values than its footer states"
MISSTATED: dict[str, tuple[list[Any], dict[bytes, bytes], str]] = {
    "the highest of the file": (list(THOUSAND), {pack("<q", 999): pack("<q", 500)}, BEYOND),
    "the lowest of a row group": (list(THOUSAND), {pack("<q", 500): pack("<q", 600)}, BEYOND),
    "a bound that no value reaches": (list(THOUSAND), {pack("<q", 499): pack("<q", 700)}, BEYOND),
    "of floats": ([float(n) for n in THOUSAND], {pack("<d", 500): pack("<d", 600)}, BEYOND),
    "of booleans": ([n % 2 == 0 for n in THOUSAND], {b"\x18\x01\x00": b"\x18\x01\x01"}, BEYOND),
    "of binary": ([b"%03d" % n for n in THOUSAND], {b"500": b"600"}, BEYOND),
    "NULLs of row groups": (
        [None, None, *range(500), *[None] * 4, *range(494)],
        {b"\x16\x04\x28": b"\x16\x08\x28", b"\x16\x08\x28": b"\x16\x04\x28"},
        "another number of NULLs",
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("case", MISSTATED)
def test_a_file_whose_footer_states_other_statistics_is_rewritten(tmp_path, case):
    """Spark would skip row groups that hold what it looks for."""
    values, lies, reason = MISSTATED[case]
    zone = PassthroughZone(tmp_path, metadata={"keyColumns": []})
    table = pa.table({"v": values})
    path = zone.land(table, row_group_size=500, use_dictionary=False, compression="none")
    content = path.read_bytes()
    footer = len(content) - 8 - int.from_bytes(content[-8:-4], "little")
    assert all(honest in content[footer:] for honest in lies)
    lying = re.sub(b"|".join(map(re.escape, lies)), lambda honest: lies[honest[0]], content[footer:])
    path.write_bytes(content[:footer] + lying)
    assert zone.sync() is RunResult.CAUGHT_UP
    [way] = zone.ways().values()
    assert reason in way
    assert same_rows(zone.outcome()["rows"], table.to_pylist())


def test_long_decimals_are_within_the_bounds_of_their_footer(tmp_path):
    """Python's arithmetic rounds to 28 digits."""
    zone = PassthroughZone(tmp_path)
    cells = pa.array([Decimal("12345678901234567890123456789012345.678"), None], pa.decimal128(38, 3))
    zone.land(pa.table({"id": pa.array([1, 2]), "amount": cells}))
    assert zone.sync() is RunResult.CAUGHT_UP
    assert set(zone.ways().values()) == {"passthrough"}


def test_a_verified_copy_goes_where_it_is_not_committed(tmp_path, monkeypatch):
    def fail(*_):
        raise StorageUnavailable("no", "again")

    zone = PassthroughZone(tmp_path)
    zone.land(rows(0, 10))
    monkeypatch.setattr(MemoryDeltaWriter, "apply", fail)
    assert zone.sync() is RunResult.RETRY
    assert list((zone.root / SCRATCH).glob("*")) == []


# --- real tables


@pytest.fixture
def added_zone(tmp_path):
    return PassthroughZone(tmp_path, local_writer(tmp_path))


def local_writer(root):
    return ArrowWriter(root / TABLES, root / SCRATCH)


@pytest.mark.spark
def test_staged_files_are_changed_evolved_and_read_by_all_like_any_others(tmp_path, mirror_writer, spark):
    zone, twin = (
        PassthroughZone(tmp_path / "spark", mirror_writer(tmp_path / "spark")),
        PassthroughZone(tmp_path / "memory"),
    )
    for each in (zone, twin):
        landings(each)
    found, expected = zone.outcome(), twin.outcome()
    assert same_rows(found.pop("rows"), expected.pop("rows"))
    assert found == expected
    assert zone.ways() == twin.ways()
    folder = zone.root / "Tables/dbo/T"
    assert protocol_faults(folder) == []
    for state in read_history(folder).states:
        assert same_rows(by_duckdb(folder, state), by_deltalake(DeltaTable(str(folder), version=state.version)))
    table = spark.read.format("delta").load(str(folder))
    assert table.count() == len(by_deltalake(DeltaTable(str(folder))))
    assert [row["id"] for row in table.where("name = 'näme 59'").collect()] == [59]


def test_a_table_that_somebody_else_makes_meanwhile_is_left_alone(added_zone, monkeypatch):
    added_zone.land(rows(0, 10))
    folder, create, theirs = added_zone.root / "Tables/dbo/T", arrow.create_with_files, pa.table({"id": [7]})
    said: list[Any] = []

    def create_later(*arguments):
        if not (folder / "_delta_log").exists():
            write_deltalake(folder, theirs)
        create(*arguments)

    monkeypatch.setattr(arrow, "create_with_files", create_later)
    with Mirror(added_zone.root, Config(), writer=added_zone.writer, listeners=[said.append]) as mirror:
        assert mirror.sync().result is RunResult.RETRY
    failures = [event.message for event in said if isinstance(event, RetryScheduled)]
    assert "another writer committed first" in failures[0]
    table = DeltaTable(folder)
    assert table.to_pyarrow_table().equals(theirs)
    assert {file.name for file in folder.glob("*.parquet")} == {each.rpartition("/")[2] for each in table.file_uris()}


@pytest.mark.slow
def test_a_new_table_and_its_first_files_are_one_commit(tmp_path):
    wide = {f"c{number}": [number] * 3 for number in range(40)}
    zone = PassthroughZone(tmp_path, local_writer(tmp_path), {"keyColumns": ["id", "c39"]})
    zone.land(rows(0, 3, **wide))
    zone.land(rows(2, 3, **wide))
    assert zone.sync() is RunResult.CAUGHT_UP
    table = DeltaTable(zone.root / "Tables/dbo/T")
    assert (table.version(), len(table.file_uris())) == (0, 2)
    assert protocol_faults(zone.root / "Tables/dbo/T") == []
    assert table.metadata().configuration["delta.dataSkippingNumIndexedCols"] == "44"
    assert pa.table(table.get_add_actions(flatten=True))["max.c39"].to_pylist() == [39, 39]
    assert [text for text, _ in zone.outcome()["said"]] == [
        "T/00000000000000000002.parquet: 1 insert of an existing key; both rows are kept [ME039]"
    ]


FIXTURES = """columns-match-by-name-not-by-place delete-removes-every-copy every-documented-parquet-type-is-kept
float-keys-know-one-nan-and-one-zero ME039 ME042
naive-times-may-stay-naive new-column-comes-at-the-end odd-column-names-may-come-late
ME064"""


@pytest.mark.slow
@pytest.mark.parametrize("name", FIXTURES.split())
def test_fixture_with_passthrough_has_the_same_result(name):
    assert outcome(name, local_writer)[:3] == ([], [], [])
