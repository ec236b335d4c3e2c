"""Start Spark with Delta, share its one JVM within this process, and lend its sessions to worker threads.

Spark starts as Spark starts, through `spark-submit`. Where it runs on this machine, all settings are given here; on a
cluster, in an application that spark-submit started, or in a notebook, its owner's settings count, and only what
values depend on is set, in a session of its own.
"""

from __future__ import annotations

import logging
import os
import queue
import re
import shutil
import signal
import socket
import sys
import threading
import time
from collections import deque
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from mirror_engine.errors import JarsMissing, MirrorError, SetupError, SparkFailed
from mirror_engine.events import SetupProgress, ignore
from mirror_engine.storage.store_url import StoreUrl
from mirror_engine.tables.notebook import refuse_connect
from mirror_engine.tables.reading.open_file import unlimited_memory
from mirror_engine.tables.spark import java
from mirror_engine.tables.spark.choice import is_cluster, is_distributed, is_submitted

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from pyspark.sql import SparkSession

    from mirror_engine.config import Config
    from mirror_engine.events import Listener
    from mirror_engine.storage.store_url import Place

_EXTENSIONS, _DELTA = "spark.sql.extensions", "io.delta.sql.DeltaSparkSessionExtension"
_END_SECONDS = 20.0
_MASTER_SECONDS, _MASTER_PORT = 10.0, 7077
_LOG_BYTES = 16 * 1024 * 1024  # of spark.log before a start: then it is renamed to spark.log.old
_LOG4J = """\
rootLogger.level = warn
rootLogger.appenderRef.stderr.ref = stderr
appender.stderr.type = Console
appender.stderr.name = stderr
appender.stderr.target = SYSTEM_ERR
appender.stderr.layout.type = PatternLayout
appender.stderr.layout.pattern = %d{yyyy-MM-dd'T'HH:mm:ss.SSS'Z'}{UTC} %p %c{1}: %m%n%ex
# it warns at every MERGE
logger.sources.name = org.apache.spark.rdd.MapPartitionsRDD
logger.sources.level = error
"""

# of every session: values stay as they are, in UTC, old dates included, and a value that does not fit is an error
SESSION_SETTINGS = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    "spark.sql.parquet.datetimeRebaseModeInRead": "CORRECTED",
    "spark.sql.parquet.datetimeRebaseModeInWrite": "CORRECTED",
    "spark.sql.parquet.int96RebaseModeInRead": "CORRECTED",
    "spark.sql.parquet.int96RebaseModeInWrite": "CORRECTED",
    "spark.sql.ansi.enabled": "true",
    "spark.sql.storeAssignmentPolicy": "ANSI",
    "spark.sql.caseSensitive": "false",
    # paths are those of this process, whatever the cluster's default is
    "fs.defaultFS": "file:///",
    # a table may be called `Items@v1`
    "spark.databricks.delta.timeTravel.resolveOnIdentifier.enabled": "false",
    # changes hash faster than a large table sorts: 4.1 s instead of 5.9 s
    "spark.sql.join.preferSortMergeJoin": "false",
}
_SETTINGS = {
    "spark.app.name": "mirror_engine",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    # plans of past queries fill the heap of a long run
    "spark.sql.ui.retainedExecutions": "20",
    _EXTENSIONS: _DELTA,
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    # a table's state is rebuilt after every commit, with 50 partitions by default: 3 s a small MERGE instead of 1 s
    "spark.databricks.delta.snapshotPartitions": "2",
    # every tenth commit takes 2-3 s longer with it
    "spark.databricks.delta.allFilesInCrc.enabled": "false",
    # a small MERGE takes twice as long with them; the writer turns them on for large tables
    "spark.databricks.delta.properties.defaults.enableDeletionVectors": "false",
}
# of tables on this machine, without Hadoop's checksum files: for each file and each checksum, Hadoop starts `chmod`,
# which takes 17 ms. Not for stores: S3A buffers what it writes in local files, whose class it casts to the default one
_TABLES_HERE = {
    "spark.hadoop.fs.file.impl": "org.apache.hadoop.fs.RawLocalFileSystem",
    "spark.hadoop.fs.AbstractFileSystem.file.impl": "org.apache.hadoop.fs.local.RawLocalFs",
}
# of the profile `ci`: one task a stage and no plan made again between stages
_CI_SETTINGS = {
    "spark.default.parallelism": "1",
    "spark.sql.shuffle.partitions": "1",
    "spark.databricks.delta.snapshotPartitions": "1",
    "spark.sql.adaptive.enabled": "false",
}
# of a JVM on this machine: a MERGE runs so much code, each part so seldom, that the optimizing compiler takes more time
# than it saves (docs/decisions/spark-merge.md); the quick one's default of 48 MB for code fills up and is cleared for
# ever
_JAVA_OPTIONS = ("-XX:TieredStopAtLevel=1", "-XX:+UseParallelGC", "-XX:ReservedCodeCacheSize=240m")
# passed on the command line; others when the context is made
_AT_LAUNCH = ("spark.master", "spark.driver.", "spark.jars", "spark.local.", "spark.ui.show")
_NO_MEMORY = re.compile("Could not reserve enough space|insufficient memory for|Too small maximum heap")
_NO_DELTA_HELP = (
    f"Start it with Delta: --packages {java.COORDINATES[0]} --conf {_EXTENSIONS}={_DELTA}; "
    "or build it with delta.configure_spark_with_delta_pip."
)


