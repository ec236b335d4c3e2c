"""A cluster of a master and two workers on this machine: executors read the zone, make net changes and commit."""

from __future__ import annotations

import datetime as dt
import json
import os
import shlex
import socket
import subprocess
import sys
import time
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import pyarrow as pa
import pytest

import mirror_engine
from mirror_engine import Mirror
from mirror_engine.config import Config
from mirror_engine.landing_zone.layout import SHARED_SCRATCH, TABLES
from mirror_engine.publisher.landing_zone_writer import LandingZoneWriter
from mirror_engine.tables.merge.deltalake import DeltalakeWriter
from mirror_engine.tables.merge.memory import MemoryDeltaWriter
from mirror_engine.tables.spark.java import find_jars, find_java
from mirror_engine.tables.spark.session import spark_home

pytestmark = [pytest.mark.spark, pytest.mark.slow]
ENGINE = Path(mirror_engine.__file__).parent / "__main__.py"
DEFAULTS = """\
# the workers have one host's name, and would read each other's disk
spark.shuffle.readHostLocalDisk false
spark.executor.memory 600m
spark.executor.cores 1
spark.eventLog.enabled true
spark.eventLog.compress false
spark.eventLog.dir {events}
spark.sql.shuffle.partitions 2
spark.sql.adaptive.enabled false
spark.databricks.delta.snapshotPartitions 1
spark.ui.enabled false
# what must change no value
spark.sql.session.timeZone Asia/Tokyo
spark.sql.ansi.enabled false
spark.sql.caseSensitive true
spark.sql.parquet.outputTimestampType INT96
"""
CSV = {
    "keys": ["id"],
    "file_format": "CSV",
    "extension": "csv",
    "columns": [{"Name": "id", "DataType": "Int64"}, {"Name": "city", "DataType": "String", "IsNullable": True}],
}
REFUSED = 3
DRIVER = "driver"  # its folder
TIMES = [dt.datetime(year, 3, 29, 2, 30, tzinfo=dt.timezone.utc) for year in (1582, 1900, 2026)]
FIRST, SECOND, LAST = TIMES


class Cluster:
    """Its processes, and what it leaves behind: the work of its workers, and the events of its applications.

    Each worker sees none of the folders of driver and other worker, which are empty for it.

    Args:
        folder: of all that it writes.
        variables: more of its environment.
    """

    def __init__(self, folder, variables):
        self.folder = folder
        self.master = f"spark://127.0.0.1:{free_port()}"
        for name in ("conf", "events", "one", "two", DRIVER):
            (folder / name).mkdir()
        (folder / "conf" / "spark-defaults.conf").write_text(DEFAULTS.format(events=folder / "events"), "utf-8")
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("SPARK_", "PYSPARK_"))}
        self.environment = {
            **kept,
            "JAVA_HOME": str(find_java().home),
            "SPARK_CONF_DIR": str(folder / "conf"),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_LOCAL_DIRS": str(folder / "local"),
            "JDK_JAVA_OPTIONS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",  # six JVMs that are soon over
            "PYTHONPATH": str(Path(mirror_engine.__file__).parents[1]),
            **variables,
        }

    @contextmanager
    def running(self):
        """A master and two workers of one core and 1 GB each."""
        port = self.master.rpartition(":")[2]
        with ExitStack() as stack:
            stack.enter_context(self._daemon("master", "master.Master", "--host", "127.0.0.1", "--port", port))
            for name, other in (("one", "two"), ("two", "one")):
                work = ("--work-dir", str(self.folder / name), "--host", "127.0.0.1")
                arguments = ("--cores", "1", "--memory", "1g", *work, self.master)
                hidden = (self.folder / other, self.folder / DRIVER)
                stack.enter_context(self._daemon(name, "worker.Worker", *arguments, hidden=hidden))
            self._wait_for("Registering worker", 2)
            yield self

    @contextmanager
    def _daemon(self, name, kind, *arguments, hidden=()):
        command = [spark_home() / "bin/spark-class", f"org.apache.spark.deploy.{kind}", "--webui-port", "0", *arguments]
        environment = {**self.environment, "SPARK_DAEMON_MEMORY": "256m"}
        if hidden:
            environment |= {"TMPDIR": str(self.folder / name), "SPARK_LOCAL_DIRS": str(self.folder / name)}
            mounts = " && ".join(f"mount -t tmpfs none {shlex.quote(str(folder))}" for folder in hidden)
            command = ["unshare", "--map-root-user", "--mount", "sh", "-c", f'{mounts} && exec "$@"', "sh", *command]
        with (self.folder / f"{name}.log").open("wb") as log:
            process = subprocess.Popen(command, env=environment, stdout=log, stderr=log, start_new_session=True)
        try:
            yield
        finally:
            process.terminate()
            with suppress(subprocess.TimeoutExpired):
                process.wait(20)
            process.kill()
            process.wait()

    def _wait_for(self, text, times):
        end = time.monotonic() + 120
        log = self.folder / "master.log"
        while log.read_text("utf-8").count(text) < times:
            assert time.monotonic() < end, log.read_text("utf-8")
            time.sleep(0.1)

    def run(self, *command, **variables):
        """A command with the cluster's settings."""
        environment = {**self.environment, **variables}
        return subprocess.run([*map(str, command)], env=environment, capture_output=True, text=True, check=False)

    def executors_that_worked(self):
        """The executors on which tasks ended well, of all applications since it was last asked."""
        logs = list((self.folder / "events").rglob("events_*"))
        lines = [line for log in logs for line in log.read_text("utf-8").splitlines()]
        for log in logs:
            log.unlink()
        ended = [json.loads(line) for line in lines if line.startswith('{"Event":"SparkListenerTaskEnd"')]
        return {event["Task Info"]["Executor ID"] for event in ended if not event["Task Info"]["Failed"]}


