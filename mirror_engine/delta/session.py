"""A SparkSession that can do Delta: one quiet JVM for this process, shared by all who ask, gone with the last."""

from __future__ import annotations

import sys
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING

from mirror_engine.delta.archive import begin_to_make
from mirror_engine.delta.cluster_session import adopted, is_submitted, submitted_session, with_our_settings
from mirror_engine.delta.jars import delta_jars
from mirror_engine.delta.java import find_java
from mirror_engine.delta.launch import Jvm, Plan, launch
from mirror_engine.delta.profile import settings
from mirror_engine.events import Preparing, ignore

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from mirror_engine.config import Config
    from mirror_engine.delta.profile import Profile
    from mirror_engine.events import Listener


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
        is_lasting = self.config.profile == "local" and plan.profile != "cluster" and not plan.archive_to
        if is_lasting and plan.archive().is_wanted:
            begin_to_make([plan.profile, self.config.jars])


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
        listen(Preparing("the Spark session"))
        jvm = launch(Plan(profile, java, jars, config.driver_memory, scratch, archive_to, config.master), log_file)
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
