"""Whether Spark merges, and where it runs; no Arrow is imported to tell."""

from __future__ import annotations

import os
from importlib.util import find_spec
from typing import TYPE_CHECKING

from mirror_engine.config import refuse_idle
from mirror_engine.option_rules import LOCAL_MASTER, asks_for_cluster, idle_here
from mirror_engine.storage.store_url import StoreUrl

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from mirror_engine.config import Config
    from mirror_engine.storage.store_url import Place


def is_submitted() -> bool:
    """Whether spark-submit started this process."""
    return "PYSPARK_GATEWAY_PORT" in os.environ


def is_cluster(config: Config) -> bool:
    """Whether Spark is set up elsewhere: `--spark-profile cluster`, implied by a `--spark-master` that is not local."""
    return asks_for_cluster(vars(config))


def is_distributed(config: Config, spark: SparkSession | None) -> bool:
    """Whether executors may be other machines: then they read the zone, and no row passes through the driver."""
    if spark is not None:
        return not LOCAL_MASTER.fullmatch(spark.sparkContext.master)
    return is_submitted() or is_cluster(config)


def merges_with_spark(config: Config, spark: SparkSession | None = None, root: Place | None = None) -> bool:
    """Whether Spark is the merge engine.

    `auto` takes it where it is installed or a session was passed; for a ROOT in a store where Spark is set up already.
    (On this machine it needs more jars, and does not know `az login`.)
    """
    if config.merge_engine == "auto":
        if isinstance(root, StoreUrl):
            return is_distributed(config, spark) or spark is not None
        return spark is not None or find_spec("pyspark") is not None
    return config.merge_engine == "spark"


def is_spark_by_default(config: Config, root: Place | None = None) -> bool:
    """Whether Spark merges on this machine only because PySpark is installed."""
    is_chosen = config.merge_engine != "auto" or is_distributed(config, None)
    return not is_chosen and merges_with_spark(config, root=root)


def refuse_idle_options(config: Config, spark: SparkSession | None, root: Place) -> None:
    """Refuse options that have no effect on this machine, or for this ROOT.

    Raises:
        ConfigError: there is one.
    """
    idle = idle_here(
        has_pyspark=find_spec("pyspark") is not None,
        has_session=spark is not None,
        merges_with_spark=merges_with_spark(config, spark, root),
        is_store=isinstance(root, StoreUrl),
        is_submitted=is_submitted(),
    )
    reasons = {config.place(name): idle[name].reason for name in sorted(config.changed & idle.keys())}
    if spark is not None and config.merge_engine == "arrow":
        reasons["Mirror(spark=…)"] = "the merge engine `arrow` does not use Spark"
    refuse_idle(reasons)
