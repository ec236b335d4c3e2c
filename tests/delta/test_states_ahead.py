"""States of tables are made ready once it is quiet, and hardly anything waits for them."""

from __future__ import annotations

import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any
from unittest.mock import MagicMock

import pytest
from delta_scenario import Scenario, schema_of

from mirror_engine.tables.merge.spark import SparkDeltaWriter
from mirror_engine.tables.spark import states_ahead
from mirror_engine.tables.spark.states_ahead import SnapshotPrefetcher

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession


SECONDS = 60.0


class World:
    """Notes whose states are reconstructed; each waits for `gate`."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(states_ahead, "QUIET_SECONDS", 0.0)
        self.done: list[Path] = []
        self.begun = threading.Event()
        self.gate = threading.Event()
        self.gate.set()
        self.failures = 0
        self.master = "local[2]"
        self.states = SnapshotPrefetcher(self._lend)
        monkeypatch.setattr(states_ahead, "_reconstruct", self._reconstruct)

    @contextmanager
    def _lend(self) -> Iterator[Any]:
        spark = MagicMock()
        spark.sparkContext.master = self.master
        yield spark

    def _reconstruct(self, _: object, folder: Path) -> None:
        self.begun.set()
        assert self.gate.wait(SECONDS)
        if self.failures:
            self.failures -= 1
            raise OSError("scripted")
        self.done.append(folder)


def settle(states: SnapshotPrefetcher) -> None:
    """Wait until none is at hand, nor left that may be begun."""
    with states._changed:
        assert states._changed.wait_for(lambda: not states._is_working, SECONDS)


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    return World(monkeypatch)


def test_a_state_is_made_ready_once_no_commit_is_under_way(world: World, tmp_path: Path) -> None:
    one, other = tmp_path / "one", tmp_path / "other"
    with world.states.held_back(other):
        with world.states.held_back(one):
            world.states.want(one, 3)
        settle(world.states)
        assert not world.done
    settle(world.states)
    assert world.done == [one]


def test_the_state_of_a_table_that_is_committed_to_again_is_not_wanted(world: World, tmp_path: Path) -> None:
    with world.states.held_back(tmp_path):
        world.states.want(tmp_path, 3)
        with world.states.held_back(tmp_path):
            pass
    settle(world.states)
    assert not world.done


def test_a_commit_that_begins_meanwhile_lets_no_other_begin(world: World, tmp_path: Path) -> None:
    world.gate.clear()
    world.states.want(tmp_path, 3)
    assert world.begun.wait(SECONDS)
    world.states.want(tmp_path / "next", 3)
    with world.states.held_back(tmp_path / "third"):
        world.gate.set()
        settle(world.states)
        assert world.done == [tmp_path]
    settle(world.states)
    assert world.done == [tmp_path, tmp_path / "next"]


def test_a_failure_keeps_no_other_from_being_made_ready(world: World, tmp_path: Path) -> None:
    world.failures = 1
    world.states.want(tmp_path, 3)
    world.states.want(tmp_path / "next", 3)
    settle(world.states)
    assert len(world.done) == 1


@pytest.mark.parametrize("longest", [0.0, SECONDS])
def test_the_end_begins_no_other_and_waits_a_little_for_the_one_at_hand(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, longest: float
) -> None:
    monkeypatch.setattr(states_ahead, "MAX_END_SECONDS", longest)
    world.gate.clear()
    world.states.want(tmp_path, 3)
    assert world.begun.wait(SECONDS)
    world.states.want(tmp_path / "next", 3)
    ending = threading.Thread(target=world.states.close)
    ending.start()
    if longest:
        while world.states._wanted:
            assert ending.is_alive()
        ending.join(0.1)
        assert ending.is_alive()
        world.gate.set()
    ending.join(SECONDS)
    assert not ending.is_alive()
    world.gate.set()
    settle(world.states)
    assert world.done == [tmp_path]


def test_a_commit_that_follows_at_once_is_not_kept_waiting(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(states_ahead, "QUIET_SECONDS", SECONDS)
    with world.states.held_back(tmp_path):
        world.states.want(tmp_path / "other", 3)
    assert not world.begun.wait(0.2)
    with world.states.held_back(tmp_path):
        settle(world.states)
    world.states.close()
    settle(world.states)
    assert not world.done


def test_the_executors_of_a_cluster_have_other_work(world: World, tmp_path: Path) -> None:
    world.master = "spark://somewhere:7077"
    world.states.want(tmp_path, 3)
    settle(world.states)
    assert not world.done


def test_of_a_long_backlog_the_newest_are_made_ready(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(states_ahead, "MAX_TABLES", 2)
    with world.states.held_back(tmp_path):
        for name in ("a", "b", "a", "c"):
            world.states.want(tmp_path / name, 3)
    settle(world.states)
    assert sorted(folder.name for folder in world.done) == ["a", "c"]


def test_where_no_thread_can_be_had_a_commit_is_none_the_worse(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch, world.states.held_back(tmp_path):
        patch.setattr(threading.Thread, "start", MagicMock(side_effect=RuntimeError("can't start new thread")))
        world.states.want(tmp_path, 3)
        with world.states.held_back(tmp_path / "other"):
            pass
    world.states.want(tmp_path, 3)
    settle(world.states)
    assert world.done == [tmp_path]


def test_a_table_goes_only_after_its_state_was_read(world: World, tmp_path: Path) -> None:
    writer = SparkDeltaWriter(tmp_path / "Tables", tmp_path / "scratch", MagicMock())
    writer._states = world.states
    table = Scenario(writer, schema_of("Id"), ["Id"], "dbo/T")
    table.create()
    world.gate.clear()
    world.states.want(tmp_path / "Tables/dbo/T", 3)
    assert world.begun.wait(SECONDS)
    dropping = threading.Thread(target=writer.drop, args=("dbo/T",))
    dropping.start()
    dropping.join(0.2)
    assert dropping.is_alive()
    assert writer.tables() == ["dbo/T"]
    world.gate.set()
    dropping.join(SECONDS)
    assert writer.tables() == []


def kept(spark: SparkSession, folder: Path) -> set[str]:
    """States that Spark holds for this table."""
    held = spark.sparkContext._jsc.getPersistentRDDs().values()  # type: ignore[union-attr]
    return {str(found.name()) for found in held if str(folder) in str(found.name())}


@pytest.mark.spark
def test_after_a_merge_the_state_that_the_next_begins_with_is_there(
    spark_writer: SparkDeltaWriter, spark: SparkSession
) -> None:
    table = Scenario(spark_writer, schema_of("Id", "City:string"), ["Id"], "dbo/Ahead")
    folder = spark_writer._tables.path(table.table)
    table.change((0, 1, "a"))
    settle(spark_writer._states)
    assert not kept(spark, folder)
    table.change((4, 1, "b"), (4, 2, "b"))
    settle(spark_writer._states)
    version = len(spark_writer.history(table.table)) - 1
    assert [name for name in kept(spark, folder) if f"#{version} " in name]
    table.change((4, 1, "c"), (2, 2, None))
    assert table.found() == [(1, "c")]
    spark_writer.drop(table.table)
