"""A SparkSession that can do Delta: one quiet JVM for this process, shared by all who ask, gone with the last."""

from __future__ import annotations

import contextlib
import importlib.util
import logging
import os
import signal
import sys
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING

from mirror_engine.delta.gateway import Gateway, end_process
from mirror_engine.delta.jars import delta_jars
from mirror_engine.delta.java import Java, find_java
from mirror_engine.delta.java_output import telling_line
from mirror_engine.delta.profile import Profile, environment, java_options, lay_out, settings
from mirror_engine.errors import SparkFailed
from mirror_engine.events import Preparing, ignore

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

    from mirror_engine.config import Config
    from mirror_engine.events import Listener

_END_SECONDS = 20.0
_LOG_BYTES = 16 * 1024 * 1024


@dataclass
class _Jvm:
    """The JVM that this process started, and how many hold it."""

    spark: SparkSession
    process: subprocess.Popen[bytes]
    log_file: Path
    holders: int = 1


@dataclass(frozen=True)
class _Plan:
    """How the JVM is started."""

    profile: Profile
    java: Java
    jars: tuple[Path, ...]
    options: list[str]
    conf: dict[str, str]
    scratch: Path


_lock = threading.Lock()
_running: list[_Jvm] = []  # none or one: Spark allows one context in a process


def start_session(
    config: Config, *, scratch: Path, log_file: Path, listen: Listener = ignore, profile: Profile = "steady"
) -> SparkSession:
    """A session of this process's one JVM, which is started if need be; give it back with `end_session`.

    Args:
        config: `driver_memory` and `jars` count; a JVM that already runs keeps its own.
        scratch: a folder for passing files, made if need be; the caller clears it after the JVM has ended.
        log_file: takes all that Spark and Java print, after what is there; nothing reaches the terminal.
        listen: told of jars being fetched and of the start.
        profile: `brief` for tests and small work: quick to warm up, slow in bulk; `cluster` where Spark is set up
            elsewhere.

    Raises:
        JavaMissing: no Java 17 or 21.
        JarsMissing: the Delta jars cannot be fetched.
        SparkFailed: the JVM or the session did not start; the message names the log file.
    """
    scratch, log_file = scratch.absolute(), log_file.absolute()
    with _lock:
        if _running and _running[0].process.poll() is not None:
            _end(_running.pop())  # killed from outside: begin anew
        if _running:
            _running[0].holders += 1
            return _running[0].spark.newSession()
        if (foreign := _foreign_session()) is not None:
            return foreign
        java = find_java()
        jars = delta_jars(config, java, listen)
        listen(Preparing("the Spark session"))
        lay_out(scratch)
        running = _start(_plan(config, scratch, java, jars, profile), log_file)
        _running.append(running)
        return running.spark


def child_session(spark: SparkSession) -> SparkSession:
    """A session with confs of its own, for one worker thread; it shares the JVM, the catalog and Delta's log cache."""
    return spark.newSession()


def end_session(spark: SparkSession) -> None:
    """Give a session back: the JVM ends with its last holder. A session that the caller's program made stays."""
    with _lock:
        if not _running or spark.sparkContext is not _running[0].spark.sparkContext:
            return
        _running[0].holders -= 1
        if _running[0].holders == 0:
            _end(_running.pop())


def _plan(config: Config, scratch: Path, java: Java, jars: tuple[Path, ...], profile: Profile) -> _Plan:
    options = java_options(scratch=scratch, driver_memory=config.driver_memory, profile=profile)
    conf = settings(scratch=scratch, driver_memory=config.driver_memory, profile=profile)
    return _Plan(profile, java, jars, options, conf, scratch)


def _foreign_session() -> SparkSession | None:
    """A new session of the context that the caller's own program already has: Spark allows no second one."""
    if "pyspark" not in sys.modules:
        return None
    from pyspark import SparkContext  # noqa: PLC0415 - importing mirror_engine must not import Spark
    from pyspark.sql import SparkSession  # noqa: PLC0415 - as above

    if SparkContext._active_spark_context is None:  # noqa: SLF001 - no public way asks without starting one
        return None
    spark = SparkSession.builder.getOrCreate()
    if "DeltaSparkSessionExtension" not in (spark.conf.get("spark.sql.extensions", "") or ""):
        raise SparkFailed(
            "this process already runs a Spark session without Delta, and Spark allows no second one",
            "Stop it first, or build it with delta.configure_spark_with_delta_pip.",
        )
    return spark.newSession()


