"""obstore as writers of plain files use it."""

from __future__ import annotations

import obstore
import places
import pytest
from obstore.exceptions import AlreadyExistsError, BaseError
from obstore.store import AzureStore
from places import ABFSS, ACCEPTS_BATCHES, BATCH_REFUSED, FOLDER, LANDING_ZONE, MIB

SECRETS = {f"azure_{name}": text for name, text in places.SECRETS.items()}
STORE = AzureStore.from_url(f"{ABFSS}/{LANDING_ZONE}", config=SECRETS)


def test_put_head_range_list_copy(table):
    a, b = f"{table}/a.bin", f"{table}/b.bin"
    obstore.put(STORE, a, b"0123456789", mode="create")
    with pytest.raises(AlreadyExistsError):
        obstore.put(STORE, a, b"x", mode="create")
    obstore.copy(STORE, a, b)
    assert obstore.head(STORE, a)["size"] == 10
    assert bytes(obstore.get_range(STORE, a, start=3, end=7)) == b"3456"
    assert bytes(obstore.get(STORE, b).bytes()) == b"0123456789"
    assert sorted(each["path"] for page in obstore.list(STORE, table) for each in page) == [a, b]


def test_multipart_of_12_mb(table):
    obstore.put(STORE, f"{table}/big.bin", bytes(12 * MIB), use_multipart=True, chunk_size=5 * MIB)
    assert obstore.head(STORE, f"{table}/big.bin")["size"] == (FOLDER / table / "big.bin").stat().st_size == 12 * MIB


def test_delete_and_rename_are_batches(table):
    for name in ("gone", "_a"):
        obstore.put(STORE, f"{table}/{name}", b"abc")
    steps = (lambda: obstore.delete(STORE, f"{table}/gone"), lambda: obstore.rename(STORE, f"{table}/_a", f"{table}/a"))
    for step in steps:
        if ACCEPTS_BATCHES:
            step()
        else:
            with pytest.raises(BaseError, match=BATCH_REFUSED):
                step()
    if ACCEPTS_BATCHES:
        assert [(path.name, path.read_bytes()) for path in (FOLDER / table).iterdir()] == [("a", b"abc")]
