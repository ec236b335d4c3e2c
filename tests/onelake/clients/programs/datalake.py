"""azure-storage-file-datalake and azure-identity as publishers use them."""

from __future__ import annotations

import asyncio
import hashlib
import io
import os
import random
from functools import cache
from typing import Any

from azure.core.credentials import AzureNamedKeyCredential
from azure.identity import AzureCliCredential, ClientSecretCredential, DefaultAzureCredential, EnvironmentCredential
from azure.identity.aio import DefaultAzureCredential as AsyncCredential
from azure.storage.filedatalake import DataLakeDirectoryClient, DataLakeFileClient, DataLakeServiceClient
from azure.storage.filedatalake.aio import DataLakeServiceClient as AsyncServiceClient
from places import DFS, ITEM, KEY, LANDING_ZONE, SAS, WORKSPACE


def by_secret() -> ClientSecretCredential:
    reported = os.environ
    return ClientSecretCredential(
        reported["AZURE_TENANT_ID"], reported["AZURE_CLIENT_ID"], reported["AZURE_CLIENT_SECRET"]
    )


CREDENTIALS = {
    "secret": by_secret,
    "default": DefaultAzureCredential,
    "environment": EnvironmentCredential,
    "az": AzureCliCredential,
}
KEYS: dict[str, Any] = {
    "named key": AzureNamedKeyCredential("onelake", KEY),
    "dict": {"account_name": "onelake", "account_key": KEY},
    "bare key": KEY,
    "SAS": SAS,
    "none": None,
}


@cache
def service() -> DataLakeServiceClient:
    return DataLakeServiceClient(DFS, credential=DefaultAzureCredential())


def folder(table: str, client: DataLakeServiceClient | None = None) -> DataLakeDirectoryClient:
    return (client or service()).get_file_system_client(WORKSPACE).get_directory_client(f"{LANDING_ZONE}/{table}")


def round_trip(table: str, client: DataLakeServiceClient | None = None) -> dict[str, Any]:
    """Create, append, flush, look, read, delete."""
    place = folder(table, client)
    place.create_directory()
    file = place.create_file("a b=ü.bin")
    seen = {"created": file.get_file_properties().size}
    file.append_data(b"456789", 4)
    file.append_data(b"0123", 0)
    seen["appended"] = file.get_file_properties().size
    file.flush_data(10)
    seen |= {"flushed": file.get_file_properties().size, "content": file.download_file().readall().decode()}
    seen["range"] = file.download_file(offset=3, length=4).readall().decode()
    seen["exists"] = [place.exists(), file.exists(), place.get_file_client("none").exists()]
    file.delete_file()
    seen["deleted"] = [place.exists(), file.exists()]
    place.delete_directory()
    return seen | {"gone": not place.exists()}


def listings(table: str, count: int) -> dict[str, Any]:
    """Pages, whole trees, and folders deep in the path."""
    place, workspace = folder(table), service().get_file_system_client(WORKSPACE)
    for number in range(count):
        place.create_file(f"{number:04}")
    place.create_sub_directory("deep").create_sub_directory("deeper").create_file("leaf")
    pages = workspace.get_paths(f"{LANDING_ZONE}/{table}", recursive=False, max_results=10).by_page()
    names = [[path.name for path in page] for page in pages]
    tree = [(path.name, path.is_directory, path.content_length) for path in place.get_paths(recursive=True)]
    return {"pages": names, "tree": tree, "item": [path.name for path in workspace.get_paths(ITEM, recursive=False)]}


def upload(table: str, name: str, size: int) -> str:
    """`upload_data` as most publishers call it; the content's digest."""
    content = random.Random(size).randbytes(size)
    folder(table).get_file_client(name).upload_data(content, overwrite=True)
    return hashlib.sha256(content).hexdigest()


def upload_new(table: str, name: str, size: int) -> Any:
    """`upload_data` without `overwrite`."""
    return folder(table).get_file_client(name).upload_data(b"x" * size)


def exists(table: str, name: str) -> bool:
    return folder(table).get_file_client(name).exists()


class Interrupted(io.BytesIO):
    """A stream during whose reading another client writes the same file."""

    def __init__(self, content: bytes, file: DataLakeFileClient) -> None:
        super().__init__(content)
        self._file = file
        self._is_first = True

    def read(self, size: int | None = -1) -> bytes:
        if self._is_first:
            self._is_first = False
            self._file.upload_data(b"other", overwrite=True)
        return super().read(size)


def upload_interrupted(table: str, name: str) -> None:
    file = folder(table).get_file_client(name)
    file.upload_data(Interrupted(b"mine", file), length=4, overwrite=True)


