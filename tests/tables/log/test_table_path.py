"""Tables in a store: commits are made once, files read by ranges, and a drop takes the table away in one step."""

from __future__ import annotations

import itertools
import json
import pickle
import shutil
from contextlib import nullcontext
from dataclasses import replace
from types import SimpleNamespace

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from delta_scenario import schema_of
from deltalake import DeltaTable, write_deltalake
from store_twin import URL, store_of_tables

from mirror_engine.errors import CommitConflict, RootLocked, StorageUnavailable, TableDamaged, UsageError
from mirror_engine.landing_zone.progress import Applied, Progress
from mirror_engine.tables.base import BatchRecord
from mirror_engine.tables.changes.net_changes import Role
from mirror_engine.tables.changes.staged import StagedChanges
from mirror_engine.tables.log import table_path, tables_folder
from mirror_engine.tables.log.commit import create_with_files, put_commit
from mirror_engine.tables.log.durability import make_durable
from mirror_engine.tables.log.log_errors import reading_log
from mirror_engine.tables.log.record import commits_after, to_metadata
from mirror_engine.tables.log.table_path import StorePath, file_in, parquet_source
from mirror_engine.tables.log.tables_folder import TablesFolder, is_table
from mirror_engine.tables.merge.spark import SparkDeltaWriter


@pytest.fixture
def lossy(tmp_path, monkeypatch):
    return store_of_tables(tmp_path, monkeypatch)


@pytest.fixture
def far_disk(tmp_path, lossy):  # noqa: ARG001 - it makes the folder
    return tmp_path / "store"


@pytest.fixture
def tables(lossy, tmp_path):  # noqa: ARG001 - they are there
    """`ROOT/Tables` in a store; deltalake reaches the same files on disk."""
    return TablesFolder(URL, tmp_path / "scratch")


def append(folder, *numbers):
    write_deltalake(str(folder), pa.table({"n": numbers}), mode="append")


def test_names_are_those_of_pathlib(tables):
    folder = tables.path("dbo/T")
    assert (str(folder), folder.name, folder.parts) == ("s3://bucket/root/Tables/dbo/T", "T", ("dbo", "T"))
    assert ((folder / "a.json").stem, folder / "_delta_log") == ("a", tables.path("dbo/T/_delta_log"))
    assert str(tables.path("dbo/50% é")) == "s3://bucket/root/Tables/dbo/50%25%20%C3%A9"
    with pytest.raises(UsageError):
        tables.path("../T")


INSIDE = {"a.parquet": "a.parquet", "x/../y=1/a.parquet": "y=1/a.parquet", "./a b#c.bin": "a b#c.bin"}
ELSEWHERE = (
    *("../U/a.parquet", "x/../../U/a.parquet", "..", ".", "", "/etc/passwd", "//etc/passwd", "{folder}x/a.parquet"),
    *("file:///etc/passwd", "file:/etc/passwd", "{folder}/../U/a.parquet", "S3A://other/a.parquet", "a\0.parquet"),
)


@pytest.mark.parametrize("kind", ["disk", "store"])
def test_log_names_files_of_its_own_folder_alone(tables, tmp_path, kind):
    folder = tables.path("dbo/T") if kind == "store" else tmp_path / "Tables/dbo/T"
    absolute = f"/{folder.url.path}" if kind == "store" else str(folder)
    for path, found in {**INSIDE, f"{absolute}/a.parquet": "a.parquet"}.items():
        assert file_in(folder, path) == folder / found
    for path in ELSEWHERE:
        with pytest.raises(TableDamaged, match=r"its Delta log names a file (outside|by a URL)") as error:
            file_in(folder, path.format(folder=absolute))
        assert "mirror-engine rebuild" in error.value.help


def test_log_may_name_its_own_files_by_url_or_another_name_of_its_folder(tmp_path):
    folder, link = tmp_path / "Tables/T", tmp_path / "link"
    folder.mkdir(parents=True)
    link.symlink_to(tmp_path)
    for path in (f"{folder}/a.parquet", f"file://{folder}/a.parquet", f"file:{folder}/a.parquet"):
        assert file_in(link / "Tables/T", path) == link / "Tables/T/a.parquet"
        assert file_in(folder, path.replace(str(tmp_path), str(link))) == folder / "a.parquet"


