"""What a batch asks a table for does not grow with the square of its columns, nor with all of its files or keys."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from delta_scenario import add_rows, known_log, schema_of, table_with
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from mirror_engine.errors import CommitFailed, TableDamaged
from mirror_engine.tables.changes.staged import _possible_keys
from mirror_engine.tables.log.commit import meaning
from mirror_engine.tables.log.snapshot import DeltaLog, count_rows, scan
from mirror_engine.tables.log.table_path import StorePath
from mirror_engine.tables.merge import deltalake as engine


def test_scan_parses_schema_a_few_times_however_many_columns(tmp_path, monkeypatch):
    schema, parsed = schema_of(*(f"c{place}" for place in range(60))), []
    log, fields = table_with(tmp_path, schema, [], [tuple(range(60))]), DeltaLog.fields.fget
    monkeypatch.setattr(DeltaLog, "fields", property(lambda log: parsed.append(log) or fields(log)))
    (rows,) = scan(log, log.schema.names)
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
    assert sum(batch.num_rows for batch in _possible_keys(log, wanted)) == 2


def test_missing_file_in_a_store_is_found_by_one_list(tmp_path, monkeypatch):
    folder = table_with(tmp_path / "T", schema_of("Id"), [], [(1,)]).folder
    add_rows(folder, schema_of("Id"), [(2,)])
    asked = []

    class Store(StorePath):
        def rglob(self, pattern):
            asked.append(pattern)
            return (self / file.name for file in folder.rglob(pattern))

        def exists(self):
            pytest.fail("one by one")

    log = DeltaLog(Store(None, "", None, None), DeltaTable(str(folder)))
    monkeypatch.setattr(Store, "__str__", lambda self: self.path)
    assert isinstance(meaning("T", log, DeltaError("no reason"), ""), CommitFailed)
    next(folder.glob("*.parquet")).unlink()
    assert isinstance(meaning("T", log, DeltaError("no reason"), ""), TableDamaged)
    assert len(asked) == 2


def test_merge_reads_each_footer_once_while_its_log_is_kept(local, monkeypatch):
    schema, folder = schema_of("Id", "at:timestamp"), local.path("dbo/T")
    log = table_with(folder, schema, ["Id"], [(1, None)])
    read, footer = [], engine.read_footer
    monkeypatch.setattr(engine, "read_footer", lambda file: read.append(file) or footer(file))
    engine._check_mergeable("T", log)
    engine._has_int96.cache_clear()
    add_rows(folder, schema, [(2, None)])
    log.table.update_incremental()
    engine._check_mergeable("T", replace(log))
    assert len(read) == len(set(read)) == 2
    (newest,) = set(folder.glob("*.parquet")) - {*read[:1]}
    pq.write_table(pq.read_table(newest), newest, use_deprecated_int96_timestamps=True)
    engine._has_int96.cache_clear()
    with pytest.raises(CommitFailed, match="INT96"):
        engine._check_mergeable("T", known_log(folder))
