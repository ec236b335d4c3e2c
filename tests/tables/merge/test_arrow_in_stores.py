"""The merge engine on deltalake in a store: what a refused request and a vacuum leave."""

from __future__ import annotations

import pytest
from delta_scenario import Scenario, schema_of

from mirror_engine.errors import CommitFailed, StorageUnavailable
from mirror_engine.onelake.faults import parse_fault
from mirror_engine.tables.merge.arrow import ArrowWriter

pytestmark = pytest.mark.slow

SCHEMA = schema_of("Id", "City:string", partitions=["City"])


@pytest.fixture(params=["onelake_server", pytest.param("adls_server", marks=pytest.mark.nightly)])
def store_writer(request, tmp_path):
    server = request.getfixturevalue(request.param)
    with server.in_use():
        yield ArrowWriter(server.new_root() / "Tables", tmp_path / "scratch")


def test_a_token_that_expires_while_a_batch_is_written_is_no_fault_of_the_batch(store_writer, emulator):
    table = Scenario(store_writer, SCHEMA, ["Id"])
    table.change((0, 1, "Linz"), (0, 2, "Wels"))
    options = emulator.plan.options
    options.faults = [parse_fault("token_expired path=*part-* count=all")]
    try:
        with pytest.raises(StorageUnavailable) as refused:
            table.change((1, 2, "Enns"))
    finally:
        options.faults = []
    assert "credential" in str(refused.value)
    assert "Error performing" not in str(refused.value)
    table.batch -= 1
    table.change((1, 2, "Steyr"))
    assert sorted(row["City"] for row in store_writer.rows(table.table).to_pylist()) == ["Linz", "Steyr"]


@pytest.mark.parametrize("name", ["a%20b", "x%2Fy"])
def test_a_name_that_deltalake_would_decode_is_refused_before_anything_is_written(store_writer, name):
    table = Scenario(store_writer, SCHEMA, ["Id"], f"dbo/{name}")
    for call in (table.apply, lambda: table.change((0, 1, "Linz"))):
        with pytest.raises(CommitFailed, match=f"{name}: .* percent-encoded"):
            call()
    assert list(store_writer.path("dbo").rglob("*")) == []


def test_a_table_with_a_blank_in_its_name_is_written_changed_and_compacted(store_writer):
    table = Scenario(store_writer, SCHEMA, ["Id"], "dbo/a b")
    table.change((0, 1, "Linz"), (0, 2, "Wels"))
    table.change((1, 2, "Enns"))
    assert store_writer.snapshot(table.table).log.table.metadata().configuration["delta.checkpointInterval"] == "10"
    with store_writer.maintenance(table.table, store_writer.snapshot(table.table).log, 168.0) as (compact, _):
        compact()
    assert sorted(row["City"] for row in store_writer.rows(table.table).to_pylist()) == ["Enns", "Linz"]


def test_vacuum_takes_what_no_commit_names_and_nothing_that_is_used(store_writer):
    table = Scenario(store_writer, SCHEMA, ["Id"])
    table.change((0, 1, "St. Pölten %20"), (0, 2, "Wels"), (0, 3, "Enns/Lorch"))
    folder = store_writer.path(table.table)
    orphan, vector = folder / "part-old.parquet", folder / "deletion_vector_1.bin"
    for path in (orphan, vector):
        path.create(b"x")
    used = [file for file in folder.rglob("*") if file.path not in {orphan.path, vector.path}]
    assert len(used) > 3
    with store_writer.maintenance(table.table, store_writer.snapshot(table.table).log, 0.0) as (_, vacuum):
        vacuum()
    assert not orphan.exists()
    assert not vector.exists()
    assert all(file.exists() for file in used)
