"""Door 2 with Spark, and the reader that goes with it: where Spark is spread over machines, its executors read."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

from mirror_engine.landing_zone.layout import LOGS, SCRATCH, TABLES
from mirror_engine.tables.merge.spark import DRIVER_BATCH_BYTES, SparkDeltaWriter
from mirror_engine.tables.passthrough import PassthroughReader
from mirror_engine.tables.reading.reader import ChangeFileReader
from mirror_engine.tables.reading.spill import all_rows
from mirror_engine.tables.spark.cluster import adopted, is_elsewhere, is_spread

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyspark.sql import SparkSession

    from mirror_engine.config import Config
    from mirror_engine.events import Listener
    from mirror_engine.storage.base import Storage
    from mirror_engine.tables.reading.request import OrderedReader
    from mirror_engine.tables.spark.profile import Profile


class SparkBackend:
    """Writer and reader of one ROOT.

    Args:
        root: ROOT.
        config: all options.
        storage: door 1.
        spark: somebody else's session to work in; None starts one, or joins the one that there is.
        listen: told what takes time before Spark is there.
        load: what a JVM of our own is set up for, asked when it is started.
    """

    def __init__(  # noqa: PLR0913, PLR0917 - all that a session, a writer and a reader need
        self,
        root: Path,
        config: Config,
        storage: Storage,
        spark: SparkSession | None,
        listen: Listener,
        load: Callable[[], Profile],
    ) -> None:
        self._root = root
        self._config = config
        self._storage = storage
        self._spark = spark
        self._listen = listen
        self._load = load

    @cached_property
    def writer(self) -> SparkDeltaWriter:
        """Spark's writer."""
        most = self._config.driver_batch_limit
        if most == "auto":
            most = 0 if is_spread(self._config, self._spark) else DRIVER_BATCH_BYTES
        return SparkDeltaWriter(self._root / TABLES, self._root / SCRATCH, self._start, most)

    def reader(self) -> OrderedReader:
        """A reader of change files: executors where there are any beyond this machine, else this process."""
        if is_spread(self._config, self._spark):
            from mirror_engine.tables.spark.executors import ExecutorReader  # noqa: PLC0415 - most never need it

            return ExecutorReader(self._storage, self._config, self._root / SCRATCH, self.writer.sessions.lent)
        return self.reader_here()

    def lying(self) -> PassthroughReader:
        """Looks which files become part of their tables as they lie, in this process: that takes no row."""
        return PassthroughReader(self._storage, self._config, all_rows(self._root / SCRATCH))

    def reader_here(self) -> OrderedReader:
        """A reader of change files in this process."""
        return ChangeFileReader(self._storage, self._config, all_rows(self._root / SCRATCH))

    def _start(self) -> SparkSession:
        from mirror_engine.tables.spark.session import start_session  # noqa: PLC0415 - a level zone needs no Spark

        if self._spark is not None:
            return adopted(self._spark)
        return start_session(
            self._config,
            scratch=self._root / SCRATCH,
            log_file=self._root / LOGS / "spark.log",
            listen=self._listen,
            profile="cluster" if is_elsewhere(self._config) else self._load(),
        )
