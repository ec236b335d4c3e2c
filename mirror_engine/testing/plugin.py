"""The pytest plugin: a landing zone and a mirror for each test that asks.

Nothing of the engine is loaded before a fixture is used.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator
    from pathlib import Path

    from mirror_engine.config import Config
    from mirror_engine.testing.landing_zone_writer import LandingZoneWriter
    from mirror_engine.testing.mirror import MirrorInTest
    from mirror_engine.testing.onelake import OneLakeInTest

WRITERS = ("memory", "arrow", "spark")
MIRROR = pytest.StashKey[Any]()  # gives the mirror of a test: another one after a reset


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option `--mirror-writer` and the ini options."""
    parser.getgroup("mirror-engine").addoption(
        "--mirror-writer",
        choices=WRITERS,
        help="Where the fixture `mirror` writes: memory (default), or Delta tables with arrow (no Java) or spark.",
    )
    parser.addini("mirror_writer", "Where the fixture `mirror` writes: memory, arrow or spark.", default="memory")
    parser.addini("mirror_config", "Options of the fixture `mirror`, a line each: strict = true", type="linelist")


def pytest_configure(config: pytest.Config) -> None:
    """Register the markers."""
    config.addinivalue_line("markers", "mirror_writer(name): where `mirror` writes here: memory, arrow or spark.")
    config.addinivalue_line("markers", "mirror_config(**options): options of `mirror`, as of mirror_engine.Config.")


@pytest.fixture
def landing_zone(tmp_path_factory: pytest.TempPathFactory) -> LandingZoneWriter:
    """An empty landing zone: `.path` is `ROOT/Files/LandingZone`, `.root` is ROOT; `.table(…)` lands files."""
    from mirror_engine.testing.landing_zone_writer import LandingZoneWriter  # noqa: PLC0415 - see the module

    return LandingZoneWriter(tmp_path_factory.mktemp("mirror"))


@pytest.fixture
def mirror(request: pytest.FixtureRequest, landing_zone: LandingZoneWriter) -> Iterator[MirrorInTest]:
    """The mirror of the landing zone; a table that it leaves blocked or halted fails the test."""
    from mirror_engine.tables.dry_run.memory import MemoryDeltaWriter  # noqa: PLC0415 - as above
    from mirror_engine.testing.mirror import MirrorInTest  # noqa: PLC0415 - see the module

    name = _writer(request)
    if name == "spark":
        request.getfixturevalue("_mirror_jvm")
    is_memory = name == "memory"
    config = _config(request, landing_zone.root, **({} if is_memory else {"merge_engine": name}))
    mirror = MirrorInTest(landing_zone.root, config, writer=MemoryDeltaWriter() if is_memory else None)
    request.node.stash[MIRROR] = lambda: mirror
    yield mirror
    mirror.close()


@pytest.fixture
def onelake(request: pytest.FixtureRequest, _onelake: OneLakeInTest) -> Iterator[OneLakeInTest]:
    """An empty OneLake with one mirrored database, to which publishers of this test are led; checked as `mirror`."""
    _onelake.reset(_config(request, _onelake.store, merge_engine="arrow"))
    request.node.stash[MIRROR] = lambda: _onelake.mirror
    with _onelake.environment():
        yield _onelake


@pytest.fixture(scope="session")
def _onelake(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OneLakeInTest]:
    """Keep the run's one emulator between tests."""
    from mirror_engine.testing.onelake import OneLakeInTest  # noqa: PLC0415 - see the module

    with OneLakeInTest(tmp_path_factory.mktemp("onelake")) as lake:
        yield lake


@pytest.fixture(scope="session")
def _mirror_jvm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Keep the run's one JVM between tests; each `mirror` takes a session of it."""
    from mirror_engine.config import Config  # noqa: PLC0415 - see the module
    from mirror_engine.tables.spark.session import end_session, start_session  # noqa: PLC0415 - as above

    folder = tmp_path_factory.mktemp("spark")
    spark = start_session(Config(spark_profile="ci"), scratch=folder / "scratch", log_file=folder / "spark.log")
    yield
    end_session(spark)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, object, object]:
    """Fail a test that leaves a table halted or blocked; add the mirror's state to the report of a failed test."""
    try:
        result = yield
    except (Exception, pytest.fail.Exception):
        if mirror := item.stash.get(MIRROR, None):
            item.add_report_section("call", "mirror", mirror().failure_report())
        raise
    if (mirror := item.stash.get(MIRROR, None)) and (unmet := mirror().unmet_expectations()):
        pytest.fail(unmet, pytrace=False)
    return result


def pytest_assertrepr_compare(op: str, left: object, right: object) -> list[str] | None:
    """Compare a mirrored table's rows with a list: by key and cell, with the reason why the table has not caught up."""
    if op != "==" or "mirror_engine.testing.mirror" not in sys.modules:  # then there are no such rows
        return None
    from mirror_engine.testing.mirror import Rows  # noqa: PLC0415 - see the module

    rows, expected = (left, right) if isinstance(left, Rows) else (right, left)
    if not (isinstance(rows, Rows) and isinstance(expected, list) and all(isinstance(row, dict) for row in expected)):
        return None
    try:
        lines = rows.differences(expected)
    except TypeError:  # a cell that no table holds: pytest's own explanation will do
        return None
    return [f"{len(rows)} mirrored rows == {len(expected)} expected rows", *lines]


def _writer(request: pytest.FixtureRequest) -> str:
    """The writer of the nearest marker, else of the command line, else of the ini file."""
    marker = request.node.get_closest_marker("mirror_writer")
    general = request.config.getoption("--mirror-writer") or request.config.getini("mirror_writer")
    names = [*marker.args, *marker.kwargs.values()] if marker else [general]
    if len(names) == 1 and names[0] in WRITERS:
        return str(names[0])
    found = ", ".join(map(repr, names)) or "nothing"
    return pytest.fail(f"mirror_writer: found {found}, allowed {', '.join(WRITERS)}", pytrace=False)


def _config(request: pytest.FixtureRequest, root: Path, **defaults: object) -> Config:
    """The ini file's options, overridden by those of the markers, the nearest last."""
    from mirror_engine.config import load  # noqa: PLC0415 - see the module
    from mirror_engine.errors import ConfigError  # noqa: PLC0415 - as above

    lines = [line.partition("=") for line in request.config.getini("mirror_config")]
    options: dict[str, Any] = defaults | {name.strip(): value.strip() for name, _, value in lines}
    for marker in reversed([*request.node.iter_markers("mirror_config")]):
        options |= marker.kwargs
    try:
        return load(root, options, {})
    except ConfigError as error:
        pytest.fail(f"mirror_config: {error.message}", pytrace=False)
