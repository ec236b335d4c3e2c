"""Executors read what this process reads, file by file; here executors are this process, behind a pickle."""

from __future__ import annotations

import pickle
import random
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace

import pyarrow as pa
import pytest

from mirror_engine.config import Config
from mirror_engine.errors import ConcurrentModification, MirrorError, SetupError, StorageUnavailable
from mirror_engine.landing_zone.change import MARKER_COLUMN
from mirror_engine.landing_zone.listing import Entry
from mirror_engine.landing_zone.metadata import parse
from mirror_engine.landing_zone.names import TableName
from mirror_engine.storage.local import LocalStorage
from mirror_engine.tables.log import tables_folder as leftovers
from mirror_engine.tables.reading.reader import ChangeFileReader
from mirror_engine.tables.reading.request import LandedFolder, ReadContext
from mirror_engine.tables.reading.spill import all_rows
from mirror_engine.tables.spark import executors as executor_reading
from mirror_engine.tables.spark.executors import ExecutorReader, ParquetRows
from mirror_engine.testing.landing_zone_writer import LandingZoneWriter


@dataclass
class Executors:
    """A session whose executors are this process.

    Attributes:
        waves: the number of tasks of each job.
    """

    defaultParallelism: int = 1  # noqa: N815 - as Spark calls it
    waves: list[int] = field(default_factory=list)

    @property
    def sparkContext(self):  # noqa: N802 - as Spark calls it
        return self

    @contextmanager
    def lent(self):
        yield self

    def parallelize(self, tasks, slices):
        assert 0 < slices <= len(tasks)
        self.waves.append(len(tasks))
        self._tasks = pickle.dumps(list(tasks))
        return self

    def map(self, read):
        self._read = pickle.loads(pickle.dumps(read))  # noqa: S301 - as Spark does it
        return self

    def collect(self):
        answers = [pickle.dumps(self._read(task)) for task in pickle.loads(self._tasks)]  # noqa: S301 - as above
        return [pickle.loads(answer) for answer in answers]  # noqa: S301 - as above


class ExecutorZone:
    """A landing zone with one table folder, and both ways to read it."""

    def __init__(self, root, *, upserts=0, **options):
        self.root, self.config = root, Config(**options)
        self.table = LandingZoneWriter(root).table("T", keys=["id"])
        for number in range(upserts):
            self.table.upsert({"id": number})
        self.storage = LocalStorage(root)
        self.executors = Executors()
        self.scratch = root / "scratch"

    def pending(self):
        folder = "Files/LandingZone/T"
        entries = [entry for entry in self.storage.list(folder) or () if entry.name[0].isdigit()]
        files = tuple(Entry(e.name, e.size, e.modified_ns, e.identity) for e in entries)
        metadata, _ = parse((self.root / folder / "_metadata.json").read_bytes(), "T")
        return LandedFolder("Files/LandingZone", TableName("", "T"), metadata), files, ReadContext()

    def in_process(self):
        return ChangeFileReader(self.storage, self.config, all_rows(self.scratch))

    def on_executors(self):
        return ExecutorReader(self.storage, self.config, self.scratch, self.executors.lent)

    def scratch_files(self):
        return list(self.scratch.iterdir()) if self.scratch.exists() else []


def read_all(reader, pending):
    """Everything known of each file, and the error at the end."""
    outcomes = []
    try:
        with closing(reader.in_order(*pending)) as reading:
            for file in reading:
                rows = pa.Table.from_batches(file.rows.batches(), file.rows.schema).to_pylist()
                file.rows.close()
                outcomes.append((rows, replace(file, rows=None)))
    except MirrorError as error:
        outcomes.append((type(error), str(error)))
    return outcomes


def assert_read_alike(zone):
    pending = zone.pending()
    outcomes = read_all(zone.on_executors(), pending)
    assert outcomes == read_all(zone.in_process(), pending)
    assert zone.scratch_files() == []
    return outcomes


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(6))
def test_files_of_all_kinds_are_read_alike(tmp_path, seed):
    """Files with other columns, without rows, with deletes only, and a rejected one."""
    draw = random.Random(seed)
    zone = ExecutorZone(tmp_path)
    row = lambda: {"id": draw.randrange(9), **{n: draw.random() for n in "abc" if draw.random() < 0.5}}  # noqa: E731 - a short name
    for _ in range(12):
        match draw.randrange(6):
            case 0:
                zone.table.delete({"id": 1})
            case 1:
                zone.table.land_rows([], types={"id": pa.int64(), "late": pa.string()})
            case 2:
                zone.table.initial_load(row())
            case _:
                zone.table.apply_changes(*[(draw.choice([0, 1, 2, 4]), row()) for _ in range(draw.randrange(1, 4))])
    if seed % 2:
        zone.table.land_parquet(pa.table({"id": ["text"]}))
        zone.table.upsert({"id": 5})
    outcomes = assert_read_alike(zone)
    assert len(outcomes) == (13 if seed % 2 else 12)