def spark_settings(config: Config, scratch: Path, scheme: str = "") -> dict[str, str]:
    """Spark's configuration, by the scheme of the store that tables are in.

    A Spark that is set up elsewhere keeps its master, folders, memory and parallelism.
    """
    is_here = not is_distributed(config, None)
    is_ci = is_here and config.spark_profile == "ci"
    options = ["-Duser.timezone=UTC", "-Duser.language=en", f"-Djava.io.tmpdir={scratch / 'tmp'}"]
    options += [f"-Dlog4j2.configurationFile={scratch / 'log4j2.properties'}"]
    options += _JAVA_OPTIONS if is_here else ()
    settings = {
        **_SETTINGS,
        "spark.sql.warehouse.dir": (scratch / "warehouse").as_uri(),
        "spark.driver.extraJavaOptions": " ".join(map(_quoted_option, options)),
    }
    if not is_here:
        return settings | ({"spark.master": config.spark_master} if config.spark_master else {})
    cores = str(len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1)
    return {
        **settings,
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        **({"spark.hadoop.hadoop.tmp.dir": str(scratch / "tmp")} if scheme else _TABLES_HERE),
        "spark.hadoop.fs.permissions.umask-mode": f"{_umask():03o}",  # Hadoop's own is 022, whatever this process's
        "spark.master": config.spark_master or f"local[{cores}]",
        "spark.default.parallelism": cores,
        "spark.sql.shuffle.partitions": cores,
        "spark.driver.memory": config.driver_memory.rstrip("bB"),  # Java knows no `2gb`
        "spark.local.dir": str(scratch / "local"),
        **(_CI_SETTINGS if is_ci else {}),
    }


def _umask() -> int:
    with suppress(OSError):
        status = Path("/proc/self/status").read_text(encoding="ascii", errors="replace")
        if found := re.search(r"^Umask:\s+([0-7]+)$", status, re.MULTILINE):
            return int(found[1], 8)
    os.umask(mask := os.umask(0o022))  # elsewhere it can only be asked for by setting it, for all threads
    return mask


def _quoted_option(option: str) -> str:
    return '"' + option.replace("\\", "\\\\").replace('"', '\\"') + '"'