def _start(plan: _Plan, log_file: Path) -> _Jvm:
    # its errors are raised; what it logs besides would reach the terminal
    logging.getLogger("py4j").setLevel(logging.CRITICAL)
    log_file.parent.mkdir(parents=True, exist_ok=True)
    if log_file.exists() and log_file.stat().st_size > _LOG_BYTES:
        log_file.replace(log_file.with_name(log_file.name + ".old"))
    logged = log_file.stat().st_size if log_file.exists() else 0
    try:
        with log_file.open("ab") as log, _environment(plan), _own_interrupt_handler():
            return _launch(plan, log, log_file)
    except Exception as error:
        raise SparkFailed(
            f"the Spark session did not start: {_last_words(log_file, logged) or type(error).__name__}",
            f"The whole story is in {log_file}; `mirror-engine doctor` checks this machine.",
        ) from error


def _launch(plan: _Plan, log: IO[bytes], log_file: Path) -> _Jvm:
    if plan.profile == "cluster":
        return _submitted(plan, log, log_file)
    spark_jars = Path(os.environ["SPARK_HOME"]) / "jars" / "*"
    started = Gateway(plan.java.command, plan.options, [str(spark_jars), *map(str, plan.jars)], log)
    try:
        return _Jvm(_connected(plan, started), started.process, log_file)
    except BaseException:
        _end_jvm(started.process)
        raise


def _submitted(plan: _Plan, log: IO[bytes], log_file: Path) -> _Jvm:
    """Spark as its own launcher starts it, by the settings of its own folder: only it knows every kind of cluster."""
    from pyspark import SparkConf, SparkContext  # noqa: PLC0415 - importing mirror_engine must not import Spark
    from pyspark.java_gateway import launch_gateway  # noqa: PLC0415 - as above
    from pyspark.sql import SparkSession  # noqa: PLC0415 - as above

    jars = ",".join(jar.as_uri() for jar in plan.jars)
    conf: SparkConf = SparkConf(loadDefaults=False).setAll([*plan.conf.items(), ("spark.jars", jars)])
    gateway = launch_gateway(conf, {"stdout": log, "stderr": log, "start_new_session": True})
    try:
        return _Jvm(SparkSession(SparkContext(conf=conf, gateway=gateway)), gateway.proc, log_file)
    except BaseException:
        _end_jvm(gateway.proc)
        raise


def _connected(plan: _Plan, started: Gateway) -> SparkSession:
    """Spark in a JVM that has just been started: Python gets ready while Java does."""
    from pyspark import SparkConf, SparkContext  # noqa: PLC0415 - importing mirror_engine must not import Spark
    from pyspark.java_gateway import launch_gateway  # noqa: PLC0415 - as above
    from pyspark.sql import SparkSession  # noqa: PLC0415 - as above

    port, os.environ["PYSPARK_GATEWAY_SECRET"] = started.connection()
    os.environ["PYSPARK_GATEWAY_PORT"] = str(port)
    conf: SparkConf = SparkConf(loadDefaults=False).setAll(list(plan.conf.items()))
    return SparkSession(SparkContext(conf=conf, gateway=launch_gateway()))


def _end(running: _Jvm) -> None:
    context = running.spark.sparkContext
    if running.process.poll() is None:
        # whatever fails here, the JVM is gone at the end
        with contextlib.suppress(Exception):
            running.spark.stop()
    else:
        context._jsc = None  # noqa: SLF001 - it would call a JVM that is no more
    context.stop()
    _end_jvm(running.process)


def _end_jvm(process: subprocess.Popen[bytes]) -> None:
    from pyspark import SparkContext  # noqa: PLC0415 - importing mirror_engine must not import Spark

    gateway = SparkContext._gateway  # noqa: SLF001 - Spark keeps its JVM for ever and has no public way to end it
    if gateway is not None:
        with contextlib.suppress(Exception):
            gateway.shutdown()
    SparkContext._gateway = SparkContext._jvm = None  # noqa: SLF001 - as above
    end_process(process, _END_SECONDS)


@contextlib.contextmanager
def _environment(plan: _Plan) -> Iterator[None]:
    """What Spark and Java find in this process's environment while they start; nobody else keeps it."""
    package = importlib.util.find_spec("pyspark")  # found, not imported: that goes on while Java starts
    spark_home = Path(package.origin).parent if package and package.origin else Path()
    wanted = environment(java_home=plan.java.home, spark_home=spark_home, scratch=plan.scratch, profile=plan.profile)
    before = {name: os.environ.get(name) for name in wanted}
    _set_environment(wanted)
    try:
        yield
    finally:
        _set_environment(before)


def _set_environment(values: dict[str, str | None]) -> None:
    for name, value in values.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value


@contextlib.contextmanager
def _own_interrupt_handler() -> Iterator[None]:
    """Spark's context puts in a handler that cancels all jobs at Ctrl-C; a commit at hand must be finished instead."""
    before = signal.getsignal(signal.SIGINT)
    try:
        yield
    finally:
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGINT, before)


def _last_words(log_file: Path, start: int) -> str:
    """The line in which a failed start says why; `""` where none does."""
    with log_file.open("rb") as log:
        log.seek(start)
        return telling_line(log.read().decode("utf-8", "replace"))
