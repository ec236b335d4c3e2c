"""What executors read is what this process reads, file by file; here executors are this process, behind a pickle."""

from __future__ import annotations

import pickle
import random
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from mirror_engine.config import Config
from mirror_engine.errors import ConcurrentModification, MirrorError, SetupError
from mirror_engine.landing_zone.listing import LandedFile
from mirror_engine.landing_zone.metadata import parse
from mirror_engine.landing_zone.names import TableName
from mirror_engine.publisher.landing_zone_writer import LandingZoneWriter
from mirror_engine.storage.local import LocalStorage
from mirror_engine.tables import scratch as leftovers
from mirror_engine.tables.reading.reader import ChangeFileReader
from mirror_engine.tables.reading.request import PendingFiles, TableContext
from mirror_engine.tables.reading.spill import all_rows
from mirror_engine.tables.spark import executors as executor_reading
from mirror_engine.tables.spark.executors import ExecutorReader

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from mirror_engine.tables.reading.request import OrderedReader

KEYS = ("id",)
COLUMNS = [
    {"Name": "id", "DataType": "Int64"},
    {"Name": "a", "DataType": "String", "IsNullable": True},
    {"Name": "b", "DataType": "Double", "IsNullable": True},
]


@dataclass
class Executors:
    """A session whose executors are this process; `waves` tells what they were given."""

    defaultParallelism: int = 1  # noqa: N815 - as Spark calls it
    waves: list[int] = field(default_factory=list)

    @property
    def sparkContext(self) -> Executors:  # noqa: N802 - as Spark calls it
        return self

    @contextmanager
    def lent(self) -> Iterator[Any]:
        yield self

    def parallelize(self, tasks: Sequence[Any], slices: int) -> Executors:
        assert 0 < slices <= len(tasks)
        self.waves.append(len(tasks))
        self._tasks = pickle.dumps(list(tasks))
        return self

    def map(self, read: Callable[[Any], Any]) -> Executors:
        self._read = pickle.loads(pickle.dumps(read))  # noqa: S301 - as Spark does it
        return self

    def collect(self) -> list[Any]:
        answers = [pickle.dumps(self._read(task)) for task in pickle.loads(self._tasks)]  # noqa: S301 - as above
        return [pickle.loads(answer) for answer in answers]  # noqa: S301 - as above


class World:
    """A landing zone with one table folder, and both ways to read it."""

    def __init__(self, root: Path, *, text: bool = False, **options: Any) -> None:
        self.root, self.config = root, Config(**options)
        described: dict[str, Any] = {"file_format": "CSV", "extension": "csv", "columns": COLUMNS} if text else {}
        self.table = LandingZoneWriter(root).table("T", keys=KEYS, **described)
        self.storage = LocalStorage(root)
        self.executors = Executors()
        self.scratch = root / "scratch"

    def waiting(self) -> PendingFiles:
        folder = "Files/LandingZone/T"
        entries = [entry for entry in self.storage.list(folder) or () if entry.name[0].isdigit()]
        files = tuple(LandedFile(e.name, e.size, e.modified_ns, e.identity) for e in entries)
        metadata, _ = parse((self.root / folder / "_metadata.json").read_bytes(), "T")
        return PendingFiles("Files/LandingZone", TableName("", "T"), files, metadata, TableContext())

    def here(self) -> OrderedReader:
        return ChangeFileReader(self.storage, self.config, all_rows(self.scratch))

    def there(self) -> OrderedReader:
        return ExecutorReader(self.storage, self.config, self.scratch, self.executors.lent)

    def left(self) -> list[Path]:
        return list(self.scratch.iterdir()) if self.scratch.exists() else []


def told(reader: OrderedReader, waiting: PendingFiles) -> list[Any]:
    """All there is to know of each file, and how it ended."""
    found: list[Any] = []
    try:
        with closing(reader.in_order(waiting)) as reading:
            for file in reading:
                rows = pa.Table.from_batches(file.rows.rows.batches(), file.rows.rows.schema).to_pylist()
                file.rows.rows.close()
                found.append((rows, replace(file.rows, rows=None), file.facts))  # type: ignore[arg-type]
    except MirrorError as error:
        found.append((type(error), str(error)))
    return found


def assert_read_alike(world: World) -> list[Any]:
    waiting = world.waiting()
    found = told(world.there(), waiting)
    assert found == told(world.here(), waiting)
    assert world.left() == []
    return found


