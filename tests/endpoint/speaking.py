"""A client that speaks to a OneLake without a network between them."""

from __future__ import annotations

from typing import TYPE_CHECKING
from xml.etree import ElementTree as ET

from starlette.testclient import TestClient

from mirror_engine.onelake.app import OneLake
from mirror_engine.onelake.faults import EmulatorOptions
from mirror_engine.onelake.items import Items
from mirror_engine.onelake.lake import Lake
from mirror_engine.onelake.store import WritableLocalStorage
from mirror_engine.storage.memory import WritableMemoryStorage

if TYPE_CHECKING:
    from pathlib import Path

DFS = "https://onelake.dfs.fabric.microsoft.com"
BLOB = "https://onelake.blob.fabric.microsoft.com"
ITEM = "orders.MountedRelationalDatabase"
LANDING = f"shop/{ITEM}/Files/LandingZone"


def onelake(folder: Path | None) -> TestClient:
    """A OneLake with the item `shop/orders`, in a folder or in memory; `.lake` is what it speaks for."""
    storage = WritableLocalStorage(folder) if folder else WritableMemoryStorage()
    lake = Lake(storage, Items(storage), EmulatorOptions())
    lake.items.ensure("shop", "orders")
    client = TestClient(OneLake(lake), DFS)
    client.lake = lake
    return client


def parsed(document: bytes) -> ET.Element:
    """An answer of ours in XML."""
    return ET.fromstring(document)  # noqa: S314 - nobody else wrote it
