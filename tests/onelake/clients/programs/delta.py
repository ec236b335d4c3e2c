"""deltalake on OneLake, as readers and writers of tables use it."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pyarrow as pa
from azure.identity import DefaultAzureCredential
from deltalake import DeltaTable, write_deltalake
from places import ABFSS, ITEM, KEY, WORKSPACE

SECRETS = ("tenant_id", "client_id", "client_secret")
SCOPE = "https://storage.azure.com/.default"


def options(kind: str, address: str = "") -> dict[str, str]:
    """Storage options as users write them."""
    if kind == "secret":
        return {f"azure_{name}": os.environ[f"AZURE_{name.upper()}"] for name in SECRETS}
    if kind == "token":
        return {"bearer_token": DefaultAzureCredential().get_token(SCOPE).token, "use_fabric_endpoint": "true"}
    plain = {"account_name": "onelake", "azure_endpoint": address, "allow_http": "true"}
    return plain | ({"account_key": KEY} if kind == "key" else {"azure_skip_signature": "true"})


def uri(table: str, kind: str) -> str:
    if kind in {"secret", "token"}:
        return f"{ABFSS}/{ITEM}/Tables/dbo/{table}"
    return f"az://{WORKSPACE}/{ITEM}/Tables/dbo/{table}"


def rows(first: int, count: int) -> pa.Table:
    return pa.table({"id": pa.array(range(first, first + count), pa.int64())})


def round_trip(table: str, kind: str, address: str = "") -> list[Any]:
    """Write, append, overwrite, read; what each version holds."""
    place, said = uri(table, kind), options(kind, address)
    write_deltalake(place, rows(0, 3), storage_options=said)
    write_deltalake(place, rows(3, 2), mode="append", storage_options=said)
    write_deltalake(place, rows(9, 1), mode="overwrite", storage_options=said)
    return [read(place, said, version) for version in range(3)]


def read(place: str, said: dict[str, str], version: int | None = None) -> list[int]:
    found = DeltaTable(place, version=version, storage_options=said).to_pyarrow_table()
    return sorted(found["id"].to_pylist())


def race(table: str, writers: int, appends: int) -> dict[str, Any]:
    """Writers that append at the same time."""
    place, said = uri(table, "secret"), options("secret")
    write_deltalake(place, rows(0, 1), storage_options=said)

    def write(writer: int) -> None:
        for number in range(appends):
            write_deltalake(place, rows(1 + writer * appends + number, 1), mode="append", storage_options=said)

    with ThreadPoolExecutor(writers) as pool:
        list(pool.map(write, range(writers)))
    table_now = DeltaTable(place, storage_options=said)
    return {"version": table_now.version(), "ids": read(place, said)}


def vacuum(table: str) -> int:
    """Remove what an overwrite left; how many files went."""
    place, said = uri(table, "secret"), options("secret")
    for mode in ("append", "overwrite"):
        write_deltalake(place, rows(0, 1), mode=mode, storage_options=said)
    now = DeltaTable(place, storage_options=said)
    return len(now.vacuum(retention_hours=0, enforce_retention_duration=False, dry_run=False))
