"""pyfabric as its users call it: mirrored databases by REST, and their landing zones by requests."""

from __future__ import annotations

import tempfile
from functools import cache
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from places import ITEM, WORKSPACE
from pyfabric.client.auth import FabricCredential
from pyfabric.client.http import FabricClient
from pyfabric.data import onelake
from pyfabric.data.open_mirror import OpenMirrorClient
from pyfabric.items import mirrored_database as databases


@cache
def credential() -> FabricCredential:
    return FabricCredential()


@cache
def fabric() -> FabricClient:
    return FabricClient(credential())


def mirror(item: str = "") -> OpenMirrorClient:
    return OpenMirrorClient(credential(), WORKSPACE, item or ITEM)


def orders(*rows: tuple[int, str]) -> pa.Table:
    ids, cities = zip(*rows, strict=True)
    return pa.table({"id": pa.array(ids, pa.int64()), "city": pa.array(cities, pa.string())})


def publish(table: str, schema: str | None = None, item: str = "") -> list[str]:
    """A table with its initial load, then inserts, updates and deletes; the paths."""
    place = mirror(item)
    place.ensure_table(table, schema=schema, key_columns=["id"])
    with tempfile.TemporaryDirectory() as folder:
        local = Path(folder, "initial.parquet")
        pq.write_table(orders((1, "Linz"), (2, "Wels"), (3, "Graz")), local)
        paths = [place.upload_data_file(table, local, schema=schema)]
    paths.append(place.write_rows(table, orders((4, "Enns")), schema=schema, mode="insert"))
    paths.append(place.write_rows(table, orders((1, "Steyr"), (5, "Perg")), schema=schema, mode="upsert"))
    paths.append(place.write_rows(table, orders((2, "Wels")), schema=schema, mode="delete"))
    return paths


def file_operations(table: str) -> dict[str, Any]:
    """Folders, renames, listings, reads, deletes."""
    said = (credential().storage_token, WORKSPACE, ITEM)
    folder = mirror().table_folder(table)
    seen: dict[str, Any] = {"before": onelake.list_paths(*said, folder)}
    onelake.create_directory(*said, f"{folder}/inner")
    onelake.upload_file(*said, f"{folder}/inner/_a", b"abc")
    onelake.rename_path(*said, f"{folder}/inner/_a", f"{folder}/inner/a")
    seen["walked"] = [(found["rel_path"], found["size"]) for found in onelake.walk(*said, folder)]
    [listed] = onelake.list_files(*said, folder, recursive=True)
    seen["by name"] = onelake.read_file_by_name(*said[:2], listed["name"]).decode()
    seen["read"] = onelake.read_file(*said, f"{folder}/inner/a").decode()
    seen["deleted"] = [onelake.delete_path(*said, folder, recursive=True) for _ in range(2)]
    return seen


def create(name: str) -> str:
    return databases.create_mirrored_database(fabric(), WORKSPACE, display_name=name)["id"]


def start(item: str) -> None:
    databases.start_mirroring(fabric(), WORKSPACE, item)


def stop(item: str) -> None:
    databases.stop_mirroring(fabric(), WORKSPACE, item)


def wait(item: str) -> str:
    return databases.wait_for_running(fabric(), WORKSPACE, item, timeout_s=20, poll_interval_s=0.1)["status"]


def status(item: str) -> dict[str, Any]:
    return databases.get_mirroring_status(fabric(), WORKSPACE, item)


def tables(item: str) -> list[dict[str, Any]]:
    return databases.get_tables_mirroring_status(fabric(), WORKSPACE, item)["data"]


def look(item: str) -> dict[str, Any]:
    return databases.get_mirrored_database(fabric(), WORKSPACE, item)


def delete(item: str) -> None:
    fabric().delete(f"workspaces/{WORKSPACE}/mirroredDatabases/{item}")


def monitoring(item: str) -> dict[str, Any]:
    """Fabric's own files, by name."""
    said = (credential().storage_token, WORKSPACE, item)
    found = onelake.list_files(*said, "Files/Monitoring", suffix=".json")
    return {Path(each["name"]).name: onelake.read_file_by_name(*said[:2], each["name"]).decode() for each in found}
