"""Programs with Spark on zones in stores: on this machine, and on a cluster of a master and two workers."""

from __future__ import annotations

import datetime as dt
import json
import os
import shlex
import socket
import subprocess
import sys
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import pyarrow as pa
import pytest
from raw_http import until

import mirror_engine
from mirror_engine import Mirror
from mirror_engine.config import Config
from mirror_engine.landing_zone.layout import SHARED_SCRATCH, TABLES
from mirror_engine.storage.stores import open_storage
from mirror_engine.tables.dry_run.memory import MemoryDeltaWriter
from mirror_engine.tables.merge.arrow import ArrowWriter
from mirror_engine.tables.spark.java import find_jars, find_java
from mirror_engine.tables.spark.session import spark_home
from mirror_engine.testing.landing_zone_writer import LandingZoneWriter

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
REFUSED = 3
DRIVER = "driver"  # its folder
TIMES = [dt.datetime(year, 3, 29, 2, 30, tzinfo=dt.UTC) for year in (1582, 1900, 2026)]
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
        with ExitStack() as stack:
            port = self.master.rpartition(":")[2]
            stack.enter_context(self._daemon("master", "master.Master", "--host", "127.0.0.1", "--port", port))
            for name, other in (("one", "two"), ("two", "one")):
                work = ("--work-dir", self.folder / name, "--host", "127.0.0.1", self.master)
                hidden = (self.folder / other, self.folder / DRIVER)
                stack.enter_context(
                    self._daemon(name, "worker.Worker", "--cores", "1", "--memory", "1g", *work, hidden=hidden)
                )
            log = self.folder / "master.log"
            until(lambda: log.read_text("utf-8").count("Registering worker") == 2, log.read_text, 120)
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

    def executors_that_worked(self):
        """The executors on which tasks ended well."""
        logs = (self.folder / "events").rglob("events_*")
        lines = [line for log in logs for line in log.read_text("utf-8").splitlines()]
        ended = [json.loads(line) for line in lines if line.startswith('{"Event":"SparkListenerTaskEnd"')]
        return {event["Task Info"]["Executor ID"] for event in ended if not event["Task Info"]["Failed"]}


def free_port():
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        return unused.getsockname()[1]


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
    columns = [("id", "Int64", False), ("city", "String", True)]
    declared = [{"Name": name, "DataType": kind, "IsNullable": may} for name, kind, may in columns]
    towns = publisher.table("Towns", keys=["id"], file_format="CSV", extension="csv", columns=declared)
    towns.land_csv("id,city,__rowMarker__\n1,Linz,0\n2,Wels,0\n3,Graz,0\n")
    towns.land_csv("id,city,__rowMarker__\n2,,2\n3,Gmunden,4\n")
    towns.land_csv("id,city,__rowMarker__\nfive,Traun,0\n")
    towns.land_csv("id,city,__rowMarker__\n6,Ried,0\n")


def result_in_memory(root):
    with Mirror(root, writer=MemoryDeltaWriter()) as mirror:
        mirror.sync()
        return {name: sorted(map(repr, mirror.read_table(name).to_pylist())) for name in mirror.tables()}


def rows(writer):
    """Every table's rows, as this process reads them."""
    return {name: sorted(map(repr, writer.rows(name).to_pylist())) for name in writer.tables()}


def run(environment, *command):
    done = subprocess.run([*map(str, command)], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == REFUSED, done.stdout + done.stderr


@pytest.mark.nightly
def test_a_program_that_spark_submit_starts_mirrors_a_zone_in_a_store_and_shares_no_disk(
    tmp_path, onelake_server, store_jars
):
    """By Hadoop's own ABFS driver; `--spark-master` and a path that all share are in the tutorial of clusters."""
    store_jars("abfss")
    (tmp_path / "twin").mkdir()
    root, found = onelake_server.new_root(), onelake_server.environment
    folder = onelake_server.store / onelake_server.url.container / root.name.partition(".")[0]
    for place in (folder, tmp_path / "twin"):
        land(place)
    path = os.pathsep.join((found["PATH"], os.environ["PATH"]))
    variables = {**found, "JAVA_TOOL_OPTIONS": found["MIRROR_ENGINE_JAVA_OPTIONS"], "PATH": path}
    with Cluster(tmp_path, variables).running() as cluster:
        driver = cluster.folder / DRIVER
        settings = {"PYSPARK_PYTHON": sys.executable, "TMPDIR": str(driver), "MIRROR_ENGINE_STATE": f"{driver}/state"}
        jars = ",".join(map(str, find_jars(Config(), "abfss").values()))
        submit = (spark_home() / "bin/spark-submit", "--master", cluster.master, "--jars", jars)
        # two files each: the first commit makes a table's rows, the second matches them
        run(cluster.environment | settings, *submit, ENGINE, "sync", root, "--max-batch-files", "2")
    written = rows(ArrowWriter(folder / TABLES, tmp_path / "none"))
    assert (written, len(written["dbo/Orders"])) == (result_in_memory(tmp_path / "twin"), 4)
    assert cluster.executors_that_worked() == {"0", "1"}
    assert not [path for path in (folder / SHARED_SCRATCH).rglob("*") if path.is_file()]


@pytest.mark.nightly
def test_spark_on_this_machine_merges_tables_in_s3(tmp_path, s3_server, store_jars):
    """By S3A and the modules of AWS' SDK that it loads."""
    store_jars("s3")
    root, twin = s3_server.new_root(), tmp_path / "twin"
    twin.mkdir()
    land(twin)
    with s3_server.in_use():
        for file in sorted(filter(Path.is_file, twin.rglob("*"))):
            open_storage(root).write(file.relative_to(twin).as_posix(), file.read_bytes())
    environment = s3_server.around(os.environ) | {"MIRROR_ENGINE_STATE": str(tmp_path / "state")}
    run(
        environment,
        sys.executable,
        "-m",
        "mirror_engine",
        "sync",
        root,
        "--merge-engine",
        "spark",
        "--max-batch-files",
        "2",
    )
    with s3_server.in_use():
        writer = ArrowWriter(root / TABLES, tmp_path / "none")
        assert writer.history("dbo/Orders")[0].engine.startswith("Apache-Spark")
        assert rows(writer) == result_in_memory(twin)
