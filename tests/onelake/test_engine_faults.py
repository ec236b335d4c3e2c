"""Faults that an engine sees: delayed names, delayed drops, scans in between."""

from __future__ import annotations

import json
import time
from contextlib import ExitStack
from dataclasses import replace
from functools import partial

import pytest
from faulty import TABLE, faulty
from wire import until

from mirror_engine.config import Config
from mirror_engine.onelake.engine_pool import DatabaseStatus, EnginePool
from mirror_engine.onelake.faults import hold, parse_fault
from mirror_engine.onelake.options import ServerPlan
from mirror_engine.onelake.serving import Services
from mirror_engine.tables.merge.memory import MemoryDeltaWriter

pytestmark = pytest.mark.slow

METADATA = {"keyColumns": ["id"], "FileFormat": "CSV", "FileExtension": "csv"}
COLUMNS = [{"Name": name, "DataType": "Int64", "IsNullable": True} for name in ("id", "n")]
FIRST, SECOND = (f"{TABLE}/0000000000000000000{number}.csv" for number in (1, 2))


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

    def restart(self):
        """With another pool, as another emulator has."""
        self.pool.end()
        self.pool = replace(self.pool)
        self.pool.start_all()

    def rows(self):
        found = self.writer.rows("dbo/Orders")
        return None if found is None else [(row["id"], row["n"]) for row in found.to_pylist()]

    def until(self, holds):
        until(holds, lambda: (self.rows(), self.pool.tables(self.item)))


@pytest.fixture
def served(tmp_path):
    """Serves with the faults it is called with."""
    with ExitStack() as opened:

        def serve(*faults):
            client, writer = opened.enter_context(faulty(tmp_path)), MemoryDeltaWriter()
            items, options = client.lake.items, client.lake.options
            config = Config(poll_interval_seconds=0.05)
            plan = ServerPlan(tmp_path, options=options, config=config, new_writer=lambda _: writer)
            pool = EnginePool(plan, items)
            opened.callback(lambda: at.pool.end())  # noqa: PLW0108 - by then it may be another
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


def reported(at):
    path = at.folder / "shop/orders/Files/Monitoring/replicator.json"
    return json.loads(path.read_text()) if path.exists() else {"errorCode": ""}


def test_a_throttled_engine_says_so_and_goes_on_by_itself(served):
    at = served()
    at.arm()
    at.publish("1,1")
    at.until(lambda: at.rows() == [(1, 1)])
    begun = time.monotonic()
    at.pool.throttle(at.item, 1.5)
    at.publish("2,2", SECOND)
    at.until(lambda: reported(at)["errorCode"])
    status, message = at.pool.status(at.item)
    assert (status, reported(at)["status"], reported(at)["errorMessage"]) == (*[DatabaseStatus.RUNNING] * 2, message)
    assert message.startswith("The replication is being throttled and expected to continue at 2")
    [unmet] = at.pool.unmet_conditions(at.item)
    assert (unmet.message, unmet.needs_attention) == (message, False)
    assert at.rows() == [(1, 1)]
    at.until(lambda: at.rows() == [(1, 1), (2, 2)])
    assert time.monotonic() - begun >= 1.5
    at.until(lambda: not reported(at)["errorCode"])
    assert at.pool.status(at.item) == (DatabaseStatus.RUNNING, "")


def test_a_throttled_engine_can_be_stopped(served):
    at = served()
    at.pool.throttle(at.item, 60)
    at.until(lambda: reported(at)["errorCode"])
    at.pool.stop(at.item)
    at.until(lambda: at.pool.status(at.item) == (DatabaseStatus.STOPPED, ""))


@pytest.mark.parametrize(("reseeds", "after"), [(False, [(1, 1), (2, 2)]), (True, [(2, 2)])])
def test_a_paused_database_resumes_where_it_was_or_from_the_beginning(served, reseeds, after):
    """LZ-7.8."""
    at = served()
    at.arm()
    at.publish("1,1")
    at.until(lambda: at.rows() == [(1, 1)])
    at.pool.pause(at.item, reseeds=reseeds)
    at.until(lambda: reported(at)["status"] == "Paused")
    assert at.pool.status(at.item) == (DatabaseStatus.PAUSED, "")
    assert [unmet.needs_attention for unmet in at.pool.unmet_conditions(at.item)] == [True]
    (at.folder / FIRST).unlink()  # what a new start cannot read again
    at.publish("2,2", FIRST if reseeds else SECOND)
    at.restart()
    assert at.pool.status(at.item)[0] is DatabaseStatus.PAUSED
    assert at.rows() == [(1, 1)]
    at.pool.start(at.item)
    at.until(lambda: at.rows() == after)
    at.until(lambda: reported(at)["status"] == "Running")


def test_a_paused_database_that_is_stopped_says_so(served):
    at = served()
    at.pool.pause(at.item, reseeds=False)
    at.until(lambda: not at.pool._engine(at.item).thread)
    at.pool.stop(at.item)
    assert (at.pool.status(at.item)[0], reported(at)["status"]) == (DatabaseStatus.STOPPED, "Stopped")


@pytest.mark.parametrize("is_given_first", [True, False])
def test_faults_of_mirrored_databases_act_at_once_on_those_they_name(tmp_path, is_given_first):
    faults = ["paused path=shop/ord*", "replicator_throttled until=2100-01-01T00:00:00 path=shop/[a-n]*"]
    with faulty(tmp_path, *(faults if is_given_first else ())) as client:
        client.lake.items.ensure("shop", "new")
        pool = EnginePool(ServerPlan(tmp_path, has_engines=False), client.lake.items)
        pool.start_all()
        options = client.lake.options
        if is_given_first:
            Services(client.lake, pool)
        else:
            options.hold = partial(hold, pool)
            options.add([parse_fault(text) for text in faults])
        new, orders = map(pool.status, pool.items.all())
        assert (new[0], new[1][-20:]) == (DatabaseStatus.RUNNING, "2100-01-01T00:00:00.")
        assert orders == (DatabaseStatus.PAUSED, "")
        assert [fault for fault, *_ in client.reported][-2:] == faults
