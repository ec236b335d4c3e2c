"""adlfs as pandas, Dask and many publishers use it."""

from __future__ import annotations

import pytest
from adlfs import AzureBlobFileSystem
from azure.identity.aio import DefaultAzureCredential
from places import HTTP, HTTPS, KEY, LANDING_ZONE, MIB, WORKSPACE, new_table

PLAIN = f"DefaultEndpointsProtocol=http;AccountName=onelake;AccountKey={KEY};BlobEndpoint={HTTP}/onelake"


@pytest.mark.parametrize("host", ["onelake.blob.fabric.microsoft.com", HTTPS.removeprefix("https://"), None])
def test_pipe_ls_cat_mv_rm(host):
    by_token = {"account_name": "onelake", "account_host": host, "credential": DefaultAzureCredential()}
    way = by_token if host else {"connection_string": PLAIN}
    files = AzureBlobFileSystem(**way, skip_instance_cache=True, use_listings_cache=False)
    folder = f"{WORKSPACE}/{LANDING_ZONE}/{new_table()}"
    files.pipe(f"{folder}/_a.bin", b"0123456789")
    assert files.ls(folder, detail=False) == [f"{folder}/_a.bin"]
    assert files.info(f"{folder}/_a.bin")["size"] == 10
    assert files.cat_file(f"{folder}/_a.bin", 3, 7) == b"3456"
    files.mv(f"{folder}/_a.bin", f"{folder}/a.bin")
    assert files.cat(f"{folder}/a.bin") == b"0123456789"
    assert files.ls(folder, detail=False) == [f"{folder}/a.bin"]
    with files.open(f"{folder}/big.bin", "wb", block_size=MIB) as file:
        file.write(bytes(3 * MIB))
    assert files.info(f"{folder}/big.bin")["size"] == 3 * MIB
    assert files.find(folder) == [f"{folder}/a.bin", f"{folder}/big.bin"]
    files.rm(f"{folder}/a.bin")
    assert not files.exists(f"{folder}/a.bin")
    files.rm(folder, recursive=True)
    assert not files.exists(folder)
