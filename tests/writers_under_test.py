"""Writers under test, as fixtures."""

from __future__ import annotations

import os

import pytest

from mirror_engine.config import Config
from mirror_engine.tables.merge.deltalake import DeltalakeWriter
from mirror_engine.tables.merge.memory import MemoryDeltaWriter
from mirror_engine.tables.merge.spark import DRIVER_BATCH_BYTES, SparkDeltaWriter


@pytest.fixture(scope="session")
def spark_writer(spark, tmp_path_factory):  # noqa: ARG001 - the JVM is there
    from mirror_engine.tables.spark.session import start_session  # noqa: PLC0415 - only tests with Spark need it

    folder = tmp_path_factory.mktemp("writer")
    log_file = folder / "spark.log"
    writer = SparkDeltaWriter(
        folder / "Tables",
        folder / "engine" / "scratch",
        lambda: start_session(Config(spark_profile="ci"), scratch=folder / "engine" / "scratch", log_file=log_file),
        int(os.environ.get("MIRROR_TEST_DRIVER_BYTES", DRIVER_BATCH_BYTES)),  # 1: every batch is collapsed by Spark
    )
    yield writer
    writer.close()


STORES = ["onelake_server", "azurite", "s3_server"]  # ADLS is to deltalake what OneLake is


@pytest.fixture(
    params=[
        "memory",
        "deltalake",
        pytest.param("spark", marks=pytest.mark.spark),
        *(pytest.param(name, marks=pytest.mark.slow) for name in STORES),
    ]
)
def writer(request, tmp_path):
    """Every writer, that of deltalake on this machine and in each store."""
    if request.param == "memory":
        yield MemoryDeltaWriter()
    elif request.param == "deltalake":
        yield DeltalakeWriter(tmp_path / "root" / "Tables", tmp_path / "root" / "engine" / "scratch")
    elif request.param == "spark":
        yield request.getfixturevalue("fresh")
    else:
        with request.getfixturevalue(request.param).in_use() as server:
            yield DeltalakeWriter(server.new_root() / "Tables", tmp_path / "engine" / "scratch")


@pytest.fixture
def fresh(spark_writer):
    """The Spark writer, without tables."""
    for table in spark_writer.tables():
        spark_writer.drop(table)
    return spark_writer


@pytest.fixture
def without_spark(tmp_path):
    """The Spark writer, where nothing may need Spark."""
    return SparkDeltaWriter(tmp_path / "Tables", tmp_path / "engine" / "scratch", lambda: pytest.fail("Spark started"))


@pytest.fixture
def tables(spark_writer):
    """The folder below which the Spark writer's tables lie."""
    return spark_writer._root
