"""What a batch asks a table for does not grow with the square of its columns, nor with all of its files or keys."""

from __future__ import annotations

import pyarrow as pa
import pytest
from delta_scenario import schema_of, table_with

from mirror_engine.tables.changes.counted import _possible_rows
from mirror_engine.tables.log.data_rows import scan
from mirror_engine.tables.log.snapshot import DeltaLog, count_rows


def test_scan_parses_schema_a_few_times_however_many_columns(tmp_path, monkeypatch):
    schema, parsed = schema_of(*(f"c{place}" for place in range(60))), []
    log, fields = table_with(tmp_path, schema, [], [tuple(range(60))]), DeltaLog.fields.fget
    monkeypatch.setattr(DeltaLog, "fields", property(lambda log: parsed.append(log) or fields(log)))
    (rows,) = scan(log, log.data_files(), log.schema.names)
    assert rows.schema.names == list(schema.names)
    assert len(parsed) < 6


def test_count_of_rows_makes_no_list_of_files(tmp_path, monkeypatch):
    log = table_with(tmp_path, schema_of("Id"), ["Id"], [(1,), (2,)])
    monkeypatch.setattr(DeltaLog, "data_files", lambda *_: pytest.fail("listed"))
    assert count_rows(log) == 2


@pytest.mark.parametrize("names", [("tenant", "id"), ("id", "tenant")])
def test_possible_keys_are_chosen_by_the_column_with_most_values(tmp_path, names):
    rows = [(1, number) if names[0] == "tenant" else (number, 1) for number in range(50)]
    log = table_with(tmp_path, schema_of(*names), names, rows)
    wanted = pa.table({name: pa.array([1, 1] if name == "tenant" else [3, 40], pa.int32()) for name in names})
    assert sum(batch.num_rows for batch in _possible_rows(log, log.data_files(), wanted, {})) == 2