def test_file_of_a_root_with_two_dots_is_found(tmp_path):
    folder = tmp_path / "x/../Tables/T"
    assert file_in(folder, "a.parquet") == folder / "a.parquet"


def test_what_is_not_there(tables):
    folder = tables.path("dbo/T")
    assert not is_table(folder)
    assert list(folder.iterdir()) == list(folder.rglob("*")) == list(folder.glob("*/*/")) == []
    assert not folder.exists()
    assert tables.log_stamp("dbo/T", 0) == ""
    assert list(commits_after(folder, -1)) == []
    for read in (folder.stat, folder.read_bytes, folder.open):
        with pytest.raises(FileNotFoundError):
            read()
    folder.unlink()
    tables.drop("dbo/T")


def test_a_folder_without_a_log_is_no_table(tables, far_disk):
    for name in ("Plain", "dbo/T"):
        append(far_disk / name, 1)
    (far_disk / "dbo/none").mkdir()
    (far_disk / "dbo/none/part.parquet").touch()
    assert tables.tables() == ["Plain", "dbo/T"]


def test_look_for_a_table_takes_one_request_behind_all_commits(tables, lossy, far_disk):
    append(far_disk / "dbo/T", 1)
    DeltaTable(str(far_disk / "dbo/T")).create_checkpoint()
    lossy.asked.clear()
    assert is_table(tables.path("dbo/T"))
    assert lossy.asked == [("list", "dbo/T/_delta_log")]


def test_a_version_is_written_by_one_writer_only(tables):
    folder = tables.path("dbo/T")
    put_commit(folder, 0, [{"commitInfo": {"by": "one"}}])
    with pytest.raises(CommitConflict):
        put_commit(folder, 0, [{"commitInfo": {"by": "two"}}])
    ((version, commit),) = commits_after(folder, -1)
    assert (version, commit.information) == (0, {"by": "one"})


@pytest.mark.parametrize("is_done", [False, True], ids=["refused", "answer lost"])
def test_a_commit_that_failed_is_made_where_only_its_answer_was_lost(tables, lossy, is_done):
    lossy.fails_at, lossy.is_done = {1}, is_done
    with nullcontext() if is_done else pytest.raises(StorageUnavailable):
        put_commit(tables.path("dbo/T"), 0, [{"commitInfo": {}}])
    assert [name for name, _ in lossy.asked] == ["put", "get"]
    assert is_table(tables.path("dbo/T")) == is_done


def test_a_stamp_of_a_log_that_cannot_be_looked_through_is_none(tables, lossy, far_disk):
    for number in range(3):
        append(far_disk / "dbo/T", number)
    assert tables.log_stamp("dbo/T", 0).startswith("2 ")
    lossy.fails_at = {len(lossy.asked) + 1}
    assert tables.log_stamp("dbo/T", 0) == ""


@pytest.mark.parametrize("is_done", [False, True], ids=["refused", "answer lost"])
def test_data_files_stay_where_it_is_not_known_whether_their_table_was_created(
    tables, lossy, far_disk, monkeypatch, is_done
):
    part = far_disk.parent / "part.parquet"
    pq.write_table(pa.table({"n": [1]}), part)
    batch = SimpleNamespace(schema=schema_of("n:long"), key_columns=(), passthrough=[part])
    create = StorePath.create

    def put(path, content):
        lossy.asked.clear()
        lossy.fails_at, lossy.is_done = {1, 2}, is_done
        create(path, content)

    monkeypatch.setattr(StorePath, "create", put)
    with pytest.raises(StorageUnavailable):
        create_with_files(
            "dbo/T", tables.path("dbo/T"), batch, BatchRecord("mirror", "", Progress("g", "1:1"), "", Applied()), {}
        )
    assert [name for name, _ in lossy.asked] == ["put", "get"]
    assert seen(far_disk / "dbo/T") == ([1] if is_done else None)
    assert len(list((far_disk / "dbo/T").glob("part-*"))) == 1


