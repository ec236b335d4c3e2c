"""Starts a JVM with a Spark session in it, quietly, and ends it."""

from __future__ import annotations

import contextlib
import importlib.util
import logging
import os
import shutil
import signal
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING

from mirror_engine.errors import SparkFailed
from mirror_engine.tables.spark.archive import archive_of, options_to_make
from mirror_engine.tables.spark.cluster import joined
from mirror_engine.tables.spark.gateway import Gateway, end_process
from mirror_engine.tables.spark.java import telling_line
from mirror_engine.tables.spark.profile import Profile, environment, heap, java_options, lay_out, places, settings

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

    from mirror_engine.tables.spark.archive import Archive
    from mirror_engine.tables.spark.java import Java

_END_SECONDS = 20.0
_ARCHIVE_SECONDS = 600.0  # in the background, on a machine that is busy
_LOG_BYTES = 16 * 1024 * 1024


@dataclass(frozen=True)
class LaunchPlan:
    """How a JVM is started.

    Attributes:
        profile: what it is set up for.
        java: the runtime.
        jars: beside Spark's own.
        driver_memory: its heap, as Spark writes it.
        scratch: a folder for passing files.
        archive_to: where it leaves a class-data archive when it ends; None uses one that is there.
        master: of a cluster; `""` for the one that its own settings name.
    """

    profile: Profile
    java: Java
    jars: tuple[Path, ...]
    driver_memory: str
    scratch: Path
    archive_to: Path | None = None
    master: str = ""

    def archive(self) -> Archive:
        """The class-data archive that fits."""
        jars = [*sorted((spark_home() / "jars").glob("*.jar")), *self.jars]
        return archive_of(self.java, java_options(self.profile), jars)

    def options(self) -> tuple[str, ...]:
        """What Java is told."""
        archive = options_to_make(self.archive_to) if self.archive_to else self.archive().options()
        return (heap(self.driver_memory), *java_options(self.profile), *places(self.scratch), *archive)

    def conf(self) -> dict[str, str]:
        """What Spark is told."""
        known = settings(scratch=self.scratch, driver_memory=self.driver_memory, profile=self.profile)
        return {**known, "spark.master": self.master} if self.master else known


@dataclass(frozen=True)
class Jvm:
    """A JVM with a session in it."""

    spark: SparkSession
    process: subprocess.Popen[bytes]
    plan: LaunchPlan

    def end(self) -> None:
        """End both; what was committed is on the disk, so that a JVM of this machine need not take its leave."""
        if self.plan.profile == "cluster" or self.plan.archive_to:
            with contextlib.suppress(Exception):  # whatever fails here, the JVM is gone at the end
                self.spark.stop()
            _forget_gateway()
            end_process(self.process, _ARCHIVE_SECONDS if self.plan.archive_to else _END_SECONDS)
        else:
            _forget_gateway()  # first: what Python lets go of would be told to a JVM that is no more, and that logged
            self.process.kill()
            self._forget_context()
            end_process(self.process, _END_SECONDS)
            for name in ("local", "tmp"):  # it would have cleared them
                shutil.rmtree(self.plan.scratch / name, ignore_errors=True)

    def _forget_context(self) -> None:
        """End what Python keeps for a JVM that is no more."""
        context = self.spark.sparkContext
        context._jsc = None  # noqa: SLF001 - it would be called
        updates, context._accumulatorServer = context._accumulatorServer, None  # noqa: SLF001 - ending it takes half a second
        threading.Thread(target=updates.shutdown, daemon=True).start()
        context.stop()


