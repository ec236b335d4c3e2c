"""The benchmarks run, and all engines end with the same rows: `make bench-smoke`, as far as one JVM goes."""

from __future__ import annotations

import sys
from dataclasses import replace

import pytest

from speed.__main__ import WORKS
from speed.bench import Bench
from speed.engines import ArrowEngine, DeltaRs, SparkEngine
from speed.floor import Floor
from speed.lake import Lake
from speed.notebook import Notebook
from speed.sizes import SMALL
from speed.works.collapse import Collapsing

ONE_MERGE = replace(SMALL, load_files=1, backlog_sample=1)  # MERGEs of Spark are slow


class Here:
    """Peers in this process."""

    def __init__(self, **engines):
        self.engines = engines

    def ask(self, peer, command, **given):
        return getattr(self.engines[peer.replace("-", "_")], command)(**given)

    def end(self):
        for engine in self.engines.values():
            if hasattr(engine, "end"):
                engine.end()


@pytest.mark.spark
@pytest.mark.nightly
def test_the_mirror_the_notebook_and_deltars_come_to_the_same_rows(tmp_path, spark, mirror_writer):
    ours = {"spark_engine": SparkEngine(mirror_writer), "arrow_engine": ArrowEngine()}
    peers = Here(**ours, notebook=Notebook(spark), delta_rs=DeltaRs(), floor=Floor())
    found = WORKS["merge"].run(Bench(tmp_path, ONE_MERGE, 1, peers)).figures.rounds
    peers.end()
    assert set(found) == {"arrow-engine", "spark-engine", "notebook", "delta-rs", "DuckDB rewrites all"}


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="memory is read from /proc")
def test_collapsing_is_measured_without_spark(tmp_path):
    line = WORKS["collapse"].run(Bench(tmp_path, SMALL, 1, Here(collapse=Collapsing(), floor=Floor())))
    assert set(line.figures.rounds) == {"mirror", "pyarrow reads", "DuckDB"}
    assert line.notes.startswith("peak memory ")


@pytest.mark.nightly
@pytest.mark.skipif(sys.platform != "linux", reason="memory and processors are read from /proc")
def test_ages_are_measured_on_disk_and_in_a_store(tmp_path):
    peers = Here(lake=Lake())
    try:
        line = WORKS["age"].run(Bench(tmp_path, SMALL, 1, peers))
    finally:
        peers.end()
    rows = [line.split(" | ") for line in line.table.splitlines()[2:]]
    assert {tuple(row[:2]) for row in rows} == {
        (f"| {place}", on) for place in ("disk", "store") for on in ("on", "off")
    }
    assert all(float(row[5].replace(",", "")) > 0 for row in rows), "bytes of a commit"
    assert [float(row[6]) > 0 for row in rows] == [row[0] == "| store" for row in rows], "requests"
    assert {goal.unit for goal in line.goals} == {" x", " s", " %"}