def test_listings_know_sizes_and_times(tables, far_disk, lossy):
    append(far_disk / "dbo/T", 1)
    (file,) = tables.path("dbo/T").rglob("*.parquet")
    lossy.asked.clear()
    on_disk = (far_disk / file.path).stat()
    assert file.stat()[:2] == (on_disk.st_size, pytest.approx(on_disk.st_mtime_ns, abs=1e6))
    assert lossy.asked == []
    assert file.exists()
    assert [name for name, _ in lossy.asked] == ["head"]


def test_data_files_that_a_log_names_are_looked_for(tables, far_disk):
    append(far_disk / "dbo/T", 1)
    folder = tables.path("dbo/T")
    make_durable(folder, -1)
    (file,) = folder.rglob("*.parquet")
    file.unlink()
    with pytest.raises(TableDamaged, match="is missing"):
        make_durable(folder, -1)


STORE_WORDS = [
    "Generic S3 error: status code: 503 Slow Down",
    "Generic MicrosoftAzure error",
    "The operation lacked valid authentication credentials for path dbo/T/part-1.parquet",
    "The operation lacked the necessary privileges to complete for path dbo/T/part-1.parquet",
]


@pytest.mark.parametrize("words", STORE_WORDS)
def test_a_store_that_fails_is_no_damaged_table(tables, words):
    for error in (OSError(words), ValueError(words)):
        with pytest.raises(StorageUnavailable), reading_log(tables.path("dbo/T")):
            raise error


def seen(folder):
    """What a reader makes of a table."""
    try:
        return sorted(DeltaTable(str(folder)).to_pyarrow_table()["n"].to_pylist())
    except Exception:  # noqa: BLE001 - whatever it says, it shows no row
        return None


def log_of(disk, *, checkpoint):
    """Six versions, the last but one of which says anew what the table is; without its beginning it still reads."""
    folder, made = disk / "dbo/T", disk.with_name(f"made {checkpoint}")
    if not made.exists():
        for number in range(6):
            append(made, number)
            if number == checkpoint:
                DeltaTable(str(made)).create_checkpoint()
        first, late = (made / "_delta_log" / f"{version:020}.json" for version in (0, 4))
        what = [line for line in first.read_text().splitlines() if {"protocol", "metaData"} & set(json.loads(line))]
        late.write_text(late.read_text() + "\n".join(what) + "\n")
    shutil.copytree(made, folder, dirs_exist_ok=True)
    return folder


@pytest.fixture
def in_order(monkeypatch):
    monkeypatch.setattr("mirror_engine.storage.base.REQUESTS", 1)


def commits_of(disk, generations):
    """A log with a commit of each generation; `""` for another program's, `drop` for the end of a table."""
    log = disk / "dbo/T/_delta_log"
    log.mkdir(parents=True)
    for version, generation in enumerate(generations):
        record = BatchRecord("mirror", "", Progress(generation, "1:1"), "", Applied())
        content = json.dumps({"commitInfo": {"userMetadata": to_metadata(record)} if generation else {}}).encode()
        (log / f"{version:020d}.json").write_bytes(tables_folder._DROP if generation == "drop" else content)
    return log


def test_who_holds_the_lease_keeps_its_commit_after_a_late_one(tables, far_disk):
    log = commits_of(far_disk, ["new", "old", "new"])
    tables.finish_drop("dbo/T")
    assert len([*log.glob("*.json")]) == 3


@pytest.mark.parametrize(
    ("generations", "left"),
    [
        (["new", "new", "old"], 2),
        (["new", "old", "old"], 1),  # a batch or a compaction, and what followed it
        (["new", "old", "new"], 3),  # the other engine went on
        (["old", "old"], 2),
        (["old", "drop"], 2),  # the other engine drops the table just now
        (["new", "old", ""], 3),  # another program's
    ],
)
def test_who_lost_the_lease_takes_back_its_own_commit_alone(tables, far_disk, generations, left):
    log = commits_of(far_disk, generations)
    checkpoint = [log / f"{len(generations) - 1:020d}.checkpoint.parquet", log / "_last_checkpoint"]
    for file in checkpoint:
        file.touch()
    tables.take_back("dbo/T", "old")
    is_taken_back = left < len(generations)
    assert [file.exists() for file in checkpoint] == [not is_taken_back] * 2
    assert len([*log.glob("*.json")]) == left


