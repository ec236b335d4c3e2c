"""Delta writer and change-file readers of one ROOT: which merge engine writes, and whether executors read."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from importlib.util import find_spec
from typing import TYPE_CHECKING

from mirror_engine.errors import SetupError
from mirror_engine.extras import install_command
from mirror_engine.landing_zone.layout import LOGS, SCRATCH, SHARED_SCRATCH, TABLES
from mirror_engine.storage.roots import state_folder
from mirror_engine.storage.store_url import StoreUrl
from mirror_engine.tables.log.table_path import table_path
from mirror_engine.tables.merge.arrow import ArrowWriter
from mirror_engine.tables.merge.spark import DRIVER_BATCH_BYTES, SparkDeltaWriter
from mirror_engine.tables.passthrough import PassthroughReader
from mirror_engine.tables.reading.reader import ChangeFileReader
from mirror_engine.tables.reading.spill import all_rows
from mirror_engine.tables.spark.choice import is_distributed, merges_with_spark
from mirror_engine.tables.spark.session import adopted, start_session

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyspark.sql import SparkSession

    from mirror_engine.config import Config
    from mirror_engine.events import Listener
    from mirror_engine.storage.base import Storage
    from mirror_engine.storage.store_url import Place
    from mirror_engine.tables.log.table_path import TablePath
    from mirror_engine.tables.reading.request import OrderedReader


@dataclass(frozen=True)
class Backend:
    """Writer and readers of one ROOT."""

    root: Place
    config: Config
    storage: Storage
    spark: SparkSession | None  # the session of the caller's program; None starts one, or joins a running one
    listen: Listener  # gets `SetupProgress` events
    is_brief: Callable[[], bool]  # whether a JVM of our own has little to do; asked when it is started

    @cached_property
    def _state(self) -> Path:
        return state_folder(self.root)

    @cached_property
    def _shared(self) -> TablePath:
        """The scratch folder for rows that executors read and write: below ROOT, where they may be other machines."""
        if isinstance(self.root, StoreUrl) and is_distributed(self.config, self.spark):
            return table_path(self.root / SHARED_SCRATCH)
        return self._state / SCRATCH

    @cached_property
    def writer(self) -> ArrowWriter:
        """The writer with the merge engine that was chosen.

        Raises:
            SetupError: it is Spark, and PySpark is not installed.
        """
        feed, days, vectors = (
            self.config.change_data_feed,
            self.config.vacuum_retention_days,
            self.config.deletion_vectors,
        )
        if not merges_with_spark(self.config, self.spark, self.root):
            tables, scratch = self.root / TABLES, self._state / SCRATCH
            size = 0 if self.config.key_index_size == "none" else self.config.key_index_size
            return ArrowWriter(tables, scratch, feed, retention_days=days, vectors=vectors, key_index_size=size)
        if find_spec("pyspark") is None:
            help_ = f"Install it: {install_command('spark')}; or use --merge-engine arrow."
            raise SetupError("the merge engine Spark needs PySpark, which is not installed", help_)
        if isinstance(self.root, StoreUrl) and not self.root.has_hadoop:
            help_ = "Use --merge-engine arrow; an account with folders (ADLS Gen2) has an abfss:// URL, too."
            raise SetupError(f"{self.root}: Hadoop, and so Spark, has no file system for {self.root.scheme}://", help_)
        limit = self.config.driver_batch_limit
        if limit == "auto":
            limit = 0 if is_distributed(self.config, self.spark) else DRIVER_BATCH_BYTES
        return SparkDeltaWriter(
            self.root / TABLES,
            self._state / SCRATCH,
            self._start,
            limit,
            feed,
            shared=self._shared,
            retention_days=days,
            vectors=vectors,
        )

    def reader(self) -> OrderedReader:
        """A reader of change files: executors where they may be other machines, else this process."""
        if isinstance(self.writer, SparkDeltaWriter) and is_distributed(self.config, self.spark):
            from mirror_engine.tables.spark.executors import ExecutorReader  # noqa: PLC0415 - most never need it

            zone = self.root if isinstance(self.root, StoreUrl) else self.storage
            return ExecutorReader(zone, self.config, self._shared, self.writer.sessions.lent)
        return self.reader_here()

    def passthrough(self) -> PassthroughReader:
        """A reader of files that are added to their tables unchanged, in this process."""
        return PassthroughReader(self.storage, self.config, self._state / SCRATCH)

    def reader_here(self) -> OrderedReader:
        """A reader of change files in this process."""
        return ChangeFileReader(self.storage, self.config, all_rows(self._state / SCRATCH))

    def _start(self) -> SparkSession:
        if self.spark is not None:
            return adopted(self.spark)
        scratch, log_file = self._state / SCRATCH, self._state / LOGS / "spark.log"
        scheme = self.root.scheme if isinstance(self.root, StoreUrl) else ""
        is_ci = not is_distributed(self.config, None) and self.is_brief()
        config = replace(self.config, spark_profile="ci") if is_ci else self.config
        return start_session(config, scratch=scratch, log_file=log_file, listen=self.listen, scheme=scheme)
