"""deltalake on OneLake, as readers and writers of tables use it."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import places
import pyarrow as pa
import pytest
import requests
from azure.identity import DefaultAzureCredential
from deltalake import DeltaTable, write_deltalake
from places import ABFSS, ACCEPTS_BATCHES, BATCH_REFUSED, FOLDER, HTTP, ITEM, KEY, SCOPE, TABLE, WORKSPACE, new_table

SECRETS = {f"azure_{name}": text for name, text in places.SECRETS.items()}
PLAIN = {"account_name": "onelake", "allow_http": "true"}
BY_NAME, BY_ADDRESS = f"{ABFSS}/{ITEM}/Tables/dbo", f"az://{WORKSPACE}/{ITEM}/Tables/dbo"


def write(uri, options, first, count, mode="append"):
    rows = pa.table({"id": pa.array(range(first, first + count), pa.int64())})
    write_deltalake(uri, rows, mode=mode, storage_options=options)


def read(uri, options, version=None):
    return sorted(DeltaTable(uri, version=version, storage_options=options).to_pyarrow_table()["id"].to_pylist())


def round_trip(uri, options):
    """Write, append, overwrite, read."""
    write(uri, options, 0, 3)
    write(uri, options, 3, 2)
    write(uri, options, 9, 1, "overwrite")
    assert [read(uri, options, version) for version in range(3)] == [[0, 1, 2], [0, 1, 2, 3, 4], [9]]


def test_by_abfss():
    token = DefaultAzureCredential().get_token(SCOPE).token
    for options in (SECRETS, {"bearer_token": token, "use_fabric_endpoint": "true"}):
        round_trip(f"{BY_NAME}/{new_table()}", options)


@pytest.mark.parametrize("credential", [{"account_key": KEY}, {"azure_skip_signature": "true"}])
@pytest.mark.parametrize("prefix", ["", "/onelake"])
def test_by_http(prefix, credential):
    round_trip(f"{BY_ADDRESS}/{new_table()}", {**PLAIN, "azure_endpoint": HTTP + prefix, **credential})


def test_the_storage_location_of_unity_catalog_is_read():
    """As `abfss://`: deltalake knows no `https`."""
    name = new_table()
    write(f"{BY_NAME}/{name}", SECRETS, 0, 3)
    catalog = f"{TABLE}/delta/{WORKSPACE}/{ITEM}/api/2.1/unity-catalog"
    headers = {"Authorization": f"Bearer {DefaultAzureCredential().get_token(SCOPE).token}"}
    answer = requests.get(f"{catalog}/tables/{ITEM}.dbo.{name}", headers=headers, timeout=30)
    host, workspace, path = answer.json()["storage_location"].removeprefix("https://").split("/", 2)
    assert read(f"abfss://{workspace}@{host}/{path}", SECRETS) == [0, 1, 2]


def test_two_racing_writers_lose_nothing():
    uri = f"{BY_NAME}/{new_table()}"
    write(uri, SECRETS, 0, 1)

    def append(writer):
        for number in range(5):
            write(uri, SECRETS, 1 + writer * 5 + number, 1)

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(append, range(2)))
    assert DeltaTable(uri, storage_options=SECRETS).version() == 10
    assert read(uri, SECRETS) == list(range(11))


def test_vacuum_is_a_batch():
    table = new_table()
    for mode in ("append", "overwrite"):
        write(f"{BY_NAME}/{table}", SECRETS, 0, 1, mode)
    now = DeltaTable(f"{BY_NAME}/{table}", storage_options=SECRETS)
    vacuum = {"retention_hours": 0, "enforce_retention_duration": False, "dry_run": False}
    if ACCEPTS_BATCHES:
        assert len(now.vacuum(**vacuum)) == 1
        assert len(list((FOLDER.parents[1] / "Tables/dbo" / table).glob("*.parquet"))) == 1
    else:
        with pytest.raises(OSError, match=BATCH_REFUSED):
            now.vacuum(**vacuum)