@pytest.mark.usefixtures("in_order")
@pytest.mark.parametrize("is_done", [False, True], ids=["refused", "answer lost"])
@pytest.mark.parametrize("checkpoint", [None, 3])
@pytest.mark.slow
def test_a_drop_shows_the_table_whole_or_not_at_all_wherever_it_ends(tables, lossy, far_disk, checkpoint, is_done):
    whole, ended, steps = list(range(6)), False, 0
    while not ended:
        steps += 1
        folder = log_of(far_disk, checkpoint=checkpoint)
        lossy.asked.clear()
        lossy.fails_at, lossy.is_done = {steps}, is_done
        try:
            tables.drop("dbo/T")
            ended = len(lossy.asked) < steps
        except StorageUnavailable:
            assert seen(folder) in (whole, None)
            lossy.fails_at = ()
            if is_table(tables.path("dbo/T")):
                assert seen(folder) == whole
                tables.drop("dbo/T")
            else:
                assert "dbo/T" not in tables.tables()
                tables.finish_drop("dbo/T")
        lossy.fails_at = ()
        assert not list(tables.path("dbo/T").rglob("*"))
    assert steps > 15


@pytest.mark.parametrize("version", [1, 5])
def test_a_commit_of_a_drop_that_comes_after_the_next_table_was_made_is_taken_back(
    tables, far_disk, monkeypatch, version
):
    append(far_disk / "dbo/T", 1)
    tables_folder._commit_unreadable(tables.path(f"dbo/T/_delta_log/{version:020}.json"), lambda: None)
    assert seen(far_disk / "dbo/T") is None
    tables.finish_drop("dbo/T")
    assert seen(far_disk / "dbo/T") == [1]
    named = far_disk / f"dbo/T/_delta_log/{1:020}.json"
    named.write_text('{"commitInfo": {"note": "mirrorEngineDropped"}}\n')
    tables.finish_drop("dbo/T")
    assert named.exists()
    monkeypatch.setattr(StorePath, "read_bytes", lambda commit: (far_disk / "dbo/T" / commit.path).read_bytes())
    tables.finish_drop("dbo/T")  # it is removed while it is looked at


@pytest.mark.slow
@pytest.mark.usefixtures("in_order")
def test_from_the_first_commit_of_a_drop_on_no_reader_opens_the_table(tables, far_disk, monkeypatch):
    folder, states = log_of(far_disk, checkpoint=3), []
    remove = StorePath.remove

    def watched(path):
        remove(path)
        states.append((seen(folder), is_table(tables.path("dbo/T"))))

    monkeypatch.setattr(StorePath, "remove", watched)
    tables.drop("dbo/T")
    assert len(states) > 10
    assert set(states) == {(None, False)}


class Stalled:
    """A check before each step of a drop: at one of them another engine does the whole drop, and makes the table."""

    def __init__(self, tables, at, folder, commits):
        self._tables, self._at, self._folder, self._commits, self.calls = tables, at, folder, commits, 0

    def __call__(self):
        self.calls += 1
        if self.calls == self._at:
            self.work()
        if self.calls >= self._at:
            raise RootLocked("lost")

    def work(self):
        self._tables.finish_drop("dbo/T")
        self._tables.drop("dbo/T")
        for number in range(100, 100 + self._commits):
            append(self._folder, number)


