"""The pytest plugin: a landing zone, a publisher and a mirror for each test that asks; costs the others nothing.

Nothing of the engine is loaded before a fixture is used.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator

    from mirror_engine.config import Config
    from mirror_engine.publisher.landing_zone_writer import LandingZoneWriter
    from mirror_engine.publisher.testing.mirrored import LandingZone, MirrorInTest

WRITERS = ("memory", "spark")
MIRROR = pytest.StashKey["MirrorInTest"]()


def pytest_addoption(parser: pytest.Parser) -> None:
    """The option `--mirror-writer`, and what an ini file may say."""
    parser.getgroup("mirror-engine").addoption(
        "--mirror-writer",
        choices=WRITERS,
        help="What the fixture `mirror` writes with: memory (default; no Java) or spark (real Delta tables).",
    )
    parser.addini("mirror_writer", "What the fixture `mirror` writes with: memory or spark.", default="memory")
    parser.addini("mirror_config", "Options of the fixture `mirror`, a line each: strict = true", type="linelist")


def pytest_configure(config: pytest.Config) -> None:
    """Make the markers known."""
    config.addinivalue_line("markers", "mirror_writer(name): what `mirror` writes with here: memory or spark.")
    config.addinivalue_line("markers", "mirror_config(**options): options of `mirror`, as of mirror_engine.Config.")


@pytest.fixture
def landing_zone(tmp_path_factory: pytest.TempPathFactory) -> LandingZone:
    """An empty landing zone: `.path` is `ROOT/Files/LandingZone`, `.root` is ROOT."""
    from mirror_engine.landing_zone.layout import ZONE  # noqa: PLC0415 - the plugin must cost nothing
    from mirror_engine.publisher.testing.mirrored import LandingZone  # noqa: PLC0415 - as above

    root = tmp_path_factory.mktemp("mirror")
    (root / ZONE).mkdir(parents=True)
    return LandingZone(root, root / ZONE)


@pytest.fixture
def publisher(landing_zone: LandingZone) -> LandingZoneWriter:
    """A good publisher for the landing zone, in the protocol's words."""
    from mirror_engine.publisher.landing_zone_writer import LandingZoneWriter  # noqa: PLC0415 - the plugin must cost nothing

    return LandingZoneWriter(landing_zone.root)


@pytest.fixture
def mirror(request: pytest.FixtureRequest, landing_zone: LandingZone) -> Iterator[MirrorInTest]:
    """The mirror of the landing zone; a table it leaves blocked or latched fails the test."""
    from mirror_engine.publisher.testing.mirrored import MirrorInTest  # noqa: PLC0415 - as above
    from mirror_engine.tables.merge.memory import MemoryDeltaWriter  # noqa: PLC0415 - the plugin must cost nothing

    is_spark = _writer(request) == "spark"
    if is_spark:
        request.getfixturevalue("_mirror_jvm")
    made = MirrorInTest(landing_zone.root, _config(request), writer=None if is_spark else MemoryDeltaWriter())
    request.node.stash[MIRROR] = made
    yield made
    made.close()


@pytest.fixture(scope="session")
def _mirror_jvm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Keeps the run's one JVM between tests; each `mirror` takes a session of it."""
    from mirror_engine.config import Config  # noqa: PLC0415 - the plugin must cost nothing
    from mirror_engine.tables.spark.session import end_session, start_session  # noqa: PLC0415 - as above

    folder = tmp_path_factory.mktemp("spark")
    spark = start_session(
        Config(spark_profile="ci"), scratch=folder / "scratch", log_file=folder / "spark.log", profile="brief"
    )
    yield
    end_session(spark)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, object, object]:
    """A test that passed fails where it leaves a table stuck; one that failed is told how the mirror was."""
    try:
        result = yield
    except (Exception, pytest.fail.Exception):
        if (made := item.stash.get(MIRROR, None)) is not None:
            item.add_report_section("call", "mirror", made.story())
        raise
    if (made := item.stash.get(MIRROR, None)) is not None and (complaint := made.complaint()):
        pytest.fail(complaint, pytrace=False)
    return result


def pytest_assertrepr_compare(op: str, left: object, right: object) -> list[str] | None:
    """A mirrored table's rows against a list: by key, cell by cell, with what keeps the table from being level."""
    if op != "==" or "mirror_engine.publisher.testing.mirrored" not in sys.modules:  # then there are none
        return None
    from mirror_engine.publisher.testing.mirrored import Rows  # noqa: PLC0415 - the plugin must cost nothing

    rows, expected = (left, right) if isinstance(left, Rows) else (right, left)
    if not (isinstance(rows, Rows) and isinstance(expected, list) and all(isinstance(row, dict) for row in expected)):
        return None
    try:
        told = rows.differences(expected)
    except TypeError:  # a cell that no table holds: pytest's own words will do
        return None
    return [f"{len(rows)} mirrored rows == {len(expected)} expected rows", *told]


def _writer(request: pytest.FixtureRequest) -> str:
    """The nearest marker wins over the command line, that over the ini file."""
    marker = request.node.get_closest_marker("mirror_writer")
    if marker is None:
        given = [("", request.config.getoption("--mirror-writer") or request.config.getini("mirror_writer"))]
    else:
        given = [*(("", name) for name in marker.args), *marker.kwargs.items()]
    match given:
        case [("" | "name", str(name))] if name in WRITERS:
            return name
    found = ", ".join(f"{word}={value!r}" if word else repr(value) for word, value in given) or "nothing"
    return pytest.fail(f"mirror_writer: found {found}, allowed {' or '.join(WRITERS)}", pytrace=False)


def _config(request: pytest.FixtureRequest) -> Config:
    """The ini file's options, overlaid by those of the markers, the nearest last."""
    from mirror_engine.config import load  # noqa: PLC0415 - the plugin must cost nothing
    from mirror_engine.errors import ConfigError  # noqa: PLC0415 - as above

    lines = [line.partition("=") for line in request.config.getini("mirror_config")]
    given: dict[str, Any] = {name.strip(): value.strip() for name, _, value in lines}
    for marker in reversed([*request.node.iter_markers("mirror_config")]):
        given |= marker.kwargs
    try:
        return load(request.getfixturevalue("landing_zone").root, given, {})
    except ConfigError as error:
        pytest.fail(f"mirror_config: {error.message}", pytrace=False)
