"""Direct staging with Spark itself: the same tables as from rows, which every reader reads alike."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from delta_history import read_history
from delta_protocol import protocol_faults
from deltalake import DeltaTable, write_deltalake
from independent_readers import by_deltalake, by_duckdb
from test_fixtures import outcome
from test_passthrough import Zone, landings, rows

import mirror_engine.engine.cycle
from mirror_engine import Config, Mirror, RunResult
from mirror_engine.events import RetryScheduled
from mirror_engine.landing_zone.change import same_rows
from mirror_engine.tables import passthrough
from mirror_engine.tables import writer as writer_module

if TYPE_CHECKING:
    from mirror_engine.events import Event

pytestmark = pytest.mark.spark
FIXTURES = (
    "columns-match-by-name-not-by-place",
    "delete-removes-every-copy",
    "every-documented-parquet-type-is-kept",
    "float-keys-know-one-nan-and-one-zero",
    "insert-of-an-existing-key-is-kept",
    "marker-free-file-after-markers-appends",
    "naive-times-may-stay-naive",
    "new-column-comes-at-the-end",
    "odd-column-names-may-come-late",
    "same-content-landed-twice-is-applied-twice",
)


@pytest.fixture(autouse=True)
def every_size(monkeypatch):
    monkeypatch.setattr(passthrough, "MIN_BYTES", 1)
    monkeypatch.setattr(mirror_engine.engine.cycle, "FIRST_PAUSE_SECONDS", 0.0)


def test_staged_files_are_changed_evolved_and_read_by_all_like_any_others(tmp_path, mirror_writer, spark):
    zone, twin = Zone(tmp_path / "spark", mirror_writer(tmp_path / "spark")), Zone(tmp_path / "memory")
    for each in (zone, twin):
        landings(each)
    found, expected = zone.outcome(), twin.outcome()
    assert same_rows(found.pop("rows"), expected.pop("rows"))
    assert found == expected
    assert zone.ways() == twin.ways()
    folder = zone.root / "Tables/dbo/T"
    assert protocol_faults(folder) == []
    for state in read_history(folder).states:
        assert same_rows(by_duckdb(folder, state), by_deltalake(DeltaTable(str(folder), version=state.version)))
    table = spark.read.format("delta").load(str(folder))
    assert table.count() == len(by_deltalake(DeltaTable(str(folder))))
    assert [row["id"] for row in table.where("name = 'näme 59'").collect()] == [59]


def test_a_table_that_somebody_else_makes_meanwhile_is_left_alone(tmp_path, mirror_writer, monkeypatch):
    zone = Zone(tmp_path, mirror_writer(tmp_path))
    zone.land(rows(0, 10))
    folder, stages, theirs = zone.root / "Tables/dbo/T", writer_module.create_with_files, pa.table({"id": [7]})
    said: list[Event] = []

    def staging(*arguments):
        if not (folder / "_delta_log").exists():
            write_deltalake(folder, theirs)
        stages(*arguments)

    monkeypatch.setattr(writer_module, "create_with_files", staging)
    with Mirror(zone.root, Config(), writer=zone.writer, listeners=[said.append]) as mirror:
        assert mirror.sync().result is RunResult.RETRY
    failures = [event.message for event in said if isinstance(event, RetryScheduled)]
    assert "another writer committed first" in failures[0]
    table = DeltaTable(folder)
    assert table.to_pyarrow_table().equals(theirs)
    assert {file.name for file in folder.glob("*.parquet")} == {each.rpartition("/")[2] for each in table.file_uris()}


def test_a_new_table_and_its_first_files_are_one_commit(tmp_path, mirror_writer):
    wide = {f"c{number}": [number] * 3 for number in range(40)}
    zone = Zone(tmp_path, mirror_writer(tmp_path), {"keyColumns": ["id", "c39"]})
    zone.land(rows(0, 3, **wide))
    zone.land(rows(2, 3, **wide))
    assert zone.sync() is RunResult.CAUGHT_UP
    table = DeltaTable(zone.root / "Tables/dbo/T")
    assert (table.version(), len(table.file_uris())) == (0, 2)
    assert not list((zone.root / "Tables").rglob(".*.crc"))  # Hadoop's
    assert protocol_faults(zone.root / "Tables/dbo/T") == []
    assert table.metadata().configuration == {
        "delta.checkpointInterval": "50",
        "delta.enableDeletionVectors": "false",
        "delta.dataSkippingNumIndexedCols": "44",
    }
    assert pa.table(table.get_add_actions(flatten=True))["max.c39"].to_pylist() == [39, 39]
    assert [text for text, _ in zone.outcome()["said"]] == [
        "T/00000000000000000002.parquet: 1 insert of an existing key; both rows are kept [ME039]"
    ]


def test_a_table_without_zones_stages_files_without_zones(tmp_path, mirror_writer, spark):
    zone = Zone(tmp_path, mirror_writer(tmp_path))
    zone.config = {"naive_timestamps": "ntz"}
    zone.land(rows(0, 3).set_column(2, "at", pa.array([1, None, 2_000_001], pa.timestamp("us"))))
    assert zone.sync() is RunResult.CAUGHT_UP
    assert set(zone.ways().values()) == {"passthrough"}
    folder = zone.root / "Tables/dbo/T"
    assert protocol_faults(folder) == []
    table = spark.read.format("delta").load(str(folder))
    assert dict(table.dtypes)["at"] == "timestamp_ntz"
    assert table.where("at > TIMESTAMP_NTZ '1970-01-01 00:00:02'").count() == 1


@pytest.mark.slow
def test_fixtures_come_out_the_same_where_files_become_part_of_tables_as_they_lie(mirror_writer):
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda name: outcome(name, mirror_writer), FIXTURES))
    assert [each[:3] for each in found] == [([], [], [])] * len(FIXTURES)
