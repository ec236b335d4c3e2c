"""The Spark session: settings, its one JVM from start to end, and a Spark that something else set up."""

from __future__ import annotations

import gc
import os
import signal
import socket
import subprocess
import sys
import threading
import time
import warnings
from pathlib import Path
from unittest.mock import Mock

import pyarrow as pa
import pytest

from mirror_engine import Config, Mirror, RunResult
from mirror_engine.errors import JarsMissing, SetupError, SparkFailed, UsageError
from mirror_engine.events import ignore
from mirror_engine.storage.local import LocalStorage
from mirror_engine.tables import backend as backend_module
from mirror_engine.tables.backend import Backend
from mirror_engine.tables.merge.spark import DRIVER_BATCH_BYTES
from mirror_engine.tables.reading.reader import ChangeFileReader
from mirror_engine.tables.spark import session as session_module
from mirror_engine.tables.spark.executors import ExecutorReader
from mirror_engine.tables.spark.java import Java
from mirror_engine.tables.spark.session import (
    SESSION_SETTINGS,
    Sessions,
    adopted,
    cause_line,
    child_session,
    end_session,
    is_cluster,
    is_distributed,
    launch_environment,
    master_addresses,
    spark_settings,
    start_session,
)
from mirror_engine.testing.landing_zone_writer import LandingZoneWriter


@pytest.mark.parametrize(
    ("output", "line"),
    [
        ("", ""),
        ("starting\nOut of luck\n\n", "Out of luck"),
        ("x.Exception: outer\n\tat a.B(C)\nCaused by: y.Error: inner\n\tat d.E(F)\n\t... 7 more\n", "y.Error: inner"),
        (
            "# There is insufficient memory for X.\n# Error detail: y\n# An error report is in:\n# /x.log\n",
            "There is insufficient memory for X.",
        ),
        ("Error during initialization of VM\nToo small maximum heap\n", "Too small maximum heap"),
        ("Error: Could not find class\nusage: java\n", "Error: Could not find class"),
    ],
)
def test_the_line_shown_of_a_failed_start_is_the_last_cause(output, line):
    assert cause_line(output) == line


def test_a_local_spark_writes_to_scratch_and_reads_nobody_else_s_settings(tmp_path):
    scratch = tmp_path / 'a "b" c'
    settings = spark_settings(Config(driver_memory="3gb"), scratch)
    assert (settings["spark.local.dir"], settings["spark.driver.memory"]) == (f"{scratch}/local", "3g")
    assert f'"-Djava.io.tmpdir={tmp_path}/a \\"b\\" c/tmp"' in settings["spark.driver.extraJavaOptions"]
    environment = launch_environment(Config(), tmp_path)
    assert not Path(str(environment["SPARK_CONF_DIR"])).exists()
    assert environment["HADOOP_CONF_DIR"] is None
    before = os.umask(0o027)
    try:
        assert spark_settings(Config(), scratch)["spark.hadoop.fs.permissions.umask-mode"] == "027"
    finally:
        assert os.umask(before) == 0o027


def test_jvm_of_this_machine_alone_gets_the_quick_compiler(tmp_path):
    options = [spark_settings(Config(spark_profile=profile), tmp_path) for profile in ("ci", "local", "cluster")]
    found = ["-XX:TieredStopAtLevel=1" in each["spark.driver.extraJavaOptions"] for each in options]
    assert found == [True, True, False]
    assert [each["spark.databricks.delta.snapshotPartitions"] for each in options] == ["1", "2", "2"]


def test_for_tables_in_a_store_spark_buffers_in_scratch_by_hadoop_s_own_class_of_local_files(tmp_path):
    """S3A casts to it: a MERGE in S3 ended in a ClassCastException."""
    here, store = (spark_settings(Config(), tmp_path, scheme) for scheme in ("", "s3"))
    assert set(here) - set(store) == {"spark.hadoop.fs.file.impl", "spark.hadoop.fs.AbstractFileSystem.file.impl"}
    assert store["spark.hadoop.hadoop.tmp.dir"] == str(tmp_path / "tmp")


