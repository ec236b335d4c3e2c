"""Faults that an engine sees: delayed names, delayed drops, scans in between."""

from __future__ import annotations

import json
import time
from contextlib import ExitStack

import pytest
from faulty import TABLE, faulty

from mirror_engine.config import Config
from mirror_engine.onelake.engine_pool import DatabaseStatus, EnginePool
from mirror_engine.onelake.faults import parse_fault
from mirror_engine.tables.merge.memory import MemoryDeltaWriter

pytestmark = pytest.mark.slow

METADATA = {"keyColumns": ["id"], "FileFormat": "CSV", "FileExtension": "csv"}
COLUMNS = [{"Name": name, "DataType": "Int64", "IsNullable": True} for name in ("id", "n")]
FIRST = f"{TABLE}/00000000000000000001.csv"
PATIENCE_SECONDS = 20.0


class Served:
    """An item, its engine, and a client that publishes to it."""

    def __init__(self, folder, client, pool, writer):
        self.folder, self.client, self.pool, self.writer = folder, client, pool, writer
        self.item = next(iter(pool.items.all()))

    def arm(self):
        reported = METADATA | {"SchemaDefinition": {"Columns": COLUMNS}}
        self.client.upload(f"{TABLE}/_metadata.json", json.dumps(reported).encode())

    def publish(self, row, path=FIRST):
        self.client.upload(f"{TABLE}/_new", f"id,n\n{row}\n".encode())
        self.client("PUT", path, x_ms_rename_source=f"/{TABLE}/_new")

    def rows(self):
        found = self.writer.rows("dbo/Orders")
        return None if found is None else [(row["id"], row["n"]) for row in found.to_pylist()]

    def until(self, holds):
        ends = time.monotonic() + PATIENCE_SECONDS
        while not holds():
            assert time.monotonic() < ends, (self.rows(), self.pool.tables(self.item))
            time.sleep(0.02)


@pytest.fixture
def served(tmp_path):
    """Serves with the faults it is called with."""
    with ExitStack() as opened:

        def serve(*faults, poll_interval_seconds=0.05):
            client, writer = opened.enter_context(faulty(tmp_path)), MemoryDeltaWriter()
            items, options = client.lake.items, client.lake.options
            config = Config(poll_interval_seconds=poll_interval_seconds)
            pool = EnginePool(tmp_path, items, config, new_writer=lambda _: writer, delays=options.delays)
            opened.callback(pool.end)
            options.poll = pool.poll
            options.add([parse_fault(text) for text in faults])
            pool.start_all()
            at = Served(tmp_path, client, pool, writer)
            at.until(lambda: pool.status(at.item)[0] is DatabaseStatus.RUNNING)
            return at

        yield serve


def test_the_engine_learns_late_of_a_new_name(served):
    at = served("delay_visibility seconds=0.8 from=engine path=*.csv")
    at.arm()
    begun = time.monotonic()
    at.publish("1,1")
    assert at.client.length(FIRST)
    at.until(lambda: at.rows() == [(1, 1)])
    assert time.monotonic() - begun >= 0.8


def test_the_engine_learns_late_of_a_drop_and_then_sees_what_came_in_its_place(served):
    at = served("detect_delay seconds=0.8 path=*/Orders")
    at.arm()
    at.publish("1,1")
    at.until(lambda: at.rows() == [(1, 1)])
    begun = time.monotonic()
    assert at.client("DELETE", f"{TABLE}?recursive=true").status == 200
    assert at.client.length(FIRST) is None
    at.arm()
    at.publish("2,2")
    while time.monotonic() < begun + 0.6:
        assert at.rows() == [(1, 1)]
        time.sleep(0.02)
    at.until(lambda: at.rows() == [(2, 2)])
    assert at.client.length(FIRST) is not None
    assert [report["errorCode"] for report in at.pool.tables(at.item)] == [""]


def test_poll_mid_upload_shows_the_engine_an_empty_file(served):
    at = served("poll_mid_upload operation=create path=*/0*.csv", poll_interval_seconds=60)
    at.arm()
    at.client.create(FIRST)
    at.until(lambda: [bool(report["errorCode"]) for report in at.pool.tables(at.item)] == [True])
    at.client("PATCH", f"{FIRST}?action=append&position=0&flush=true", b"id,n\n1,1\n")
    assert at.rows() in (None, [])
