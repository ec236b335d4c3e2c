"""obstore as writers of plain files use it."""

from __future__ import annotations

import os
from functools import cache
from typing import Any

import obstore
from obstore.store import AzureStore
from places import ABFSS, LANDING_ZONE

MIB = 1 << 20


@cache
def store() -> AzureStore:
    reported = {
        name.lower(): os.environ[name] for name in ("AZURE_TENANT_ID", "AZURE_CLIENT_ID", "AZURE_CLIENT_SECRET")
    }
    return AzureStore.from_url(f"{ABFSS}/{LANDING_ZONE}", config=reported)


def round_trip(table: str) -> dict[str, Any]:
    """Put, head, range, list, copy."""
    obstore.put(store(), f"{table}/a.bin", b"0123456789", mode="create")
    obstore.copy(store(), f"{table}/a.bin", f"{table}/b.bin")
    return {
        "size": obstore.head(store(), f"{table}/a.bin")["size"],
        "range": bytes(obstore.get_range(store(), f"{table}/a.bin", start=3, end=7)).decode(),
        "content": bytes(obstore.get(store(), f"{table}/b.bin").bytes()).decode(),
        "listed": sorted(each["path"] for page in obstore.list(store(), table) for each in page),
    }


def create_twice(table: str) -> None:
    for _ in range(2):
        obstore.put(store(), f"{table}/a.bin", b"x", mode="create")


def multipart(table: str, size: int) -> int:
    obstore.put(store(), f"{table}/big.bin", bytes(size), use_multipart=True, chunk_size=5 * MIB)
    return obstore.head(store(), f"{table}/big.bin")["size"]


def delete(table: str) -> None:
    obstore.put(store(), f"{table}/a.bin", b"x")
    obstore.delete(store(), f"{table}/a.bin")


def rename(table: str) -> str:
    obstore.put(store(), f"{table}/_a.bin", b"abc")
    obstore.rename(store(), f"{table}/_a.bin", f"{table}/a.bin")
    return bytes(obstore.get(store(), f"{table}/a.bin").bytes()).decode()