def launch_environment(config: Config, java_home: Path) -> dict[str, str | None]:
    """Environment variables while Spark starts; None for those that are removed."""
    values: dict[str, str | None] = {
        "JAVA_HOME": str(java_home),
        "TZ": "UTC",
        "LC_ALL": "C.UTF-8",  # without a UTF-8 locale Java cannot open files whose names are not ASCII
        **dict.fromkeys(("PYSPARK_GATEWAY_PORT", "PYSPARK_GATEWAY_SECRET", "SPARK_REMOTE", "SPARK_TESTING")),
        "SPARK_CONNECT_MODE_ENABLED": None,
    }
    if is_cluster(config):
        python = os.environ.get("PYSPARK_PYTHON", sys.executable)  # of the executors
        return {**values, "SPARK_HOME": os.environ.get("SPARK_HOME", str(spark_home())), "PYSPARK_PYTHON": python}
    return {
        **values,
        **dict.fromkeys(("HADOOP_CONF_DIR", "PYSPARK_SUBMIT_ARGS", "SPARK_LOCAL_DIRS", "SPARK_MASTER")),
        "SPARK_HOME": str(spark_home()),
        "SPARK_CONF_DIR": str(spark_home() / "none"),
        "SPARK_LOCAL_IP": "127.0.0.1",
    }


def spark_home() -> Path:
    """The folder of the installed pyspark, which is not imported."""
    package = find_spec("pyspark")
    return Path(package.origin).parent if package and package.origin else Path()


# ---- the JVM of this process


@dataclass
class _Jvm:
    """The JVM that this process started, and the sessions that are in use."""

    spark: SparkSession
    process: subprocess.Popen[bytes]
    scratch: Path
    sessions: list[SparkSession]

    def end(self) -> None:
        with suppress(Exception):
            self.spark.sparkContext.stop()
        self.spark.sparkContext.stop()  # what is left of a context whose JVM died
        _end_gateway(self.process)
        for name in ("local", "tmp"):
            shutil.rmtree(self.scratch / name, ignore_errors=True)


_lock = threading.Lock()
_running: list[_Jvm] = []  # none or one: Spark allows one context in a process


def start_session(
    config: Config, *, scratch: Path, log_file: Path, listen: Listener = ignore, scheme: str = ""
) -> SparkSession:
    """A session of this process's one JVM, which is started if need be; `end_session` gives it back.

    Args:
        config: a JVM that already runs keeps its own.
        scratch: a folder for temporary files, made if need be; the caller clears it after the JVM has ended.
        log_file: gets all output of Spark and Java, appended; nothing reaches the terminal.
        listen: gets `SetupProgress` events.
        scheme: of the store that tables are in; `""` for none.

    Raises:
        SetupError: the Spark that already runs lacks Delta.
        JavaMissing: no Java 17 or 21.
        JarsMissing: the Delta jars cannot be fetched.
        SparkFailed: the JVM or the session did not start; the message names the log file.
    """
    with _lock:
        if _running and _running[0].process.poll() is not None:
            _running.pop().end()  # it was killed: start another
        if _running:
            _check_same_master(config, _running[0].spark)
            session = child_session(_running[0].spark)
            _running[0].sessions.append(session)
            return session
        if (foreign := _foreign_session()) is not None:
            _check_same_master(config, foreign)
            return adopted(foreign)
        if is_submitted():
            from pyspark.java_gateway import launch_gateway  # noqa: PLC0415 - importing mirror_engine must not import Spark

            return adopted(_first_session(launch_gateway(), spark_settings(config, scratch)))
        _running.append(_started(config, scratch.absolute(), log_file.absolute(), listen, scheme))
        return _running[0].spark


def _check_same_master(config: Config, spark: SparkSession) -> None:
    """Refuse a master beside a Spark that runs in this process with another one: a process has one."""
    running = spark.sparkContext.master
    if config.spark_master not in {"", running}:
        raise SetupError(
            f"--spark-master {config.spark_master} has no effect: this process already runs Spark on {running}",
            "Leave it out, or start another process.",
        )


