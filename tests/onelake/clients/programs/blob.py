"""azure-storage-blob as publishers use it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from azure.core.exceptions import HttpResponseError, ResourceExistsError
from azure.identity import DefaultAzureCredential
from azure.storage.blob import BlobBlock, BlobClient, BlobServiceClient, generate_blob_sas
from places import ACCEPTS_BATCHES, BATCH_REFUSED, BLOB, FOLDER, LANDING_ZONE, WORKSPACE, new_table

SERVICE = BlobServiceClient(BLOB, credential=DefaultAzureCredential())
CONTAINER = SERVICE.get_container_client(WORKSPACE)


def blob(name, table=""):
    return CONTAINER.get_blob_client(f"{LANDING_ZONE}/{table or new_table()}/{name}")


def test_upload_look_read_copy_and_delete():
    first, copy = blob("a b=ü.bin"), blob("copy")
    first.upload_blob(b"0123456789")
    assert (first.get_blob_properties().size, first.exists()) == (10, True)
    assert first.download_blob(offset=3, length=4).readall() == b"3456"
    assert copy.start_copy_from_url(first.url)["copy_status"] == "success"
    assert copy.download_blob().readall() == b"0123456789"
    first.delete_blob()
    assert (first.exists(), CONTAINER.exists()) == (False, True)


def test_a_signature_with_a_user_delegation_key_opens_a_file():
    signed, now = blob("a.bin"), datetime.now(UTC)
    signed.upload_blob(b"0123456789")
    key = SERVICE.get_user_delegation_key(now, now + timedelta(hours=1))
    place = "onelake", WORKSPACE, signed.blob_name
    sas = generate_blob_sas(*place, user_delegation_key=key, permission="r", expiry=now + timedelta(hours=1))
    assert BlobClient.from_blob_url(f"{signed.url}?{sas}").download_blob().readall() == b"0123456789"


def test_lists_come_in_pages_and_by_level():
    above = f"{LANDING_ZONE}/{new_table()}/"
    for number in range(12):
        CONTAINER.upload_blob(f"{above}{number % 2}/{number:04}", b"x")
    names = sorted([f"{above}{number}" for number in range(2)] + [f"{above}{n % 2}/{n:04}" for n in range(12)])
    pages = CONTAINER.list_blobs(name_starts_with=above, results_per_page=10).by_page()
    assert [[each.name for each in page] for page in pages] == [names[:10], names[10:]]
    assert [each.name for each in CONTAINER.walk_blobs(name_starts_with=above)] == [f"{above}0/", f"{above}1/"]


def test_upload_without_overwrite_is_refused_on_an_existing_file():
    existing = blob("a.bin")
    existing.upload_blob(b"first")
    with pytest.raises(ResourceExistsError, match="BlobAlreadyExists"):
        existing.upload_blob(b"second")
    assert existing.download_blob().readall() == b"first"


def test_blocks_are_seen_once_they_are_listed():
    staged = blob("a.bin")
    for number in (1, 0):
        staged.stage_block(f"block{number}", f"[{number}]".encode())
    assert not staged.exists()
    staged.commit_block_list([BlobBlock(f"block{number}") for number in (0, 1)])
    assert staged.download_blob().readall() == b"[0][1]"


def test_a_batch():
    table = new_table()
    names = [f"{LANDING_ZONE}/{table}/{name}" for name in "ab"]
    for name in names:
        CONTAINER.upload_blob(name, b"x")
    if ACCEPTS_BATCHES:
        CONTAINER.delete_blobs(*names)
    else:
        with pytest.raises(HttpResponseError, match=BATCH_REFUSED):
            CONTAINER.delete_blobs(*names)
    assert sorted(path.name for path in (FOLDER / table).iterdir()) == ([] if ACCEPTS_BATCHES else ["a", "b"])