def test_on_a_cluster_master_folders_memory_and_parallelism_are_its_owner_s(tmp_path):
    config = Config(spark_master="yarn")
    settings = spark_settings(config, tmp_path)
    assert settings.pop("spark.master") == "yarn"
    assert not {"spark.master", "spark.local.dir", "spark.driver.memory", "spark.driver.host"} & set(settings)
    assert "spark.sql.shuffle.partitions" not in settings
    environment = launch_environment(config, tmp_path)
    assert not {"SPARK_CONF_DIR", "HADOOP_CONF_DIR", "SPARK_LOCAL_DIRS", "SPARK_LOCAL_IP"} & set(environment)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("output", "expected", "message"),
    [
        ("Error: no room for the heap", SparkFailed, "the Spark session did not start: Error: no room for the heap"),
        (
            "Server access error at url https://x (No route)\nunresolved dependency",
            JarsMissing,
            "cannot fetch the Delta jars from Maven Central: No route",
        ),
    ],
)
def test_a_failed_start_is_one_line_and_leaves_the_process_as_it_was(  # noqa: PLR0913, PLR0917 - cases and fixtures
    tmp_path, monkeypatch, capfd, output, expected, message
):
    program = tmp_path / "bin" / "java"
    program.parent.mkdir()
    program.write_text(f"#!/bin/sh\ncat >&2 <<END\n{output}\nEND\nexit 1\n", encoding="utf-8")
    program.chmod(0o755)
    monkeypatch.setattr(session_module.java, "find_java", lambda: Java(tmp_path, "17"))
    monkeypatch.setenv("MIRROR_ENGINE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("SPARK_HOME", "/another/spark")
    monkeypatch.delenv("TZ", raising=False)
    monkeypatch.delenv("DEFAULT_ARTIFACT_REPOSITORY", raising=False)
    monkeypatch.setattr(session_module, "_running", [])
    monkeypatch.setattr(session_module, "_foreign_session", lambda: None)
    handler, log_file = signal.getsignal(signal.SIGINT), tmp_path / "logs" / "spark.log"
    with pytest.raises(expected) as raised:
        start_session(Config(), scratch=tmp_path / "scratch", log_file=log_file)
    assert raised.value.message == message
    assert raised.value.help
    assert output in log_file.read_text("utf-8")
    assert (os.environ["SPARK_HOME"], "TZ" in os.environ) == ("/another/spark", False)
    assert signal.getsignal(signal.SIGINT) is handler
    assert capfd.readouterr() == ("", "")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)  # pyspark forgets the pipe to a JVM that did not start
        del raised
        gc.collect()


@pytest.mark.spark
def test_sessions_share_the_jvm_but_no_confs_and_only_the_last_one_ends_it(spark, tmp_path):
    second = start_session(Config(), scratch=tmp_path / "scratch", log_file=tmp_path / "spark.log")
    assert second is not spark
    assert second.sparkContext is spark.sparkContext
    second.conf.set("spark.databricks.delta.commitInfo.userMetadata", "mine")
    assert spark.conf.get("spark.databricks.delta.commitInfo.userMetadata", None) is None
    end_session(second)
    end_session(second)  # given back already
    end_session(child_session(spark))
    assert spark.range(3).count() == 3
    assert list(tmp_path.iterdir()) == []


