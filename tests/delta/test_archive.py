"""The class-data archive: for one environment only, made once, and of no harm where it cannot be."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from mirror_engine import archiving
from mirror_engine.config import Config
from mirror_engine.tables.spark import session
from mirror_engine.tables.spark.archive import UNUSED_DAYS, Archive, archive_of
from mirror_engine.tables.spark.java import Java
from mirror_engine.tables.spark.launch import LaunchPlan

if TYPE_CHECKING:
    from collections.abc import Callable

JAVA = Java(Path("/opt/java"), "17.0.1", "Vendor 17.0.1+1")


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("MIRROR_ENGINE_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def jar(tmp_path: Path) -> Path:
    jar = tmp_path / "a.jar"
    jar.write_bytes(b"classes")
    return jar


def _made(archive: Archive) -> Archive:
    archive.path.parent.mkdir(parents=True, exist_ok=True)
    archive.path.touch()
    return archive


def test_an_archive_is_that_of_its_java_its_options_and_its_jars(jar: Path) -> None:
    others = [
        archive_of(JAVA, ["-XX:+UseSerialGC"], [jar]),
        archive_of(Java(JAVA.home, JAVA.version, "Another 17.0.1+1"), [], [jar]),
        archive_of(JAVA, [], []),
    ]
    first = archive_of(JAVA, [], [jar])
    assert archive_of(JAVA, [], [jar]) == first
    os.utime(jar, (1, 1))
    assert len({first.path, archive_of(JAVA, [], [jar]).path, *(other.path for other in others)}) == 5


def test_what_is_not_there_is_not_used(jar: Path) -> None:
    archive = archive_of(JAVA, [], [jar])
    assert archive.options() == ()
    assert f"-XX:SharedArchiveFile={archive.path}" in _made(archive).options()


def test_it_is_made_once_and_not_tried_again_where_that_failed(jar: Path) -> None:
    archive = archive_of(JAVA, [], [jar])
    assert archive.is_wanted
    archive.failed.touch()
    assert not archive.is_wanted
    archive.failed.unlink()
    assert not _made(archive).is_wanted


def test_nothing_is_made_in_a_cache_that_cannot_be(cache: Path, jar: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache.write_text("a file stands here", encoding="ascii")
    assert not archive_of(JAVA, [], [jar]).is_wanted
    monkeypatch.setenv("MIRROR_ENGINE_CACHE", f"{cache}s/a{os.pathsep}b")
    assert not archive_of(JAVA, [], [jar]).is_wanted


def test_archives_that_no_jvm_uses_any_more_go(jar: Path) -> None:
    mine, old, other = (_made(archive_of(JAVA, [option], [jar])) for option in ("a", "b", "c"))
    long_ago = time.time() - (UNUSED_DAYS + 1) * 86400
    for archive in (mine, old):
        os.utime(archive.path, (long_ago, long_ago))
    mine.options()
    other.remove_unused()
    assert [archive.is_made for archive in (mine, old, other)] == [True, False, True]


class _EndedJvm:
    """One that ends without a word."""

    def __init__(self, plan: LaunchPlan) -> None:
        self.plan = plan

    def end(self) -> None:
        pass


@pytest.mark.parametrize(
    ("profile", "archive_to", "begun"),
    [("local", None, [["brief", "jars"]]), ("ci", None, []), ("local", Path("made.jsa"), [])],
    ids=["a session of this machine", "in ci", "that which makes one"],
)
def test_only_a_session_that_had_none_has_one_made_when_it_ends(
    monkeypatch: pytest.MonkeyPatch, profile: Any, archive_to: Path | None, begun: list[list[str]]
) -> None:
    told: list[list[str]] = []
    monkeypatch.setattr(session, "begin_to_make", told.append)
    jvm: Any = _EndedJvm(LaunchPlan("brief", JAVA, (), "3g", Path(), archive_to))
    session._Shared(jvm, Config(spark_profile=profile, delta_jars_dir="jars"), []).end()
    assert told == begun


@pytest.fixture
def making(monkeypatch: pytest.MonkeyPatch, jar: Path) -> Callable[[Callable[..., None]], Archive]:
    """Makes an archive with work of the test's own."""
    monkeypatch.setattr(archiving, "find_java", lambda: JAVA)
    monkeypatch.setattr(archiving, "delta_jars", lambda *_: (jar,))

    def make(work: Callable[..., None]) -> Archive:
        monkeypatch.setattr(archiving, "_work", work)
        archiving.make_archive(Config(spark_profile="ci"), "brief")
        return LaunchPlan("brief", JAVA, (jar,), Config().driver_memory, Path()).archive()

    return make


def test_it_appears_whole_and_leaves_nothing_beside_it(making: Callable[[Callable[..., None]], Archive]) -> None:
    archive = making(lambda _root, _config, _profile, made: made.write_bytes(b"whole"))
    assert archive.path.read_bytes() == b"whole"
    assert {path.suffix for path in archive.path.parent.iterdir()} <= {".jsa", ".lock"}


def test_a_jvm_that_leaves_none_is_a_failure_that_is_remembered(
    making: Callable[[Callable[..., None]], Archive], jar: Path
) -> None:
    with pytest.raises(FileNotFoundError):
        making(lambda *_: None)
    assert LaunchPlan("brief", JAVA, (jar,), Config().driver_memory, Path()).archive().failed.exists()
