"""Holds mirrored tables to what the oracle says of their landing zone."""

from __future__ import annotations

from typing import TYPE_CHECKING

import oracle

from mirror_engine import RunResult

if TYPE_CHECKING:
    from mirror_engine.tables.base import DeltaWriter


def compare(judge: oracle.Oracle, verdict: RunResult, writer: DeltaWriter) -> None:
    """The engine's tables and verdict are the oracle's."""
    expected = judge.tables()
    assert sorted(writer.tables()) == sorted(expected)
    for name, life in expected.items():
        state, rows = writer.state(name), writer.rows(name)
        assert state is not None, name
        assert rows is not None, name
        columns = [oracle.Column(each.name, each.type, each.nullable) for each in state.schema.columns]
        assert sorted(columns, key=str) == sorted(life.columns, key=str), name
        found = [{key.casefold(): value for key, value in row.items()} for row in rows.to_pylist()]
        assert oracle.canonical(found, life.columns) == oracle.canonical(life.rows, life.columns), name
    assert verdict is (RunResult.NEEDS_ATTENTION if judge.refuses else RunResult.CAUGHT_UP)
