"""What Spark throws, told in the engine's words."""

from __future__ import annotations

import logging

import pytest

from mirror_engine.errors import CommitConflict, CommitFailed, MirrorError, SparkFailed, StorageUnavailable
from mirror_engine.tables.spark.failures import spark_failures

STACK = "\n\tat org.apache.spark.sql.delta.Some.scala(Some.scala:1)\n"


@pytest.mark.parametrize(
    ("said", "expected", "words"),
    [
        (f"[DELTA_CONCURRENT_APPEND] ConcurrentAppendException{STACK}", CommitConflict, "another"),
        (
            f"x{STACK}Caused by: java.io.IOException: No space left{STACK}",
            StorageUnavailable,
            "No space",
        ),
        (f"java.nio.file.AccessDeniedException: /data/x{STACK}", StorageUnavailable, "/data/x"),
        (f"java.lang.OutOfMemoryError: Java heap space{STACK}", CommitFailed, "memory"),
        (f"[DELTA_NOT_NULL_CONSTRAINT_VIOLATED] value secret{STACK}", CommitFailed, "DELTA_NOT_NULL"),
        (f"java.lang.IllegalStateException: secret{STACK}", CommitFailed, "IllegalStateException"),
        ("Cannot call methods on a stopped SparkContext.", SparkFailed, "died"),
    ],
)
def test_a_failure_of_spark_is_told_in_the_engines_words(
    said: str, expected: type[MirrorError], words: str, caplog: pytest.LogCaptureFixture
) -> None:
    from pyspark.errors import PySparkException  # noqa: PLC0415 - slow to import: not while tests are collected

    with (
        caplog.at_level(logging.DEBUG, "mirror_engine.spark"),
        pytest.raises(expected, match=words) as told,
        spark_failures("dbo/T", "commit"),
    ):
        raise PySparkException(said)
    assert told.value.help
    assert "\n" not in told.value.message
    assert "secret" not in str(told.value)
    assert said in caplog.text


def test_a_jvm_that_is_gone_is_told_as_such() -> None:
    with pytest.raises(SparkFailed, match="died"), spark_failures("dbo/T", "commit"):
        raise ConnectionRefusedError("[Errno 111] Connection refused")
