"""Writers under test, as fixtures."""

from __future__ import annotations

import pytest
from delta_scenario import SIMPLE, Scenario

from mirror_engine.landing_zone.layout import SCRATCH, TABLES
from mirror_engine.tables.dry_run.memory import MemoryDeltaWriter
from mirror_engine.tables.merge import by_position
from mirror_engine.tables.merge.arrow import ArrowWriter
from mirror_engine.tables.merge.spark import SparkDeltaWriter

_FIXTURES = {"arrow": "local", "arrow marks": "marker", "spark": "fresh"}
STORES = {  # ADLS is to deltalake what OneLake is
    "onelake_server": [pytest.mark.slow],
    "azurite": [pytest.mark.slow, pytest.mark.nightly],
    "s3_server": [pytest.mark.slow, pytest.mark.nightly],
}


@pytest.fixture
def local(tmp_path):
    return ArrowWriter(tmp_path / TABLES, tmp_path / SCRATCH)


@pytest.fixture
def keyed(local):
    """A keyed table of `arrow` that is not made yet."""
    return Scenario(local, SIMPLE, ["Id"])


@pytest.fixture
def marking(monkeypatch):
    """Rows are marked by deletion vectors in tables of any size, while one row of a file is left."""
    monkeypatch.setattr(by_position, "VECTORS_FROM_ROWS", 0)
    monkeypatch.setattr(by_position, "_VECTOR_FILE_ROWS", 1)
    monkeypatch.setattr(by_position, "_MOST_MARKED", 1)


@pytest.fixture
def marker(local, marking):  # noqa: ARG001 - it changes what the writer does
    return local


WRITERS = [
    "memory",
    "arrow",
    pytest.param("arrow marks", marks=pytest.mark.slow),
    pytest.param("spark", marks=pytest.mark.spark),
    *(pytest.param(name, marks=marks) for name, marks in STORES.items()),
]


def pytest_collection_modifyitems(items):
    """What takes Spark ten seconds, and other tests of the day hold in small, runs there at night."""
    for item in items:
        if item.get_closest_marker("spark_by_night") and item.get_closest_marker("spark"):
            item.add_marker(pytest.mark.nightly)


@pytest.fixture(params=WRITERS)
def writer(request, tmp_path):
    """Every writer, that of `arrow` on this machine and in each store."""
    if request.param == "memory":
        yield MemoryDeltaWriter()
    elif request.param in _FIXTURES:
        yield request.getfixturevalue(_FIXTURES[request.param])
    else:
        with request.getfixturevalue(request.param).in_use() as server:
            yield ArrowWriter(server.new_root() / TABLES, tmp_path / SCRATCH)


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
