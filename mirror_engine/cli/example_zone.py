"""An example landing zone, written the way a good publisher writes: for `init` and `demo`."""

from __future__ import annotations

from datetime import date
from decimal import Decimal
from typing import TYPE_CHECKING

import pyarrow as pa

from mirror_engine.landing_zone.change import RowMarker
from mirror_engine.publisher.landing_zone_writer import LandingZoneWriter

if TYPE_CHECKING:
    from pathlib import Path


INSERT, UPDATE, DELETE, UPSERT = RowMarker.INSERT, RowMarker.UPDATE, RowMarker.DELETE, RowMarker.UPSERT

_ORDER_TYPES = {
    "OrderNo": pa.int64(),
    "Line": pa.int32(),
    "Sku": pa.string(),
    "Price": pa.decimal128(9, 2),
    "Ordered": pa.date32(),
}
_ITEM_COLUMNS = (
    {"Name": "Sku", "DataType": "String", "IsNullable": False},
    {"Name": "Name", "DataType": "String", "IsNullable": True},
    {"Name": "Weight", "DataType": "Double", "IsNullable": True},
)


class ExampleZone:
    """Four tables: with and without a schema folder, Parquet and CSV, keyed and insert-only."""

    def __init__(self, root: Path) -> None:
        publisher = LandingZoneWriter(root)
        publisher.partner_events(partnerName="mirror-engine example", sourceInfo={"sourceType": "Example"})
        self.orders = publisher.table("Sales.Orders", keys=["OrderNo", "Line"], types=_ORDER_TYPES)
        self.stores = publisher.table("Sales.Stores", keys=["Id"], upsert_default=True)
        self.items = publisher.table("Items", keys=["Sku"], file_format="CSV", extension="csv", columns=_ITEM_COLUMNS)
        self.readings = publisher.table("Readings", strategy="LastUpdateTimeFileDetection")

    def land_initial_load(self) -> None:
        """One file or two a table, without the marker column (LZ-4.13)."""
        self.orders.initial_load(_order(1, 1, "A1", "12.50"), _order(1, 2, "B7", "3.00"))
        self.orders.initial_load(_order(2, 1, "A1", "12.50"), _order(3, 1, "C3", "99.95"))
        self.stores.initial_load({"Id": 1, "City": "Linz"}, {"Id": 2, "City": "Graz"})
        self.items.initial_load(
            _item("A1", "Lamp", 1.2), _item("B7", 'Bulb, 40 W "warm"', None), _item("C3", "Desk", 31.0)
        )
        north, south = {"Sensor": "north", "Celsius": 4.5}, {"Sensor": "south", "Celsius": 6.0}
        self.readings.initial_load(north, south, name="north-0815.parquet")

    def land_changes(self) -> None:
        """All four row markers, a key change, a new column, and marker-free rows that are upserts."""
        self.orders.apply_changes(
            (INSERT, _order(4, 1, "B7", "3.00")),
            (UPDATE, _order(1, 1, "A1", "11.00")),
            (DELETE, {"OrderNo": 3, "Line": 1}),
            (UPSERT, _order(2, 2, "C3", "89.95")),
        )
        self.orders.apply_changes((DELETE, {"OrderNo": 1, "Line": 2}), (INSERT, _order(1, 3, "B7", "3.00")))
        self.stores.initial_load({"Id": 2, "City": "Wels", "Opened": date(2026, 3, 1)}, {"Id": 3, "City": "Steyr"})
        self.items.apply_changes((UPSERT, _item("B7", "Bulb", 0.1)), (DELETE, _item("C3", None, None)))
        self.readings.initial_load({"Sensor": "north", "Celsius": 5.0}, name="north-0830.parquet")


def _order(number: int, line: int, sku: str, price: str) -> dict[str, object]:
    return {"OrderNo": number, "Line": line, "Sku": sku, "Price": Decimal(price), "Ordered": date(2026, 2, number)}


def _item(sku: str, name: str | None, weight: float | None) -> dict[str, object]:
    return {"Sku": sku, "Name": name, "Weight": weight}
