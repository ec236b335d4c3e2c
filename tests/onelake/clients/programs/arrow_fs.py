"""pyarrow.fs as its users call it."""

from __future__ import annotations

from typing import Any

from places import KEY, LANDING_ZONE, WORKSPACE
from pyarrow import fs


def round_trip(address: str, table: str) -> dict[str, Any]:
    files = fs.AzureFileSystem(
        "onelake",
        account_key=KEY,
        blob_storage_authority=address,
        blob_storage_scheme="http",
        dfs_storage_authority=address,
        dfs_storage_scheme="http",
    )
    folder = f"{WORKSPACE}/{LANDING_ZONE}/{table}"
    files.create_dir(folder)
    with files.open_output_stream(f"{folder}/a") as file:
        file.write(b"0123456789")
    with files.open_input_file(f"{folder}/a") as file:
        seen: dict[str, Any] = {"content": file.read().decode()}
    found = files.get_file_info(fs.FileSelector(folder))
    seen["listed"] = [(each.base_name, each.type.name, each.size) for each in found]
    files.move(f"{folder}/a", f"{folder}/b")
    seen["moved"] = [each.type.name for each in files.get_file_info([f"{folder}/a", f"{folder}/b"])]
    files.delete_dir(folder)
    return seen | {"gone": files.get_file_info(folder).type.name}
