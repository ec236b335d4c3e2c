"""How Spark is set up here: each setting with its reason; nothing of it is measured or decided elsewhere."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from pathlib import Path

Profile = Literal["steady", "brief", "cluster"]  # long work, a little work, and machines that are set up elsewhere

_LOG4J = """\
rootLogger.level = warn
rootLogger.appenderRef.stderr.ref = stderr
appender.stderr.type = Console
appender.stderr.name = stderr
appender.stderr.target = SYSTEM_ERR
appender.stderr.layout.type = PatternLayout
appender.stderr.layout.pattern = %d{yyyy-MM-dd'T'HH:mm:ss.SSS'Z'}{UTC} %p %c{1}: %m%n%ex
# without the native Hadoop library it uses Java's own code, which is all a local disk needs
logger.native.name = org.apache.hadoop.util.NativeCodeLoader
logger.native.level = error
# these warn at every start or MERGE of what is meant to be so
logger.conf.name = org.apache.spark.SparkConf
logger.conf.level = error
logger.plans.name = org.apache.spark.util.SparkStringUtils
logger.plans.level = error
logger.sources.name = org.apache.spark.rdd.MapPartitionsRDD
logger.sources.level = error
"""

SESSION_SETTINGS = {
    # values survive as they are: in UTC, old dates included, and a value that does not fit is an error
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    "spark.sql.parquet.datetimeRebaseModeInRead": "CORRECTED",
    "spark.sql.parquet.datetimeRebaseModeInWrite": "CORRECTED",
    "spark.sql.parquet.int96RebaseModeInRead": "CORRECTED",
    "spark.sql.parquet.int96RebaseModeInWrite": "CORRECTED",
    "spark.sql.ansi.enabled": "true",
    "spark.sql.storeAssignmentPolicy": "ANSI",
    "spark.sql.caseSensitive": "false",
}

_SETTINGS = {
    "spark.app.name": "mirror_engine",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.eventLog.enabled": "false",
    # a run of weeks keeps no account of its past jobs on the heap
    "spark.ui.retainedJobs": "20",
    "spark.ui.retainedStages": "20",
    "spark.ui.retainedTasks": "200",
    "spark.sql.ui.retainedExecutions": "20",
    # each broadcast would start a thread, up to 128 of them
    "spark.sql.broadcastExchange.maxThreadThreshold": "8",
    # Delta; no metastore
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    "spark.sql.catalogImplementation": "in-memory",
    # the state of a table is rebuilt after every commit, with 50 partitions by default
    "spark.databricks.delta.snapshotPartitions": "2",
    # every tenth commit would take seconds
    "spark.databricks.delta.allFilesInCrc.enabled": "false",
    # a small MERGE takes twice as long with them; the writer turns them on where they pay
    "spark.databricks.delta.properties.defaults.enableDeletionVectors": "false",
}

_ONE_PROCESS = {
    # reached by nobody else
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    # no checksum beside each file: Hadoop starts a process for every file it makes, to set its mode
    "spark.hadoop.fs.file.impl": "org.apache.hadoop.fs.RawLocalFileSystem",
    "spark.hadoop.fs.AbstractFileSystem.file.impl": "org.apache.hadoop.fs.local.RawLocalFs",
}

_JAVA_OPTIONS = (
    "-Duser.timezone=UTC",
    "-Dfile.encoding=UTF-8",
    "-Duser.language=en",
    "-XX:-UsePerfData",
)
_BRIEF_JAVA_OPTIONS = (
    # warms up sooner and halves the speed of long work
    "-XX:TieredStopAtLevel=1",
    "-XX:+UseParallelGC",
    # with the 48 MB of one compiler Java soon throws compiled code away and compiles it again, for ever
    "-XX:ReservedCodeCacheSize=240m",
)
# a third less for a MERGE of a few rows: one task a stage, and no plan made anew between stages
_BRIEF_SETTINGS = {
    "spark.default.parallelism": "1",
    "spark.sql.shuffle.partitions": "1",
    "spark.databricks.delta.snapshotPartitions": "1",
    "spark.sql.adaptive.enabled": "false",
}


def settings(*, scratch: Path, driver_memory: str, profile: Profile) -> dict[str, str]:
    """Spark's configuration for a session whose passing files lie under `scratch`; `cluster` leaves more to others."""
    common = {**_SETTINGS, **SESSION_SETTINGS, "spark.sql.warehouse.dir": (scratch / "warehouse").as_uri()}
    if profile == "cluster":
        options = " ".join(quoted_option(option) for option in (*_JAVA_OPTIONS, *places(scratch)))
        return {**common, "spark.driver.extraJavaOptions": options}
    cores = str(_cores())
    return {
        **common,
        **_ONE_PROCESS,
        "spark.master": f"local[{cores}]",
        "spark.default.parallelism": cores,
        "spark.sql.shuffle.partitions": cores,
        "spark.driver.memory": driver_memory,
        "spark.local.dir": str(scratch / "local"),
        **(_BRIEF_SETTINGS if profile == "brief" else {}),
    }


