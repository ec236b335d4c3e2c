"""Fixtures of the writers under test."""

from __future__ import annotations

from writers_under_test import spark_writer, tables, writer

__all__ = ["spark_writer", "tables", "writer"]
