"""A change file is read whole and checked against the protocol, or rejected at the row that breaks it.

A large one is read while the one before it is; what comes of it is as if each had waited for its turn.
"""

from __future__ import annotations

import io
import threading
import time
from contextlib import closing
from dataclasses import dataclass, field, replace
from functools import cached_property
from hashlib import blake2b
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
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
from mirror_engine.landing_zone.metadata import FileFormat, Metadata
from mirror_engine.landing_zone.names import TableName
from mirror_engine.landing_zone.schema import Column, TableSchema
from mirror_engine.tables.dry_run.keys_only import keys_only
from mirror_engine.tables.reading import reader as reader_module
from mirror_engine.tables.reading.reader import ChangeFileReader
from mirror_engine.tables.reading.request import LandedFolder, ReadContext, ReadRequest
from mirror_engine.tables.reading.spill import all_rows

KEYED = Metadata(key_columns=("Id",))
KEYLESS = Metadata()
FIRST = "00000000000000000001.parquet"
ORDERS = TableName("Sales", "Orders")
ID, CITY = Column("Id", "long"), Column("City", "string")
EMPTY = ReadContext()
FILLED = ReadContext(TableSchema((ID, CITY)), is_empty=False)
KNOWN = ReadContext(TableSchema((ID,)), is_empty=False)


def parquet(**columns):
    return parquet_table(pa.table(columns))


def parquet_table(table):
    sink = io.BytesIO()
    pq.write_table(table, sink)
    return sink.getvalue()


class WatchedStorage(MemoryStorage):
    """Something happens `before` or `after` a file is opened by its path; `opened` has their numbers, as they were."""

    def __init__(self):
        super().__init__()
        self.opened, self.before, self.after = [], lambda _: None, lambda _: None

    def open(self, path, only=None):
        self.opened.append(path[-10:-8])
        self.before(path)
        handle = super().open(path, only)
        self.after(path)
        return handle


@dataclass
class ReaderZone:
    """A landing zone in memory with one table, and its reader."""

    scratch: Path
    config: Config = field(default_factory=Config)
    storage: WatchedStorage = field(default_factory=WatchedStorage)
    folder: str = "Files/LandingZone"
    memory_bytes: int = 256 * 1024

    @cached_property
    def reader(self):
        return ChangeFileReader(self.storage, self.config, all_rows(self.scratch, self.memory_bytes))

    def lands(self, content, path=FIRST):
        self.storage.put(self.where(path), content)
        return self.lists(path)

    def lists(self, path=FIRST):
        entry = self.storage.stat(self.where(path))
        assert entry
        return Entry(path, entry.size, entry.modified_ns, entry.identity)

    def where(self, path=FIRST):
        return f"{self.folder}/{ORDERS.folder}/{path}"

    def reads(self, content, metadata=KEYED, context=EMPTY, path=FIRST):
        return self.reads_listed(self.lands(content, path), metadata, context)

    def reads_listed(self, file, metadata=KEYED, context=EMPTY):
        return self.reader.read(ReadRequest(LandedFolder(self.folder, ORDERS, metadata), file, context))

    def rejects(self, *arguments, **options):
        with pytest.raises(RejectedFile) as caught:
            self.reads(*arguments, **options)
        return caught.value


@pytest.fixture
def landed(tmp_path):
    return ReaderZone(tmp_path / "scratch")


@pytest.fixture
def strict(tmp_path):
    return ReaderZone(tmp_path / "scratch", Config(strict=True))


def rows(read):
    return pa.Table.from_batches(read.rows.batches(), read.rows.schema).to_pylist()


def codes(read):
    return [diagnostic.code for diagnostic in read.diagnostics]


