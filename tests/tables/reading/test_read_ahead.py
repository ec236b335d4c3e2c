"""A large file is read while the one before it is; what comes of it is as if each had waited for its turn."""

from __future__ import annotations

import io
import threading
import time
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from memory_storage import MemoryStorage

from mirror_engine.config import Config
from mirror_engine.errors import ConcurrentModification, StorageUnavailable
from mirror_engine.landing_zone.change import MARKER_COLUMN
from mirror_engine.landing_zone.diagnostics import RejectedFile
from mirror_engine.landing_zone.listing import Entry
from mirror_engine.landing_zone.metadata import Metadata
from mirror_engine.landing_zone.names import TableName
from mirror_engine.landing_zone.schema import Column, TableSchema
from mirror_engine.tables.base import ReadContext
from mirror_engine.tables.dry_run.keys_only import keys_only
from mirror_engine.tables.reading import reader as reader_module
from mirror_engine.tables.reading.reader import ChangeFileReader
from mirror_engine.tables.reading.request import LandedFolder, ReadRequest
from mirror_engine.tables.reading.spill import all_rows

FOLDER = LandedFolder("Files/LandingZone", TableName("Sales", "Orders"), Metadata(key_columns=("Id",)))
FILLED = ReadContext(TableSchema((Column("Id", "long"),)), is_empty=False)


@pytest.fixture(autouse=True, scope="module")
def _every_file_is_large():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reader_module, "SMALL_BYTES", 0)
        yield


class ReadAheadZone:
    """One table's files in memory, and what was opened of them."""

    def __init__(self, scratch, *contents, config=None):
        self.storage = MemoryStorage()
        self.opened = []
        self._really_open, self.storage.open = self.storage.open, self._noted_open
        self.files = [self._landed(number, content) for number, content in enumerate(contents, 1)]
        self.reader = ChangeFileReader(self.storage, config or Config(), all_rows(scratch, 1))

    def _noted_open(self, path, only=None):
        self.opened.append(int(path[-10:-8]))
        return self._really_open(path, only)

    def _landed(self, number, content):
        path = f"{number:020}.parquet"
        self.storage.put(self.where(path), content)
        found = self.storage.stat(self.where(path))
        return Entry(path, found.size, found.modified_ns, found.identity)

    def where(self, path):
        return f"{FOLDER.zone}/{FOLDER.table.folder}/{path}"

    def in_order(self, context=FILLED):
        return closing(self.reader.in_order(FOLDER, self.files, context))


def parquet(**columns):
    sink = io.BytesIO()
    pq.write_table(pa.table(columns), sink)
    return sink.getvalue()


def told(read):
    rows = pa.Table.from_batches(read.rows.batches(), read.rows.schema).to_pylist()
    return replace(read, rows=rows)


def one_after_the_other(zone, context):
    """What files come to where each is read in its turn, up to the first rejected one."""
    found = []
    for file in zone.files:
        try:
            found.append(zone.reader.read(ReadRequest(FOLDER, file, context)))
        except RejectedFile as error:
            return [*map(told, found), str(error)]
        context = found[-1].context
    return list(map(told, found))


def in_order(zone, context):
    found = []
    with zone.in_order(context) as reading:
        try:
            found += map(told, reading)
        except RejectedFile as error:
            found.append(str(error))
    return found


columns = st.fixed_dictionaries(
    {"Id": st.just([1, 2])},
    optional={
        "City": st.sampled_from([["Linz", None], [b"Linz", b"Wels"]]),
        "Number": st.sampled_from([[1, 2], [1.0, None]]),
        MARKER_COLUMN: st.sampled_from([[0, 4], [2, 2], [0, 3]]),
    },
)
contents = st.one_of(columns.map(lambda of: parquet(**of)), st.just(b"PAR1 damaged"))


@given(st.lists(contents, max_size=6), st.sampled_from([ReadContext(), FILLED]))
def test_files_come_as_if_read_one_by_one(files, context):
    with TemporaryDirectory() as scratch:
        zone = ReadAheadZone(Path(scratch), *files)
        assert in_order(zone, context) == one_after_the_other(zone, context)


SAME = parquet(Id=[1, 2])


