"""`generate`: its options, and what it says it landed."""

from __future__ import annotations

import json

import pytest


@pytest.mark.slow
def test_command_lands_what_it_is_told(cli, tmp_path):
    line = ("generate", tmp_path / "shop", "--tables", "2", "--rows", "3", "--rate", "600/m", "--for", "0.2s")
    printed = cli(*line, "--mix", "1:0:0", "--every", "0.1s")
    assert printed.out.startswith(
        "Landed 6 rows of initial load, 2 inserts, 0 updates, 0 deletes in 4 files of 2 tables ("
    )
    document = json.loads(cli(*line, "--json").out)
    assert [each["loaded"] for each in document["tables"]] == [0, 0]
    assert cli("validate", tmp_path / "shop").code == 0
    for flag, value in (("--rate", "0/s"), ("--mix", "0:0:0"), ("--every", "0s")):
        assert cli(*line, flag, value).code == 2
