"""A SparkSession that can do Delta: one quiet JVM for this process, shared by all who ask, gone with the last."""

from __future__ import annotations

import sys
import threading
from collections import deque
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from mirror_engine.events import SetupProgress, ignore
from mirror_engine.tables.spark.archive import begin_to_make
from mirror_engine.tables.spark.cluster import adopted, is_submitted, submitted_session, with_our_settings
from mirror_engine.tables.spark.jars import delta_jars
from mirror_engine.tables.spark.java import find_java
from mirror_engine.tables.spark.launch import Jvm, LaunchPlan, launch
from mirror_engine.tables.spark.profile import settings

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

    from mirror_engine.config import Config
    from mirror_engine.events import Listener
    from mirror_engine.tables.spark.profile import Profile


@dataclass
class _Shared:
    """The JVM that this process started, and the sessions of those who hold it."""

    jvm: Jvm
    config: Config
    held: list[SparkSession]

    def is_let_go(self, spark: SparkSession) -> bool:
        """Whether nobody holds it any more, once this session is given back; a stranger's holds nothing."""
        before = len(self.held)
        self.held = [each for each in self.held if each is not spark]
        return before > 0 and not self.held

    def end(self) -> None:
        """End it; where the next one could start sooner, that is seen to in the background."""
        self.jvm.end()
        plan = self.jvm.plan
        is_lasting = self.config.spark_profile == "local" and plan.profile != "cluster" and not plan.archive_to
        if is_lasting and plan.archive().is_wanted:
            begin_to_make([plan.profile, self.config.delta_jars_dir])


_lock = threading.Lock()
_running: list[_Shared] = []  # none or one: Spark allows one context in a process


def start_session(  # noqa: PLR0913 - what is set up, and where
    config: Config,
    *,
    scratch: Path,
    log_file: Path,
    listen: Listener = ignore,
    profile: Profile = "steady",
    archive_to: Path | None = None,
) -> SparkSession:
    """A session of this process's one JVM, which is started if need be; give it back with `end_session`.

    Args:
        config: `master`, `driver_memory` and `jars` count; a JVM that already runs keeps its own.
        scratch: a folder for passing files, made if need be; the caller clears it after the JVM has ended.
        log_file: takes all that Spark and Java print, after what is there; nothing reaches the terminal.
        listen: told of jars being fetched and of the start.
        profile: `brief` for tests and small work: quick to warm up, slow in bulk; `cluster` where Spark is set up
            elsewhere.
        archive_to: where the JVM leaves a class-data archive when it ends; it uses one that is there otherwise.

    Raises:
        SetupError: a Spark that is not ours can do no Delta.
        JavaMissing: no Java 17 or 21.
        JarsMissing: the Delta jars cannot be fetched.
        SparkFailed: the JVM or the session did not start; the message names the log file.
    """
    scratch, log_file = scratch.absolute(), log_file.absolute()
    with _lock:
        if _running and _running[0].jvm.process.poll() is not None:
            _running.pop().end()  # killed from outside: begin anew
        if _running:
            shared = _running[0]
            shared.held.append(shared.jvm.spark.newSession())
            return shared.held[-1]
        if (foreign := _foreign_session()) is not None:
            return foreign
        if is_submitted():
            return submitted_session(settings(scratch=scratch, driver_memory=config.driver_memory, profile="cluster"))
        java = find_java()
        jars = delta_jars(config, java, listen)
        listen(SetupProgress("the Spark session"))
        jvm = launch(
            LaunchPlan(profile, java, jars, config.driver_memory, scratch, archive_to, config.spark_master), log_file
        )
        _running.append(_Shared(jvm, config, [jvm.spark]))
        return jvm.spark


def child_session(spark: SparkSession) -> SparkSession:
    """A session with confs of its own, for one worker thread; it shares the JVM, the catalog and Delta's log cache."""
    return with_our_settings(spark.newSession())


def end_session(spark: SparkSession) -> None:
    """Give a session back: the JVM ends with its last holder. A session that the caller's program made stays."""
    with _lock:
        if _running and _running[0].is_let_go(spark):
            _running.pop().end()


def _foreign_session() -> SparkSession | None:
    """A new session of the context that the caller's own program already has: Spark allows no second one."""
    if "pyspark" not in sys.modules:
        return None
    from pyspark import SparkContext  # noqa: PLC0415 - importing mirror_engine must not import Spark
    from pyspark.sql import SparkSession  # noqa: PLC0415 - as above

    if SparkContext._active_spark_context is None:  # noqa: SLF001 - no public way asks without starting one
        return None
    return adopted(SparkSession.builder.getOrCreate())


_SETTINGS = {
    # a table may be called `Items@v1`
    "spark.databricks.delta.timeTravel.resolveOnIdentifier.enabled": "false",
    # changes hash faster than a large table sorts
    "spark.sql.join.preferSortMergeJoin": "false",
}


@dataclass(frozen=True)
class _Spark:
    """One start of Spark: its first session, and the children that nobody uses."""

    first: Future[SparkSession] = field(default_factory=Future)
    idle: deque[SparkSession] = field(default_factory=deque)


class Sessions:
    """Sessions of one JVM.

    Args:
        start: starts Spark; what it gives is ended by `close`.
    """

    def __init__(self, start: Callable[[], SparkSession]) -> None:
        self._start = start
        self._spark: _Spark | None = None
        self._lock = threading.Lock()

    @property
    def first(self) -> SparkSession | None:
        """The session that the others are children of; None where nobody has needed one yet."""
        spark = self._spark
        return spark.first.result() if spark and spark.first.done() and not spark.first.exception() else None

    def prepare(self) -> None:
        """Start Spark, without waiting for it; a failure is raised where a session is lent first. Repeatable."""
        with self._lock:
            self._begin()

    @contextmanager
    def lent(self) -> Iterator[SparkSession]:
        """A session for one call at a time: what it is set to for a commit must reach no other."""
        with self._lock:
            spark = self._begin()
        with self._lent(spark) as session:
            yield session

    @contextmanager
    def lent_if_started(self) -> Iterator[SparkSession | None]:
        """The same where Spark runs already; None where it does not."""
        spark = self._spark
        if spark is None or not spark.first.done():
            yield None
            return
        with self._lent(spark) as session:
            yield session

    def close(self) -> None:
        """End Spark, if it was started; what is lent now is no longer of use."""
        with self._lock:
            spark, self._spark = self._spark, None
        if spark is not None and not spark.first.exception():
            end_session(spark.first.result())

    def _begin(self) -> _Spark:
        if self._spark is None:
            self._spark = _Spark()
            threading.Thread(target=_fulfil, args=(self._spark.first, self._start), name="spark", daemon=True).start()
        return self._spark

    @contextmanager
    def _lent(self, spark: _Spark) -> Iterator[SparkSession]:
        session = self._taken(spark)
        try:
            yield session
        finally:
            spark.idle.append(session)

    def _taken(self, spark: _Spark) -> SparkSession:

        try:
            first = spark.first.result()
        except BaseException:
            with self._lock:  # the next one tries again
                self._spark = None if self._spark is spark else self._spark
            raise
        with suppress(IndexError):
            return spark.idle.pop()
        child = child_session(first)
        for name, value in _SETTINGS.items():
            child.conf.set(name, value)
        return child


def _fulfil(promise: Future[SparkSession], start: Callable[[], SparkSession]) -> None:
    try:
        promise.set_result(start())
    except BaseException as error:  # noqa: BLE001 - whoever waits raises it
        promise.set_exception(error)
