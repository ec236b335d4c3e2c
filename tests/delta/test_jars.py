"""The Delta jars: never half there, never unchecked, and a plain word when they cannot be had."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from mirror_engine.config import Config
from mirror_engine.errors import JarsMissing
from mirror_engine.tables.spark import jars
from mirror_engine.tables.spark import jars as ivy
from mirror_engine.tables.spark.jars import Jar, delta_jars, missing_jars
from mirror_engine.tables.spark.java import Java

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mirror_engine.events import Event

_JAVA = Java(Path("/nowhere"), "17.0.1")
_TWO = tuple(
    Jar("io.example", name, "1.0", hashlib.sha256(name.encode()).hexdigest())
    for name in ("delta-spark", "delta-kernel")
)


def _silent(event: Event) -> None:
    """Listen to nothing."""


class _Fetch:
    """Stands where Ivy does: writes each jar's right content, or what it is told to."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.asked: list[list[str]] = []
        self.content: dict[str, bytes] = {}
        monkeypatch.setattr(ivy, "fetch", self)

    def __call__(self, wanted: Sequence[tuple[str, str, str]], folder: Path, _java: Java, _listen: object) -> None:
        self.asked.append([name for _, name, _ in wanted])
        for _, name, version in wanted:
            (folder / f"{name}-{version}.jar").write_bytes(self.content.get(name, name.encode()))


@pytest.fixture
def fetch(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> _Fetch:
    monkeypatch.setattr(jars, "JARS", _TWO)
    monkeypatch.setenv("MIRROR_ENGINE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    return _Fetch(monkeypatch)


def test_jars_are_fetched_once(fetch: _Fetch) -> None:
    assert len(missing_jars(Config())) == 2
    first = delta_jars(Config(), _JAVA, _silent)
    assert [path.read_bytes() for path in first] == [b"delta-spark", b"delta-kernel"]
    assert delta_jars(Config(), _JAVA, _silent) == first
    assert fetch.asked == [["delta-spark", "delta-kernel"]]
    assert missing_jars(Config()) == ()


def test_a_failed_fetch_leaves_nothing_that_looks_complete(fetch: _Fetch, tmp_path: Path) -> None:
    fetch.content["delta-kernel"] = b"half"
    with pytest.raises(
        JarsMissing, match=r"io\.example:delta-kernel:1\.0 arrived from Maven Central with other content"
    ):
        delta_jars(Config(), _JAVA, _silent)
    assert len(missing_jars(Config())) == 2
    assert [path.name for path in (tmp_path / "cache" / "jars").iterdir() if path.suffix != ".lock"] == []
    fetch.content.clear()
    assert len(delta_jars(Config(), _JAVA, _silent)) == 2


def test_a_jar_removed_from_the_cache_is_fetched_again(fetch: _Fetch) -> None:
    delta_jars(Config(), _JAVA, _silent)[0].unlink()
    assert all(path.exists() for path in delta_jars(Config(), _JAVA, _silent))
    assert len(fetch.asked) == 2


def test_what_spark_fetched_before_is_taken_if_it_is_whole(fetch: _Fetch, tmp_path: Path) -> None:
    by_spark = tmp_path / "home" / ".ivy2.5.2" / "jars"
    by_spark.mkdir(parents=True)
    (by_spark / "io.example_delta-spark-1.0.jar").write_bytes(b"delta-spark")
    (by_spark / "io.example_delta-kernel-1.0.jar").write_bytes(b"delta-ker")
    delta_jars(Config(), _JAVA, _silent)
    assert fetch.asked == [["delta-kernel"]]


@pytest.mark.usefixtures("fetch")
def test_a_folder_of_jars_is_used_as_it_is_whoever_named_the_files(tmp_path: Path) -> None:
    folder = tmp_path / "offline"
    folder.mkdir()
    (folder / "delta-spark-1.0.jar").touch()
    (folder / "io.example_delta-kernel-1.0.jar").touch()
    (folder / "hadoop-client-api-3.4.2.jar").touch()
    found = delta_jars(Config(delta_jars_dir=str(folder)), _JAVA, _silent)
    assert [path.name for path in found] == ["delta-spark-1.0.jar", "io.example_delta-kernel-1.0.jar"]


def test_a_folder_that_lacks_a_jar_is_told_which_and_nothing_is_fetched(fetch: _Fetch, tmp_path: Path) -> None:
    (tmp_path / "delta-spark-1.0.jar").touch()
    with pytest.raises(JarsMissing) as raised:
        delta_jars(Config(delta_jars_dir=str(tmp_path)), _JAVA, _silent)
    assert raised.value.message == f"the folder of jars {tmp_path} lacks delta-kernel-1.0.jar"
    assert fetch.asked == []


@pytest.mark.usefixtures("fetch")
def test_a_cache_that_cannot_be_written_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("MIRROR_ENGINE_CACHE", str(tmp_path / "file"))
    with pytest.raises(JarsMissing, match="cannot be kept in") as raised:
        delta_jars(Config(), _JAVA, _silent)
    assert "MIRROR_ENGINE_CACHE" in raised.value.help


def test_the_jars_are_those_of_the_pinned_versions() -> None:
    delta = next(jar for jar in jars.JARS if jar.name.startswith("delta-spark"))
    assert (delta.name, delta.version) == ("delta-spark_4.2_2.13", jars.DELTA_VERSION)
    pins = Path(__file__).parents[2].joinpath("pyproject.toml").read_text(encoding="utf-8")
    assert f'"pyspark=={jars.SPARK_VERSION}"' in pins
    assert f'"delta-spark=={jars.DELTA_VERSION}"' in pins