def test_a_file_with_markers_comes_typed_with_the_marker_last(landed):
    content = parquet(**{MARKER_COLUMN: ["0", "4", "2"], "Id": [1, 2, 3], "City": ["Linz", None, "Wels"]})
    read = landed.reads(content)
    assert rows(read) == [
        {"Id": 1, "City": "Linz", MARKER_COLUMN: 0},
        {"Id": 2, "City": None, MARKER_COLUMN: 4},
        {"Id": 3, "City": "Wels", MARKER_COLUMN: 2},
    ]
    assert read.rows.schema.field(MARKER_COLUMN).type == pa.int8()
    assert read.markers == {0: 1, 4: 1, 2: 1}
    assert (read.row_count, read.has_marker, read.byte_count) == (3, True, 3 * 8 + 2 * 8)
    assert read.context == ReadContext(TableSchema((ID, CITY)), is_empty=False, markers_seen=True)
    assert codes(read) == ["ME034", "ME035"]


@pytest.mark.parametrize(
    ("changed", "context", "noted"),
    [
        ({}, EMPTY, []),
        ({}, FILLED, ["ME090"]),
        ({}, replace(FILLED, markers_seen=True), ["ME090"]),
        ({"key_columns": ()}, replace(FILLED, markers_seen=True), ["ME042"]),
        ({"upsert_default": True}, FILLED, []),
    ],
)
def test_text_without_markers_is_a_warning_after_the_first_file_of_a_table_with_a_key(landed, changed, context, noted):
    metadata = replace(TEXT, declared_columns=(ID, CITY), **changed)
    assert codes(landed.reads(b"Id,City\r\n1,Linz\r\n", metadata, context, path="a.csv")) == noted
    assert codes(landed.reads(b"Id,City,__rowMarker__\r\n1,Linz,0\r\n", metadata, context, path="b.csv")) == []


@pytest.mark.slow
@pytest.mark.parametrize("kind", [pa.string(), pa.binary()])
def test_a_column_with_a_value_that_sql_readers_do_not_see_whole_is_named_once(landed, kind):
    """LZ-5.14."""
    long, longest = b"x" * 16_000_001, b"x" * 16_000_000
    table = pa.table(
        {"Id": [1, 2, 3], "Scan": pa.array([long, long, None], kind), "Text": pa.array([longest] * 3, kind)}
    )
    (said,) = landed.reads(parquet_table(table)).diagnostics
    assert (said.code, said.column) == ("ME091", "Scan")


def test_deletes_alone_leave_an_empty_table_empty_and_a_full_one_full(landed):
    content = parquet(**{"Id": [1], MARKER_COLUMN: [2]})
    assert landed.reads(content).context.is_empty
    assert not landed.reads(content, context=FILLED).context.is_empty


# --- markers and keys


def test_null_keys_are_counted_per_key_and_rejected_under_strict(landed, strict):
    metadata = Metadata(key_columns=("b", "A"))
    content = parquet(a=[1, None, None], b=[None, 2, 3], v=[1, 1, 1])
    diagnostics = landed.reads(content, metadata).diagnostics
    assert [diagnostic.message for diagnostic in diagnostics if diagnostic.code == "ME040"] == [
        "1 row with NULL in key column `b`; NULL matches nothing",
        "2 rows with NULL in key column `a`; NULL matches nothing",
    ]
    assert strict.rejects(content, Metadata(key_columns=("a", "b"))).diagnostic.code == "ME040"


# --- schema


def test_rows_without_any_column_are_rejected(landed):
    assert "no data column" in landed.rejects(parquet(**{MARKER_COLUMN: [0]}), KEYLESS).message
    assert landed.rejects(parquet(), KEYLESS, FILLED).diagnostic.code == "ME024"


def test_under_strict_warnings_of_every_stage_reject_the_file(strict):
    assert strict.rejects(parquet(Id=pa.array([1], pa.uint8()))).diagnostic.code == "ME050"
    assert strict.rejects(parquet(ID=[1])).diagnostic.code == "ME052"


# --- partitions

PARTED = replace(KEYED, partitioned=True)
LEAF = "region=A%2FB/day=__HIVE_DEFAULT_PARTITION__/" + FIRST


