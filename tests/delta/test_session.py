"""The session: its profile keeps values and silence, its end is the end of the JVM."""

from __future__ import annotations

import gc
import importlib.util
import os
import signal
import subprocess
import sys
import time
import warnings
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from mirror_engine.config import Config
from mirror_engine.errors import SparkFailed
from mirror_engine.tables.spark.gateway import MODULE_OPTIONS
from mirror_engine.tables.spark.java import Java, find_java, telling_line
from mirror_engine.tables.spark.launch import LaunchPlan, launch
from mirror_engine.tables.spark.profile import environment, heap, java_options, places, settings
from mirror_engine.tables.spark.session import child_session, end_session, start_session

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import SparkSession


@pytest.mark.parametrize(
    ("printed", "line"),
    [
        ("", ""),
        ("starting\nOut of luck\n\n", "Out of luck"),
        ("x.Exception: outer\n\tat a.B(C)\nCaused by: y.Error: inner\n\tat d.E(F)\n\t... 7 more\n", "y.Error: inner"),
        ("Error: Could not find class\nusage: java\n", "Error: Could not find class"),
    ],
)
def test_the_telling_line_is_the_last_cause(printed: str, line: str) -> None:
    assert telling_line(printed) == line


def test_everything_spark_writes_besides_tables_lies_in_scratch(tmp_path: Path) -> None:
    scratch = tmp_path / 'a "b" c'
    assert settings(scratch=scratch, driver_memory="3g", profile="steady")["spark.local.dir"] == f"{scratch}/local"
    assert f"-Djava.io.tmpdir={scratch / 'tmp'}" in places(scratch)
    assert heap("3gb") == "-Xmx3g"
    found = environment(java_home=tmp_path, spark_home=tmp_path, scratch=scratch, profile="steady")
    assert found["SPARK_CONF_DIR"] == f"{scratch}/conf"


def test_on_a_cluster_master_folders_memory_and_spark_s_own_settings_are_those_of_others(tmp_path: Path) -> None:
    ours = settings(scratch=tmp_path, driver_memory="3g", profile="cluster")
    assert not {"spark.master", "spark.local.dir", "spark.driver.memory", "spark.driver.host"} & set(ours)
    assert "spark.sql.shuffle.partitions" not in ours
    found = environment(java_home=tmp_path, spark_home=tmp_path, scratch=tmp_path, profile="cluster")
    assert not {"SPARK_CONF_DIR", "HADOOP_CONF_DIR", "SPARK_LOCAL_DIRS", "SPARK_LOCAL_IP"} & set(found)


def test_only_the_brief_profile_gives_up_the_better_compiler() -> None:
    assert "-XX:TieredStopAtLevel=1" in java_options("brief")
    assert "-XX:TieredStopAtLevel=1" not in java_options("steady")


@pytest.mark.slow
def test_a_jvm_that_does_not_start_is_told_in_one_line_with_its_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    program = tmp_path / "bin" / "java"
    program.parent.mkdir()
    program.write_text("#!/bin/sh\necho 'Error: no room for the heap' >&2\nexit 1\n", encoding="utf-8")
    program.chmod(0o755)
    monkeypatch.setenv("SPARK_HOME", "/another/spark")
    monkeypatch.delenv("TZ", raising=False)
    handler = signal.getsignal(signal.SIGINT)
    plan = LaunchPlan("steady", Java(tmp_path, "17"), (), "2g", tmp_path / "scratch")
    with pytest.raises(SparkFailed) as raised:
        launch(plan, tmp_path / "logs" / "spark.log")
    assert raised.value.message == "the Spark session did not start: Error: no room for the heap"
    assert str(tmp_path / "logs" / "spark.log") in raised.value.help
    assert (os.environ["SPARK_HOME"], "TZ" in os.environ) == ("/another/spark", False)
    assert signal.getsignal(signal.SIGINT) is handler
    assert capfd.readouterr() == ("", "")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)  # pyspark forgets the pipe to a JVM that did not start
        del raised
        gc.collect()


@pytest.mark.spark
@pytest.mark.slow
def test_java_is_told_what_sparks_own_launcher_tells_it() -> None:
    package = importlib.util.find_spec("pyspark")
    assert package is not None
    spark_home = Path(str(package.origin)).parent
    launcher = [find_java().command, "-cp", f"{spark_home}/jars/*", "org.apache.spark.launcher.Main"]
    told = subprocess.run(
        [*launcher, "org.apache.spark.deploy.SparkSubmit", "pyspark-shell"],
        env={"SPARK_HOME": str(spark_home), "SPARK_SCALA_VERSION": "2.13"},
        capture_output=True,
        text=True,
        check=True,
    ).stdout.split("\0")
    options = told[told.index("-Xmx1g") + 1 : told.index("org.apache.spark.deploy.SparkSubmit")]
    not_ours = {"--add-modules=jdk.incubator.vector", "-Dderby.connection.requireAuthentication=false"}
    assert [option for option in options if option not in not_ours] == list(MODULE_OPTIONS)


