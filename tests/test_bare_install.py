"""Built twice byte by byte equal; and the wheel alone, in an empty environment: no PySpark, no pandas, no Java."""

from __future__ import annotations

import os
import subprocess
import sys
from functools import partial
from importlib.util import find_spec
from pathlib import Path

import pytest

import release_check

pytestmark = pytest.mark.slow  # the wheel alone is some 400 MB with what it needs: at night

HOME = Path(__file__).parents[1]
LARGEST = 420_000_000  # bytes in site-packages
A_TEST = """
def test_a_publisher(mirror, landing_zone):
    landing_zone.table("Orders", keys=["id"]).initial_load({"id": 1})
    mirror.sync_until_caught_up()
    assert mirror.table("Orders").rows() == [{"id": 1}]
"""


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """The sdist and the wheel."""
    return sorted(release_check.build_twice(tmp_path_factory.mktemp("build")), key=lambda path: path.suffix)


@pytest.fixture(scope="module")
def bare(tmp_path_factory, built):
    made = release_check.try_wheel(built[1], tmp_path_factory.mktemp("bare") / "it")
    made.wheel = built[1]
    return made


def test_two_equal_builds_hold_what_they_should(built):
    release_check.check_contents(*built)
    release_check.check_metadata(built)
    release_check.check_version()


@pytest.mark.nightly
def test_neither_pyspark_nor_pandas_comes_along(bare):
    packages = next(bare.programs.parent.glob("lib/python*/site-packages"))
    names = {path.name for path in packages.iterdir()}
    assert not names & {"pyspark", "delta", "py4j", "pandas", "starlette", "cryptography", "pytest"}
    assert sum(file.stat().st_size for file in packages.rglob("*") if file.is_file()) < LARGEST


@pytest.mark.nightly
def test_a_replicated_zone_is_traced(bare):
    assert "Matches the Delta table" in bare.run("mirror-engine", "-C", "shop", "trace", "row", "Items", "Sku=A1")
    assert "arrow, which needs no Java" in bare.run("mirror-engine", "doctor")
    assert "Next:" in bare.run("mirror-engine", "explain", "ME037", "--try", "example")


@pytest.mark.nightly
def test_what_an_extra_would_bring_is_named(bare):
    bare.run("mirror-engine", "init", "refused")
    for command in (["sync", "refused"], ["run", "refused"], ["maintain", "-C", "refused"]):
        error = bare.run("mirror-engine", *command, "--spark-master", "spark://nohost:7077", exit_code=2)
        assert "--spark-master: it needs PySpark" in error
    error = bare.run("mirror-engine", "sync", "refused", "--merge-engine", "spark", exit_code=1)
    assert "mirror-engine[spark]" in error


@pytest.mark.nightly
def test_an_extra_is_installed_as_its_hint_has_it(bare):
    command = [*bare.pip, "--dry-run", "mirror-engine[emulator]"]
    done = subprocess.run(command, check=True, timeout=300, capture_output=True, text=True)
    would = done.stdout.rpartition("Would install ")[2]
    assert "starlette" in would
    assert "mirror" not in would


@pytest.mark.nightly
@pytest.mark.skipif(find_spec("uv") is None, reason="needs uv")
def test_uvx_runs_it_from_the_wheel(bare):
    caches = {"UV_CACHE_DIR": str(bare.folder / "uv"), "UV_TOOL_DIR": str(bare.folder / "tools-of-uv")}
    bare.run("mirror-engine", "init", "run-by-uv")
    command = ["-m", "uv", "tool", "run", "--from", bare.wheel, "mirror-engine", "validate", bare.folder / "run-by-uv"]
    run = partial(subprocess.run, capture_output=True, text=True, check=True, timeout=300)
    done = run([sys.executable, *command], env={**os.environ, **caches})
    assert "(4 tables, 10 files, 22 rows)" in done.stdout


@pytest.mark.nightly
def test_the_pytest_plugin_needs_pytest_alone(bare):
    bare.install("mirror-engine[pytest]")  # as the hint has it, which asks no index for the package itself
    (bare.folder / "test_publisher.py").write_text(A_TEST)
    assert "1 passed" in bare.run("pytest", "-q", "test_publisher.py")
