"""docs/testing.md: its examples pass, and its reports are those that are printed."""

from __future__ import annotations

from pathlib import Path

import deltalake  # noqa: F401 - pytester unloads what its runs import, and neither this nor Arrow can be loaded twice
import pytest
from careless_publishers import CARELESS
from sessions import blocks

import mirror_engine.testing.mirror
from mirror_engine.testing.scenarios import check_publisher

pytest_plugins = ["pytester"]

PATH = Path(__file__).parents[2] / "docs/testing.md"
PAGE = PATH.read_text(encoding="utf-8")
FILES = {text.partition("\n")[0].removeprefix("# "): text for _, _, text in blocks(PATH, "python")}


@pytest.mark.slow
def test_the_examples_of_the_page_pass(pytester):
    for name, text in FILES.items():
        (pytester.path / name).write_text(text, encoding="utf-8")
    pytester.syspathinsert()
    options = ("-p", "no:cacheprovider", "-W", "error", "--strict-markers")
    assert pytester.runpytest_inprocess(*options).parseoutcomes().keys() == {"passed"}


def test_the_report_of_the_page_is_the_one_printed():
    scenario = "write during the initial load"
    printed = str(check_publisher(CARELESS[scenario][0].publish, only=[scenario]))
    assert f"```text\n{printed}\n```" in PAGE


@pytest.mark.slow
def test_the_failure_of_the_page_is_the_one_printed(pytester):
    report = next(text for _, _, text in blocks(PATH, "text") if "unexpected table states" in text)
    pytester.makepyfile(
        "def test_x(mirror, landing_zone):\n"
        "    landing_zone.table('Orders', keys=['id']).apply_changes((3, {'id': 1}))\n"
        "    mirror.sync()\n"
    )
    assert report in pytester.runpytest_inprocess().stdout.str()


def test_the_page_names_every_scenario_and_every_method():
    for scenario in CARELESS:
        assert f"| {scenario} |" in PAGE
    public = [name for name in vars(mirror_engine.testing.mirror.MirrorInTest) if not name.startswith("_")]
    internal = {"unmet_expectations", "failure_report"}
    assert [
        name for name in public if f"`{name}" not in PAGE and f"`{name}(" not in PAGE and name not in internal
    ] == []
