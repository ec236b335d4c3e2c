"""Sessions on somebody else's Spark: a cluster's master, an application that spark-submit started, a notebook.

How such a Spark is set up is its owner's affair: `spark-defaults.conf`, HADOOP_CONF_DIR and the flags of spark-submit
count. What values become is ours: that is set in a session of our own.
"""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Any

from mirror_engine.errors import SetupError
from mirror_engine.tables.spark.profile import SESSION_SETTINGS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import SparkSession

    from mirror_engine.config import Config

_OURS = {**SESSION_SETTINGS, "fs.defaultFS": "file:///"}  # paths are those that this process sees
_IS_SUBMITTED = "PYSPARK_GATEWAY_PORT" in os.environ  # later a JVM of our own may stand there for a moment
_LOCAL = re.compile(r"local(\[[^\]]*\])?")
_EXTENSIONS, _DELTA = "spark.sql.extensions", "io.delta.sql.DeltaSparkSessionExtension"
_DELTA_ONLY = "VACUUM delta.`/`"  # nothing of Spark's own can be read so
_WITHOUT_DELTA = (
    "Start it with Delta: --packages io.delta:delta-spark_4.2_2.13:4.4.0 "
    f"--conf {_EXTENSIONS}={_DELTA}; or build it with delta.configure_spark_with_delta_pip."
)


def is_spread(config: Config, spark: SparkSession | None) -> bool:
    """Whether executors may be other machines: then they read the zone, and no row passes through the driver."""
    if spark is not None:
        return not is_here(spark)
    return is_submitted() or is_elsewhere(config)


def is_here(spark: SparkSession) -> bool:
    """Whether its executors are this machine's."""
    return bool(_LOCAL.fullmatch(spark.sparkContext.master))


def is_elsewhere(config: Config) -> bool:
    """Whether Spark is set up elsewhere: `--spark-profile cluster`, implied by a remote `--spark-master`."""
    return config.spark_profile == "cluster" or bool(config.spark_master and not _LOCAL.fullmatch(config.spark_master))


def is_submitted() -> bool:
    """Whether spark-submit started this process."""
    return _IS_SUBMITTED


def adopted(spark: SparkSession) -> SparkSession:
    """A session of the same Spark, with settings of its own; the given one stays as it is.

    Raises:
        SetupError: it can do no Delta, or it is a client of Spark Connect.
    """
    if not hasattr(spark, "_jsparkSession"):
        raise SetupError(
            "this is a session of Spark Connect", "The engine needs a classic session: Spark's own driver."
        )
    from py4j.protocol import Py4JJavaError  # noqa: PLC0415 - importing mirror_engine must not import Spark
    from pyspark.errors import ParseException  # noqa: PLC0415 - as above

    session: Any = spark._jsparkSession  # noqa: SLF001 - Spark offers its parser to the JVM only
    try:
        session.sessionState().sqlParser().parsePlan(_DELTA_ONLY)
    except (Py4JJavaError, ParseException):
        raise SetupError("this Spark session can do no Delta", _WITHOUT_DELTA) from None
    return with_our_settings(spark.newSession())


def with_our_settings(spark: SparkSession) -> SparkSession:
    """The same session, which now treats values and paths as the engine needs it."""
    for name, value in _OURS.items():
        spark.conf.set(name, value)
    return spark


def submitted_session(settings: Mapping[str, str]) -> SparkSession:
    """The session of an application that spark-submit started; it ends with this process.

    Raises:
        SetupError: it can do no Delta.
    """
    from pyspark.java_gateway import launch_gateway  # noqa: PLC0415 - importing mirror_engine must not import Spark

    return adopted(joined(launch_gateway(), settings))


def joined(gateway: Any, settings: Mapping[str, str]) -> SparkSession:  # noqa: ANN401 - py4j has no types
    """The session of a JVM that Spark's launcher started.

    Args:
        gateway: to that JVM.
        settings: what holds where the flags of spark-submit and `spark-defaults.conf` say nothing.
    """
    from pyspark import SparkConf, SparkContext  # noqa: PLC0415 - importing mirror_engine must not import Spark
    from pyspark.sql import SparkSession  # noqa: PLC0415 - as above

    SparkContext._ensure_initialized(gateway=gateway)  # noqa: SLF001 - only then the JVM can be asked what it was told
    conf: SparkConf = SparkConf()
    extensions = conf.get(_EXTENSIONS, "")
    if extensions and _DELTA not in extensions:
        conf.set(_EXTENSIONS, f"{extensions},{_DELTA}")
    for name, value in settings.items():
        conf.setIfMissing(name, value)
    return with_our_settings(SparkSession(SparkContext(conf=conf, gateway=gateway)))
