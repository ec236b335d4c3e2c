"""`explain --try`: the example of a code lands whole, and the commands that it names find the code."""

from __future__ import annotations

import json
import shlex

import pytest

from mirror_engine.cli.schema import schema_of

pytestmark = pytest.mark.slow  # whole commands


@pytest.mark.parametrize("code", ["ME017", "ME022", "ME037", "ME075", "ME077"])  # with stages, options
def test_named_commands_find_the_code(code, cli, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    landed = cli("explain", code, "--try", "lab")
    assert landed.code == 0
    named = landed.out.partition("Next:\n")[2].splitlines()
    assert named
    assert any(code in cli(*shlex.split(line)[1:]).out for line in named)


def test_a_later_stage_lands_after_the_engine_has_run(cli, tmp_path):
    root = tmp_path / "lab"
    document = json.loads(cli("explain", "ME066", "--try", str(root), "--json").out)
    assert document["landed"]["title"] == "Table folder recreated"
    assert [(stage["removed"], len(stage["files"])) for stage in document["landed"]["stages"]] == [
        ([], 3),
        (["Orders"], 2),
    ]
    assert sorted(document["landed"]) == sorted(schema_of("explain")["$defs"]["Landed"]["properties"])
    assert (root / "Tables/dbo/Orders/_delta_log").is_dir()