def free_port():
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        return unused.getsockname()[1]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory, onelake_server, store_jars):
    """One cluster for all tests, which reaches the emulator."""
    store_jars("abfss")
    found = onelake_server.environment
    path = os.pathsep.join((found["PATH"], os.environ["PATH"]))
    variables = {**found, "JAVA_TOOL_OPTIONS": found["MIRROR_ENGINE_JAVA_OPTIONS"], "PATH": path}
    with Cluster(tmp_path_factory.mktemp("cluster"), variables).running() as cluster:
        yield cluster


def land(root):
    """Composite keys, times, ragged files and deletes; and text, with a file that is refused between good ones."""
    publisher = LandingZoneWriter(root)
    orders = publisher.table("Orders", keys=["no", "at"])
    orders.land_parquet(pa.table({"no": [1, 1, 2, 3], "at": [*TIMES, None], "qty": [1.5, -0.0, 2.0, 3.0]}))
    orders.apply_changes(
        (1, {"no": 1, "at": FIRST, "qty": 9.0}), (2, {"no": 2, "at": LAST}), (0, {"no": 4, "at": FIRST})
    )
    orders.apply_changes(
        (4, {"no": 1, "at": SECOND, "note": "né"}),
        (1, {"no": 5, "at": LAST, "note": "x"}),
        (1, {"no": 1, "at": FIRST, "note": "y"}),
    )
    orders.delete({"no": 4, "at": FIRST})
    towns = publisher.table("Towns", **CSV)
    towns.land_csv("id,city,__rowMarker__\n1,Linz,0\n2,Wels,0\n3,Graz,0\n")
    towns.land_csv("id,city,__rowMarker__\n2,,2\n3,Gmunden,4\n")
    towns.land_csv("id,city,__rowMarker__\nfive,Traun,0\n")
    towns.land_csv("id,city,__rowMarker__\n6,Ried,0\n")


def result_in_memory(root):
    with Mirror(root, writer=MemoryDeltaWriter()) as mirror:
        mirror.sync()
        return {name: sorted(map(repr, mirror.read_table(name).to_pylist())) for name in mirror.tables()}


def rows(tables):
    """Every table's rows, as this process reads the store's folder."""
    writer = DeltalakeWriter(tables, tables / "none")
    return {name: sorted(map(repr, writer.rows(name).to_pylist())) for name in writer.tables()}


def test_a_program_that_spark_submit_starts_mirrors_a_zone_in_a_store_and_shares_no_disk(
    tmp_path, cluster, onelake_server
):
    """By Hadoop's own ABFS driver; `--spark-master` and a path that all share are in the tutorial of clusters."""
    root, twin = onelake_server.new_root(), tmp_path / "twin"
    folder = onelake_server.store / onelake_server.url.container / root.name.partition(".")[0]
    twin.mkdir()
    for place in (folder, twin):
        land(place)
    jars = ",".join(map(str, find_jars(Config(), "abfss").values()))
    submit = (spark_home() / "bin/spark-submit", "--master", cluster.master, "--jars", jars)
    variables = {"PYSPARK_PYTHON": sys.executable, "TMPDIR": str(cluster.folder / DRIVER)}
    variables["MIRROR_ENGINE_STATE"] = str(cluster.folder / DRIVER / "state")
    # two files each: the first commit makes a table's rows, the second matches them
    done = cluster.run(*submit, ENGINE, "sync", root, "--max-batch-files", "2", **variables)
    assert done.returncode == REFUSED, done.stderr
    found = rows(folder / TABLES)
    assert (found, len(found["dbo/Orders"])) == (result_in_memory(twin), 4)
    assert cluster.executors_that_worked() == {"0", "1"}
    assert not [path for path in (folder / SHARED_SCRATCH).rglob("*") if path.is_file()]
