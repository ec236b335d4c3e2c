"""The page of a store: what its engines do is what it shows."""

from __future__ import annotations

import time

import pyarrow as pa
import pytest
from starlette.testclient import TestClient

from mirror_engine.config import Config
from mirror_engine.onelake.engine_pool import EnginePool
from mirror_engine.onelake.items import Items
from mirror_engine.onelake.page.web import Web
from mirror_engine.onelake.store import LocalStore
from mirror_engine.publisher.landing_zone_writer import LandingZoneWriter
from mirror_engine.tables.merge.memory import MemoryDeltaWriter

pytestmark = pytest.mark.slow

PATIENCE_SECONDS = 20.0


@pytest.fixture
def mirrored(tmp_path):
    """A store with two items and their engines."""
    items = Items(LocalStore(tmp_path))
    writers = {items.ensure("Shop", name).id: MemoryDeltaWriter() for name in ("Orders", "Customers")}
    config = Config(poll_interval_seconds=0.05)
    pool = EnginePool(tmp_path, items, config, new_writer=lambda item: writers[item.id])
    table = LandingZoneWriter(tmp_path / "Shop" / "Orders").table("Orders", keys=["Id"], types={"Id": pa.int64()})
    table.insert({"Id": 4711})
    pool.start_all()
    yield pool, pool.shown
    pool.end()


def until(holds) -> None:
    ends = time.monotonic() + PATIENCE_SECONDS
    while not holds():
        assert time.monotonic() < ends
        time.sleep(0.05)


def test_the_page_shows_what_engines_do(mirrored) -> None:
    pool, shown = mirrored
    client = TestClient(Web(shown).app)
    customers, orders = shown()
    assert (customers.workspace, customers.name, orders.name) == ("Shop", "Customers", "Orders")
    until(lambda: client.get("/readyz").text == "ready\n")
    until(lambda: "4711" in client.get(f"/tables/{orders.id}/Orders").text)
    until(lambda: ">caught up<" in client.get("/").text)
    assert client.get("/").text.count("engine is running") == 2
    assert 'mirror_engine_up{item="Orders",workspace="Shop"} 1.0' in client.get("/metrics").text
    pool.stop(next(item for item in pool.items.all() if item.name == "Orders"))
    until(lambda: "Stopped" in client.get("/").text)
    until(lambda: client.get("/").text.count("no engine is running") == 1)
    assert client.get("/readyz").status_code == 200
