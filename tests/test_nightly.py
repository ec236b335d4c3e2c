"""`make nightly` runs every part, tells how each ended, and fails where one did; what is slow is in one of its runs."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest
import yaml

import nightly

HOME = Path(__file__).parents[1]
MAKEFILE = (HOME / "Makefile").read_text(encoding="utf-8")
MAKE = """#!/bin/sh
echo "$2 begins"; [ "$2" != image-check ] || { echo "skipped: no root"; exit 0; }
echo "this is $2"; echo; echo "nanobind: leaked" >&2; [ "$2" != torture ] || { echo "make: *** Error" >&2; exit 2; }
"""


@pytest.fixture(autouse=True)
def make(tmp_path, monkeypatch):
    """A `make` by which torture fails."""
    (tmp_path / "make").write_text(MAKE)
    (tmp_path / "make").chmod(0o755)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MIRROR_TEST_SEED", "7")
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")


@pytest.mark.parametrize(
    ("parts", "code", "end"),
    [([], 1, "failed: torture; see nightly/PART.log"), (["fuzz", "soak"], 0, "none failed")],
    ids=["all", "chosen"],
)
def test_summary_has_each_part_and_the_code_tells_of_a_failure(tmp_path, capsys, parts, code, end):
    assert nightly.main(parts) == code
    seed, *lines, last = capsys.readouterr().out.splitlines()
    assert seed == "MIRROR_TEST_SEED=7"
    ran = parts or nightly.PARTS
    ends = {"torture": ("FAILED", "this is torture"), "image-check": ("skipped", "skipped: no root")}
    expected = [(part, *ends.get(part, ("passed", f"this is {part}"))) for part in ran]
    assert lines == [f"{verdict:<8}{part:<12}   0.0 min  {said}" for part, verdict, said in expected]
    assert last == end
    assert (tmp_path / "nightly/summary.txt").read_text().splitlines() == [seed, *lines, last]
    log = (tmp_path / f"nightly/{ran[-1]}.log").read_text().splitlines()
    assert sorted(log) == sorted([f"{ran[-1]} begins", f"this is {ran[-1]}", "", "nanobind: leaked"])


def test_parts_are_targets_of_make():
    assert [part for part in nightly.PARTS if f"\n{part}: " not in MAKEFILE] == []


def test_workflow_of_the_night_runs_every_part():
    (job,) = yaml.safe_load((HOME / ".github/workflows/nightly.yml").read_text(encoding="utf-8"))["jobs"].values()
    assert tuple(job["strategy"]["matrix"]["part"]) == nightly.PARTS


def test_workflow_of_a_change_runs_what_ci_runs():
    (job,) = yaml.safe_load((HOME / ".github/workflows/ci.yml").read_text(encoding="utf-8"))["jobs"].values()
    assert [step["run"] for step in job["steps"] if "run" in step] == [".ci/run"]


@pytest.mark.parametrize("spark", [False, True])
@pytest.mark.parametrize(("slow", "nightly"), [(False, False), (True, False), (True, True)])
def test_each_test_is_in_one_run_whatever_its_markers(spark, slow, nightly):
    """A test that is `nightly` is `slow`: conftest.py. What `make check` runs is part of `make test`.

    The night draws other examples for the properties that `make test` checks.
    """
    markers = {"spark": spark, "slow": slow, "nightly": nightly, "hypothesis": False}
    quick, *others = (
        eval(quoted or word, markers)  # noqa: S307 - our own words
        for quoted, word in re.findall(r"pytest [^\n]*?-m (?:'([^']+)'|(\w+))", MAKEFILE)
    )
    assert others.count(True) == 1
    assert not quick or not nightly
