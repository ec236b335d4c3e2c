"""Spark's exceptions as errors of the engine."""

from __future__ import annotations

import logging
import re
import subprocess
import sys

import pytest

from mirror_engine.errors import CommitConflict, CommitFailed, SparkFailed, StorageUnavailable
from mirror_engine.tables.spark.failures import spark_failures

STACK = "\n\tat org.apache.spark.sql.delta.Some.scala(Some.scala:1)\n"


@pytest.mark.parametrize(
    ("text", "expected", "message"),
    [
        (f"[DELTA_CONCURRENT_APPEND] ConcurrentAppendException{STACK}", CommitConflict, "another"),
        (f"x{STACK}Caused by: java.io.IOException: No space left{STACK}", StorageUnavailable, "No space"),
        (f"java.nio.file.AccessDeniedException: /data/x{STACK}", StorageUnavailable, "/data/x"),
        (f"java.lang.OutOfMemoryError: Java heap space{STACK}", CommitFailed, "memory"),
        (f"[DELTA_NOT_NULL_CONSTRAINT_VIOLATED] value secret{STACK}", CommitFailed, "DELTA_NOT_NULL"),
        (f"java.lang.IllegalStateException: secret{STACK}", CommitFailed, "IllegalStateException"),
        (
            f"org.x.SparkException: secret{STACK}Caused by: a.b.Middle: secret{STACK}Caused by: a.Root: secret",
            CommitFailed,
            "failed in Spark: SparkException, caused by Root$",
        ),
        ("Cannot call methods on a stopped SparkContext.", SparkFailed, "exited"),
    ],
)
def test_an_exception_of_spark_becomes_an_error_without_values(text, expected, message, caplog):
    from pyspark.errors import PySparkException  # noqa: PLC0415 - slow to import: not while tests are collected

    with (
        caplog.at_level(logging.DEBUG, "mirror_engine.spark"),
        pytest.raises(expected) as raised,
        spark_failures("dbo/T", "commit"),
    ):
        raise PySparkException(text)
    assert re.search(message, raised.value.message)
    assert raised.value.help
    assert "\n" not in raised.value.message
    assert "secret" not in str(raised.value)
    assert text in caplog.text


def test_a_lost_connection_means_that_the_jvm_is_gone():
    with pytest.raises(SparkFailed, match="exited during commit"), spark_failures("dbo/T", "commit"):
        raise ConnectionRefusedError("[Errno 111] Connection refused")


def test_pyspark_is_not_imported_beside_the_thread_that_starts_it():
    program = """
import sys
from mirror_engine.tables.spark.failures import spark_failures
with spark_failures("dbo/T", "commit"):
    assert "pyspark" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", program], check=True)
