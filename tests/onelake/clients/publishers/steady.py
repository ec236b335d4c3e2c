"""A healthy publisher, with each library in its own words: it looks for its files first, writes, reads and cleans up.

Run as `steady.py LIBRARY TABLE [FIRST]`. It asks for what may be absent, as publishers do, and so gets answers such as
404. With FIRST, its first id, the table is dropped and republished.
"""

from __future__ import annotations

import io
import json
import os
import sys
from contextlib import suppress

import obstore
import pyarrow as pa
import pyarrow.parquet as pq
import requests
from adlfs import AzureBlobFileSystem
from azure.core import MatchConditions
from azure.core.exceptions import ResourceExistsError, ResourceNotFoundError
from azure.identity import DefaultAzureCredential
from azure.identity.aio import DefaultAzureCredential as AsyncCredential
from azure.storage.blob import BlobServiceClient
from azure.storage.filedatalake import DataLakeServiceClient
from obstore.store import AzureStore
from pyarrow import fs

WORKSPACE, ITEM = os.environ["FABRIC_WORKSPACE_ID"], os.environ["FABRIC_MIRRORED_DATABASE_ID"]
DFS, BLOB = (f"https://onelake.{kind}.fabric.microsoft.com" for kind in ("dfs", "blob"))
INSERT, UPSERT = 0, 4


def publish(lake: Client, first: int) -> None:
    for _ in range(2):
        lake.prepare()
    lake.remove("_absent")
    assert lake.get("_state.json") is None
    lake.put("_metadata.json", json.dumps({"keyColumns": ["id"]}).encode())
    for ids, marker in (((1, 2), INSERT), ((3,), INSERT), ((2, 4), UPSERT)):
        numbers = [int(name[:20]) for name in lake.names() if name[:20].isdigit()]
        number = max(numbers, default=0) + 1
        lake.put(f"{number:020d}.parquet", content_of([first - 1 + each for each in ids], marker))
        state = json.dumps({"last": number}).encode()
        lake.put("_state.json", state)
        assert lake.get("_state.json") == state
    lake.put("_empty", b"")
    assert not lake.get("_empty")
    for _ in range(2):
        lake.remove("_empty")


def content_of(ids: list[int], marker: int) -> bytes:
    columns = {"id": pa.array(ids, pa.int64()), "__rowMarker__": pa.array([marker] * len(ids), pa.int32())}
    pq.write_table(pa.table(columns), content := io.BytesIO())
    return content.getvalue()


class Client:
    """A table folder by one library; what one does not do is nothing."""

    def __init__(self, table: str) -> None:
        self.folder = f"{ITEM}/Files/LandingZone/{table}"

    def prepare(self) -> None:
        """Create the folder, whether it is there or not."""

    # `put` writes a file, `get` gives its content, None for none, and `names` gives those of all files, archived, too

    def remove(self, name: str) -> None:
        """Remove a file that may be absent."""


class Datalake(Client):
    def __init__(self, table: str) -> None:
        super().__init__(table)
        service = DataLakeServiceClient(DFS, DefaultAzureCredential())
        self.place = service.get_file_system_client(WORKSPACE).get_directory_client(self.folder)

    def drop(self) -> None:
        if self.place.exists():
            self.place.delete_directory()

    def prepare(self) -> None:
        if not self.place.exists():
            self.place.create_directory()
        with suppress(ResourceExistsError):
            self.place.create_directory(match_condition=MatchConditions.IfMissing)

    def put(self, name: str, content: bytes) -> None:
        file = self.place.get_file_client(f"_{name}.tmp")
        if content:
            file.upload_data(content, overwrite=True)
        else:
            file.create_file()
        file.rename_file(f"{WORKSPACE}/{self.folder}/{name}")

    def get(self, name: str) -> bytes | None:
        try:
            return self.place.get_file_client(name).download_file().readall()
        except ResourceNotFoundError:
            return None

    def names(self) -> list[str]:
        return [path.name.rpartition("/")[2] for path in self.place.get_paths() if not path.is_directory]

    def remove(self, name: str) -> None:
        with suppress(ResourceNotFoundError):
            self.place.get_file_client(name).delete_file()


class Blob(Client):
    def __init__(self, table: str) -> None:
        super().__init__(table)
        small = {"max_single_put_size": 256, "max_block_size": 256}  # blocks, as of large files
        self.container = BlobServiceClient(BLOB, DefaultAzureCredential(), **small).get_container_client(WORKSPACE)

    def put(self, name: str, content: bytes) -> None:
        blob = self.container.get_blob_client(f"{self.folder}/{name}")
        blob.upload_blob(content, overwrite=blob.exists())

    def get(self, name: str) -> bytes | None:
        try:
            return self.container.get_blob_client(f"{self.folder}/{name}").download_blob().readall()
        except ResourceNotFoundError:
            return None

    def names(self) -> list[str]:
        return [each.name.rpartition("/")[2] for each in self.container.list_blobs(f"{self.folder}/")]

    def remove(self, name: str) -> None:
        with suppress(ResourceNotFoundError):
            self.container.get_blob_client(f"{self.folder}/{name}").delete_blob()


