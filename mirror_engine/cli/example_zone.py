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
EXAMPLE_METADATA = "_metadata.example.jsonc"  # in ROOT: in a table folder it would be an ignored file

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

    def explain_metadata(self) -> None:
        """Write the commented example into ROOT."""
        with (self.orders.writer.root / EXAMPLE_METADATA).open("x", encoding="utf-8") as file:
            file.write(COMMENTED_METADATA)

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


COMMENTED_METADATA = """\
// What may stand in a table folder's _metadata.json. This file is only for reading: JSON itself knows no
// comments.
{
  // The unique key, one column or several. Without it the table takes inserts only.
  "keyColumns": ["OrderNo", "Line"],

  // SequentialFileName (the default): 00000000000000000001.parquet, …2, …3; a missing number blocks the rest.
  // LastUpdateTimeFileDetection: any names, read in order of their LastModified.
  "fileDetectionStrategy": "SequentialFileName",

  // true: rows of files without the column __rowMarker__ are upserts, not inserts.
  "isUpsertDefaultRowMarker": false,

  // true: change files lie in Hive folders such as day=2026-11-02/, each with its own numbers.
  "isPartitionEnabled": false,

  // Parquet (the default), CSV or DelimitedText; text needs SchemaDefinition. An omitted IsNullable means false.
  "FileFormat": "CSV",
  "FileExtension": "csv",
  "SchemaDefinition": {
    "Columns": [
      {"Name": "Sku", "DataType": "String", "IsNullable": false},
      // String, Int16, Int32, Int64, Single, Double, Boolean, DateTime, IDate, ITime, ByteArray
      {"Name": "Weight", "DataType": "Double", "IsNullable": true}
    ]
  },
  "FileFormatTypeProperties": {
    "FirstRowAsHeader": true,    // must be true
    "RowSeparator": "\\r\\n",      // or \\n, \\r
    "ColumnSeparator": ",",      // or ; | tab
    "QuoteCharacter": "\\"",      // or ', or empty
    "EscapeCharacter": "\\\\",     // or /, ", or empty
    "NullValue": "",             // what an unquoted NULL looks like
    "Encoding": "UTF-8"
  }
}
"""