@pytest.mark.slow
def test_a_wave_is_no_larger_than_a_batch_and_than_the_executors_can_use(tmp_path):
    zone = ExecutorZone(tmp_path, upserts=7, max_batch_files=3)
    size = zone.pending()[1][0].size
    for config, waves in (
        (zone.config, [1, 3, 3]),  # the first file of a table is read alone
        (Config(max_batch_size=2 * size), [1, 2, 2, 2]),
        (Config(), [1, 4, 2]),
    ):
        zone.config, zone.executors.waves = config, []
        assert_read_alike(zone)
        assert zone.executors.waves == waves
    zone = ExecutorZone(tmp_path / "changing", upserts=2)
    for row in ({"id": 3, "new": "x"}, {"id": 4}, {"id": 5}):
        zone.table.upsert(row)
    assert_read_alike(zone)
    assert zone.executors.waves == [1, 4, 2]  # a file that changes the table ends its wave


def test_rows_that_were_read_ahead_and_not_used_are_deleted(tmp_path):
    zone = ExecutorZone(tmp_path, upserts=4)
    with closing(zone.on_executors().in_order(*zone.pending())) as reading:
        next(reading).rows.close()  # the first file of a table is read alone
        second = next(reading)
        assert len(zone.scratch_files()) == 3
    assert [path.name for path in zone.scratch_files()] == [second.rows.path.name]


def test_rows_of_a_task_that_spark_ran_twice_are_deleted(tmp_path, monkeypatch):
    zone = ExecutorZone(tmp_path, upserts=1)
    once = Executors.collect
    monkeypatch.setattr(Executors, "collect", lambda executors: [once(executors), once(executors)][1])
    assert_read_alike(zone)


def test_rows_of_a_killed_engine_are_deleted_and_nothing_else(tmp_path, monkeypatch):
    zone = ExecutorZone(tmp_path, upserts=3)
    reading = zone.on_executors().in_order(*zone.pending())
    next(reading).rows.close()
    next(reading).rows.close()
    (zone.scratch / "rows-of-another-kind.arrow").touch()
    assert len(zone.scratch_files()) == 2
    zone.on_executors()
    assert len(zone.scratch_files()) == 2
    monkeypatch.setattr(leftovers, "PROCESS", "another")
    zone.on_executors()
    assert [path.name for path in zone.scratch_files()] == ["rows-of-another-kind.arrow"]


def test_a_file_that_was_replaced_has_the_same_outcome(tmp_path):
    zone = ExecutorZone(tmp_path, upserts=2)
    pending = zone.pending()
    zone.table.put(pending[1][1].path, b"another")
    outcomes = read_all(zone.on_executors(), pending)
    assert outcomes == read_all(zone.in_process(), pending)
    assert (len(outcomes), outcomes[1][0]) == (2, ConcurrentModification)


def test_a_node_that_does_not_see_root_is_a_setup_error(tmp_path, monkeypatch):
    zone = ExecutorZone(tmp_path, upserts=1)
    monkeypatch.setattr(executor_reading, "create_file", lambda *_: None)  # the mark is on another machine's disk
    with pytest.raises(SetupError, match=r"does not see .*\n.*one and the same folder on every node"):
        next(zone.on_executors().in_order(*zone.pending()))


def test_a_node_with_another_version_is_a_setup_error(tmp_path, monkeypatch):
    zone = ExecutorZone(tmp_path, upserts=1)

    def collect(executors):
        monkeypatch.setattr(executor_reading, "__version__", "0.9")
        return original(executors)

    original = Executors.collect
    monkeypatch.setattr(executor_reading, "__version__", "1.0")
    monkeypatch.setattr(Executors, "collect", collect)
    with pytest.raises(SetupError, match=r"has mirror-engine 0\.9, the driver 1.0"):
        next(zone.on_executors().in_order(*zone.pending()))
    assert zone.scratch_files() == []


@pytest.mark.slow
@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("ModuleNotFoundError: No module named 'mirror_engine.tables'", SetupError),
        ("[PYTHON_VERSION_MISMATCH] Python in worker has different version", SetupError),
        ("something else", MirrorError),
    ],
)
def test_a_python_environment_without_the_engine_is_a_setup_error(tmp_path, monkeypatch, text, expected):
    from py4j.protocol import Py4JError  # noqa: PLC0415 - slow to import

    def fails(_):
        raise Py4JError(text)

    zone = ExecutorZone(tmp_path, upserts=1)
    monkeypatch.setattr(Executors, "collect", fails)
    with pytest.raises(expected) as raised:
        next(zone.on_executors().in_order(*zone.pending()))
    assert ("PYSPARK_PYTHON" in raised.value.help) == (expected is SetupError)
    assert zone.scratch_files() == []


def test_a_scratch_folder_that_is_missing_is_an_error_of_the_machine(tmp_path):
    with pytest.raises(StorageUnavailable, match="scratch folder"):
        ParquetRows(pa.schema([]), tmp_path / "gone" / "x", 7)


def test_rows_of_a_scratch_file_come_under_their_names_in_the_order_asked(tmp_path):
    written = pa.table({"_metadata": ["a", None], "marker": [1, 2], MARKER_COLUMN: pa.array([0, 4], pa.int8())})
    store = ParquetRows(written.schema, tmp_path / "rows", 7)
    for batch in written.to_batches(max_chunksize=1):
        store.add(batch)
    store.finish()
    store = pickle.loads(pickle.dumps(store))  # noqa: S301 - as from an executor
    assert pa.Table.from_batches(store.batches()).equals(written)
    assert pa.Table.from_batches(store.batches([MARKER_COLUMN, "marker"])).equals(written.select([2, 1]))
    store.close()
    ParquetRows(written.schema, tmp_path / "unfinished", 8).close()
    assert list(tmp_path.iterdir()) == []
