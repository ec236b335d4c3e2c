"""Tests of Spark's part: without PySpark they are skipped, as `make check` does without it."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def pyspark():
    return pytest.importorskip("pyspark", reason="the extra `spark` is not installed: `make test` has it")
