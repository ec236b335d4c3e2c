"""adlfs as pandas, Dask and many publishers use it."""

from __future__ import annotations

from typing import Any

from adlfs import AzureBlobFileSystem
from azure.identity.aio import DefaultAzureCredential
from places import KEY, LANDING_ZONE, WORKSPACE

HOST = "onelake.blob.fabric.microsoft.com"


def round_trip(address: str, table: str) -> dict[str, Any]:
    """Pipe, list, cat, move, remove; by https to the real name or to the direct address, or by http."""
    files = _by_http(address) if address.startswith("http://") else _by_token(address)
    folder = f"{WORKSPACE}/{LANDING_ZONE}/{table}"
    files.pipe(f"{folder}/_a.bin", b"0123456789")
    seen: dict[str, Any] = {"listed": [path.removeprefix(folder) for path in files.ls(folder, detail=False)]}
    seen |= {"size": files.info(f"{folder}/_a.bin")["size"], "range": files.cat_file(f"{folder}/_a.bin", 3, 7).decode()}
    files.mv(f"{folder}/_a.bin", f"{folder}/a.bin")
    seen["content"] = files.cat(f"{folder}/a.bin").decode()
    seen["moved"] = [path.removeprefix(folder) for path in files.ls(folder, detail=False)]
    with files.open(f"{folder}/big.bin", "wb", block_size=1 << 20) as file:
        file.write(bytes(3 << 20))
    seen["big"] = files.info(f"{folder}/big.bin")["size"]
    seen["found"] = [path.removeprefix(folder) for path in files.find(folder)]
    files.rm(f"{folder}/a.bin")
    seen["removed"] = files.exists(f"{folder}/a.bin")
    files.rm(folder, recursive=True)
    return seen | {"folder": files.exists(folder)}


def _by_token(address: str) -> AzureBlobFileSystem:
    host = address.removeprefix("https://") or HOST
    return AzureBlobFileSystem("onelake", account_host=host, credential=DefaultAzureCredential(), **_afresh())


def _by_http(address: str) -> AzureBlobFileSystem:
    said = f"DefaultEndpointsProtocol=http;AccountName=onelake;AccountKey={KEY};BlobEndpoint={address}/onelake"
    return AzureBlobFileSystem(connection_string=said, **_afresh())


def _afresh() -> dict[str, Any]:
    return {"skip_instance_cache": True, "use_listings_cache": False}
