"""Somebody else's Spark: when it is one, what it must be able to do, and what is set in it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from mirror_engine import Config, Mirror, RunResult
from mirror_engine.errors import SetupError
from mirror_engine.events import ignore
from mirror_engine.publisher.landing_zone_writer import LandingZoneWriter
from mirror_engine.storage.local import LocalStorage
from mirror_engine.tables.merge.spark import DRIVER_BATCH_BYTES
from mirror_engine.tables.reading.reader import ChangeFileReader
from mirror_engine.tables.spark import cluster as cluster_session
from mirror_engine.tables.spark.backend import SparkBackend
from mirror_engine.tables.spark.cluster import adopted, is_elsewhere, is_spread, with_our_settings
from mirror_engine.tables.spark.executors import ExecutorReader
from mirror_engine.tables.spark.profile import SESSION_SETTINGS
from mirror_engine.tables.spark.session import child_session

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession


@dataclass
class At:
    """A session with no more than a master."""

    master: str

    @property
    def sparkContext(self) -> At:  # noqa: N802 - as Spark calls it
        return self


@pytest.mark.parametrize(
    ("master", "elsewhere"),
    [("", False), ("local", False), ("local[*]", False), ("local[2,3]", False)]
    + [(master, True) for master in ("spark://host:7077", "yarn", "k8s://https://host", "local-cluster[2,1,1024]")],
)
def test_a_master_beyond_this_machine_is_a_cluster(master: str, elsewhere: bool) -> None:  # noqa: FBT001 - a case
    assert is_elsewhere(Config(spark_master=master)) is elsewhere
    assert is_spread(Config(spark_master=master), None) is elsewhere
    assert is_spread(Config(), At(master)) is (elsewhere or not master)  # type: ignore[arg-type]


def test_spark_submit_and_the_profile_make_a_cluster_too(monkeypatch: pytest.MonkeyPatch) -> None:
    assert is_spread(Config(spark_profile="cluster"), None)
    monkeypatch.setattr(cluster_session, "_IS_SUBMITTED", True)
    assert is_spread(Config(), None)
    assert not is_spread(Config(), At("local[2]"))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("options", "on_executors", "driver_bytes"),
    [
        ({}, False, DRIVER_BATCH_BYTES),
        ({"driver_batch_limit": 5}, False, 5),
        ({"spark_master": "yarn"}, True, 0),
        ({"spark_master": "yarn", "driver_batch_limit": 5}, True, 5),
    ],
)
def test_on_a_cluster_executors_read_and_collapse_unless_it_is_wanted_otherwise(
    tmp_path: Path,
    options: dict[str, Any],
    on_executors: bool,  # noqa: FBT001 - a case
    driver_bytes: int,
) -> None:
    door = SparkBackend(tmp_path, Config(**options), LocalStorage(tmp_path), None, ignore, lambda: "brief")
    assert isinstance(door.reader(), ExecutorReader if on_executors else ChangeFileReader)
    assert door.writer._driver_batch_bytes == driver_bytes


def test_a_session_of_spark_connect_is_refused() -> None:
    with pytest.raises(SetupError, match="Spark Connect"):
        adopted(object())  # type: ignore[arg-type]


def test_a_session_without_delta_is_refused_with_what_starts_one() -> None:
    from pyspark.errors import ParseException  # noqa: PLC0415 - slow to import

    class WithoutDelta:
        """A session whose parser knows Spark's own words only."""

        def __getattr__(self, name: str) -> Any:
            return self if name == "_jsparkSession" else lambda: self

        def parsePlan(self, text: str) -> None:  # noqa: N802 - as Spark calls it
            raise ParseException(text)

    with pytest.raises(SetupError, match="can do no Delta") as raised:
        adopted(WithoutDelta())  # type: ignore[arg-type]
    assert "--packages io.delta:delta-spark" in raised.value.help


def test_all_that_values_depend_on_is_set() -> None:
    class Noting:
        """A session that keeps what it is told."""

        def __init__(self) -> None:
            self.conf, self.told = self, dict[str, str]()

        def set(self, name: str, value: str) -> None:
            self.told[name] = value

    session = Noting()
    assert with_our_settings(session) is session  # type: ignore[arg-type, comparison-overlap]
    assert session.told == {**SESSION_SETTINGS, "fs.defaultFS": "file:///"}
    assert session.told["spark.sql.session.timeZone"] == "UTC"


@pytest.mark.spark
def test_a_session_that_is_given_is_worked_in_and_left_as_it_is(spark: SparkSession, tmp_path: Path) -> None:
    given = child_session(spark)
    given.conf.set("spark.sql.session.timeZone", "Asia/Tokyo")
    given.conf.set("fs.defaultFS", "hdfs://nowhere/")
    given.range(1).createOrReplaceTempView("mine")
    before = dict(given.conf.getAll)  # type: ignore[arg-type]
    root = tmp_path / "näh root"
    root.mkdir()
    times = pa.array([0, 2**50], pa.int64()).cast(pa.timestamp("us", "UTC"))
    table = LandingZoneWriter(root).table("T", keys=["at"])
    table.land_parquet(pa.table({"at": times}))
    with Mirror(root, spark=given) as mirror:
        assert mirror.sync().result is RunResult.CAUGHT_UP
        table.apply_changes((2, {"at": times[0].as_py()}))
        assert mirror.sync().result is RunResult.CAUGHT_UP
        assert mirror.read_table("T").column("at").combine_chunks().equals(times[1:])
    assert dict(given.conf.getAll) == before  # type: ignore[arg-type]
    assert [view.name for view in given.catalog.listTables()] == ["mine"]
    assert not (root / ".mirror-engine/logs/spark.log").exists()
