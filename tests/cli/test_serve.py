"""`serve` and `env`: what they refuse, print and leave behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from mirror_engine.onelake import background

pytestmark = pytest.mark.slow

PYTHON = sys.executable
PROGRAM = [PYTHON, "-m", "mirror_engine.cli.main"]
TOKEN = "0123456789abcdef"  # noqa: S105 - a test's own


def test_others_are_let_in_only_on_purpose_and_with_a_token(say, tmp_path, monkeypatch) -> None:
    said = say("serve", tmp_path / "store", "--listen", "0.0.0.0")  # noqa: S104 - what is refused
    assert said.code == 2
    assert "--allow-remote" in said.err
    said = say("serve", tmp_path / "store", "--listen", "0.0.0.0", "--listen-anyway")  # noqa: S104 - likewise
    assert said.code == 2
    assert "MIRROR_ENGINE_TOKEN" in said.err
    monkeypatch.setenv("MIRROR_ENGINE_TOKEN", "short")
    assert say("serve", tmp_path / "store", "--listen", "0.0.0.0", "--listen-anyway").code == 2  # noqa: S104 - likewise
    assert not (tmp_path / "store").exists()


@pytest.mark.parametrize("command", [["serve"], ["env", "--", "true"]])
def test_without_the_extra_the_way_to_it_is_told(say, tmp_path, monkeypatch, command) -> None:
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    said = say(command[0], tmp_path, *command[1:])
    assert said.code == 2
    assert said.err == (
        "uvicorn: not installed, and an endpoint needs them\n"
        "  -> Install the extra: pip install 'mirror-engine[serve]'\n"
    )


def test_nobody_is_asked_about_a_store_that_nobody_serves(say, tmp_path) -> None:
    said = say("serve", tmp_path, "--stop")
    assert (said.code, said.out) == (0, "")
    assert "nobody serves it" in said.err
    assert say("serve", tmp_path, "--print-env").code == 2
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("code", [0, 7])
def test_a_command_runs_in_the_environment_and_its_code_is_the_program_s(say, tmp_path, code) -> None:
    script = "import os, sys; open(sys.argv[1], 'w').write(os.environ['HTTPS_PROXY']); sys.exit(int(sys.argv[2]))"
    seen = tmp_path / "seen"
    said = say("env", tmp_path / "store", "--no-engine", "--", PYTHON, "-c", script, seen, code)
    assert (said.code, said.out, said.err) == (code, "", "")
    assert seen.read_text().startswith("http://127.0.0.1:")
    assert background.running(tmp_path / "store") is None


def test_a_command_that_a_signal_ended_is_told_as_a_shell_tells_it(say, tmp_path) -> None:
    script = f"import os, signal; os.kill(os.getpid(), {int(signal.SIGKILL)})"
    assert say("env", tmp_path, "--no-engine", "--", PYTHON, "-c", script).code == 128 + signal.SIGKILL


def test_a_command_that_cannot_be_run_is_wrong_usage(say, tmp_path) -> None:
    said = say("env", tmp_path, "--no-engine", "--", "no-such-command")
    assert said.code == 2
    assert "no-such-command" in said.err
    assert background.running(tmp_path) is None


def test_a_refused_request_is_a_line_of_the_log(say, tmp_path) -> None:
    ask = (
        "import os, urllib.request as r, urllib.error\n"
        "at = 'https://onelake.dfs.fabric.microsoft.com/nowhere/x?sig=hush'\n"
        "try: r.urlopen(at)\n"
        "except urllib.error.HTTPError: pass"
    )
    said = say("env", tmp_path, "--no-engine", "--", PYTHON, "-c", ask)
    assert said.code == 0
    assert "event=request_rejected method=GET host=onelake.dfs.fabric.microsoft.com" in said.err
    assert "path=/nowhere/x status=404" in said.err
    assert "code=WorkspaceNotFound" in said.err
    assert "hush" not in said.err


def test_it_serves_until_sigterm_and_prints_what_to_paste(say, tmp_path) -> None:
    def end_when_served() -> None:
        ends = time.monotonic() + 20
        while not (tmp_path / ".mirror-engine/emulator.json").exists() and time.monotonic() < ends:
            time.sleep(0.02)
        os.kill(os.getpid(), signal.SIGTERM)

    ender = threading.Thread(target=end_when_served)
    ender.start()
    said = say("serve", tmp_path, "--no-engine", "--workspace", "Sales", "--item", "Orders")
    ender.join()
    assert said.code == 0
    lines = said.out.splitlines()
    assert lines[0].startswith("export HTTPS_PROXY=http://127.0.0.1:")
    assert any(line.startswith("# workspace     Sales  ") for line in lines)
    assert any(line.startswith("# item          Orders  ") for line in lines)
    assert any(line.startswith("# page          http://127.0.0.1:") for line in lines)


@pytest.fixture
def own_package(monkeypatch) -> None:
    """Processes that are started run the code that is tested."""
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[2]))


@pytest.mark.slow
@pytest.mark.usefixtures("own_package")
def test_a_server_in_the_background_outlives_its_command_and_ends_when_told(say, tmp_path) -> None:
    store = tmp_path / "store"
    words = ["serve", str(store), "--no-engine", "--background", "--print-env", "--token", TOKEN]
    started = subprocess.run([*PROGRAM, *words], capture_output=True, text=True, check=False)
    try:
        assert started.returncode == 0, started.stderr
        assert all(line.startswith("export ") for line in started.stdout.splitlines())
        card = background.running(store)
        assert card is not None
        assert card.pid != os.getpid()
        assert card.environment["HTTPS_PROXY"] in started.stdout
        assert say("serve", store, "--background", "--print-env").out == started.stdout  # and no second one
        assert json.loads(say("serve", store, "--print-env", "--json").out)["pid"] == card.pid
        assert say("serve", store).code == 4
    finally:
        stopped = say("serve", store, "--stop")
    assert stopped.code == 0
    assert background.running(store) is None
    log = store / ".mirror-engine/emulator.log"
    assert TOKEN not in log.read_text()
    assert log.stat().st_mode & 0o077 == 0


@pytest.mark.slow
@pytest.mark.usefixtures("own_package")
def test_a_server_that_cannot_start_in_the_background_says_why(say, tmp_path) -> None:
    said = say("serve", tmp_path, "--no-engine", "--background", "--item", "a/b")
    assert said.code == 1
    assert "did not start" in said.err
    assert "--item" in said.err


@pytest.mark.slow
@pytest.mark.usefixtures("own_package")
def test_a_shell_that_evaluates_what_is_printed_meets_the_endpoint(say, tmp_path) -> None:
    ask = "import urllib.request as u; print(u.urlopen('https://login.microsoftonline.com/common/discovery/instance').status)"
    script = f"""
        eval "$({" ".join(PROGRAM)} serve {tmp_path} --no-engine --background --print-env)"
        {PYTHON} -c "{ask}"
    """
    try:
        done = subprocess.run(["/bin/sh", "-c", script], capture_output=True, text=True, check=False)
    finally:
        say("serve", tmp_path, "--stop")
    assert done.stdout == "200\n", done.stderr