def java_options(profile: Profile) -> tuple[str, ...]:
    """What every JVM for this profile is started with, wherever it works and however large it may grow."""
    return *_JAVA_OPTIONS, *(_BRIEF_JAVA_OPTIONS if profile == "brief" else ())


def heap(driver_memory: str) -> str:
    """What tells Java the size of its heap; it knows no `2gb`."""
    return f"-Xmx{driver_memory.rstrip('bB')}"


def places(scratch: Path) -> tuple[str, ...]:
    """Where a JVM finds and leaves what it needs besides."""
    return f"-Djava.io.tmpdir={scratch / 'tmp'}", f"-Dlog4j2.configurationFile={log4j_file(scratch)}"


def environment(*, java_home: Path, spark_home: Path, scratch: Path, profile: Profile) -> dict[str, str | None]:
    """What Spark and Java find in their environment while they start; None for what they must not find there."""
    return {
        "JAVA_HOME": str(java_home),
        "SPARK_HOME": str(spark_home),
        "TZ": "UTC",
        # without a UTF-8 locale Java cannot open files with other than ASCII names
        "LC_ALL": "C.UTF-8",
        "PYSPARK_GATEWAY_PORT": None,
        "PYSPARK_GATEWAY_SECRET": None,
        "SPARK_CONNECT_MODE_ENABLED": None,
        "SPARK_REMOTE": None,
        "SPARK_TESTING": None,
        **(_elsewhere() if profile == "cluster" else _alone(scratch)),
    }


def _elsewhere() -> dict[str, str | None]:
    """Another Spark's home, where there is one, and the Python that its executors run: by default this one's path."""
    given = {name: os.environ[name] for name in ("SPARK_HOME",) if name in os.environ}
    return {**given, "PYSPARK_PYTHON": os.environ.get("PYSPARK_PYTHON", sys.executable)}


def _alone(scratch: Path) -> dict[str, str | None]:
    """Neither another Spark's settings nor another Hadoop's."""
    return {
        "SPARK_CONF_DIR": str(scratch / "conf"),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "HADOOP_CONF_DIR": None,
        "PYSPARK_SUBMIT_ARGS": None,
        "SPARK_LOCAL_DIRS": None,
        "SPARK_MASTER": None,
    }


def lay_out(scratch: Path) -> None:
    """Make the folders and the file that `settings` and `environment` point to."""
    for name in ("conf", "local", "tmp", "warehouse"):
        (scratch / name).mkdir(parents=True, exist_ok=True)
    log4j_file(scratch).write_text(_LOG4J, encoding="utf-8")


def log4j_file(scratch: Path) -> Path:
    """Where the log's own settings lie."""
    return scratch / "conf" / "log4j2.properties"


def _cores() -> int:
    """Those this process may use, as Java counts them."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def quoted_option(option: str) -> str:
    """One Java option as Java and Spark's launcher split them."""
    return '"' + option.replace("\\", "\\\\").replace('"', '\\"') + '"'
