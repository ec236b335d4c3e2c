"""Options that cannot take effect: beside others, on this machine, or for this ROOT. They are refused."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, NamedTuple

from mirror_engine.extras import install_command

if TYPE_CHECKING:
    from collections.abc import Mapping

SPARK_ONLY = ("spark_profile", "spark_master", "driver_memory", "delta_jars_dir", "driver_batch_limit")
OF_A_START = ("spark_profile", "spark_master", "driver_memory", "delta_jars_dir")  # of a Spark that the engine starts
ARROW_ONLY = ("key_index_size",)
LOCAL_MASTER = re.compile(r"local(\[[^\]]*\])?")


class Idle(NamedTuple):
    """Why an option has no effect."""

    cause: str  # the option that makes it so; `""` for none
    reason: str


def asks_for_cluster(values: Mapping[str, Any]) -> bool:
    """Whether Spark is set up elsewhere: the profile `cluster`, implied by a master that is not local."""
    master = values["spark_master"]
    return values["spark_profile"] == "cluster" or bool(master and not LOCAL_MASTER.fullmatch(master))


def idle_beside(values: Mapping[str, Any]) -> dict[str, Idle]:
    """Options that have no effect beside the others, whatever their values are."""
    found: dict[str, Idle] = {}
    if asks_for_cluster(values):
        cause = "spark_master" if values["spark_profile"] != "cluster" else "spark_profile"
        found["driver_memory"] = Idle(cause, "on a cluster `spark.driver.memory` in spark-defaults.conf counts")
        if values["spark_profile"] == "ci":
            found["spark_profile"] = Idle("spark_master", "on a cluster Spark's own settings count")
    if values["merge_engine"] == "arrow":
        found |= dict.fromkeys(SPARK_ONLY, Idle("merge_engine", "the merge engine `arrow` does not use Spark"))
    if values["merge_engine"] == "spark":
        found |= dict.fromkeys(ARROW_ONLY, Idle("merge_engine", "the merge engine `spark` uses no index of keys"))
    if values["cleanup"] == "off":
        found["delete_processed_after_seconds"] = Idle("cleanup", "with cleanup `off` no file is moved or deleted")
    return found


def idle_here(
    *, has_pyspark: bool, has_session: bool, merges_with_spark: bool, is_store: bool, is_submitted: bool
) -> dict[str, Idle]:
    """Options that have no effect on this machine, or for this ROOT.

    Args:
        has_pyspark: whether PySpark is installed.
        has_session: whether the caller gave a Spark session.
        merges_with_spark: whether Spark is the merge engine.
        is_store: whether ROOT is in a store.
        is_submitted: whether spark-submit started this process.
    """
    if has_session:
        return dict.fromkeys(OF_A_START, Idle("", "the given Spark session is used as it is"))
    if not merges_with_spark:
        of_store = "a ROOT in a store is merged by `arrow` unless the merge engine is `spark`, or Spark is a cluster"
        reason = (
            of_store
            if has_pyspark and is_store
            else f"it needs PySpark, which is not installed ({install_command('spark')})"
        )
        return dict.fromkeys(SPARK_ONLY, Idle("", reason))
    chosen_by_installation = "Spark is the merge engine, because it is installed, and uses no index of keys"
    found = dict.fromkeys(ARROW_ONLY, Idle("", chosen_by_installation))
    if is_submitted:
        submitted = Idle("", "spark-submit, which started this process, has set it")
        found |= dict.fromkeys(("spark_master", "driver_memory", "delta_jars_dir"), submitted)
    return found
