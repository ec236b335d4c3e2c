"""Fixtures of the writers under test."""

from __future__ import annotations

from writers_under_test import fresh, spark_writer, tables, without_spark, writer

__all__ = ["fresh", "spark_writer", "tables", "without_spark", "writer"]