class Adlfs(Client):
    def __init__(self, table: str) -> None:
        super().__init__(table)
        host = BLOB.removeprefix("https://")
        self.files = AzureBlobFileSystem("onelake", account_host=host, credential=AsyncCredential())
        self.at = f"{WORKSPACE}/{self.folder}"

    def prepare(self) -> None:
        self.files.makedirs(self.at, exist_ok=True)

    def put(self, name: str, content: bytes) -> None:
        self.files.pipe_file(f"{self.at}/{name}", content)
        self.files.invalidate_cache()

    def get(self, name: str) -> bytes | None:
        return self.files.cat_file(f"{self.at}/{name}") if self.files.exists(f"{self.at}/{name}") else None

    def names(self) -> list[str]:
        return [path.rpartition("/")[2] for path in self.files.find(self.at)]

    def remove(self, name: str) -> None:
        with suppress(FileNotFoundError):
            self.files.rm_file(f"{self.at}/{name}")


class Obstore(Client):
    """It deletes by batches, which OneLake rejects: nothing is removed."""

    def __init__(self, table: str) -> None:
        super().__init__(table)
        config = {f"azure_{name}": os.environ[f"AZURE_{name.upper()}"] for name in SECRETS}
        zone = self.folder.removesuffix(f"/{table}")
        self.table = table
        self.store = AzureStore.from_url(f"abfss://{WORKSPACE}@{DFS.removeprefix('https://')}/{zone}", config=config)

    def put(self, name: str, content: bytes) -> None:
        obstore.put(self.store, f"{self.table}/{name}", content)

    def get(self, name: str) -> bytes | None:
        try:
            return bytes(obstore.get(self.store, f"{self.table}/{name}").bytes())
        except FileNotFoundError:
            return None

    def names(self) -> list[str]:
        return [each["path"].rpartition("/")[2] for page in obstore.list(self.store, self.table) for each in page]


SECRETS = ("tenant_id", "client_id", "client_secret")


class Plain(Client):
    """DFS by requests: create, append with flush, rename."""

    def __init__(self, table: str) -> None:
        super().__init__(table)
        token = DefaultAzureCredential().get_token("https://storage.azure.com/.default").token
        self.session = requests.Session()
        self.session.headers["Authorization"] = f"Bearer {token}"

    def ask(self, method: str, name: str, *allowed: int, content: bytes = b"", **headers: str):
        names = {word.replace("_", "-"): text for word, text in headers.items()}
        path = f"{DFS}/{WORKSPACE}/{self.folder}/{name}".rstrip("/")
        answer = self.session.request(method, path, headers=names, data=content if method in {"PUT", "PATCH"} else None)
        assert answer.status_code in allowed, answer.text
        return answer

    def prepare(self) -> None:
        self.ask("PUT", "?resource=directory", 201)

    def put(self, name: str, content: bytes) -> None:
        self.ask("PUT", f"_{name}.tmp?resource=file", 201)
        if content:
            self.ask("PATCH", f"_{name}.tmp?action=append&position=0&flush=true", 202, content=content)
        self.ask("PUT", name, 201, x_ms_rename_source=f"/{WORKSPACE}/{self.folder}/_{name}.tmp")

    def get(self, name: str) -> bytes | None:
        answer = self.ask("GET", name, 200, 404)
        return answer.content if answer.status_code == 200 else None

    def names(self) -> list[str]:
        found = self.ask("GET", "?resource=filesystem&recursive=true", 200).json()["paths"]
        return [path["name"].rpartition("/")[2] for path in found]

    def remove(self, name: str) -> None:
        self.ask("DELETE", name, 200, 404)


class Arrow(Client):
    """Arrow's own file system, by an account key over http: it ignores proxies."""

    def __init__(self, table: str) -> None:
        super().__init__(table)
        address = os.environ["TEST_HTTP"].removeprefix("http://")
        ways = {f"{kind}_storage_authority": address for kind in ("blob", "dfs")}
        ways |= {f"{kind}_storage_scheme": "http" for kind in ("blob", "dfs")}
        self.files = fs.AzureFileSystem("onelake", account_key="bm90IGEga2V5", **ways)
        self.at = f"{WORKSPACE}/{self.folder}"

    def prepare(self) -> None:
        self.files.create_dir(self.at)

    def put(self, name: str, content: bytes) -> None:
        with self.files.open_output_stream(f"{self.at}/_{name}.tmp") as file:
            file.write(content)
        self.files.move(f"{self.at}/_{name}.tmp", f"{self.at}/{name}")

    def get(self, name: str) -> bytes | None:
        if self.files.get_file_info(f"{self.at}/{name}").type == fs.FileType.NotFound:
            return None
        with self.files.open_input_file(f"{self.at}/{name}") as file:
            return file.read()

    def names(self) -> list[str]:
        return [each.base_name for each in self.files.get_file_info(fs.FileSelector(self.at, recursive=True))]

    def remove(self, name: str) -> None:
        if self.files.get_file_info(f"{self.at}/{name}").type == fs.FileType.File:
            self.files.delete_file(f"{self.at}/{name}")


LIBRARIES = {
    "datalake": Datalake,
    "blob": Blob,
    "adlfs": Adlfs,
    "obstore": Obstore,
    "requests": Plain,
    "arrow": Arrow,
}

if __name__ == "__main__":
    library, table, *first = sys.argv[1:]
    client = LIBRARIES[library](table)
    if first:
        client.drop()
    publish(client, int(*first or "1"))
    os._exit(0)  # Arrow's client may never end at exit
