"""The benchmarks run, and all engines come to the same rows: `make bench-smoke`, as far as one JVM goes."""

from __future__ import annotations

import sys
from dataclasses import replace

import pytest

from speed.aging import Aging, Lake
from speed.bench import Bench
from speed.catalogue import WORKS
from speed.collapsing import Collapsing
from speed.engines import ArrowEngine, DeltaRs, SparkEngine
from speed.floor import Floor
from speed.notebook import Notebook
from speed.peers import Here
from speed.sizes import SMALL
from speed.waiting import Empty

ONE_MERGE = replace(SMALL, load_files=1, backlog_sample=1)  # Spark's time is dear: one is enough to be held against


@pytest.mark.spark
@pytest.mark.nightly
def test_the_mirror_the_notebook_and_deltars_come_to_the_same_rows(tmp_path, spark, mirror_writer):
    ours = {"spark_engine": SparkEngine(mirror_writer), "arrow_engine": ArrowEngine()}
    peers = Here(**ours, notebook=Notebook(spark), delta_rs=DeltaRs(), floor=Floor())
    bench = Bench(tmp_path, ONE_MERGE, 1, peers)
    found = WORKS["merge"].run(bench).figures.rounds
    for engine in ours.values():
        engine.end()
    assert set(found) == {"arrow-engine", "spark-engine", "notebook", "delta-rs", "DuckDB rewrites all"}


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="memory and processors are told by /proc")
def test_collapsing_and_waiting_are_measured_without_spark(tmp_path):
    peers = Here(collapse=Collapsing(), waiting=Empty(), floor=Floor())
    bench = Bench(tmp_path, SMALL, 1, peers)
    collapsed, waited = (WORKS[name].run(bench) for name in ("collapse", "idle"))
    assert set(collapsed.figures.rounds) == {"mirror", "pyarrow reads", "DuckDB"}
    assert collapsed.besides["peak memory"].endswith("MiB")
    assert 0 < waited.figures.median("a change is seen") < 60


@pytest.mark.slow
def test_keys_of_every_kind_come_to_the_rows_of_deltars(tmp_path):
    ours = ArrowEngine()
    bench = Bench(tmp_path, SMALL, 1, Here(arrow_engine=ours, delta_rs=DeltaRs()))
    kinds, sizes = (set(WORKS[name].run(bench).figures.rounds) for name in ("keys", "large"))
    ours.end()
    assert kinds == {f"{peer}, {kind}" for peer in ("arrow-engine", "delta-rs") for kind in ("text", "compound")}
    assert sizes == {"into 2,000 rows", "into 4,000 rows"}


@pytest.mark.nightly
@pytest.mark.skipif(sys.platform != "linux", reason="memory and processors are told by /proc")
def test_ages_are_measured_on_disk_and_in_a_store(tmp_path):
    lake = Lake()
    bench = Bench(tmp_path, replace(SMALL, idle_seconds=1), 1, Here(aging=Aging(), lake=lake))
    try:
        line = WORKS["age"].run(bench)
    finally:
        lake.end()
    rows = [line.split(" | ") for line in line.table.splitlines()[2:]]
    assert {tuple(row[:2]) for row in rows} == {
        (f"| {place}", on) for place in ("disk", "store") for on in ("on", "off")
    }
    assert all(float(row[5].replace(",", "")) > 0 for row in rows), "bytes of a commit"
    assert [float(row[7]) > 0 for row in rows] == [row[0] == "| store" for row in rows], "requests"
    assert {goal.unit for goal in line.goals} == {" x", " s", " %", " MiB"}
