"""The README and the page that goes on from it: each command and program is run, and the picture is of today."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from importlib.metadata import metadata
from importlib.util import find_spec
from pathlib import Path

import pytest
from sessions import BLOCK, WITHOUT_SPARK, blocks, comparable, own_environment

import recording

README = Path(__file__).parent.parent / "README.md"
PAGES = (README, *(README.parent / "docs" / name for name in ("how-to/replicate.md", "emulator.md")))
TEXT = "".join(page.read_text("utf-8") for page in PAGES)
STUB = """
from mirror_engine.testing.landing_zone_writer import LandingZoneWriter

def export(to):
    LandingZoneWriter(to.parents[1]).table("sales.Orders", keys=["id"]).initial_load({"id": 1, "city": "Bellevue"})
"""


def part(name):
    """What is between the comments `name` and `/name`."""
    return TEXT.partition(f"<!-- {name} -->")[2].partition(f"<!-- /{name} -->")[0]


def pasted(name):
    """The lines of a part's one shell block."""
    return BLOCK.search(part(name))[3].splitlines()


def python_block(first_line):
    """The program that begins so."""
    return next(text for page in PAGES for _, _, text in blocks(page, "python") if text.startswith(first_line))


@pytest.mark.parametrize("page", PAGES[:2], ids=lambda page: page.name)
def test_every_block_is_run_by_a_test_of_this_file(page):
    marked = "".join(part(name) for name in ("fresh", "install", "check", "publish", "run", "session", "onelake"))
    programs = [python_block("import my_publisher"), python_block("from mirror_engine import Mirror")]
    run = {each.text for each in blocks(page, "console")}  # tests/test_sessions.py
    assert blocks(page)
    assert [each.text for each in blocks(page) if each.text not in {*programs, *run} and each.text not in marked] == []


def test_make_knows_the_commands_of_a_fresh_machine_and_ci_runs_the_last():
    demo, test = (line.partition("  ")[0] for line in pasted("fresh"))
    assert "mirror-engine sync demo" in would_run(demo)
    assert "pytest -m 'spark and not nightly'" in would_run(test)
    assert (README.parent / ".ci/run").read_text("utf-8").splitlines()[-1] == test


@pytest.mark.slow
def test_demo_applies_the_example_and_then_a_change(tmp_path):
    recipe = would_run("make demo").partition("rm -rf demo\n")[2]
    done = run(f"set -e\n{recipe.replace('.venv/bin/', '')}", tmp_path)
    assert done.returncode == 0, done.stderr
    before, after = re.findall(r"^Sku .*?rows$", done.stdout, re.DOTALL | re.MULTILINE)
    assert "A1   Lamp" in before
    assert "A1" not in after
    assert "C3   Cable" in after
    assert "3 commits" in done.stdout
    assert done.stdout.endswith("4 tables: 4 caught up.\n")
    assert (tmp_path / "demo/Tables/Sales/Orders/_delta_log").is_dir()


def would_run(command):
    """What `make` prints of a target; the variables of a `make` that runs this test are not for another."""
    environment = {name: text for name, text in os.environ.items() if name not in {"MAKEFLAGS", "MFLAGS", "MAKELEVEL"}}
    words = [*command.split(), "--dry-run"]
    return subprocess.run(words, cwd=README.parent, env=environment, capture_output=True, text=True, check=True).stdout


@pytest.mark.slow
def test_run_applies_what_is_there_and_ends_when_it_is_told(tmp_path):
    make, begin, look = (line.partition("  ")[0] for line in pasted("run"))
    run(make, tmp_path)
    caught_up = f"{look} | tee shown | grep -q '4 tables: 4 caught up'"
    script = f"{begin} & engine=$!; until {caught_up}; do sleep 0.2; done; kill $engine; wait $engine; cat shown"
    assert "4 tables: 4 caught up" in run(f"timeout 60 bash -c {shlex.quote(script)}", tmp_path).stdout


def test_the_extras_that_are_installed_exist():
    extras = {name for names in re.findall(r"\[(.*)\]", part("install")) for name in names.split(",")}
    assert extras
    assert extras <= set(metadata("mirror-engine").get_all("Provides-Extra"))


@pytest.mark.nightly
def test_the_lines_that_install_work_when_they_are_pasted(tmp_path):
    *lines, by_uvx = pasted("install")
    pip = f"{sys.executable} -m pip --disable-pip-version-check --python {sys.executable} install --dry-run --no-deps"
    done = run(lines[-1].replace("pip install", pip), README.parent)
    assert (done.returncode, "WARNING" in done.stderr) == (0, False), done.stderr
    if find_spec("uv") is None:
        pytest.skip("needs uv")
    caches = f"UV_CACHE_DIR={tmp_path}/cache UV_TOOL_DIR={tmp_path}/tools {sys.executable} -m uv tool run"
    done = run(by_uvx.replace("uvx", caches), README.parent)
    assert "Usage: mirror-engine validate" in done.stdout, done.stderr


@pytest.mark.slow
def test_the_lines_that_point_a_publisher_here_work_when_they_are_pasted(tmp_path):
    """In the same shell, the lines that ask a real OneLake ask the emulator."""
    install, *lines = pasted("publish")
    start, unset, stop = pasted("shell")
    lines += [start, *pasted("onelake"), unset, 'test -z "$HTTPS_PROXY$AZURE_CLIENT_ID"', stop]
    assert install == "pip install --quiet '.[emulator]'"
    (tmp_path / "docs").symlink_to(README.parent / "docs")
    try:
        done = run("\n".join(["set -e", *lines]), tmp_path)
    finally:
        run(stop, tmp_path)
    assert done.returncode == 0, done.stderr
    assert "id  city\n2   Wien\n1 row\n" in done.stdout
    assert "Sales.Stores  caught up" in done.stdout
    assert "Compared 1 table: 1 equal." in done.stdout


@pytest.mark.slow
def test_the_test_of_a_publisher_passes(tmp_path):
    (tmp_path / "my_publisher.py").write_text(STUB)
    (tmp_path / "test_it.py").write_text(python_block("import my_publisher"))
    done = run(f"{sys.executable} -m pytest -q -c {os.devnull} --rootdir . test_it.py", tmp_path)
    assert "1 passed" in done.stdout, done.stdout


@pytest.mark.slow
def test_the_program_runs(tmp_path):
    run("mirror-engine init shop", tmp_path)
    script = python_block("from mirror_engine import Mirror")
    done = run(f"{sys.executable} - <<'END'\n{script}END", tmp_path)
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
def test_the_recording_shows_what_the_program_says():
    """Times differ from run to run; `make recording` makes it anew."""
    shown = recording.words(recording.TARGET.read_text(encoding="utf-8"))
    printed = recording.words(recording.svg(recording.session()))
    assert comparable("\n".join(shown)) == comparable("\n".join(printed))
    assert sum("ME037" in line for line in shown) == 2
    assert shown[-1] == "3 rows"


def run(commands, folder):
    """Without a JVM: with Spark the program prints the same, as the tutorial of clusters does."""
    return subprocess.run(
        ["bash", "-c", commands],
        cwd=folder,
        env=own_environment(COLUMNS="140", **WITHOUT_SPARK),
        capture_output=True,
        text=True,
        check=False,
    )