@pytest.mark.parametrize("seed", range(6))
def test_files_of_all_kinds_are_read_alike(tmp_path: Path, seed: int) -> None:
    """Ragged, empty, of deletes alone, of rows that turn out to be none, and one that is refused."""
    draw = random.Random(seed)
    world = World(tmp_path)
    row = lambda: {"id": draw.randrange(9), **{n: draw.random() for n in "abc" if draw.random() < 0.5}}  # noqa: E731 - said once
    for _ in range(12):
        match draw.randrange(6):
            case 0:
                world.table.delete({"id": 1})
            case 1:
                world.table.land_rows([], types={"id": pa.int64(), "late": pa.string()})
            case 2:
                world.table.initial_load(row())
            case _:
                world.table.apply_changes(*[(draw.choice([0, 1, 2, 4]), row()) for _ in range(draw.randrange(1, 4))])
    if seed % 2:
        world.table.land_parquet(pa.table({"id": ["text"]}))
        world.table.upsert({"id": 5})
    found = assert_read_alike(world)
    assert len(found) == (13 if seed % 2 else 12)
    assert len(world.executors.waves) < len(found), "nothing was read side by side"


def test_text_is_read_alike_though_only_its_rows_tell_that_it_has_none(tmp_path: Path) -> None:
    world = World(tmp_path, text=True)
    for content in (
        "id,a\n",
        "id,b,__rowMarker__\n1,2.5,2\n",
        "id,a,b\n1,x,0.5\n2,y,1\n",
        "id\n3\n4\n",
        "id\nno\n",
        "id\n5\n",
    ):
        world.table.land_csv(content)
    found = assert_read_alike(world)
    assert len(found) == 5
    assert "ME060" in found[-1][1]


def test_a_wave_is_no_larger_than_a_batch(tmp_path: Path) -> None:
    world = World(tmp_path, max_batch_files=3)
    for number in range(7):
        world.table.upsert({"id": number})
    assert_read_alike(world)
    assert world.executors.waves == [3, 3, 1]
    size = world.waiting().files[0].size
    world.config, world.executors.waves = Config(max_batch_size=2 * size), []
    assert_read_alike(world)
    assert world.executors.waves == [2, 2, 2, 1]


def test_what_was_read_ahead_and_not_asked_for_goes(tmp_path: Path) -> None:
    world = World(tmp_path)
    for number in range(4):
        world.table.upsert({"id": number})
    with closing(world.there().in_order(world.waiting())) as reading:
        first = next(reading)
        assert len(world.left()) == 4
    assert [path.name for path in world.left()] == [first.rows.rows.path.name]  # type: ignore[attr-defined]


def test_what_a_task_left_that_had_to_be_tried_again_goes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(tmp_path)
    world.table.upsert({"id": 1})
    once = Executors.collect
    monkeypatch.setattr(Executors, "collect", lambda executors: [once(executors), once(executors)][1])
    assert_read_alike(world)


def test_what_a_killed_engine_left_goes_and_nothing_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(tmp_path)
    for number in range(3):
        world.table.upsert({"id": number})
    reading = world.there().in_order(world.waiting())
    next(reading).rows.rows.close()
    (world.scratch / "rows-of-another-kind.arrow").touch()
    assert len(world.left()) == 3
    world.there()
    assert len(world.left()) == 3
    monkeypatch.setattr(leftovers, "PROCESS", "another")
    world.there()
    assert [path.name for path in world.left()] == ["rows-of-another-kind.arrow"]


def test_a_file_that_was_replaced_is_told_as_here(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.table.upsert({"id": 1})
    world.table.upsert({"id": 2})
    waiting = world.waiting()
    world.table.put(waiting.files[1].path, b"another")
    found = told(world.there(), waiting)
    assert found == told(world.here(), waiting)
    assert (len(found), found[1][0]) == (2, ConcurrentModification)


def test_a_node_that_does_not_see_root_ends_the_engine_with_the_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World(tmp_path)
    world.table.upsert({"id": 1})
    monkeypatch.setattr("pathlib.Path.touch", lambda _: None)  # the mark is on another machine's disk
    with pytest.raises(SetupError, match=r"does not see .*\n.*one and the same folder on every node"):
        next(world.there().in_order(world.waiting()))


def test_a_node_with_another_version_ends_the_engine_with_both(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(tmp_path)
    world.table.upsert({"id": 1})
    versions = iter(["1.0", "0.9"])
    monkeypatch.setattr(executor_reading, "_version", lambda: next(versions))
    with pytest.raises(SetupError, match=r"has mirror-engine 0\.9, the driver 1.0"):
        next(world.there().in_order(world.waiting()))
    assert world.left() == []


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        ("ModuleNotFoundError: No module named 'mirror_engine.tables'", SetupError),
        ("[PYTHON_VERSION_MISMATCH] Python in worker has different version", SetupError),
        ("something else", MirrorError),
    ],
)
def test_what_executors_cannot_begin_with_is_told_with_its_remedy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: str, expected: type[MirrorError]
) -> None:
    from py4j.protocol import Py4JError  # noqa: PLC0415 - slow to import

    def fails(_: Executors) -> list[Any]:
        raise Py4JError(said)

    world = World(tmp_path)
    world.table.upsert({"id": 1})
    monkeypatch.setattr(Executors, "collect", fails)
    with pytest.raises(expected) as raised:
        next(world.there().in_order(world.waiting()))
    assert ("PYSPARK_PYTHON" in raised.value.help) == (expected is SetupError)
    assert world.left() == []
