"""The stand-in for `az`, run as a publisher's library runs it."""

from __future__ import annotations

import json
import os
import subprocess
import time

import pytest

from mirror_engine.onelake.entra import az, install_az

pytestmark = pytest.mark.slow


def test_a_token_is_printed_as_json_or_bare(capsys) -> None:
    assert az(["account", "get-access-token", "--output", "json", "--scope", "https://x/.default"]) == 0
    reported = json.loads(capsys.readouterr().out)
    assert set(reported) == {"accessToken", "expiresOn", "expires_on", "subscription", "tenant", "tokenType"}
    assert reported["tokenType"] == "Bearer"
    assert 3500 < reported["expires_on"] - time.time() <= 3600
    assert az(["account", "get-access-token", "--resource", "https://x", "-o", "tsv", "--query", "accessToken"]) == 0
    bare = capsys.readouterr().out
    assert bare.count(".") == 2
    assert len(bare.split()) == 1


@pytest.mark.parametrize("words", [[], ["login"], ["account"], ["account", "show"], ["storage", "blob", "list"]])
def test_everything_else_is_refused(words, capsys) -> None:
    assert az(words) == 2
    assert "mirror-engine" in capsys.readouterr().err


def test_az_ignores_files_of_the_current_folder(tmp_path) -> None:
    folder = tmp_path / "it's a folder" / "bin"
    folder.parent.mkdir()
    install_az(folder)
    (tmp_path / "json.py").write_text("raise SystemExit('not this one')")
    environment = {"PATH": f"{folder}{os.pathsep}{os.environ['PATH']}", "PYTHONPATH": str(tmp_path)}
    words = ["az", "account", "get-access-token", "--tenant", "t"]
    done = subprocess.run(words, cwd=tmp_path, env=environment, capture_output=True, text=True, check=True)
    assert json.loads(done.stdout)["tenant"] == "t"