@pytest.mark.spark
def test_values_come_back_from_delta_as_they_went_in(spark: SparkSession, tmp_path: Path) -> None:
    written = spark.sql(
        "SELECT DATE'0001-01-01' AS d, TIMESTAMP'0001-01-01 00:00:00.000001' AS t, "
        "TIMESTAMP_NTZ'1582-10-10 12:00:00' AS n"
    )
    written.write.format("delta").save(str(tmp_path / "old"))
    read = (
        child_session(spark)
        .read.format("delta")
        .load(str(tmp_path / "old"))
        .selectExpr("string(d)", "string(t)", "string(n)")
    )
    assert tuple(read.first() or ()) == ("0001-01-01", "0001-01-01 00:00:00.000001", "1582-10-10 12:00:00")


@pytest.mark.spark
def test_the_session_thinks_in_utc_and_opens_files_of_any_name(spark: SparkSession, tmp_path: Path) -> None:
    row = spark.sql("SELECT current_timezone() AS zone, TIMESTAMP'2026-03-29 02:30:00' AS gap").first()
    assert row is not None
    assert row.zone == "UTC"
    spark.range(1).write.format("delta").save(str(tmp_path / "Größe 表"))
    assert (tmp_path / "Größe 表" / "_delta_log").is_dir()


@pytest.mark.spark
def test_a_childs_settings_are_its_own(spark: SparkSession) -> None:
    one, two = child_session(spark), child_session(spark)
    one.conf.set("spark.databricks.delta.commitInfo.userMetadata", "mine")
    assert two.conf.get("spark.databricks.delta.commitInfo.userMetadata", None) is None
    assert spark.conf.get("spark.databricks.delta.commitInfo.userMetadata", None) is None


@pytest.mark.spark
def test_a_second_holder_shares_the_jvm_and_leaves_it_to_the_first(spark: SparkSession, tmp_path: Path) -> None:
    second = start_session(Config(), scratch=tmp_path / "scratch", log_file=tmp_path / "spark.log")
    assert second is not spark
    assert second.sparkContext is spark.sparkContext
    end_session(second)
    end_session(second)  # it holds nothing any more, and a stranger's session never did
    end_session(child_session(spark))
    assert spark.range(3).count() == 3
    assert list(tmp_path.iterdir()) == []


_PROGRAM = """
import signal, sys, time
from pathlib import Path
from mirror_engine.config import Config
from mirror_engine.tables import session
from mirror_engine.tables.spark.gateway import MODULE_OPTIONS
handler = signal.getsignal(signal.SIGINT)
folder = Path(sys.argv[1])
ci = Config(spark_profile="ci")
spark = session.start_session(ci, scratch=folder / "scratch", log_file=folder / "spark.log", profile="brief")
assert spark.range(3).count() == 3
assert signal.getsignal(signal.SIGINT) is handler
ended = session._running[0].jvm.process
session.end_session(spark)
assert ended.poll() is not None and not any((folder / "scratch" / name).exists() for name in ("local", "tmp"))
spark = session.start_session(ci, scratch=folder / "scratch", log_file=folder / "spark.log", profile="brief")
(folder / "java").write_text(str(session._running[0].jvm.process.pid))
(folder / "java").rename(folder / "pid")
time.sleep(300)
"""


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    # one that nobody has waited for yet is gone too
    state = subprocess.run(["ps", "-o", "stat=", "-p", str(pid)], capture_output=True, text=True, check=False).stdout
    return state.strip()[:1] not in ("", "Z")


def _wait_until(condition: Callable[[], bool], seconds: float) -> bool:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if condition():
            return True
        time.sleep(0.1)
    return False


@pytest.mark.spark
@pytest.mark.slow
def test_the_jvm_is_silent_deaf_to_ctrl_c_and_dies_with_python(tmp_path: Path) -> None:
    here = tmp_path / "here"
    here.mkdir()
    with subprocess.Popen(
        [sys.executable, "-c", _PROGRAM, str(tmp_path)], cwd=here, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as python:
        try:
            assert _wait_until(lambda: (tmp_path / "pid").exists() or python.poll() is not None, 120)
            java = int((tmp_path / "pid").read_text(encoding="ascii"))
            assert os.getpgid(java) != os.getpgid(python.pid)
            os.kill(java, signal.SIGINT)
            assert not _wait_until(lambda: not _alive(java), 1)
        finally:
            python.kill()
        said = python.communicate()
    assert said == (b"", b"")
    assert _wait_until(lambda: not _alive(java), 30)
    assert list(here.iterdir()) == []
