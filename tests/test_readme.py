"""The README's session is what the program says today."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

README = Path(__file__).parent.parent / "README.md"
VARYING = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d|\d+(\.\d)?s\b")


def steps(name):
    """Each command of a session with the output shown below it."""
    text = README.read_text("utf-8")
    session = text.partition(f"<!-- {name} -->")[2].partition(f"<!-- /{name} -->")[0]
    blocks = re.findall(r"```console\n(.*?)```", session, re.DOTALL)
    return [
        (command, shown.splitlines())
        for block in blocks
        for command, _, shown in (part.partition("\n") for part in block.split("$ ")[1:])
    ]


def comparable(lines):
    return [re.sub(r"\s+", " ", VARYING.sub("…", line)).strip() for line in lines]


@pytest.mark.slow
@pytest.mark.parametrize(("name", "at_least"), [pytest.param("session", 6, marks=pytest.mark.spark), ("check", 4)])
def test_a_session_of_the_readme_says_what_the_program_says(tmp_path, name, at_least):
    assert len(steps(name)) >= at_least
    for command, shown in steps(name):
        done = run(command, tmp_path)
        assert comparable((done.stdout + done.stderr).splitlines()) == comparable(shown), command


@pytest.mark.spark
@pytest.mark.slow
def test_the_lines_that_point_a_publisher_here_work_when_they_are_pasted(tmp_path):
    pasted = re.search(r"<!-- publish -->\n```sh\n(.*?)```\n<!-- /publish -->", README.read_text("utf-8"), re.DOTALL)[1]
    install, *lines = pasted.splitlines()
    assert install == "pip install --quiet '.[emulator]'"
    assert len(lines) == 5
    (tmp_path / "docs").symlink_to(README.parent / "docs")
    try:
        done = run("\n".join(["set -e", *lines]), tmp_path)
    finally:
        run(lines[-1], tmp_path)
    assert done.returncode == 0, done.stderr
    assert "id  city\n2   Wien\n1 row\n" in done.stdout


def run(commands, folder):
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    return subprocess.run(
        ["bash", "-c", commands],
        cwd=folder,
        env={**os.environ, "PATH": path, "COLUMNS": "140"},
        capture_output=True,
        text=True,
        check=False,
    )
