"""A shop's mirrored databases as the page shows them: tables in every state, and a hostile publisher's."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime

import pyarrow as pa
import pytest
from raw_http import running

from mirror_engine.mirror import Mirror
from mirror_engine.onelake.engine_pool import DatabaseStatus, ShownItem
from mirror_engine.onelake.page.web import Web
from mirror_engine.tables.dry_run.memory import MemoryDeltaWriter
from mirror_engine.testing.landing_zone_writer import LandingZoneWriter

SHOP, EVIL = "6f1e0000-0000-4000-8000-000000000001", "6f1e0000-0000-4000-8000-000000000002"
EVIL_TABLE = "<img src=x onerror=alert(1)>"
EVIL_TEXT = "<script>document.title='owned'</script>"
EVIL_COLUMNS = {"Id": pa.int64(), "</td>": pa.string(), "Long": pa.string(), "Empty": pa.string(), "Word": pa.string()}
PLACED = datetime(2026, 11, 2, 8, 15, 29, tzinfo=UTC)
ORDERS = {"Id": pa.int64(), "Customer": pa.string(), "Placed": pa.timestamp("us", "UTC"), "Total": pa.float64()}


class Window:
    """Mirrored databases for the page, over real mirrors that write to memory."""

    def __init__(self, folder):
        self.folder = folder
        self.writers = {}
        self.shown = []
        self.views = 0

    def items(self):
        return self.shown

    def add(self, item_id, workspace, name):
        publisher = LandingZoneWriter(self.folder / item_id)
        self.writers[item_id] = MemoryDeltaWriter()
        self.shown.append(ShownItem(item_id, workspace, name, DatabaseStatus.RUNNING, "", lambda: self.mirror(item_id)))
        return publisher

    def mirror(self, item_id):
        self.views += 1
        return Mirror(self.folder / item_id, writer=self.writers[item_id])

    def apply(self):
        for item in self.shown:
            with item.view() as mirror:
                mirror.sync()

    def change(self, item_id, **changes):
        self.shown = [replace(item, **changes) if item.id == item_id else item for item in self.shown]


def shop(folder):
    """Tables in every state, and one whose every name is an attack."""
    window = Window(folder)
    publisher = window.add(SHOP, "Sales", "Shop")
    orders = publisher.table("Sales.Orders", keys=["Id"], types=ORDERS)
    orders.initial_load(
        *({"Id": at, "Customer": f"Customer {at}", "Placed": PLACED, "Total": at * 12.5} for at in range(1, 41))
    )
    orders.apply_changes((1, {"Id": 1, "Customer": None, "Total": 99.5}), (2, {"Id": 2}))
    stores = publisher.table("Sales.Stores", keys=["Id"])
    stores.insert({"Id": 1, "City": "Malmö"})
    stores.skip_numbers()
    stores.insert({"Id": 2, "City": "Kraków"})
    items = publisher.table("Items", keys=["Sku"])
    items.insert({"Sku": "A1", "Name": "Kettle"})
    items.apply_changes((3, {"Sku": "A2", "Name": "Pot"}))
    publisher.table("Returns", keys=["Id"])
    publisher.folder("Sketches").land(b"no metadata yet")
    evil = window.add(EVIL, "<b>Workspace", "<i>Item</i>")
    table = evil.table(EVIL_TABLE, keys=["Id"], types=EVIL_COLUMNS)
    table.insert({"Id": 1, "</td>": EVIL_TEXT, "Long": "x" * 500, "Empty": None, "Word": "NULL"})
    evil.put(f"{EVIL_TABLE}/<u>notes.txt", b"")
    window.apply()
    publisher.table("Fresh", keys=["Id"]).insert({"Id": 1})
    orders.insert({"Id": 41, "Customer": "Customer 41", "Total": 1.0})
    return window


@contextmanager
def served(window):
    """The page of a window, at its `address`, until left."""
    page = Web(window.items)
    with running(page.app, on_error=pytest.fail) as emulator:
        page.port, page.address = emulator.http_port, f"http://127.0.0.1:{emulator.http_port}"
        yield page
    page.close()
