"""The tutorials are run as they are written, and say what is printed today."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest
from sessions_of_pages import WITHOUT_SPARK, differences, matches, steps

from mirror_engine.tables.spark.java import find_java

DOCS = Path(__file__).parents[1] / "docs"
TUTORIALS = sorted(path.name for path in (DOCS / "tutorials").glob("*.md") if path.name != "index.md")


@pytest.mark.slow
@pytest.mark.parametrize("name", ["first-mirror.md", "first-publisher.md"])
def test_a_tutorial_without_java_says_what_is_printed(tmp_path, name):
    (tmp_path / "docs").symlink_to(DOCS)
    page = DOCS / "tutorials" / name
    assert steps(page)
    assert differences(page, tmp_path, **WITHOUT_SPARK) == []


@pytest.mark.spark
@pytest.mark.nightly
def test_the_tutorial_of_clusters_says_what_is_printed(tmp_path):
    quick = "-XX:TieredStopAtLevel=1 -XX:+UseParallelGC"  # of six JVMs that are soon over
    java = {"JAVA_HOME": str(find_java().home), "SPARK_LOCAL_IP": "127.0.0.1", "JDK_JAVA_OPTIONS": quick}
    java["SPARK_CONF_DIR"] = str(tmp_path)  # of the cluster's owner: few rows need few tasks
    few = ("sql.shuffle.partitions 1", "databricks.delta.snapshotPartitions 1", "sql.adaptive.enabled false")
    (tmp_path / "spark-defaults.conf").write_text("".join(f"spark.{each}\n" for each in few))
    page = DOCS / "tutorials/to-a-cluster.md"
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port = unused.getsockname()[1]
    assert steps(page)
    assert differences(page, tmp_path, [("7077", str(port))], **java) == []


def test_every_tutorial_is_run():
    assert TUTORIALS == ["first-mirror.md", "first-publisher.md", "to-a-cluster.md"]


@pytest.mark.parametrize(
    ("shown", "printed", "holds"),
    [
        ("Applied 1 file (0.4s).\n", "Applied 1 file (12s).\n", True),
        ("Applied 1 file (0.4s).\n", "Applied 2 files (0.4s).\n", False),
        ("one\n", "[10s] Items: committing 1 file\n[1m] Items: committing 1 file\none\n", True),
        ("one\n…\ntwo\n…\nfour\n", "one\n1\ntwo\n2\nfour\n", True),
        ("one\n…\ntwo\n…\nfour\n", "one\n1\n2\nfour\n", False),
        ("", "anything\n", False),
    ],
)
def test_dots_stand_for_any_lines_and_times_may_differ(shown, printed, holds):
    assert matches(shown, printed) is holds
