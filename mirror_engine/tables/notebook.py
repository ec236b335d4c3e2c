"""What a notebook brings along that the engine cannot work with: packages from before an update, Spark Connect."""

from __future__ import annotations

import sys
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING

from mirror_engine.errors import MirrorError, SetupError, UsageError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PACKAGES = ("pyarrow", "deltalake")
CONNECT = "pyspark.sql.connect."
RESTARTS = "in Fabric notebookutils.session.restartPython(), in Databricks dbutils.library.restartPython()"


def refuse_outdated_imports() -> None:
    """Refuse packages that this process imported before another version was installed, as `%pip install` does.

    Raises:
        SetupError: there is one.
    """
    for name in PACKAGES:
        imported = getattr(sys.modules.get(name), "__version__", None)
        if imported and (installed := _installed(name)) and imported.replace("-", "") != installed.replace("-", ""):
            raise SetupError(
                f"{name} {imported} was imported before {installed} was installed",
                f"Restart Python, then continue below the cell with %pip: {RESTARTS}.",
            )


def refuse_connect(spark: SparkSession, kind: type[MirrorError] = UsageError) -> None:
    """Refuse a Spark Connect session with an error of this kind: of what a caller passes, or of what is set up here."""
    if any(each.__module__.startswith(CONNECT) for each in type(spark).__mro__):
        raise kind(
            "a Spark Connect session has no JVM in reach, and the Spark engine commits through the JVM",
            "Use Config(merge_engine='arrow'), which needs no Spark, without `spark`; or use a classic session.",
        )


def _installed(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return ""
