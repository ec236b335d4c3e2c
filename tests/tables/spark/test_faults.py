"""Failures with real Spark, a sample: a commit that fails or whose answer is lost, and a full disk."""

from __future__ import annotations

import pytest
from scripted_faults import Failing, Fault, faulty
from shop import Shop, row
from small_disk import small_disk

from mirror_engine import RunResult
from mirror_engine.errors import StorageUnavailable
from mirror_engine.storage.local import LocalStorage

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.usefixtures("one_attempt")]


def rows_of(shop):
    with shop.mirror() as mirror:
        return sorted((row["id"], row["city"]) for row in mirror.read_table("Orders").to_pylist())


@pytest.mark.parametrize("fault", list(Fault))
def test_a_merge_of_spark_that_fails_is_made_once(tmp_path, mirror_writer, fault):
    shop = Shop(tmp_path, mirror_writer(tmp_path))
    orders = shop.orders()
    orders.initial_load(row(1), row(2))
    shop.sync()
    orders.insert(row(3))
    orders.delete({"id": 1, "city": None})
    script = Failing("apply", times=1, fault=fault)
    shop.writer = faulty(shop.writer, script)
    assert shop.sync().result is RunResult.RETRY
    assert script.is_over
    assert any(shop.sync().result is RunResult.CAUGHT_UP for _ in range(2))
    assert rows_of(shop) == [(2, "Linz"), (3, "Linz")]


def test_a_full_disk_under_deltas_own_files_delays_and_does_nothing_else(tmp_path, mirror_writer):
    with small_disk(tmp_path / "disk", megabytes=8) as disk:
        shop = Shop(disk.path, mirror_writer(disk.path))
        orders = shop.orders()
        orders.initial_load(row(1), row(2))
        shop.sync()
        orders.update({"id": 1, "city": "Wels"})
        for free_pages in (2, 24, 32):  # for the ledger, for the staged rows, for some of Spark's files
            with disk.filled(free_pages=free_pages):
                try:
                    assert shop.sync(storage=LocalStorage(disk.path)).result in {RunResult.RETRY, RunResult.CAUGHT_UP}
                except StorageUnavailable:
                    assert free_pages == 2
        assert any(shop.sync().result is RunResult.CAUGHT_UP for _ in range(2))
        assert rows_of(shop) == [(1, "Wels"), (2, "Linz")]