def test_two_large_files_are_read_at_once(tmp_path):
    zone = ReadAheadZone(tmp_path, SAME, SAME)
    both = threading.Barrier(2, timeout=20)
    really_open = zone.storage.open
    zone.storage.open = lambda path, only=None: (both.wait(), really_open(path, only))[1]
    with zone.in_order() as reading:
        assert [read.row_count for read in reading] == [2, 2]


def test_a_file_whose_context_changed_is_read_again(tmp_path):
    zone = ReadAheadZone(tmp_path, parquet(Id=[1], City=["Linz"]), SAME)
    with zone.in_order() as reading:
        assert [read.context.schema.names for read in reading] == [("Id", "City")] * 2
    assert sorted(zone.opened) == [1, 2, 2]


@pytest.mark.parametrize(
    ("context", "size", "config"),
    [
        (ReadContext(), "SMALL_BYTES", Config()),  # the first file of a table changes its context
        (FILLED, "SMALL_BYTES", Config(max_batch_files=1)),
        (FILLED, "SMALL_BYTES", Config(max_batch_size=len(SAME) * 2 - 1)),
        (FILLED, "WHOLE_BYTES", Config()),
        (FILLED, "SMALL_BYTES", Config(memory_limit=1 << 30)),
    ],
)
def test_no_file_is_read_ahead_in_vain(tmp_path, monkeypatch, context, size, config):
    monkeypatch.setattr(reader_module, size, 0)
    zone = ReadAheadZone(tmp_path, SAME, SAME, config=config)
    with zone.in_order(context) as reading:
        next(reading)
    assert set(zone.opened) == {1}


def test_files_before_count_for_the_size_of_a_batch(tmp_path):
    zone = ReadAheadZone(tmp_path, *[SAME] * 4, config=Config(max_batch_size=len(SAME) * 4 - 1))
    with zone.in_order() as reading:
        for _ in range(3):
            next(reading)
    assert set(zone.opened) == {1, 2, 3}


def test_a_small_file_is_not_read_ahead(tmp_path, monkeypatch):
    monkeypatch.setattr(reader_module, "SMALL_BYTES", len(SAME))
    zone = ReadAheadZone(tmp_path, SAME, SAME)
    with zone.in_order() as reading:
        next(reading)
    assert zone.opened == [1]


def test_a_mode_without_threads_reads_nothing_ahead(tmp_path):
    zone = ReadAheadZone(tmp_path, SAME, SAME)
    zone.reader = ChangeFileReader(zone.storage, Config(), keys_only(None))
    with zone.in_order() as reading:
        next(reading)
    assert zone.opened == [1]


def test_reading_that_ends_early_leaves_nothing_behind(tmp_path):
    zone, ended = ReadAheadZone(tmp_path, SAME, SAME), []
    really_read = zone.reader.read

    def slow_at_the_second(request, *content):
        read = really_read(request, *content)
        if request.file == zone.files[1]:
            time.sleep(0.1)
        ended.append(request.file)
        return read

    zone.reader.read = slow_at_the_second
    with zone.in_order() as reading:
        next(reading).rows.close()
    assert ended == zone.files
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("error", [ConcurrentModification("gone"), StorageUnavailable("gone")])
def test_an_error_ahead_is_raised_in_its_turn(tmp_path, error):
    zone = ReadAheadZone(tmp_path, SAME, SAME)
    really_open = zone.storage.open

    def fail_at_the_second(path, only=None):
        if path.endswith("2.parquet"):
            raise error
        return really_open(path, only)

    zone.storage.open = fail_at_the_second
    with zone.in_order() as reading:
        assert next(reading).row_count == 2
        with pytest.raises(type(error)):
            next(reading)
    with zone.in_order() as reading:
        next(reading)  # and never where no one asks for it


def test_a_busy_pool_delays_no_table(tmp_path):
    zone, end = ReadAheadZone(tmp_path, SAME, SAME), threading.Event()
    other_table = zone.reader._second_core.submit(end.wait, 20)
    with zone.in_order() as reading:
        assert [read.row_count for read in reading] == [2, 2]
    assert not other_table.done()
    end.set()