def test_a_folder_in_another_case_names_the_same_column(landed):
    first = landed.reads(parquet(Id=[1]), PARTED, path=f"day=7/{FIRST}")
    second = landed.reads(parquet(Id=[2]), PARTED, first.context, f"DAY=8/{FIRST}")
    assert rows(second) == [{"Id": 2, "day": "8", MARKER_COLUMN: 0}]
    assert codes(second) == ["ME052"]


def test_a_null_partition_in_the_key_matches_nothing(landed):
    metadata = replace(PARTED, key_columns=("Id", "day"))
    assert [diagnostic.details for diagnostic in landed.reads(parquet(Id=[1, 2]), metadata, path=LEAF).diagnostics] == [
        (("column", "day"), ("count", "2"))
    ]


@pytest.mark.parametrize(
    ("cells", "fits"),
    [
        (["7", "7"], True),
        ([7, 7], True),
        ([7, 8], False),
        ([7, None], False),
        (["07", "7"], False),
        ([7.5, 7.0], False),
        ([b"7", b"7"], True),
        ([None, None], False),
    ],
    ids=str,
)
def test_a_column_may_repeat_its_folder_but_not_contradict_it(landed, cells, fits):
    content, path = parquet(Id=[1, 2], Day=cells), f"day=7/{FIRST}"
    if fits:
        assert rows(landed.reads(content, PARTED, path=path))[0] == {"Id": 1, "day": "7", MARKER_COLUMN: 0}
    else:
        assert landed.rejects(content, PARTED, path=path).diagnostic.code == "ME032"


def test_a_folders_column_is_nullable_whatever_the_file_declares(landed):
    fields = pa.schema([pa.field(name, pa.string(), nullable=False) for name in ("Id", "day")])
    read = landed.reads(parquet_table(pa.table({"Id": ["1"], "day": ["7"]}, fields)), PARTED, path=f"day=7/{FIRST}")
    assert [column.nullable for column in read.context.schema.columns] == [False, True]


# --- the file and its storage


def test_a_file_removed_or_replaced_since_it_was_listed_is_left_to_the_next_cycle(landed):
    listed = landed.lands(parquet(Id=[1]))
    landed.lands(parquet(Id=[2]))
    with pytest.raises(ConcurrentModification):
        landed.reads_listed(listed)
    landed.storage.delete(landed.where())
    with pytest.raises(ConcurrentModification):
        landed.reads_listed(listed)


@pytest.mark.parametrize("content", [parquet(Id=[1]), b"PAR1 half a fi"])
def test_a_file_that_keeps_changing_while_it_is_read_is_rejected_as_such(tmp_path, content):
    zone = ReaderZone(tmp_path)
    storage = zone.storage
    for more in (b"more", b""):
        storage.after = lambda path, more=more: storage.write_in_place(path, content + more)
        message = zone.rejects(content).diagnostic.message
        assert message == "file cannot be read: it changed while it was read"
    for after in (
        lambda path: storage.put(path, content),
        lambda path: storage.put(path, content, modified_ns=zone.lists().modified_ns),
        storage.delete,
    ):
        storage.after = after
        with pytest.raises(ConcurrentModification):
            zone.reads(content)


