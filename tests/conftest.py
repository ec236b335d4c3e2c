"""What all tests share: the one Spark session of the run."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from mirror_engine.config import Config
from mirror_engine.delta.session import end_session, start_session

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """The run's one session; whoever sets confs takes a `child_session` of it."""
    folder = tmp_path_factory.mktemp("spark")
    session = start_session(Config(), scratch=folder / "scratch", log_file=folder / "spark.log", profile="brief")
    yield session
    end_session(session)
