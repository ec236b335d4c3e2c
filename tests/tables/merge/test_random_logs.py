"""Random logs end as `replay` says: by `arrow`, by engines in turns, in stores, and for every reader of many commits.

`MIRROR_TEST_LOGS` and `MIRROR_TEST_SPARK_LOGS` are how many short logs, `MIRROR_TEST_LOG_COMMITS` is the length of the
long one. A log is named by its seed: `MIRROR_TEST_SEED=N` begins with that one.
"""

from __future__ import annotations

import os
import random
from collections import Counter

import pyarrow as pa
import pytest
from delta_protocol import protocol_faults, read_history
from deltalake import DeltaTable
from independent_readers import by_deltalake, by_duckdb, content, fed, reading_with_sail
from random_log import RandomLog, draw_thresholds
from seed import SEED
from store_servers import ONE_BY_DAY

from mirror_engine.tables.log.snapshot import open_delta
from mirror_engine.tables.merge.arrow import ArrowWriter
from mirror_engine.tables.spark.session import child_session

LOGS = int(os.environ.get("MIRROR_TEST_LOGS", "6"))
SPARK_LOGS = int(os.environ.get("MIRROR_TEST_SPARK_LOGS", "1"))
COMMITS = int(os.environ.get("MIRROR_TEST_LOG_COMMITS", "15"))
SPARK_COMMITS = int(os.environ.get("MIRROR_TEST_LOG_COMMITS", "5"))
STORE_COMMITS = int(os.environ.get("MIRROR_TEST_LOG_COMMITS", "8"))
BATCHES = 8
SPARK_BATCHES = 8 if "MIRROR_TEST_SPARK_LOGS" in os.environ else 4  # each takes seconds


def play(seed, engines, landed, patch, batches=BATCHES, **options):
    """Apply a random log, each batch by any of the engines; the table holds after each what `replay` says."""
    print(f"MIRROR_TEST_SEED={seed}", flush=True)
    choose = random.Random(seed)
    log = RandomLog(choose, table=f"dbo/T{seed}", **options)
    for number in range(batches):
        draw_thresholds(choose, patch)
        log.change(choose.choice(engines), landed)
        if choose.random() < 0.1:
            log.maintain(choose.choice(engines))
        found = engines[0].rows(log.scenario.table).to_pylist()
        assert log.differences(found) == {}, number
        assert engines[0].count_rows(log.scenario.table) == len(found)
    return log


@pytest.mark.slow
@pytest.mark.timeout(max(300, 3 * LOGS))
def test_random_logs_on_arrow_end_as_replay_says(ram, monkeypatch):
    ways = set()
    for seed in range(SEED, SEED + LOGS):
        engine = ArrowWriter(ram / "Tables", ram / "scratch", "on" if seed % 2 else "keep", key_index_size=1 << 20)
        log = play(seed, [engine], ram, monkeypatch)
        ways |= log.ways
        assert log.is_vacuumed or protocol_faults(engine.path(log.scenario.table)) == []
        engine.drop(log.scenario.table)
    assert ways >= {"append", "merge"}
    assert LOGS < 100 or "passthrough" in ways


@pytest.mark.spark
@pytest.mark.timeout(max(300, 60 * SPARK_LOGS))
def test_random_logs_on_engines_in_turns_end_as_replay_says(fresh, spark, ram, monkeypatch):
    session = child_session(spark)
    session.conf.set("spark.sql.datetime.java8API.enabled", "true")  # else its feeds have no October 10th, 1582
    for seed in range(SEED, SEED + SPARK_LOGS):
        feed, options = ("on", {"names": ["{}"]}) if seed % 2 else ("keep", {})
        monkeypatch.setattr(fresh, "_feed", feed)
        engine = ArrowWriter(fresh._root, ram / "scratch", feed, key_index_size=1 << 20)
        log = play(seed, [engine, fresh], ram, monkeypatch, SPARK_BATCHES, **options)
        folder = str(fresh.path(log.scenario.table))
        assert log.differences(spark.read.format("delta").load(folder).toArrow().to_pylist()) == {}
        if feed == "on" and not log.is_vacuumed:
            changes = session.read.option("readChangeFeed", "true").option("startingVersion", 0)
            found = changes.format("delta").load(folder).toArrow()
            assert changed(Counter(), found) == Counter(map(content, log.rows))
        fresh.drop(log.scenario.table)