def test_many_rows_are_spilled_and_rejected_ones_removed(landed):
    numbers = np.arange(50_000)
    read = landed.reads(parquet(**{"Id": numbers, MARKER_COLUMN: numbers * 0}))
    assert len(list(landed.scratch.iterdir())) == 1
    assert sum(batch.num_rows for batch in read.rows.batches()) == 50_000
    assert (read.row_count, read.byte_count) == (50_000, 400_000)
    read.rows.close()
    late = parquet(**{"Id": numbers, MARKER_COLUMN: numbers // 49_999})
    assert landed.rejects(late, KEYLESS).diagnostic.row == 50_000
    assert landed.rejects(parquet(**{"Id": numbers, MARKER_COLUMN: numbers // 49_999 * 3})).diagnostic.row == 50_000
    assert list(landed.scratch.iterdir()) == []


def test_rows_of_a_file_that_is_rejected_as_a_whole_leave_the_scratch_folder(strict):
    error = strict.rejects(parquet(Id=pa.array([None] * 50_000, pa.int64()), V=np.arange(50_000)))
    assert (error.diagnostic.code, list(strict.scratch.iterdir())) == ("ME040", [])


def test_a_file_written_in_place_before_it_is_read_counts_as_it_is(landed):
    listed, content = landed.lands(parquet(Id=[1])), parquet(Id=[1, 2, 3])
    landed.storage.write_in_place(landed.where(), content)
    read = landed.reads_listed(listed)
    assert (read.row_count, read.landed.etag) == (3, landed.lists().etag)
    assert read.digest == blake2b(content, digest_size=16).hexdigest()


# --- delimited text

TEXT = Metadata(
    key_columns=("Id",),
    file_format=FileFormat.CSV,
    extension="csv",
    declared_columns=(Column("Id", "long", nullable=False), CITY, Column("Zip", "string", nullable=False)),
)


def test_header_without_a_declared_column_rejects_the_file(landed):
    """As LZ-6.5 has it, rows or none: a file that was read when only half of its header was written, too."""
    metadata = replace(TEXT, key_columns=(), declared_columns=(Column("Id", "long"), CITY))
    for content in (b"Weight\r\n7\r\n", b"Wei", b"__rowMarker__\r\n0\r\n", b"Id;City\r\n1;a\r\n"):
        refused = landed.rejects(content, metadata, path="a.csv")
        assert [refused.diagnostic.code, *(each.code for each in refused.others)] == ["ME094"]
    half = landed.reads(b"Id,Wei\r\n", metadata, path="b.csv")
    assert (rows(half), codes(half)) == ([], ["ME057", "ME058"])


@pytest.mark.parametrize(("name", "declared_codes"), [("__row_marker__", ["ME095"]), ("Row Marker", [])])
def test_misspelled_marker_is_a_warning_in_both_formats(landed, name, declared_codes):
    """A plain name that is declared is a column that is meant."""
    as_parquet = landed.reads(parquet(Id=[1], **{name: [2]}))
    assert codes(as_parquet) == ["ME095"]
    assert as_parquet.markers == {0: 1}
    content = f"Id,Zip,{name}\r\n1,a,2\r\n".encode()
    assert codes(landed.reads(content, TEXT, path="a.csv")) == ["ME095"]  # not ME057 for the same column, too
    declared = replace(TEXT, declared_columns=(*TEXT.declared_columns, Column(name, "integer")))
    assert codes(landed.reads(content, declared, path="b.csv")) == declared_codes


def test_misspelled_marker_says_all_of_marker_free_inserts(landed):
    before = ReadContext(schema=TableSchema((Column("Id", "long"),)), markers_seen=True)
    assert codes(landed.reads(parquet(Id=[1], rowMarker=[2]), context=before)) == ["ME095"]
    assert codes(landed.reads(parquet(Id=[1]), context=before)) == ["ME042"]


def test_near_name_beside_the_marker_is_a_column(landed):
    assert codes(landed.reads(parquet(**{"Id": [1], "rowMarker": [2], MARKER_COLUMN: pa.array([0], pa.int32())}))) == []


# --- large files: the next one is read ahead


@pytest.fixture(autouse=True, scope="module")
def _every_file_is_large():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reader_module, "SMALL_BYTES", 0)
        yield


@dataclass
class ReadAheadZone(ReaderZone):
    """The same, whose rows are all spilled; with its files."""

    memory_bytes: int = 1
    files: list[Entry] = field(default_factory=list)

    def in_order(self, context=KNOWN):
        return closing(self.reader.in_order(LandedFolder(self.folder, ORDERS, KEYED), self.files, context))


def ahead(scratch, *contents, config=None):
    zone = ReadAheadZone(scratch, config or Config())
    zone.files += [zone.lands(content, f"{number:020}.parquet") for number, content in enumerate(contents, 1)]
    return zone


def told(read):
    return replace(read, rows=rows(read))


def one_after_the_other(zone, context):
    """What files come to where each is read in its turn, up to the first rejected one."""
    found = []
    for file in zone.files:
        try:
            found.append(zone.reads_listed(file, context=context))
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


@given(st.lists(contents, max_size=6), st.sampled_from([ReadContext(), KNOWN]))
def test_files_come_as_if_read_one_by_one(files, context):
    with TemporaryDirectory() as scratch:
        zone = ahead(Path(scratch), *files)
        assert in_order(zone, context) == one_after_the_other(zone, context)


SAME = parquet(Id=[1, 2])


def test_two_large_files_are_read_at_once(tmp_path):
    zone = ahead(tmp_path, SAME, SAME)
    both = threading.Barrier(2, timeout=20)
    zone.storage.before = lambda _: both.wait()
    with zone.in_order() as reading:
        assert [read.row_count for read in reading] == [2, 2]


def test_a_file_whose_context_changed_is_read_again(tmp_path):
    zone = ahead(tmp_path, parquet(Id=[1], City=["Linz"]), SAME)
    with zone.in_order() as reading:
        assert [read.context.schema.names for read in reading] == [("Id", "City")] * 2
    assert sorted(zone.storage.opened) == ["01", "02", "02"]


@pytest.mark.parametrize(
    ("context", "bounds", "config"),
    [
        (ReadContext(), {}, Config()),  # the first file of a table changes its context
        (KNOWN, {}, Config(max_batch_files=1)),
        (KNOWN, {}, Config(max_batch_size=len(SAME) * 2 - 1)),
        (KNOWN, {"WHOLE_BYTES": 0}, Config()),
        (KNOWN, {"SMALL_BYTES": len(SAME)}, Config()),
        (KNOWN, {}, Config(memory_limit=1 << 30)),
    ],
)
def test_no_file_is_read_ahead_in_vain(tmp_path, monkeypatch, context, bounds, config):
    for name, size in bounds.items():
        monkeypatch.setattr(reader_module, name, size)
    zone = ahead(tmp_path, SAME, SAME, config=config)
    with zone.in_order(context) as reading:
        next(reading)
    assert set(zone.storage.opened) == {"01"}


def test_files_before_count_for_the_size_of_a_batch(tmp_path):
    zone = ahead(tmp_path, *[SAME] * 4, config=Config(max_batch_size=len(SAME) * 4 - 1))
    with zone.in_order() as reading:
        for _ in range(3):
            next(reading)
    assert set(zone.storage.opened) == {"01", "02", "03"}


def test_a_mode_without_threads_reads_nothing_ahead(tmp_path):
    zone = ahead(tmp_path, SAME, SAME)
    zone.reader = ChangeFileReader(zone.storage, Config(), keys_only(None))
    with zone.in_order() as reading:
        next(reading)
    assert zone.storage.opened == ["01"]


def test_reading_that_ends_early_leaves_nothing_behind(tmp_path):
    zone, ended = ahead(tmp_path, SAME, SAME), []
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
    zone = ahead(tmp_path, SAME, SAME)

    def fail_at_the_second(path):
        if path.endswith("2.parquet"):
            raise error

    zone.storage.before = fail_at_the_second
    with zone.in_order() as reading:
        assert next(reading).row_count == 2
        with pytest.raises(type(error)):
            next(reading)
    with zone.in_order() as reading:
        next(reading)  # and never where no one asks for it


def test_a_busy_pool_delays_no_table(tmp_path):
    zone, end = ahead(tmp_path, SAME, SAME), threading.Event()
    other_table = zone.reader._second_core.submit(end.wait, 20)
    with zone.in_order() as reading:
        assert [read.row_count for read in reading] == [2, 2]
    assert not other_table.done()
    end.set()