def _check_master(master: str) -> None:
    """Check that one of a master's addresses answers: Spark itself tries for minutes, and names no host.

    Raises:
        SparkFailed: none does.
    """
    failures: queue.Queue[str] = queue.Queue()  # an empty text where one answers

    def connect(host: str, port: int) -> None:
        try:
            with socket.create_connection((host, port), timeout=_MASTER_SECONDS):
                failures.put("")
        except OSError as error:
            failures.put(f"{host}:{port}: {error.strerror or error}")

    found, addresses = [], master_addresses(master)
    for address in addresses:  # a name server may take longer
        threading.Thread(target=connect, args=address, daemon=True).start()
    ends = time.monotonic() + _MASTER_SECONDS
    for _ in addresses:
        try:
            failure = failures.get(timeout=max(ends - time.monotonic(), 0.01))
        except queue.Empty:
            break
        if not failure:
            return
        found.append(failure)
    if addresses:
        silent = [f"{host}:{port}" for host, port in addresses if not any(f"{host}:{port}" in each for each in found)]
        found += [f"{each}: no answer within {_MASTER_SECONDS:g} s" for each in silent]
        message = f"the Spark master cannot be reached: {'; '.join(sorted(found))}"
        raise SparkFailed(message, "Start it, or correct --spark-master.")


def master_addresses(master: str) -> Sequence[tuple[str, int]]:
    """The hosts and ports that a master's URL names: `spark://a:7077,b:7077`, `k8s://https://host:port`; else none."""
    scheme, _, rest = master.partition("://")
    with suppress(ValueError):  # no port: Spark refuses it
        if scheme == "spark":
            parts = [urlsplit(f"//{part}") for part in rest.split(",")]
            return [(part.hostname or "", part.port or _MASTER_PORT) for part in parts]
        if scheme == "k8s":
            part = urlsplit(rest if "://" in rest else f"https://{rest}")
            return [(part.hostname or "", part.port or (80 if part.scheme == "http" else 443))]
    return []


def end_session(spark: SparkSession) -> None:
    """Return a session. The JVM ends with its last session; a session of the caller's program stays open."""
    with _lock:
        if _running and spark in _running[0].sessions:
            _running[0].sessions.remove(spark)
            if not _running[0].sessions:
                _running.pop().end()


def child_session(spark: SparkSession, settings: Mapping[str, str] | None = None) -> SparkSession:
    """A session with confs of its own, and some more; it shares the JVM, the catalog and Delta's log cache."""
    return _configured(spark.newSession(), settings)


def store_settings(place: Place) -> Mapping[str, str]:
    """Settings of a session that reaches tables in a store; no log or page of Spark shows them."""
    if not isinstance(place, StoreUrl):
        return {}
    options = {name.removeprefix("spark.hadoop."): value for name, value in place.hadoop_options().items()}
    return {**options, "spark.sql.redaction.options.regex": r"(?i)url|fs\.(azure|s3a)\."}


@contextmanager
def confs(spark: SparkSession, values: Mapping[str, str]) -> Iterator[None]:
    """Set options of one session within a block: a transaction id left behind makes the next write vanish silently."""
    before = {name: spark.conf.get(name, None) for name in values}
    try:
        for name, value in values.items():
            spark.conf.set(name, value)
        yield
    finally:
        for name, old in before.items():
            if old is None:
                spark.conf.unset(name)
            else:  # unsetting would also drop what the session was started with
                spark.conf.set(name, old)


def _configured(spark: SparkSession, settings: Mapping[str, str] | None = None) -> SparkSession:
    for name, value in {**SESSION_SETTINGS, **(settings or {})}.items():
        spark.conf.set(name, value)
    return spark


