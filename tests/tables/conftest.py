"""Writers under test, as fixtures."""

from __future__ import annotations

import pytest

from mirror_engine.landing_zone.layout import SCRATCH, TABLES
from mirror_engine.tables.merge.deltalake import DeltalakeWriter
from mirror_engine.tables.merge.memory import MemoryDeltaWriter
from mirror_engine.tables.merge.spark import SparkDeltaWriter

STORES = ["onelake_server", "azurite", "s3_server"]  # ADLS is to deltalake what OneLake is


@pytest.fixture
def local(tmp_path):
    return DeltalakeWriter(tmp_path / TABLES, tmp_path / SCRATCH)


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
    elif request.param in {"deltalake", "spark"}:
        yield request.getfixturevalue({"deltalake": "local", "spark": "fresh"}[request.param])
    else:
        with request.getfixturevalue(request.param).in_use() as server:
            yield DeltalakeWriter(server.new_root() / TABLES, tmp_path / SCRATCH)


@pytest.fixture(scope="session")
def spark_writer(mirror_writer, tmp_path_factory):
    return mirror_writer(tmp_path_factory.mktemp("writer"))


@pytest.fixture
def fresh(spark_writer):
    """The Spark writer, without tables."""
    for table in spark_writer.tables():
        spark_writer.drop(table)
    return spark_writer


@pytest.fixture
def without_spark(tmp_path):
    """The Spark writer, where nothing may need Spark."""
    return SparkDeltaWriter(tmp_path / TABLES, tmp_path / SCRATCH, lambda: pytest.fail("Spark started"))
