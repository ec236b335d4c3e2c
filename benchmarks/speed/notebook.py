"""The notebook everyone writes: Spark and Delta with their defaults, the last row per key, one MERGE a file."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING

from mirror_engine import Config
from mirror_engine.landing_zone.change import MARKER_COLUMN
from mirror_engine.tables.spark.java import download_settings, find_jars, find_java
from speed.engines import HEAP
from speed.rows import DELETE, KEY

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession


def plain_session() -> SparkSession:
    """Start Spark and Delta with their defaults, and with the jars that are on this machine already."""
    from pyspark.sql import SparkSession  # noqa: PLC0415 - the tests hand over a session of their own

    os.environ["JAVA_HOME"] = str(find_java().home)
    paths = [path for path in find_jars(Config()).values() if path is not None]
    jars = {"spark.jars": ",".join(path.as_uri() for path in paths)} if paths else download_settings()
    settings = {
        **jars,
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        "spark.driver.memory": HEAP,
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.log.level": "ERROR",
    }
    return SparkSession.builder.appName("notebook").config(map=settings).getOrCreate()


class Notebook:
    """The engine `notebook`; each method returns its seconds. Tests pass a session."""

    def __init__(self, spark: SparkSession | None = None) -> None:
        self._spark = spark or plain_session()

    def append(self, table: Path, files: Sequence[Path]) -> float:
        """Append each file."""
        started = time.perf_counter()
        for file in files:
            self._spark.read.parquet(str(file)).write.format("delta").mode("append").save(str(table))
        return time.perf_counter() - started

    def merge(self, table: Path, files: Sequence[Path]) -> float:
        """Merge each file. If there is no table, the first file, without markers, creates it."""
        started = time.perf_counter()
        for file in files:
            self._merge(str(table), _last_per_key(self._spark.read.parquet(str(file))))
        return time.perf_counter() - started

    def _merge(self, table: str, changes: DataFrame) -> None:
        from delta.tables import DeltaTable  # noqa: PLC0415 - imports Spark

        if not DeltaTable.isDeltaTable(self._spark, table):
            changes.write.format("delta").save(table)
            return
        merge = DeltaTable.forPath(self._spark, table).alias("t").merge(changes.alias("s"), f"t.{KEY} = s.{KEY}")
        if MARKER_COLUMN in changes.columns:
            merge = merge.whenMatchedDelete(f"s.{MARKER_COLUMN} = {DELETE}").whenMatchedUpdateAll()
            merge = merge.whenNotMatchedInsertAll(f"s.{MARKER_COLUMN} <> {DELETE}")
        else:
            merge = merge.whenMatchedUpdateAll().whenNotMatchedInsertAll()
        merge.execute()


def _last_per_key(changes: DataFrame) -> DataFrame:
    from pyspark.sql import Window  # noqa: PLC0415 - as above
    from pyspark.sql import functions as f  # noqa: PLC0415 - as above

    latest_first = Window.partitionBy(KEY).orderBy(f.col("place").desc())
    numbered = changes.withColumn("place", f.monotonically_increasing_id())
    return numbered.withColumn("rank", f.row_number().over(latest_first)).where("rank = 1").drop("place", "rank")
