"""Compares mirrored tables with the oracle's."""

from __future__ import annotations

from collections import Counter

import oracle

from mirror_engine import RunResult


def compare_caught_up(zone, result, writer):
    """Assert that tables are as the oracle has them after a landing zone, and every change file is in one commit."""
    expected = oracle.Oracle(zone)
    expected.once(Counter())
    compare(expected, result, writer)
    for table in writer.tables():
        files = [path for entry in writer.history(table) for path in entry.files]
        assert len(files) == len(set(files)), f"{table}: a change file is in two commits"


def compare(reference, result, writer):
    """Assert that the engine's tables and result are the oracle's."""
    expected = reference.tables()
    assert sorted(writer.tables()) == sorted(expected)
    for name, life in expected.items():
        state, table = writer.snapshot(name), writer.rows(name)
        assert state is not None, name
        assert table is not None, name
        columns = [oracle.Column(column.name, column.type, column.nullable) for column in state.schema.columns]
        assert sorted(columns, key=str) == sorted(life.columns, key=str), name
        rows = [{key.casefold(): value for key, value in row.items()} for row in table.to_pylist()]
        assert oracle.canonical(rows, life.columns) == oracle.canonical(life.rows, life.columns), name
    assert result is (RunResult.NEEDS_ATTENTION if reference.refuses else RunResult.CAUGHT_UP)
