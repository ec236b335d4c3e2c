"""`validate` of zones as beginners break them: message, place, severity, help, order and exit code of each mistake."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from broken_zones import ZONES, build

_SECTIONS = (Path(__file__).parent.parent / "broken_zones.txt").read_text(encoding="utf-8")
EXPECTED = dict(section.split("\n", 1) for section in re.split(r"^# ", _SECTIONS, flags=re.MULTILINE)[1:])


def test_every_broken_zone_has_its_messages() -> None:
    assert [*EXPECTED] == [*ZONES]


@pytest.mark.parametrize(  # every fifth one in the quick look
    "name", [pytest.param(name, marks=pytest.mark.slow if at % 5 else ()) for at, name in enumerate(ZONES)]
)
def test_validate_names_cause_place_and_help(tmp_path, cli, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    build(Path(), name)
    printed = cli("validate", ".")
    assert f"{printed.out}{printed.err}[{printed.code}]" == EXPECTED[name].rstrip("\n")