@pytest.mark.usefixtures("in_order")
@pytest.mark.parametrize(
    ("checkpoint", "commits"),
    [(3, 1), (None, 9), *(pytest.param(*pair, marks=pytest.mark.nightly) for pair in ((None, 1), (3, 9)))],
)
@pytest.mark.slow
def test_overtaken_drop_keeps_the_next_engines_table(tables, far_disk, checkpoint, commits):
    for at in itertools.count(1):
        folder = log_of(far_disk, checkpoint=checkpoint)
        stalled = Stalled(tables, at, folder, commits)
        try:
            tables.drop("dbo/T", stalled)
        except RootLocked:
            assert seen(folder) == list(range(100, 100 + commits))
            assert tables.tables() == ["dbo/T"]
            tables.finish_drop("dbo/T")
            assert seen(folder) == list(range(100, 100 + commits))
            tables.drop("dbo/T")
            assert not list(tables.path("dbo/T").rglob("*"))
        else:
            break
    assert at > 15


@pytest.mark.parametrize("wrong", [slice(4, -4), slice(4, -4000)], ids=["all", "pages"])
def test_a_damaged_checkpoint_is_left_to_readers(tables, far_disk, wrong):
    folder = log_of(far_disk, checkpoint=3)
    (checkpoint,) = folder.rglob("*.checkpoint.parquet")
    content = bytearray(checkpoint.read_bytes())
    content[wrong] = bytes(len(content[wrong]))
    checkpoint.write_bytes(content)
    tables.finish_drop("dbo/T")
    assert checkpoint.read_bytes() == content


@pytest.mark.slow
@pytest.mark.usefixtures("in_order")
@pytest.mark.parametrize("commits", [1, 9], ids=["fewer versions", "more versions"])
def test_a_step_that_comes_after_the_drop_it_is_of_is_taken_back(tables, far_disk, lossy, commits):
    """The mark and the commit of a drop are written into the next engine's table: between the look and the write."""

    class Overtaken(Stalled):
        def __getattr__(self, name):
            return getattr(lossy, name)

        def put(self, *arguments, **options):
            self.puts = getattr(self, "puts", 0) + 1
            if self.puts == self._at:
                self._at = 0
                self.work()
            return lossy.put(*arguments, **options)

        def __call__(self):
            if self._at == 0:
                raise RootLocked("lost")

    for at in (1, 2):
        folder = log_of(far_disk, checkpoint=None)
        overtaken = Overtaken(tables, at, folder, commits)
        taken = replace(tables.path("dbo/T"), store=overtaken)
        with pytest.raises(RootLocked):
            tables_folder._retire_in_store(taken, overtaken, is_begun=False)
        assert seen(folder) == list(range(100, 100 + commits))
        assert is_table(tables.path("dbo/T"))
        tables.drop("dbo/T")
        assert not list(tables.path("dbo/T").rglob("*"))


def test_what_the_driver_staged_is_uploaded_for_executors_and_removed_again(tables, tmp_path, lossy):
    shared = tables.path("scratch")
    writer = SparkDeltaWriter(tmp_path / "Tables", tmp_path, lambda: pytest.fail("Spark started"), shared=shared)
    (tmp_path / "batch-1").mkdir()
    pq.write_table(pa.table({"c0": [1]}), tmp_path / "batch-1/part-00000.parquet")
    staged = StagedChanges(tmp_path / "batch-1", 1, frozenset({Role.SET}), (), ())
    with writer._reached(staged) as reached:
        (part,) = reached.folder.iterdir()
        assert (part.path, reached.rows) == ("scratch/batch-1/part-00000.parquet", 1)
        with parquet_source(part) as source:
            assert pq.read_table(source).to_pydict() == {"c0": [1]}
    assert list(shared.rglob("*")) == []
    assert [path.name for path in staged.folder.iterdir()] == ["part-00000.parquet"]
    assert {name for name, _ in lossy.asked} >= {"put", "delete"}


def test_executors_open_the_store_with_credentials_of_their_own(tables, monkeypatch):
    path = tables.path("scratch/read-1")
    path.create(b"0.1")
    monkeypatch.setattr(table_path, "_opened", lambda place: replace(path, place=place, path=""))
    copy = pickle.loads(pickle.dumps(path))  # noqa: S301 - as Spark does it
    assert b"Local" not in pickle.dumps(path)
    assert (copy, copy.read_bytes(), copy.parent.name) == (path, b"0.1", "scratch")
