"""azure-storage-blob as publishers use it."""

from __future__ import annotations

from functools import cache
from typing import Any

from azure.identity import DefaultAzureCredential
from azure.storage.blob import BlobBlock, BlobServiceClient, ContainerClient
from places import BLOB, LANDING_ZONE, WORKSPACE


@cache
def container() -> ContainerClient:
    return BlobServiceClient(BLOB, credential=DefaultAzureCredential()).get_container_client(WORKSPACE)


def round_trip(table: str) -> dict[str, Any]:
    """Upload, look, read, copy, list, delete."""
    blob = container().get_blob_client(f"{LANDING_ZONE}/{table}/a b=ü.bin")
    blob.upload_blob(b"0123456789")
    seen: dict[str, Any] = {"size": blob.get_blob_properties().size, "exists": blob.exists()}
    seen["range"] = blob.download_blob(offset=3, length=4).readall().decode()
    copy = container().get_blob_client(f"{LANDING_ZONE}/{table}/copy")
    seen["copied"] = copy.start_copy_from_url(blob.url)["copy_status"]
    seen["content"] = copy.download_blob().readall().decode()
    blob.delete_blob()
    return seen | {"deleted": not blob.exists(), "container": container().exists()}


def listings(table: str, count: int) -> dict[str, Any]:
    """Pages of a flat list, and one level."""
    prefix = f"{LANDING_ZONE}/{table}/"
    for number in range(count):
        container().upload_blob(f"{prefix}{number % 2}/{number:04}", b"x")
    pages = container().list_blobs(name_starts_with=prefix, results_per_page=10).by_page()
    level = [each.name for each in container().walk_blobs(name_starts_with=prefix)]
    return {"pages": [[each.name for each in page] for page in pages], "level": level}


def upload_again(table: str, name: str) -> None:
    blob = container().get_blob_client(f"{LANDING_ZONE}/{table}/{name}")
    blob.upload_blob(b"first")
    blob.upload_blob(b"second")


def in_blocks(table: str, name: str) -> list[Any]:
    """Blocks are seen once they are listed."""
    blob = container().get_blob_client(f"{LANDING_ZONE}/{table}/{name}")
    for number in (1, 0):
        blob.stage_block(f"block{number}", f"[{number}]".encode())
    before = blob.exists()
    blob.commit_block_list([BlobBlock(f"block{number}") for number in (0, 1)])
    return [before, blob.download_blob().readall().decode()]


def delete_many(table: str) -> None:
    names = [f"{LANDING_ZONE}/{table}/{name}" for name in "ab"]
    for name in names:
        container().upload_blob(name, b"x")
    container().delete_blobs(*names)
