"""Random logs in stores: every request counts, no row does otherwise than on a disk."""

from __future__ import annotations

import os
import random

import pytest
from independent_readers import by_deltalake
from random_log import RandomLog, draw_thresholds
from seed import SEED
from store_servers import ONE_BY_DAY

from mirror_engine.tables.log.snapshot import open_delta
from mirror_engine.tables.merge.arrow import ArrowWriter

COMMITS = int(os.environ.get("MIRROR_TEST_LOG_COMMITS", "8"))


@ONE_BY_DAY
@pytest.mark.slow
@pytest.mark.timeout(max(300, 5 * COMMITS))
def test_random_commits_in_stores_are_read_as_replay_says(store, tmp_path, monkeypatch):
    print(f"MIRROR_TEST_SEED={SEED}", flush=True)
    choose = random.Random(SEED)
    log = RandomLog(choose, keys=["long", "string"], names=["{}"])
    writer = ArrowWriter(store.new_root() / "Tables", tmp_path / "scratch", key_index_size=1 << 20)
    for number in range(COMMITS):
        draw_thresholds(choose, monkeypatch)
        log.change(writer, tmp_path)
        if choose.random() < 0.1:
            log.maintain(writer)
        assert log.differences(writer.rows("dbo/T").to_pylist()) == {}, number
        assert log.differences(by_deltalake(open_delta(writer.path("dbo/T")))) == {}, number
