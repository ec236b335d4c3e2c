"""`make mutmut` names what nothing noticed, and fails where that is too much."""

from __future__ import annotations

import json

import pytest

import mutmut_night

RESULTS = "    a.x_f__mutmut_1: survived\n    a.x_f__mutmut_2: no tests\n"
LINES = {"a.x_f__mutmut_1": ["  -    x < y", "  +    x <= y"]}


@pytest.mark.parametrize(("killed", "code"), [(5, 0), (4, 1), (0, 1)])
def test_share_of_noticed_mutants_has_a_floor(tmp_path, monkeypatch, capsys, killed, code):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mutants").mkdir()
    stats = {"killed": killed, "survived": 3, "no_tests": 4, "timeout": 0, "segfault": 0, "suspicious": 0}
    (tmp_path / "mutants/mutmut-cicd-stats.json").write_text(json.dumps(stats))
    monkeypatch.setattr(mutmut_night, "mutmut", lambda *words: RESULTS if words == ("results",) else "")
    monkeypatch.setattr(mutmut_night, "lines_of", LINES.__getitem__)
    assert mutmut_night.main([]) == code
    assert capsys.readouterr().out.startswith(f"{killed} of {killed + 3} changes noticed, ")
    assert (tmp_path / "mutants/survivors.txt").read_text() == "a.x_f__mutmut_1\n  -    x < y\n  +    x <= y\n"


def test_failed_run_of_the_tool_is_an_error(monkeypatch):
    monkeypatch.setattr(mutmut_night.sys, "executable", "false")
    with pytest.raises(mutmut_night.subprocess.CalledProcessError):
        mutmut_night.main([])


def test_three_nights_try_every_module_once():
    nights = [set(mutmut_night.of_night(night)) for night in range(20_000, 20_003)]
    assert sum(map(len, nights)) == len(set.union(*nights)) > 20
    assert {"mirror_engine.engine.planner.*", "mirror_engine.engine.recovery.*"} < set.union(*nights)