_PROGRAM = """
import logging, signal, sys, time
from pathlib import Path
from mirror_engine.config import Config
from mirror_engine.tables.spark import session
handler = signal.getsignal(signal.SIGINT)
folder = Path(sys.argv[1])
logging.disable()  # py4j may still talk to the JVM that is killed
def start():
    files = {"scratch": folder / "scratch", "log_file": folder / "spark.log"}
    return session.start_session(Config(spark_profile="ci"), **files)
spark = start()
process = session._running[0].process
if sys.argv[2] == "killed":
    process.kill()
    process.wait()
else:
    session.end_session(spark)
    assert process.poll() is not None and not any((folder / "scratch" / name).exists() for name in ("local", "tmp"))
assert start().sql("SELECT 3").collect() == [(3,)]
assert signal.getsignal(signal.SIGINT) is handler
(folder / "java").write_text(str(session._running[0].process.pid))
(folder / "java").rename(folder / "pid")
time.sleep(300)
"""


def is_alive(pid):
    state = subprocess.run(["ps", "-o", "stat=", "-p", str(pid)], capture_output=True, text=True, check=False).stdout
    return state.strip()[:1] not in ("", "Z")


def wait_until(condition, seconds):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if condition():
            return True
        time.sleep(0.1)
    return False


@pytest.mark.spark
@pytest.mark.nightly
@pytest.mark.parametrize("before", ["killed", "ended"])
def test_the_jvm_prints_nothing_ignores_ctrl_c_and_ends_with_python(tmp_path, before):
    """One that was ended, or killed from outside, is followed by another in the same process."""
    work = tmp_path / "work"
    work.mkdir()
    with subprocess.Popen(
        [sys.executable, "-c", _PROGRAM, str(tmp_path), before],
        cwd=work,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as python:
        try:
            assert wait_until(lambda: (tmp_path / "pid").exists() or python.poll() is not None, 200)
            java = int((tmp_path / "pid").read_text(encoding="ascii"))
            assert os.getpgid(java) != os.getpgid(python.pid)
            os.kill(java, signal.SIGINT)
            assert not wait_until(lambda: not is_alive(java), 1)
        finally:
            python.kill()
        output = python.communicate()
    assert output == (b"", b"")
    assert wait_until(lambda: not is_alive(java), 30)
    assert list(work.iterdir()) == []


# ---- a Spark that something else set up


@pytest.mark.parametrize(
    ("master", "distributed"),
    [("", False), ("local", False), ("local[*]", False), ("local[2,3]", False)]
    + [(master, True) for master in ("spark://host:7077", "yarn", "k8s://https://host", "local-cluster[2,1,1024]")],
)
def test_a_master_beyond_this_machine_is_a_cluster(master, distributed):
    assert is_cluster(Config(spark_master=master)) is distributed
    assert is_distributed(Config(spark_master=master), None) is distributed
    assert is_distributed(Config(), session_of(master)) is (distributed or not master)


def session_of(master):
    return Mock(sparkContext=Mock(master=master))


def test_spark_submit_and_the_profile_make_a_cluster_too(monkeypatch):
    assert is_distributed(Config(spark_profile="cluster"), None)
    assert not is_distributed(Config(), None)
    monkeypatch.setenv("PYSPARK_GATEWAY_PORT", "1")
    assert is_distributed(Config(), None)
    assert not is_distributed(Config(), session_of("local[2]"))


@pytest.mark.parametrize(
    ("options", "on_executors", "driver_bytes"),
    [
        ({}, False, DRIVER_BATCH_BYTES),
        ({"driver_batch_limit": 5}, False, 5),
        ({"spark_master": "yarn"}, True, 0),
        ({"spark_master": "yarn", "driver_batch_limit": 5}, True, 5),
    ],
)
def test_on_a_cluster_executors_read_and_make_net_changes_unless_options_say_otherwise(
    tmp_path, options, on_executors, driver_bytes
):
    backend = Backend(tmp_path, Config(**options), LocalStorage(tmp_path), None, ignore, lambda: False)
    assert isinstance(backend.reader(), ExecutorReader if on_executors else ChangeFileReader)
    assert backend.writer._driver_batch_bytes == driver_bytes


@pytest.mark.parametrize(
    ("bytes_waiting", "options", "is_lasting", "profile"),
    [
        (10, {}, False, "ci"),
        (11, {}, False, "local"),
        (10, {}, True, "local"),
        (10, {"spark_profile": "cluster"}, False, "cluster"),
        (10, {"spark_master": "yarn"}, False, "local"),  # a cluster: what waits need not be counted
    ],
)
def test_short_sync_starts_spark_with_one_task_a_stage(  # noqa: PLR0913, PLR0917 - a table of cases
    tmp_path, monkeypatch, bytes_waiting, options, is_lasting, profile
):
    started = []
    monkeypatch.setattr(backend_module, "start_session", lambda config, **_: started.append(config.spark_profile))
    monkeypatch.setattr("mirror_engine.mirror.BRIEF_BYTES", 10)
    folder = tmp_path / "Files/LandingZone/T"
    folder.mkdir(parents=True)
    (folder / "_metadata.json").write_text('{"keyColumns": ["a"]}')
    (folder / "00000000000000000001.parquet").write_bytes(bytes(bytes_waiting))
    mirror = Mirror(tmp_path, Config(**options))
    mirror._is_lasting = is_lasting
    mirror._backend._start()
    assert started == [profile]


def test_active_spark_connect_session_is_refused_as_a_passed_one_is(tmp_path):
    connect = type("SparkSession", (), {"__module__": "pyspark.sql.connect.session"})()
    with pytest.raises(SetupError) as active:
        adopted(connect)
    with pytest.raises(UsageError) as passed:
        Mirror(tmp_path, spark=connect)
    assert str(active.value) == str(passed.value)


def test_a_session_without_delta_is_an_error_with_what_starts_one():
    from pyspark.errors import ParseException  # noqa: PLC0415 - slow to import

    session = Mock()
    session._jsparkSession.sessionState().sqlParser().parsePlan.side_effect = ParseException("VACUUM")
    with pytest.raises(SetupError, match="has no Delta") as raised:
        adopted(session)
    assert "--packages io.delta:delta-spark" in raised.value.help


def test_every_session_gets_all_settings_that_values_depend_on():
    parent = Mock()
    session = child_session(parent)
    assert session is parent.newSession()
    assert not parent.conf.set.called
    assert dict(each.args for each in session.conf.set.call_args_list) == SESSION_SETTINGS
    assert SESSION_SETTINGS["spark.sql.session.timeZone"] == "UTC"


@pytest.mark.spark
def test_the_caller_s_session_is_used_and_not_changed(spark, tmp_path):
    mine = child_session(spark)
    mine.conf.set("spark.sql.session.timeZone", "Asia/Tokyo")
    mine.conf.set("fs.defaultFS", "hdfs://nowhere/")
    mine.range(1).createOrReplaceTempView("mine")
    before = dict(mine.conf.getAll)
    root = tmp_path / "näh root"
    root.mkdir()
    times = pa.array([0, 2**50], pa.int64()).cast(pa.timestamp("us", "UTC"))
    table = LandingZoneWriter(root).table("T", keys=["at"])
    table.land_parquet(pa.table({"at": times}))
    with Mirror(root, spark=mine) as mirror:
        assert mirror.sync().result is RunResult.CAUGHT_UP
        table.apply_changes((2, {"at": times[0].as_py()}))
        assert mirror.sync().result is RunResult.CAUGHT_UP
        assert mirror.read_table("T").column("at").combine_chunks().equals(times[1:])
    assert dict(mine.conf.getAll) == before
    assert [view.name for view in mine.catalog.listTables()] == ["mine"]
    assert not (root / ".mirror-engine/logs/spark.log").exists()


@pytest.fixture
def ended(monkeypatch):
    ended = []
    monkeypatch.setattr(session_module, "child_session", lambda *_: Mock())
    monkeypatch.setattr(session_module, "end_session", ended.append)
    return ended


def test_a_failed_start_is_raised_where_a_session_is_needed_and_tried_again_after_that(ended):
    starts = Mock(side_effect=[SparkFailed("no room"), Mock()])
    sessions = Sessions(starts)
    with pytest.raises(SparkFailed, match="no room"), sessions.lent():
        pass
    with sessions.lent() as one, sessions.lent() as two:
        assert one is not two
    sessions.close()
    assert (starts.call_count, len(ended)) == (2, 1)


def test_a_session_that_comes_back_after_the_end_is_not_lent_again(ended):
    sessions = Sessions(Mock)
    with sessions.lent() as early:
        sessions.close()
    with sessions.lent() as late:
        assert late is not early
    sessions.close()
    assert len(ended) == 2


# --- a master that is not there


@pytest.mark.parametrize(
    ("master", "addresses"),
    [
        ("spark://host:7077", [("host", 7077)]),
        ("spark://a:7077,b:8088", [("a", 7077), ("b", 8088)]),
        ("spark://[::1]:7077", [("::1", 7077)]),
        ("spark://host", [("host", 7077)]),
        ("k8s://https://host:6443", [("host", 6443)]),
        ("k8s://https://kubernetes.default.svc", [("kubernetes.default.svc", 443)]),
        ("k8s://http://host", [("host", 80)]),
        ("k8s://host:6443", [("host", 6443)]),
        ("spark://host:port", []),  # Spark refuses it
        ("yarn", []),
        ("local[*]", []),
        ("local-cluster[2,1,1024]", []),
        ("", []),
    ],
)
def test_master_addresses_are_those_of_its_url(master, addresses):
    assert master_addresses(master) == addresses


@pytest.fixture
def port():
    """One of this machine at which nobody listens."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        yield free.getsockname()[1]


def start(master, folder):
    return start_session(Config(spark_master=master), scratch=folder / "s", log_file=folder / "spark.log")


@pytest.fixture
def no_jvm(monkeypatch):
    monkeypatch.setattr(session_module, "_running", [])
    monkeypatch.setattr(session_module, "_foreign_session", lambda: None)
    monkeypatch.setattr(session_module, "_launched", lambda *_: pytest.fail("Java was started"))


@pytest.mark.usefixtures("no_jvm")
def test_dead_master_is_named_with_host_and_port(tmp_path, port):
    started = time.monotonic()
    with pytest.raises(SparkFailed, match=f"127.0.0.1:{port}: Connection refused") as failed:
        start(f"spark://127.0.0.1:{port}", tmp_path)
    assert "--spark-master" in failed.value.help
    with pytest.raises(
        SparkFailed, match=f"no.such.host.invalid:7077: .*; 127.0.0.1:{port}|127.0.0.1:{port}: .*; no.such"
    ):
        start(f"spark://127.0.0.1:{port},no.such.host.invalid:7077", tmp_path)
    assert time.monotonic() - started < 20


@pytest.mark.usefixtures("no_jvm")
def test_master_that_does_not_answer_is_named_in_time(tmp_path, monkeypatch):
    monkeypatch.setattr(session_module, "_MASTER_SECONDS", 0.2)
    over = threading.Event()

    def hang(*_, **__):
        over.wait()
        raise OSError

    monkeypatch.setattr(session_module.socket, "create_connection", hang)
    with pytest.raises(SparkFailed, match=r"host:7077: no answer within 0\.2 s"):
        start("spark://host:7077", tmp_path)
    over.set()


def test_one_living_master_of_several_is_enough(port):
    with socket.create_server(("127.0.0.1", 0)) as living:
        session_module._check_master(f"spark://127.0.0.1:{port},127.0.0.1:{living.getsockname()[1]}")


def test_another_master_beside_a_running_spark_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(session_module, "_running", [])
    monkeypatch.setattr(session_module, "_foreign_session", lambda: session_of("local[2]"))
    with pytest.raises(
        SetupError, match=r"--spark-master yarn has no effect: this process already runs Spark on local"
    ):
        start("yarn", tmp_path)