def launch(plan: LaunchPlan, log_file: Path) -> Jvm:
    """Start a JVM with a session.

    Args:
        plan: how.
        log_file: takes all that Spark and Java print, after what is there.

    Raises:
        SparkFailed: one of them did not start; the message names the log file.
    """
    lay_out(plan.scratch)
    # its errors are raised; what it logs besides would reach the terminal
    logging.getLogger("py4j").setLevel(logging.CRITICAL)
    log_file.parent.mkdir(parents=True, exist_ok=True)
    if log_file.exists() and log_file.stat().st_size > _LOG_BYTES:
        log_file.replace(log_file.with_name(log_file.name + ".old"))
    logged = log_file.stat().st_size if log_file.exists() else 0
    try:
        with log_file.open("ab") as log, _environment(plan), _own_interrupt_handler():
            return _jvm(plan, log)
    except Exception as error:
        raise SparkFailed(
            f"the Spark session did not start: {_last_words(log_file, logged) or type(error).__name__}",
            f"The whole story is in {log_file}; `mirror-engine doctor` checks this machine.",
        ) from error


def _jvm(plan: LaunchPlan, log: IO[bytes]) -> Jvm:
    if plan.profile == "cluster":
        return _submitted(plan, log)
    started = Gateway(plan.java.command, plan.options(), [str(spark_home() / "jars" / "*"), *map(str, plan.jars)], log)
    try:
        return Jvm(_connected(plan, started), started.process, plan)
    except BaseException:
        _forget_gateway()
        end_process(started.process, _END_SECONDS)
        raise


def _submitted(plan: LaunchPlan, log: IO[bytes]) -> Jvm:
    """Spark as its own launcher starts it, by the settings of its own folder: only it knows every kind of cluster."""
    from pyspark import SparkConf  # noqa: PLC0415 - importing mirror_engine must not import Spark
    from pyspark.java_gateway import launch_gateway  # noqa: PLC0415 - as above

    known = plan.conf()
    # the rest is settled once the cluster's own settings are known
    first = ["spark.master", "spark.driver.extraJavaOptions", "spark.ui.showConsoleProgress"]
    conf: SparkConf = SparkConf(loadDefaults=False).set("spark.jars", ",".join(jar.as_uri() for jar in plan.jars))
    conf.setAll([(name, known[name]) for name in first if name in known])
    gateway = launch_gateway(conf, {"stdout": log, "stderr": log, "start_new_session": True})
    try:
        return Jvm(joined(gateway, known), gateway.proc, plan)
    except BaseException:
        _forget_gateway()
        end_process(gateway.proc, _END_SECONDS)
        raise


def _connected(plan: LaunchPlan, started: Gateway) -> SparkSession:
    """Spark in a JVM that has just been started: Python gets ready while Java does."""
    from pyspark import SparkConf, SparkContext  # noqa: PLC0415 - importing mirror_engine must not import Spark
    from pyspark.java_gateway import launch_gateway  # noqa: PLC0415 - as above
    from pyspark.sql import SparkSession  # noqa: PLC0415 - as above

    port, os.environ["PYSPARK_GATEWAY_SECRET"] = started.connection()
    os.environ["PYSPARK_GATEWAY_PORT"] = str(port)
    conf: SparkConf = SparkConf(loadDefaults=False).setAll(list(plan.conf().items()))
    return SparkSession(SparkContext(conf=conf, gateway=launch_gateway()))


def _forget_gateway() -> None:
    from pyspark import SparkContext  # noqa: PLC0415 - importing mirror_engine must not import Spark

    gateway = SparkContext._gateway  # noqa: SLF001 - Spark keeps its JVM for ever and has no public way to end it
    if gateway is not None:
        with contextlib.suppress(Exception):
            gateway.shutdown()
    SparkContext._gateway = SparkContext._jvm = None  # noqa: SLF001 - as above


def spark_home() -> Path:
    """Where pyspark lies: found, not imported, which goes on while Java starts."""
    package = importlib.util.find_spec("pyspark")
    return Path(package.origin).parent if package and package.origin else Path()


@contextlib.contextmanager
def _environment(plan: LaunchPlan) -> Iterator[None]:
    """What Spark and Java find in this process's environment while they start; nobody else keeps it."""
    wanted = environment(java_home=plan.java.home, spark_home=spark_home(), scratch=plan.scratch, profile=plan.profile)
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
