"""A publisher with the datalake SDK: writes under a temporary name, renames, continues after the newest file."""

from __future__ import annotations

import io
import json
import os
import sys
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
from azure.identity import DefaultAzureCredential
from azure.storage.filedatalake import DataLakeServiceClient

if TYPE_CHECKING:
    from azure.storage.filedatalake import DataLakeDirectoryClient

WORKSPACE = os.environ["FABRIC_WORKSPACE_ID"]
TABLE = f"{os.environ['FABRIC_MIRRORED_DATABASE_ID']}/Files/LandingZone/Sales.schema/Customers"
INSERT, UPDATE, DELETE, UPSERT = 0, 1, 2, 4


def main(called: str) -> None:
    service = DataLakeServiceClient("https://onelake.dfs.fabric.microsoft.com", DefaultAzureCredential())
    workspace = service.get_file_system_client(WORKSPACE)
    folder = workspace.get_directory_client(TABLE)
    if folder.exists():
        folder.delete_directory()
    folder.create_directory()
    land(folder, "_metadata.json", json.dumps({"keyColumns": ["id"]}).encode())
    publish(folder, [(key, f"{called} {key}", key * 1.5) for key in range(1, 1001)])
    publish(folder, [(1001, "new", 0.5, INSERT), (1, "renamed", 2.5, UPDATE)])
    publish(folder, [(key, None, None, DELETE) for key in range(2, 999)])
    publish(folder, [(999, "again", 9.0, UPSERT), (1002, "first seen", None, UPSERT)])


def publish(folder: DataLakeDirectoryClient, rows: list[tuple[object, ...]]) -> None:
    """The next file of the table; rows with a fourth value have a marker."""
    fields = [("id", pa.int64()), ("name", pa.string()), ("balance", pa.float64()), ("__rowMarker__", pa.int32())]
    columns = [pa.array(values, kind) for values, (_, kind) in zip(zip(*rows, strict=True), fields, strict=False)]
    content = io.BytesIO()
    pq.write_table(pa.table(columns, [name for name, _ in fields[: len(columns)]]), content)
    land(folder, f"{next_number(folder):020d}.parquet", content.getvalue())


def next_number(folder: DataLakeDirectoryClient) -> int:
    names = [path.name.rpartition("/")[2] for path in folder.get_paths(recursive=True) if not path.is_directory]
    return max((int(name[:20]) for name in names if name[:20].isdigit()), default=0) + 1


def land(folder: DataLakeDirectoryClient, name: str, content: bytes) -> None:
    file = folder.get_file_client(f"_{name}.tmp")
    file.upload_data(content, overwrite=True)
    file.rename_file(f"{WORKSPACE}/{folder.path_name}/{name}")


if __name__ == "__main__":
    main(*sys.argv[1:])
