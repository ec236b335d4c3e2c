"""The wheel alone, in an empty environment: no PySpark, no pandas, no Java."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow  # installs some 400 MB

HOME = Path(__file__).parents[1]
LARGEST = 420_000_000  # bytes in site-packages
A_TEST = """
def test_a_publisher(mirror, landing_zone):
    landing_zone.table("Orders", keys=["id"]).initial_load({"id": 1})
    mirror.sync_until_caught_up()
    assert mirror.table("Orders").rows() == [{"id": 1}]
"""


PIP = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check"]


class Bare:
    """An environment with the wheel in it and nothing else, on a machine without Java."""

    def __init__(self, folder):
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder / "venv"], check=True)
        self.folder, self.programs = folder, folder / "venv" / "bin"
        (tools := folder / "tools").mkdir()
        self.environment = {"PATH": f"{self.programs}:{tools}", "HOME": str(folder)}

    def install(self, what):
        """Install it with what it needs, in the versions everything is tested with."""
        into = ["--python", self.programs / "python", "install", "--constraint", HOME / "constraints.txt"]
        subprocess.run([*PIP, *into, what], check=True, timeout=300)

    def run(self, *command, exit_code=0):
        """What a program prints, stderr included."""
        command = (str(self.programs / command[0]), *command[1:])
        done = subprocess.run(
            command, cwd=self.folder, env=self.environment, capture_output=True, text=True, check=False, timeout=120
        )
        assert done.returncode == exit_code, done.stdout + done.stderr
        return done.stdout + done.stderr


@pytest.fixture(scope="module")
def bare(tmp_path_factory):
    folder = tmp_path_factory.mktemp("bare")
    source = folder / "source"
    shutil.copytree(HOME / "mirror_engine", source / "mirror_engine", ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(HOME / name, source)
    made = Bare(folder)
    subprocess.run([*PIP, "wheel", "--no-deps", "."], cwd=source, check=True, timeout=300)
    made.install(next(source.glob("*.whl")))
    return made


def test_neither_pyspark_nor_pandas_comes_along(bare):
    packages = next(bare.programs.parent.glob("lib/python*/site-packages"))
    names = {path.name for path in packages.iterdir()}
    assert not names & {"pyspark", "delta", "py4j", "pandas", "starlette", "cryptography", "pytest"}
    assert sum(file.stat().st_size for file in packages.rglob("*") if file.is_file()) < LARGEST


def test_a_zone_is_validated_replicated_and_traced(bare):
    bare.run("mirror-engine", "init", "shop")
    assert "(4 tables, 10 files, 22 rows)" in bare.run("mirror-engine", "validate", "shop")
    assert "All tables have caught up" in bare.run("mirror-engine", "sync", "shop")
    assert "Matches the Delta table" in bare.run("mirror-engine", "-C", "shop", "trace", "row", "Items", "Sku=A1")
    assert "deltalake, which needs no Java" in bare.run("mirror-engine", "doctor")


def test_what_an_extra_would_bring_is_named(bare):
    bare.run("mirror-engine", "init", "refused")
    error = bare.run("mirror-engine", "sync", "refused", "--merge-engine", "spark", exit_code=1)
    assert "mirror-engine[spark]" in error
    assert "mirror-engine[emulator]" in bare.run("mirror-engine", "emulator", "start", "store", exit_code=2)


def test_the_pytest_plugin_needs_pytest_alone(bare):
    bare.install(f"{next((bare.folder / 'source').glob('*.whl'))}[pytest]")
    (bare.folder / "test_publisher.py").write_text(A_TEST)
    assert "1 passed" in bare.run("pytest", "-q", "test_publisher.py")
