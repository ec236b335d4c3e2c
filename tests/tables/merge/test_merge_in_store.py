"""A merge in a store: its requests run at once, ask for nothing that the log says, and keep memory bounded."""

from __future__ import annotations

import random
from dataclasses import replace

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from delta_scenario import Scenario, schema_of
from deltalake import DeltaTable, write_deltalake
from store_twin import writer_in_store

from mirror_engine.errors import TableDamaged
from mirror_engine.storage import remote
from mirror_engine.storage.base import REQUESTS
from mirror_engine.tables.changes import counted
from mirror_engine.tables.log import data_rows
from mirror_engine.tables.log.data_rows import read_rows
from mirror_engine.tables.log.snapshot import DeltaLog, count_rows
from mirror_engine.tables.log.vectors_in_use import removed_since

pytestmark = pytest.mark.slow

FILES = 24
GROUP = 10_000  # rows of a row group
SECONDS = 0.02  # of a request
AT_ONCE = REQUESTS // 2  # at least, on a busy machine
PARQUET = ".parquet"
KEYS = {"one whole number": ["Id"], "text and number": ["City", "Id"], "only floats": ["Level"]}


@pytest.fixture
def twin(tmp_path, monkeypatch):
    """A table in a store, that is not made yet, and the store."""
    writer, store = writer_in_store(tmp_path, monkeypatch)
    return Scenario(writer, schema_of("Id", "City:string", "Level:double"), ["Id"]), store


def row(key, city="Linz"):
    return 0, key, city, float(key)


def filled(table, files=FILES):
    """The table with a row a file."""
    for key in range(files):
        table.change(row(key))
    return table


@pytest.fixture
def unfolded(monkeypatch):
    """Small files stay."""
    monkeypatch.setattr("mirror_engine.tables.merge.arrow._COMMITS", 10**9)


@pytest.mark.usefixtures("unfolded")
@pytest.mark.parametrize("keys", KEYS.values(), ids=KEYS)
def test_small_data_files_are_read_at_once(twin, keys):
    table, store = twin
    table.keys = tuple(keys)
    filled(table)
    with store.counting(SECONDS):
        table.change(*((2, key, "Linz", float(key)) for key in range(0, FILES, 2)), row(FILES + 1))
    assert AT_ONCE <= store.most <= REQUESTS
    assert table.found() == sorted([row(key)[1:] for key in (*range(1, FILES, 2), FILES + 1)], key=repr)


@pytest.mark.usefixtures("unfolded")
def test_data_file_costs_one_request(twin):
    """Its size is in the log."""
    table, store = twin
    filled(table)
    with store.counting():
        table.change(*((4, key, "Wels", 0.0) for key in range(FILES)))
    assert store.kinds("part-") == {"get_range": FILES, "put": 1}


@pytest.mark.usefixtures("unfolded")
def test_rewritten_files_are_read_at_once(twin):
    table, store = twin
    for key in range(0, 2 * FILES, 2):
        table.change(row(key), row(key + 1))
    with store.counting(SECONDS):
        table.change(*((2, key, "Linz", float(key)) for key in range(0, 2 * FILES, 2)))
    assert store.kinds("part-") == {"get_range": 2 * FILES, "put": 1}
    assert AT_ONCE <= store.most <= REQUESTS
    assert table.found() == sorted([row(key)[1:] for key in range(1, 2 * FILES, 2)], key=repr)


@pytest.mark.usefixtures("unfolded", "marking")
def test_vectors_and_footers_of_marked_files_are_read_at_once(twin):
    table, store = twin
    for first in range(0, 3 * FILES, 3):
        table.change(*map(row, range(first, first + 3)))
    table.change(*((2, key, "Linz", 0.0) for key in range(0, 3 * FILES, 3)))
    assert sum(file.vector is not None for file in table.log().data_files()) == FILES
    with store.counting(SECONDS):
        table.change(*((2, key, "Linz", 0.0) for key in range(1, 3 * FILES, 3)))
    in_order = [path.partition("/T/")[2][:4] for kind, path in store.asked if kind == "get_range"]
    assert in_order.count("part") == 2 * FILES  # keys, footers
    assert store.kinds("part-")["head"] == 0
    with store.counting(SECONDS):
        table.change(*((2, key, "Linz", 0.0) for key in range(2, 3 * FILES, 3)))
    assert table.found() == []


@pytest.mark.usefixtures("unfolded")
@pytest.mark.parametrize(
    "look",
    [
        pytest.param(lambda log: log.data_files() and read_rows(log).num_rows, id="rows"),
        pytest.param(lambda log: len(removed_since(log.folder, log.version, 0.0)) + FILES, id="removed files"),
        pytest.param(count_rows, id="count without statistics"),
    ],
)
def test_a_tables_files_are_read_at_once(twin, look, monkeypatch):
    table, store = twin
    log = filled(table).log()
    if look is count_rows:
        files = [replace(file, rows=None) for file in log.data_files()]
        monkeypatch.setattr(log, "add_actions", pa.table({"num_records": pa.array([None])}))
        monkeypatch.setattr(DeltaLog, "data_files", lambda *_: files)
    with store.counting(SECONDS):
        assert look(log) == FILES
    assert AT_ONCE <= store.most <= REQUESTS
    assert store.kinds("part-")["head"] == 0


