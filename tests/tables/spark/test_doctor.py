"""Checks of this machine, and their help."""

from __future__ import annotations

import importlib.metadata
from pathlib import Path

import pytest

from mirror_engine.config import Config
from mirror_engine.errors import JavaMissing
from mirror_engine.storage.stores import parse_url
from mirror_engine.tables.spark import choice, doctor
from mirror_engine.tables.spark.doctor import Check, checks, memory_bytes
from mirror_engine.tables.spark.java import Java

_GIB = 1024**3


@pytest.fixture(autouse=True)
def _machine(monkeypatch, tmp_path):
    monkeypatch.setattr(doctor, "find_java", lambda: Java(Path("/opt/java"), "17.0.1"))
    monkeypatch.setattr(doctor, "available_memory", lambda: 8 * _GIB)
    monkeypatch.setenv("MIRROR_ENGINE_CACHE", str(tmp_path / "cache"))


def _found(root=None, config=None):
    return {check.name: check for check in checks(root, config or Config())}


def test_every_failed_check_has_help_and_no_other(tmp_path):
    found = _found(tmp_path)
    assert all(bool(check.help) != check.ok for check in found.values())
    assert [name for name, check in found.items() if not check.ok] == ["Delta jars"]


def test_a_machine_without_java_fails_with_help(monkeypatch):
    def find_none():
        raise JavaMissing("none", "get one")

    monkeypatch.setattr(doctor, "find_java", find_none)
    assert _found()["Java"] == Check("Java", ok=False, found="none", help="get one")


def test_another_version_of_spark_or_delta_fails(monkeypatch):
    monkeypatch.setattr(importlib.metadata, "version", lambda _package: "4.1.0")
    found = _found()
    assert found["Spark"].found == "pyspark 4.1.0, expected 4.2.0"
    assert found["Delta"].help == "Run: python -m pip install delta-spark==4.4.0"


@pytest.mark.parametrize(
    ("config", "installed", "is_suggested"),
    [
        (Config(), True, True),
        (Config(spark_master="local[2]"), True, True),
        (Config(), False, False),
        (Config(merge_engine="spark"), True, False),
        (Config(merge_engine="arrow"), True, False),
        (Config(spark_profile="cluster"), True, False),
        (Config(spark_master="spark://host:7077"), True, False),
    ],
)
def test_arrow_is_suggested_where_spark_is_the_default(config, installed, is_suggested, monkeypatch):
    monkeypatch.setattr(choice, "find_spec", lambda _: object() if installed else None)
    assert bool(doctor.suggestion(config)) == is_suggested
    engine = _found(config=config)["Merge engine"]
    assert engine.ok
    assert ("--merge-engine arrow" in engine.found) == is_suggested


def test_arrow_is_not_suggested_under_spark_submit_or_in_a_store(monkeypatch):
    assert doctor.suggestion(Config()) != ""
    assert doctor.suggestion(Config(), parse_url("s3://bucket/shop")) == ""
    monkeypatch.setenv("PYSPARK_GATEWAY_PORT", "1")
    assert doctor.suggestion(Config()) == ""


def test_suggestion_has_the_figures_of_the_performance_page():
    page = " ".join((Path(__file__).parents[3] / "docs/performance.md").read_text(encoding="utf-8").split())
    assert doctor.suggestion(Config()) in page


def test_missing_jars_are_counted_not_fetched(tmp_path):
    assert _found()["Delta jars"].found == f"0 of 8 in {tmp_path}/cache/ivy/jars"
    assert "io.delta:delta-storage:4.4.0" in _found(config=Config(delta_jars_dir=str(tmp_path)))["Delta jars"].help
    assert not (tmp_path / "cache").exists()


def test_memory_must_hold_the_heap_and_one_gibibyte_more(monkeypatch):
    assert _found(config=Config(driver_memory="7g"))["Memory"].ok
    assert not _found(config=Config(driver_memory="7200m"))["Memory"].ok
    monkeypatch.undo()
    available = doctor.available_memory()
    assert available is None or available > 0


@pytest.mark.parametrize(
    ("written", "count"), [("2g", 2 * _GIB), ("512M", _GIB // 2), ("1024", _GIB), ("8gb", 8 * _GIB), ("much", 0)]
)
def test_sizes_are_read_as_spark_reads_them(written, count):
    assert memory_bytes(written) == count


def test_root_must_be_a_folder_that_can_be_written_or_made(tmp_path, monkeypatch):
    def refuse(**_):
        raise PermissionError(13, "Permission denied")

    def found(root):
        check = _found(root)["Write permission"]
        return check.ok, check.found

    (tmp_path / "file").touch()
    monkeypatch.chdir(tmp_path.parent)
    assert found(tmp_path / "new" / "root") == (True, f"{tmp_path} can be written, {tmp_path}/new/root will be created")
    assert found(Path(tmp_path.name)) == (True, f"{tmp_path} can be written")
    assert found(tmp_path / "file") == (False, f"{tmp_path}/file is not a folder")
    monkeypatch.setattr(doctor.tempfile, "TemporaryFile", refuse)
    assert found(tmp_path) == (False, f"{tmp_path}: Permission denied")


def test_the_arrow_engine_needs_no_java_and_no_spark(monkeypatch):
    monkeypatch.setattr(importlib.metadata, "version", lambda _package: "4.1.0")
    found = _found(config=Config(merge_engine="arrow"))
    assert list(found) == ["Python", "Merge engine", "Temporary disk"]
    assert all(check.ok for check in found.values())