def upload_and_rename(table: str, name: str, content: str) -> str:
    """The pattern of Microsoft's own kit; the new name."""
    file = folder(table).get_file_client(f"_{name}")
    file.upload_data(content.encode(), overwrite=True)
    return file.rename_file(f"{WORKSPACE}/{LANDING_ZONE}/{table}/{name}").path_name


def rename_with_a_path_in_the_url(table: str, name: str) -> None:
    place = f"{DFS}/{WORKSPACE}/{ITEM}/Files"
    file = DataLakeFileClient(place, "LandingZone", f"{table}/_{name}", credential=DefaultAzureCredential())
    file.upload_data(b"abc", overwrite=True)
    file.rename_file(f"LandingZone/{table}/{name}")


def rename_to(table: str, source: str, target: str, **conditions: Any) -> None:
    folder(table).get_file_client(source).rename_file(f"{WORKSPACE}/{LANDING_ZONE}/{target}", **conditions)


def etags(table: str) -> dict[str, str]:
    """The tags of a folder and its content."""
    paths = folder(table).get_paths(recursive=True)
    found = {path.name.rpartition("/")[2]: path.etag for path in paths}
    return found | {"": folder(table).get_directory_properties().etag}


def create_folder(table: str) -> None:
    folder(table).create_directory()


def drop(table: str) -> None:
    folder(table).delete_directory()


def by_http(address: str, kind: str, table: str) -> dict[str, Any]:
    """The same over http, with what is no token."""
    return round_trip(table, DataLakeServiceClient(address, credential=KEYS[kind]))


def token_by_http(address: str) -> None:
    DataLakeServiceClient(address, credential=DefaultAzureCredential())


def with_credential(kind: str, table: str) -> dict[str, Any]:
    return round_trip(table, DataLakeServiceClient(DFS, credential=CREDENTIALS[kind]()))


def direct(address: str, table: str) -> dict[str, Any]:
    """Straight to the emulator's own https address; only the token comes through the proxy."""
    return round_trip(table, DataLakeServiceClient(address, credential=DefaultAzureCredential()))


def upload_in_pieces(table: str, name: str, size: int) -> str:
    """Several appends at once, in any order."""
    content = random.Random(size).randbytes(size)
    file = folder(table).get_file_client(name)
    file.upload_data(content, overwrite=True, chunk_size=1 << 20, max_concurrency=4)
    return hashlib.sha256(content).hexdigest()


def what_else_there_is(table: str) -> dict[str, Any]:
    """Leases, metadata, access control, folders renamed, the workspace itself."""
    place = folder(table)
    place.create_directory(permissions="rwxr-x---", umask="0027", metadata={"made": "by"})
    file = place.create_file("a", metadata={"made": "by"})
    lease = file.acquire_lease(lease_duration=15)
    file.upload_data(b"abc", overwrite=True, lease=lease)
    lease.renew()
    lease.release()
    file.set_metadata({"made": "again"})
    renamed = place.rename_directory(f"{WORKSPACE}/{LANDING_ZONE}/{table}-renamed")
    moved = renamed.get_file_client("a")
    return {
        "owner": moved.get_access_control()["owner"],
        "content": moved.download_file().readall().decode(),
        "exists": [place.exists(), renamed.exists()],
        "workspace": service().get_file_system_client(WORKSPACE).exists(),
        "no workspace": service().get_file_system_client("none").exists(),
        "status": moved.get_file_properties().lease.state,
    }


def set_access_control(table: str) -> None:
    folder(table).set_access_control(permissions="rwxrwxrwx")


def by_authority(authority: str, table: str) -> dict[str, Any]:
    """Another host for tokens than the usual one."""
    reported = os.environ
    said = (reported["AZURE_TENANT_ID"], reported["AZURE_CLIENT_ID"], reported["AZURE_CLIENT_SECRET"])
    return round_trip(table, DataLakeServiceClient(DFS, ClientSecretCredential(*said, authority=authority)))


def asynchronously(table: str, count: int) -> list[int]:
    """Many uploads and renames at once; the sizes of what came out."""
    return asyncio.run(_land_at_once(table, count))


async def _land_at_once(table: str, count: int) -> list[int]:
    credential = AsyncCredential()
    async with credential, AsyncServiceClient(DFS, credential=credential) as service:
        place = service.get_file_system_client(WORKSPACE).get_directory_client(f"{LANDING_ZONE}/{table}")
        await place.create_directory()

        async def land(number: int) -> None:
            file = place.get_file_client(f"_{number}")
            await file.upload_data(b"x" * number, overwrite=True)
            await file.rename_file(f"{WORKSPACE}/{LANDING_ZONE}/{table}/{number:020}")

        await asyncio.gather(*map(land, range(1, count + 1)))
        return [path.content_length async for path in place.get_paths()]