@pytest.mark.usefixtures("unfolded")
def test_limited_read_reads_no_further_file(twin):
    table, store = twin
    log = filled(table).log()
    with store.counting():
        assert read_rows(log, 2).num_rows == 2
    assert store.kinds("part-") == {"get_range": 2}


@pytest.mark.usefixtures("unfolded")
@pytest.mark.parametrize(("rows", "most"), [(3, 3), (1, 1), (10**6, REQUESTS)])
def test_rows_read_at_once_are_bounded(twin, monkeypatch, rows, most):
    table, store = twin
    filled(table)
    monkeypatch.setattr(counted, "_ROWS_AT_ONCE", rows)
    log = table.log()
    keys = pa.table({"Id": pa.array(range(FILES), pa.int32())})
    with store.counting(SECONDS):
        held = counted.held_rows(keys, counted.key_codes(keys), log)
    assert len(held.code) == FILES
    assert min(most, AT_ONCE) <= store.most <= most


@pytest.mark.usefixtures("unfolded")
@pytest.mark.parametrize("of_files", [1.5, 3.5])
def test_bytes_read_ahead_are_bounded(twin, monkeypatch, of_files):
    table, store = twin
    log = filled(table).log()
    size = max(file.size for file in log.data_files())
    monkeypatch.setattr(data_rows, "_AHEAD_BYTES", int(of_files * size))
    with store.counting(SECONDS):
        assert read_rows(log).num_rows == FILES
    assert store.most == int(of_files)
    assert store.kinds("part-") == {"get_range": FILES}


def test_large_file_is_read_by_row_groups(twin, tmp_path, monkeypatch):
    """It is neither held whole nor read ahead of its row group."""
    table, store = twin
    for limit in ("FIRST_BYTES", "TAIL_BYTES"):
        monkeypatch.setattr(remote, limit, 1)
    log = filled(table, 1).log()
    (file,) = log.data_files()
    place = tmp_path / "store" / file.path.path
    ids = random.Random(1).sample(range(2**31), 3 * GROUP)
    pq.write_table(pa.table({"Id": pa.array(ids, pa.int32())}), place, row_group_size=GROUP, use_dictionary=False)
    file = replace(file, size=place.stat().st_size, modified_ms=0)
    found = data_rows.scan_file(log, file, ["Id"], 3 * GROUP)
    first, rows = next(found)
    with store.counting():
        assert (first, rows.num_rows) == (0, GROUP)
        assert [first for first, _ in found] == [GROUP, 2 * GROUP]
    assert store.kinds()["get_range"] >= 2


@pytest.mark.usefixtures("unfolded")
@pytest.mark.parametrize("missing", [b"", b"PAR1", None], ids=["empty", "cut off", "absent"])
@pytest.mark.parametrize("whole", [True, False])
def test_damaged_data_file_is_reported(twin, tmp_path, monkeypatch, missing, whole):
    table, _ = twin
    if not whole:
        monkeypatch.setattr(data_rows, "_AHEAD_BYTES", 0)
    log = filled(table, 3).log()
    place = tmp_path / "store" / log.data_files()[1].path.path
    place.unlink() if missing is None else place.write_bytes(missing)
    with pytest.raises(TableDamaged):
        read_rows(log)


def test_size_in_the_log_that_is_wrong_is_reported(twin, monkeypatch):
    table, _ = twin
    log = filled(table, 1).log()
    (file,) = log.data_files()
    monkeypatch.setattr(DeltaLog, "data_files", lambda *_: [replace(file, size=10**8)])  # too large to be read whole
    with pytest.raises(TableDamaged, match="but it is truncated"):
        read_rows(log)


@pytest.mark.parametrize(
    ("marker", "requests"), [(0, {"list": 1, "put": 2}), (4, {"list": 1, "get_range": 1, "put": 2})]
)
def test_commit_of_one_file_asks_for_nothing_that_is_known(twin, marker, requests):
    """One look for others' commits, a data file that holds the key, and what is written; deltalake is not counted."""
    table, store = twin
    table.change(row(1))
    for key in (2, 3):
        table.change_after_snapshot(row(key))
    with store.counting():
        table.change_after_snapshot((marker, 4 if marker == 0 else 3, "Wels", 0.0))
    assert store.kinds() == requests


def test_commit_of_another_program_is_read_and_checked(twin, tmp_path):
    """What is kept of a log holds only for commits that are as they were."""
    table, store = twin
    table.change(row(1))
    table.change_after_snapshot(row(2))
    place = tmp_path / "store" / table.writer.path(table.table).path
    write_deltalake(str(place), DeltaTable(str(place)).to_pyarrow_table(), mode="append")
    with store.counting():
        table.change_after_snapshot(row(3))
    assert store.kinds(PARQUET) == {"head": 1, "put": 1}
    assert [key for key, *_ in table.found()] == [1, 1, 2, 2, 3]
