"""Every page with a session is run as it is written, and shows what is printed today."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest
from sessions import WITHOUT_SPARK, differences, matches, steps

from mirror_engine.landing_zone.diagnostics import CATALOG, PAGES
from mirror_engine.tables.spark.java import find_java
from mirror_engine.testing.cases import load

HOME = Path(__file__).parents[1]
CLUSTER = HOME / "docs/tutorials/to-a-cluster.md"
RUN = [HOME / "README.md", *sorted((HOME / "docs").rglob("*.md")), *sorted(PAGES.glob("ME*.md"))]
SESSIONS = {
    path.relative_to(HOME).as_posix(): path
    for path in RUN
    if path != CLUSTER and "\n```console\n" in path.read_text(encoding="utf-8")
}
NIGHTLY = {"docs/how-to/write-a-publisher.md": pytest.mark.nightly}
WIDE = {"README.md": "140", "docs/how-to/replicate.md": "140"}  # columns


@pytest.mark.slow
@pytest.mark.parametrize("name", [pytest.param(name, marks=NIGHTLY.get(name, ())) for name in SESSIONS])
def test_session_of_a_page_shows_what_is_printed(tmp_path, name):
    (tmp_path / "docs").symlink_to(HOME / "docs")
    assert steps(SESSIONS[name])
    cache = tmp_path / ".cache"
    cache.mkdir()
    (cache / "report-secret").write_text("0" * 32)  # compare's digests of keys
    options = {**WITHOUT_SPARK, "COLUMNS": WIDE.get(name, "100"), "MIRROR_ENGINE_CACHE": str(cache)}
    assert differences(SESSIONS[name], tmp_path, **options) == []


@pytest.mark.spark
@pytest.mark.nightly
def test_session_of_the_cluster_tutorial_shows_what_is_printed(tmp_path):
    quick = "-XX:TieredStopAtLevel=1 -XX:+UseParallelGC"  # of six JVMs that are soon over
    java = {"JAVA_HOME": str(find_java().home), "SPARK_LOCAL_IP": "127.0.0.1", "JDK_JAVA_OPTIONS": quick}
    java["SPARK_CONF_DIR"] = str(tmp_path)  # of the cluster's owner: few rows need few tasks
    few = ("sql.shuffle.partitions 1", "databricks.delta.snapshotPartitions 1", "sql.adaptive.enabled false")
    (tmp_path / "spark-defaults.conf").write_text("".join(f"spark.{each}\n" for each in few))
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port = unused.getsockname()[1]
    assert steps(CLUSTER)
    assert differences(CLUSTER, tmp_path, [("7077", str(port))], **java) == []


def test_every_tutorial_and_every_code_with_a_session_is_run():
    tutorials = {path.name for path in SESSIONS.values() if path.parent.name == "tutorials"} | {CLUSTER.name}
    assert tutorials == {path.name for path in CLUSTER.parent.glob("*.md")} - {"index.md"}
    codes = {code for code in CATALOG if load(code).has_session}
    assert codes == {path.stem for path in SESSIONS.values() if path.parent == PAGES}
    assert codes >= {"ME069", "ME081"}


@pytest.mark.parametrize(
    ("shown", "printed", "holds"),
    [
        ("Applied 1 file (0.4s).\n", "Applied 1 file (12s).\n", True),
        ("Applied 1 file (0.4s).\n", "Applied 2 files (0.4s).\n", False),
        ("one\n", "[10s] Items: committing 1 file\n[1m] Items: committing 1 file\none\n", True),
        ("one\n…\ntwo\n…\nfour\n", "one\n1\ntwo\n2\nfour\n", True),
        ("one\n…\ntwo\n…\nfour\n", "one\n1\n2\nfour\n", False),
        ("a  b\n", "a      b\n\n[0]", True),
        ("  a\n", "a\n", False),
        ("one\n[3]\n", "one\n[3]", True),
        ("one\n[3]\n", "one\n[0]", False),
        ("", "anything\n", False),
    ],
)
def test_dots_stand_for_any_lines_and_times_may_differ(shown, printed, holds):
    assert matches(shown, printed) is holds