def _started(config: Config, scratch: Path, log_file: Path, listen: Listener, scheme: str) -> _Jvm:
    settings = spark_settings(config, scratch, scheme)
    _check_master(config.spark_master)
    java_home = java.find_java().home
    for name in ("local", "tmp", "warehouse"):
        (scratch / name).mkdir(parents=True, exist_ok=True)
    (scratch / "log4j2.properties").write_text(_LOG4J, encoding="utf-8")
    with java.local_jars(config, scheme) as paths, _launch_state(launch_environment(config, java_home)):
        if not paths:
            listen(SetupProgress(f"Delta's jars from {java.repository()}"))
            settings |= java.download_settings(scheme)
            settings["spark.driver.extraJavaOptions"] += "".join(f" {_quoted_option(o)}" for o in java.proxy_options())
        elif is_cluster(config):
            settings["spark.jars"] = ",".join(path.as_uri() for path in paths)
        else:
            settings["spark.driver.extraClassPath"] = os.pathsep.join(map(str, paths))
        listen(SetupProgress("the Spark session"))
        spark, process = _launched(settings, log_file)
        listen(SetupProgress("the Spark session", 1, 1))
    return _Jvm(spark, process, scratch, [spark])


def _launched(settings: Mapping[str, str], log_file: Path) -> tuple[SparkSession, subprocess.Popen[bytes]]:
    """Start the JVM, its output appended to the log file, which also says why it failed."""
    from pyspark import SparkConf  # noqa: PLC0415 - importing mirror_engine must not import Spark
    from pyspark.java_gateway import launch_gateway  # noqa: PLC0415 - as above

    logging.getLogger("py4j").setLevel(logging.CRITICAL)  # its errors are raised, and would also reach the terminal
    conf: SparkConf = SparkConf(loadDefaults=False)
    conf.setAll([(name, value) for name, value in settings.items() if name.startswith(_AT_LAUNCH)])
    log_file.parent.mkdir(parents=True, exist_ok=True)
    if log_file.exists() and log_file.stat().st_size > _LOG_BYTES:
        log_file.replace(log_file.with_name(log_file.name + ".old"))
    log_file.touch(mode=0o600)  # Ivy prints the repository's URL
    start, gateway = log_file.stat().st_size, None
    try:
        # in a process group of its own, Ctrl-C in the terminal does not end it: the current commit is finished
        with log_file.open("ab") as log, unlimited_memory():  # the JVM has limits of its own
            gateway = launch_gateway(conf, {"stdout": log, "stderr": log, "start_new_session": True})
        return _first_session(gateway, settings), gateway.proc
    except BaseException as error:
        if gateway is not None:
            _end_gateway(gateway.proc)
        if isinstance(error, MirrorError) or not isinstance(error, Exception):
            raise
        output = log_file.read_bytes()[start:].decode("utf-8", "replace")
        if "spark.jars.packages" in settings and (reason := java.download_failure(output)):
            raise JarsMissing(
                f"cannot fetch the Delta jars from {java.repository()}: {reason}", java.JARS_HELP
            ) from error
        cause = cause_line(output)
        smaller = "Choose another --driver-memory. " if _NO_MEMORY.search(cause) else ""
        raise SparkFailed(
            f"the Spark session did not start: {cause or type(error).__name__}",
            f"{smaller}See {log_file}; `mirror-engine doctor` checks this machine.",
        ) from error


def _first_session(gateway: Any, settings: Mapping[str, str]) -> SparkSession:  # noqa: ANN401 - py4j has no types
    """Start the first session; the command line and `spark-defaults.conf` override the settings."""
    from pyspark import SparkConf, SparkContext  # noqa: PLC0415 - importing mirror_engine must not import Spark
    from pyspark.sql import SparkSession  # noqa: PLC0415 - as above

    conf: SparkConf = SparkConf(_jvm=gateway.jvm)
    extensions = conf.get(_EXTENSIONS, "")
    if extensions and _DELTA not in extensions:
        conf.set(_EXTENSIONS, f"{extensions},{_DELTA}")
    for name, value in settings.items():
        conf.setIfMissing(name, value)
    return _configured(SparkSession(SparkContext(conf=conf, gateway=gateway)))