def changed(rows, changes):
    """Rows, counted, after changes of a feed; none goes that is not there."""
    rows = rows.copy()
    for _, of_commit in sorted(fed(changes).items()):
        for (kind, row), count in of_commit.items():
            rows[row] += -count if kind in {"delete", "update_preimage"} else count
        assert min(rows.values(), default=0) >= 0
    return +rows


@pytest.fixture(params=["deltalake", "polars", "sail", pytest.param("spark", marks=pytest.mark.spark)])
def read(request):
    """A reader of a table's rows by its folder."""
    match request.param:
        case "deltalake":
            yield lambda folder: by_deltalake(DeltaTable(str(folder)))
        case "polars":
            polars = pytest.importorskip("polars", reason="the extra `readers` is not installed")
            yield lambda folder: polars.scan_delta(str(folder)).collect().to_arrow().to_pylist()
        case "sail":
            pytest.importorskip("pysail", reason="the extra `readers` is not installed")
            with reading_with_sail() as read:
                yield read
        case "spark":
            spark = request.getfixturevalue("spark")
            yield lambda folder: spark.read.format("delta").load(str(folder)).toArrow().to_pylist()


def long_log(**options):
    """A log whose table other readers know: no mapped columns; and its random choices."""
    print(f"MIRROR_TEST_SEED={SEED}", flush=True)
    choose = random.Random(SEED)
    return choose, RandomLog(choose, keys=["long", "string"], names=["{}"], **options)


def commit(choose, log, writer, landed, patch):
    """Apply a batch by any thresholds; maintain the table after some."""
    draw_thresholds(choose, patch)
    log.change(writer, landed)
    if choose.random() < 0.1:
        log.maintain(writer)


@pytest.mark.slow
@pytest.mark.timeout(max(300, 5 * COMMITS))
@pytest.mark.parametrize("parts", [pytest.param(0, marks=pytest.mark.spark_by_night), 1], ids=["whole", "partitioned"])
def test_readers_agree_after_each_of_many_commits(ram, read, parts, monkeypatch, request):
    """Vectors, rewrites, new columns, files added unchanged, compaction, VACUUM and checkpoints in any order."""
    choose, log = long_log(part_counts=[parts])
    writer = ArrowWriter(ram / "Tables", ram / "scratch", key_index_size=1 << 20)
    commits = SPARK_COMMITS if request.node.get_closest_marker("spark") else COMMITS
    for number in range(commits):
        commit(choose, log, writer, ram, monkeypatch)
        assert log.differences(writer.rows("dbo/T").to_pylist()) == {}, number
        assert log.differences(read(writer.path("dbo/T"))) == {}, number
    folder = writer.path("dbo/T")
    assert log.differences(by_duckdb(folder, read_history(folder).states[-1])) == {}
    # Few commits may draw no vector, and a table whose partitions all have percent-encoded names never takes one.
    assert commits < 200 or parts or writer.snapshot("dbo/T").log.has_vectors


@pytest.mark.slow
@pytest.mark.timeout(max(300, 5 * COMMITS))
@pytest.mark.parametrize("parts", [0, 1], ids=["whole", "partitioned"])
def test_change_data_of_each_commit_leads_from_rows_to_rows(ram, parts, monkeypatch):
    rows, seen = Counter(), -1
    # deltalake decodes no path of a feed, in its own tables neither
    choose, log = long_log(part_counts=[parts], parts=["a", "b", None])
    writer = ArrowWriter(ram / "Tables", ram / "scratch", "on")
    for number in range(COMMITS):
        draw_thresholds(choose, monkeypatch)
        log.change(writer, ram)
        found = DeltaTable(str(writer.path("dbo/T"))).load_cdf(starting_version=seen + 1)
        rows = changed(rows, pa.table(found))
        assert rows == Counter(map(content, log.rows)), number
        if choose.random() < 0.1:
            log.maintain(writer)  # it may take what was read
        seen = log.scenario.version


@ONE_BY_DAY
@pytest.mark.slow
@pytest.mark.timeout(max(300, 5 * STORE_COMMITS))
def test_random_commits_in_stores_are_read_as_replay_says(store, tmp_path, monkeypatch):
    """Every request counts, no row does otherwise than on a disk."""
    choose, log = long_log()
    writer = ArrowWriter(store.new_root() / "Tables", tmp_path / "scratch", key_index_size=1 << 20)
    for number in range(STORE_COMMITS):
        commit(choose, log, writer, tmp_path, monkeypatch)
        assert log.differences(writer.rows("dbo/T").to_pylist()) == {}, number
        assert log.differences(by_deltalake(open_delta(writer.path("dbo/T")))) == {}, number
