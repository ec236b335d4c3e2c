"""What all tests share: the one Spark session of the run."""

from __future__ import annotations

import gc
import os
import re
import subprocess
import sys
from collections import Counter
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest
from hypothesis import settings
from quick_folder import quick_folder
from seed import IS_DRAWN
from shop import Shop

from mirror_engine.config import Config
from mirror_engine.landing_zone.layout import LOGS, SCRATCH, TABLES
from mirror_engine.testing.landing_zone_writer import LandingZoneWriter

FETCH = """
import sys; from pathlib import Path; from mirror_engine.config import Config; folder = Path(sys.argv[1])
from mirror_engine.tables.spark.session import end_session, start_session
end_session(start_session(Config(), scratch=folder, log_file=folder / "spark.log", scheme=sys.argv[2]))
"""
QUICK = "not spark and not slow"
SPARK = "spark and not nightly"
MARKS_OF_MODULE = re.compile(r"^pytestmark = (?:\[[^\]]*\]|.*)", re.MULTILINE)
pytest_plugins = ["store_servers"]
settings.register_profile("ours", deadline=None, derandomize=not IS_DRAWN)  # machines are busy
settings.load_profile("ours")


@pytest.fixture(scope="session")
def spark(tmp_path_factory):
    """The run's one session, which compiles little Java; whoever sets confs takes a `child_session` of it."""
    from mirror_engine.tables.spark.session import end_session, start_session  # noqa: PLC0415 - only Spark's tests need it

    folder = tmp_path_factory.mktemp("spark")
    session = start_session(Config(spark_profile="ci"), scratch=folder / "scratch", log_file=folder / "spark.log")
    session.conf.set("spark.sql.codegen.wholeStage", "false")
    yield session
    end_session(session)


@pytest.fixture(scope="session")
def mirror_writer(spark):  # noqa: ARG001 - keeps the JVM
    """Makes the Spark writer of a ROOT, with a session in the run's one JVM."""
    from mirror_engine.tables.merge.spark import SparkDeltaWriter  # noqa: PLC0415 - as above
    from mirror_engine.tables.spark.session import start_session  # noqa: PLC0415 - only Spark's tests need it

    made = []

    def make(root):
        scratch, log_file = root / SCRATCH, root / LOGS / "spark.log"
        start = lambda: start_session(Config(spark_profile="ci"), scratch=scratch, log_file=log_file)  # noqa: E731 - as `Mirror` does
        made.append(SparkDeltaWriter(root / TABLES, scratch, start))
        return made[-1]

    yield make
    for writer in made:
        writer.close()


@pytest.fixture(scope="session")
def store_jars(tmp_path_factory):
    """Has Spark fetch a store's jars, by its URL's scheme, before anything stands between it and their repository."""
    from mirror_engine.tables.spark.java import find_jars  # noqa: PLC0415 - only Spark's tests need it

    def fetch(scheme):
        if None in find_jars(Config(), scheme).values():
            folder = tmp_path_factory.mktemp("jars")
            subprocess.run([sys.executable, "-c", FETCH, folder, scheme], check=True)

    return fetch


@pytest.fixture(autouse=True)
def environment():
    """What a test sets in this process's environment ends with it, in whatever order its parts end."""
    before = dict(os.environ)
    yield
    for name in os.environ.keys() - before.keys():
        del os.environ[name]
    os.environ.update(before)


@pytest.fixture
def ram():
    """A folder in memory where the machine has one."""
    with quick_folder() as folder:
        yield Path(folder)


@pytest.fixture
def shop(tmp_path):
    return Shop(tmp_path / "shop")


@pytest.fixture
def lake(tmp_path):
    """A shop on real Delta tables, with two applied files."""
    from lake import Lake  # noqa: PLC0415 - most tests need no Delta table

    return Lake(tmp_path / "lake", files=2)


class Printed(NamedTuple):
    """Output and exit code of a command."""

    code: int
    out: str
    err: str


@pytest.fixture
def cli(capsys):
    """Run a command line; pytest must see no exception, whatever happens in it. Its JSON is that of its schema."""
    from json_schemas import check  # noqa: PLC0415 - most tests run no command

    from mirror_engine.cli.main import main  # noqa: PLC0415 - as above

    def run(*words):
        code = main([str(word) for word in words])
        printed = Printed(code, *capsys.readouterr())
        check(printed.out, printed.err)
        return printed

    return run


@pytest.fixture
def publisher(tmp_path):
    return LandingZoneWriter(tmp_path)


@pytest.fixture
def outside(tmp_path):
    """A folder next to ROOT that nothing may touch."""
    folder = tmp_path / "outside"
    folder.mkdir()
    (folder / "secret").write_bytes(b"secret")
    return folder


@pytest.fixture
def no_pauses(monkeypatch):
    """What failed is tried again at once."""
    monkeypatch.setattr("mirror_engine.engine.turns.FIRST_PAUSE_SECONDS", 0.0)


@pytest.fixture
def one_attempt(no_pauses, monkeypatch):  # noqa: ARG001 - a run is short
    """A run of the engine ends after the first cycle in which something failed."""
    monkeypatch.setattr("mirror_engine.engine.cycle.MAX_SYNC_ATTEMPTS", 1)


def pytest_configure():
    """Programs that tests start leave nothing at work behind them."""
    os.environ["MIRROR_ENGINE_SPARK_PROFILE"] = "ci"
    gc.disable()  # collection makes objects that stay


def pytest_ignore_collect(collection_path, config):
    """The quick look imports no module whose tests are all slow, and the run of Spark's tests none without any."""
    expression = config.getoption("markexpr")
    if expression not in {QUICK, SPARK} or not collection_path.match("test_*.py"):
        return None
    text = collection_path.read_text(encoding="utf-8")
    if expression == SPARK:
        return "mark.spark" not in text or None
    marks = MARKS_OF_MODULE.search(text)
    return (marks is not None and "mark.slow" in marks[0]) or None


def pytest_collection_modifyitems(items):
    """Property tests try hundreds of cases each: they are no part of the quick look, as tests of the night are none.

    Files with the most slow tests come first: the last ones fill what time the workers have left.
    """
    slow = Counter()
    for item in items:
        if hasattr(getattr(item, "obj", None), "hypothesis") or item.get_closest_marker("nightly"):
            item.add_marker(pytest.mark.slow)
        slow[item.path] += item.get_closest_marker("slow") is not None
    items.sort(key=lambda item: -slow[item.path])


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    """With `--dist loadfile`, one process runs all files that need S3Proxy or Azurite, which then start once."""
    if config.getoption("dist") != "loadfile":
        return None
    from xdist.scheduler import LoadFileScheduling  # noqa: PLC0415 - it is there where this hook is called

    @cache
    def needs_servers(file):
        text = (config.rootpath / file).read_text(encoding="utf-8")
        return file.startswith("tests/storage/") or "s3_server" in text

    class Scheduling(LoadFileScheduling):
        def _split_scope(self, nodeid):
            file = super()._split_scope(nodeid)
            return "servers" if needs_servers(file) else file

    return Scheduling(config, log)


def pytest_collection_finish():
    """Objects of ten thousand tests are not searched for garbage, which many tests do in their end."""
    gc.freeze()
    gc.enable()


def pytest_unconfigure():
    gc.unfreeze()