def _end_gateway(process: subprocess.Popen[bytes]) -> None:
    """End a JVM, and make pyspark forget it."""
    from pyspark import SparkContext  # noqa: PLC0415 - importing mirror_engine must not import Spark

    gateway = SparkContext._gateway  # noqa: SLF001 - there is no public way
    if gateway is not None:
        with suppress(Exception):
            gateway.shutdown()
    SparkContext._gateway = SparkContext._jvm = None  # noqa: SLF001 - as above
    if process.stdin is not None:
        process.stdin.close()
    process.kill()  # what was committed is durable
    process.wait(_END_SECONDS)


@contextmanager
def _launch_state(environment: Mapping[str, str | None]) -> Iterator[None]:
    """Set environment variables for a while, and keep the handler of Ctrl-C: Spark's own cancels the current commit."""
    before = {name: os.environ.get(name) for name in environment}
    handler = signal.getsignal(signal.SIGINT)
    _set_environment(environment)
    try:
        yield
    finally:
        _set_environment(before)
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGINT, handler)


def _set_environment(values: Mapping[str, str | None]) -> None:
    for name, value in values.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value


def cause_line(output: str) -> str:
    """What Java says of memory, else the last line that names a cause, else the last line; `""` without output."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    lines = [line for line in lines if not re.match(r"at |\.\.\. \d+ more", line)]
    causes = [line for line in lines if re.search(r"Caused by|Exception|[Ee]rror", line)]
    memory = [line.removeprefix("# ") for line in lines if _NO_MEMORY.search(line)]
    return (memory or causes or lines or [""])[-1].removeprefix("Caused by: ")


# ---- a Spark that something else set up


def adopted(spark: SparkSession) -> SparkSession:
    """A session of the same Spark with settings of its own; the argument is not changed.

    Raises:
        SetupError: Spark lacks Delta, or it is a client of Spark Connect.
    """
    refuse_connect(spark, SetupError)
    from py4j.protocol import Py4JJavaError  # noqa: PLC0415 - importing mirror_engine must not import Spark
    from pyspark.errors import ParseException  # noqa: PLC0415 - as above

    session: Any = spark._jsparkSession  # noqa: SLF001 - Spark offers its parser to the JVM only
    try:
        session.sessionState().sqlParser().parsePlan("VACUUM delta.`/`")  # a statement of Delta's alone
    except (Py4JJavaError, ParseException):
        raise SetupError("this Spark session has no Delta", _NO_DELTA_HELP) from None
    return child_session(spark)


def _foreign_session() -> SparkSession | None:
    """A session of the context that the caller's program already has: Spark allows no second one."""
    if "pyspark" not in sys.modules:
        return None
    from pyspark import SparkContext  # noqa: PLC0415 - importing mirror_engine must not import Spark
    from pyspark.sql import SparkSession  # noqa: PLC0415 - as above

    is_there = SparkContext._active_spark_context is not None  # noqa: SLF001 - no public way asks without starting one
    return SparkSession.builder.getOrCreate() if is_there else None


# ---- sessions for worker threads


class Sessions:
    """Sessions of one Spark, lent to worker threads: confs set for a commit must reach no other.

    Besides `SESSION_SETTINGS` they have `settings`. What `start` gives is ended by `close`.
    """

    def __init__(self, start: Callable[[], SparkSession], settings: Mapping[str, str] | None = None) -> None:
        self._start = start
        self._settings = settings
        self._lock = threading.Lock()
        self.first: SparkSession | None = None  # which the others are children of; None before it has started
        self._idle: deque[SparkSession] = deque()  # its children that are not in use

    @contextmanager
    def lent(self) -> Iterator[SparkSession]:
        """A session for one call at a time."""
        with self._lock:
            if self.first is None:
                spark = self._start()
                self.first, self._idle = _configured(spark, self._settings) if self._settings else spark, deque()
            first, idle = self.first, self._idle
        try:
            session = idle.pop()
        except IndexError:
            session = child_session(first, self._settings)
        try:
            yield session
        finally:
            idle.append(session)

    def close(self) -> None:
        """End Spark, if it was started; sessions still lent become useless."""
        with self._lock:
            first, self.first = self.first, None
        if first is not None:
            end_session(first)
