"""`emulator start|stop|env|exec`: what they reject, print and leave behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pyarrow as pa
import pytest

from mirror_engine.engine.lock import lock_root
from mirror_engine.extras import install_command
from mirror_engine.landing_zone.layout import ZONE
from mirror_engine.mirror import Mirror
from mirror_engine.onelake import connection
from mirror_engine.onelake.items import Items
from mirror_engine.onelake.store import LocalStore
from mirror_engine.tables.dry_run.memory import MemoryDeltaWriter
from mirror_engine.testing.landing_zone_writer import LandingZoneWriter

pytestmark = pytest.mark.slow

PYTHON = sys.executable
PROGRAM = [PYTHON, "-m", "mirror_engine.cli.main"]
PUBLISHER = Path(__file__).parents[2] / "docs/examples/publisher.py"
TOKEN = "0123456789abcdef"  # noqa: S105 - a test's own


def test_remote_access_takes_a_flag_and_a_token(cli, tmp_path, monkeypatch):
    printed = cli("emulator", "start", tmp_path / "store", "--host", "0.0.0.0")  # noqa: S104 - what is refused
    assert printed.code == 2
    assert "--allow-remote" in printed.err
    printed = cli("emulator", "start", tmp_path / "store", "--host", "0.0.0.0", "--allow-remote")  # noqa: S104 - as above
    assert printed.code == 2
    assert "MIRROR_ENGINE_TOKEN" in printed.err
    monkeypatch.setenv("MIRROR_ENGINE_TOKEN", "short")
    assert cli("emulator", "start", tmp_path / "store", "--host", "0.0.0.0", "--allow-remote").code == 2  # noqa: S104 - as above
    assert not (tmp_path / "store").exists()


@pytest.mark.parametrize("command", [["start"], ["stop"], ["env"], ["exec", "--", "true"]])
def test_without_the_extra_its_installation_is_the_help(cli, tmp_path, monkeypatch, command):
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    printed = cli("emulator", command[0], tmp_path, *command[1:])
    assert printed.code == 2
    assert printed.err == f"error: the emulator needs uvicorn\n  help: install it: {install_command('emulator')}\n"


ENDING = """
import os, sys
open(sys.argv[1], "w").write(os.environ["HTTPS_PROXY"])
code = int(sys.argv[2])
os.kill(os.getpid(), code - 128) if code > 128 else sys.exit(code)
"""


@pytest.mark.parametrize("code", [0, 7, 128 + signal.SIGKILL])
def test_exec_runs_a_command_in_the_environment_and_ends_with_its_code(cli, tmp_path, code):
    seen = tmp_path / "seen"
    printed = cli("emulator", "exec", tmp_path / "store", "--storage-only", "--", PYTHON, "-c", ENDING, seen, code)
    assert (printed.code, printed.out, printed.err) == (code, "", "")
    assert seen.read_text().startswith("http://127.0.0.1:")
    assert connection.running(tmp_path / "store") is None


def test_a_command_that_cannot_run_is_a_usage_error(cli, tmp_path):
    printed = cli("emulator", "exec", tmp_path, "--storage-only", "--", "no-such-command")
    assert printed.code == 2
    assert "no-such-command" in printed.err
    assert connection.running(tmp_path) is None


def test_a_rejected_request_is_logged(cli, tmp_path):
    ask = (
        "import os, urllib.request as r, urllib.error\n"
        "at = 'https://onelake.dfs.fabric.microsoft.com/nowhere/x?sig=hush'\n"
        "try: r.urlopen(at)\n"
        "except urllib.error.HTTPError: pass"
    )
    printed = cli("emulator", "exec", tmp_path, "--storage-only", "--", PYTHON, "-c", ask)
    assert printed.code == 0
    assert (
        "level=info event=request_rejected method=GET host=onelake.dfs.fabric.microsoft.com path=/nowhere/x status=404"
        in printed.err
    )
    assert "code=WorkspaceNotFound" in printed.err
    assert "hush" not in printed.err


def started(cli, store, *words):
    """What `emulator start` prints until it is stopped by SIGTERM, once it serves."""

    def end_when_served():
        ends = time.monotonic() + 20
        while not (store / ".mirror-engine/emulator.json").exists() and time.monotonic() < ends:
            time.sleep(0.02)
        os.kill(os.getpid(), signal.SIGTERM)

    ender = threading.Thread(target=end_when_served)
    ender.start()
    printed = cli("emulator", "start", store, "--storage-only", *words)
    ender.join()
    assert printed.code == 0
    return printed


def test_start_runs_until_sigterm_and_prints_the_environment(cli, tmp_path):
    lines = started(cli, tmp_path, "--workspace", "Sales", "--item", "Orders").out.splitlines()
    assert lines[0].startswith("export HTTPS_PROXY=http://127.0.0.1:")
    assert any(line.startswith("# workspace     Sales  ") for line in lines)
    assert any(line.startswith("# item          Orders  ") for line in lines)
    assert any(line.startswith("# page          http://127.0.0.1:") for line in lines)


def test_start_on_one_port_names_it_everywhere(cli, tmp_path):
    lines = started(cli, tmp_path, "--single-port", "--host-name", "emulator").out.splitlines()
    port = lines[0].rpartition(":")[2]
    assert f"# page          http://127.0.0.1:{port}/" in lines
    assert (
        f"# direct        https://127.0.0.1:{port} (tokens)  http://127.0.0.1:{port} (account key, SAS, none)" in lines
    )


def test_quietly_no_environment_is_printed_for_it_holds_the_token(cli, tmp_path):
    printed = started(cli, tmp_path, "--token", TOKEN, "-q")
    assert printed.out + printed.err == ""


ASK = (
    "import urllib.request as u; print(u.urlopen('https://login.microsoftonline.com/common/discovery/instance').status)"
)


@pytest.fixture
def own_package(monkeypatch):
    """Processes that are started run the code that is tested."""
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[2]))


ODD = "-a \"b' $HOME `c` !d; e"  # what a shell reads otherwise


def test_folder_that_begins_with_a_dash_is_no_option_in_help(cli, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert "mkdir -p ./-x/Files/LandingZone\n" in cli("validate", "./-x", "--watch").err
    assert "mirror-engine init ./-x; " in cli("status", "./-x").err
    Path("-x").mkdir()
    assert "mirror-engine init ./-x\n" in cli("sync", "./-x").err


@pytest.mark.usefixtures("own_package")
def test_commands_in_help_lead_to_an_odd_store(cli, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", f"{Path(PYTHON).parent}:{os.environ['PATH']}")  # where mirror-engine is
    store = f"./{ODD}"

    def pasted(text, begins):
        command = text[text.rindex(begins) :].partition("; or stop")[0]
        done = subprocess.run(["sh", "-ec", f"{command}\nenv"], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout

    pasted(cli("emulator", "env", store).err, "mirror-engine emulator start")
    try:
        running = cli("emulator", "start", store, "--storage-only").err
        proxy = connection.running(Path(store)).environment["HTTPS_PROXY"]
        assert f"export HTTPS_PROXY={proxy}\n" in pasted(running, "mirror-engine emulator env")
        monkeypatch.setenv("HTTPS_PROXY", proxy)
        stopped = cli("emulator", "stop", store).err
        assert "HTTPS_PROXY" not in pasted(stopped, "eval")
        assert connection.running(Path(store)) is None
    finally:
        connection.stop(Path(store))


@pytest.mark.slow
@pytest.mark.usefixtures("own_package")
def test_a_detached_emulator_runs_until_stop(cli, tmp_path):
    store = tmp_path / "store"
    words = ["emulator", "start", str(store), "--storage-only", "--detach", "--token", TOKEN]
    started = subprocess.run([*PROGRAM, *words], capture_output=True, text=True, check=False)
    try:
        assert started.returncode == 0, started.stderr
        exports = cli("emulator", "env", store).out
        assert all(line.startswith("export ") for line in exports.splitlines())
        assert started.stdout.startswith(exports)
        card = connection.running(store)
        assert card is not None
        assert card.pid != os.getpid()
        assert card.environment["HTTPS_PROXY"] in started.stdout
        assert cli("emulator", "start", store, "-d").out == started.stdout  # and no second one
        assert json.loads(cli("emulator", "env", store, "--json").out)["pid"] == card.pid
        assert cli("emulator", "start", store).code == 4
        evaluating = f'eval "$({" ".join(PROGRAM)} emulator env {store})"; {PYTHON} -c "{ASK}"'
        asked = subprocess.run(["/bin/sh", "-c", evaluating], capture_output=True, text=True, check=False)
        assert asked.stdout == "200\n", asked.stderr
    finally:
        stopped = cli("emulator", "stop", store)
    undoing = f'{exports}PATH="/own:$PATH"; eval "$({" ".join(PROGRAM)} emulator env {store} --unset)"; env'
    undone = subprocess.run(["/bin/sh", "-c", undoing], capture_output=True, text=True, check=True)
    names = set(connection.VARIABLES)
    assert [each for each in undone.stdout.splitlines() if each.partition("=")[0] in names] == []
    assert f"PATH=/own:{os.environ['PATH']}" in undone.stdout.splitlines()
    assert stopped.code == 0
    assert connection.running(store) is None
    log = store / ".mirror-engine/emulator.log"
    assert TOKEN not in log.read_text()
    assert log.stat().st_mode & 0o077 == 0


@pytest.mark.slow
@pytest.mark.usefixtures("own_package")
def test_a_detached_emulator_that_cannot_start_has_its_log_as_help(cli, tmp_path):
    printed = cli("emulator", "start", tmp_path, "--storage-only", "--detach", "--item", "a/b")
    assert printed.code == 1
    assert "did not start" in printed.err
    assert "--item" in printed.err
    (tmp_path / "project/src/main").mkdir(parents=True)
    (tmp_path / "project/src/main/App.java").touch()
    assert cli("emulator", "start", tmp_path / "project", "--detach").code == 2
    assert [path.name for path in (tmp_path / "project").iterdir()] == ["src"]


@pytest.fixture
def writers(monkeypatch):
    """Engines that write to memory, by the name of their ROOT."""
    made = {}

    def mirror(root, config, *, writer=None, **parts):
        writer = writer or made.setdefault(root.name, MemoryDeltaWriter())
        return Mirror(root, config, writer=writer, **parts)

    monkeypatch.setattr("mirror_engine.onelake.engine_pool.Mirror", mirror)
    return made


def test_exec_wait_returns_when_everything_is_applied(cli, tmp_path, writers):
    printed = cli("emulator", "exec", tmp_path / "store", "--wait", "60", "--", sys.executable, PUBLISHER)
    assert printed.code == 0, printed.err
    assert writers["Mirror"].rows("Sales/Stores").to_pylist() == [{"id": 2, "city": "Wien"}]


@pytest.fixture
def detached(tmp_path, request, monkeypatch):
    """An emulator in a process of its own, on the merge engine `arrow`, with the options that the test gives."""
    store, options = tmp_path / "store", getattr(request, "param", [])
    monkeypatch.setenv("MIRROR_ENGINE_MERGE_ENGINE", "arrow")
    monkeypatch.setenv("MIRROR_ENGINE_SPARK_PROFILE", "local")
    subprocess.run([*PROGRAM, "emulator", "start", store, "-d", "-q", *options], check=True, stdout=subprocess.DEVNULL)
    yield store
    connection.stop(store)


@pytest.fixture
def own_schema(tmp_path):
    """A STORE with an item whose definition has another default schema."""
    store = tmp_path / "store"
    store.mkdir()
    target = {"type": "MountedRelationalDatabase", "typeProperties": {"defaultSchema": "sales", "format": "Delta"}}
    properties = {"source": {"type": "GenericMirror", "typeProperties": {}}, "target": target}
    items = Items(LocalStore(store))
    workspace = items.ensure_workspace("Workspace")
    items.create(workspace, "Own", definition=json.dumps({"properties": properties}).encode())


@pytest.mark.usefixtures("own_schema")
def test_exec_wait_judges_by_the_options_of_the_running_engine(cli, detached):
    table = LandingZoneWriter(detached / "Workspace/Own").table("Orders", keys=["id"], types={"id": pa.int64()})
    table.apply_changes((0, {"id": 1}))
    printed = cli("emulator", "exec", detached, "--wait", "30", "--", "true")
    assert (printed.code, printed.err) == (0, "")
    assert (detached / "Workspace/Own/Tables/sales/Orders").is_dir()


@pytest.mark.parametrize("detached", [["--storage-only"]], indirect=True)
def test_exec_rejects_wait_and_options_of_engines_where_none_runs(cli, detached, tmp_path):
    program = f"open({str(tmp_path / 'ran')!r}, 'w')"
    printed = cli("emulator", "exec", detached, "--poll-interval", "5s", "--", PYTHON, "-c", program)
    assert (printed.code, "--poll-interval: " in printed.err) == (2, True)
    printed = cli("emulator", "exec", detached, "--wait", "600", "--", PYTHON, "-c", program)
    assert (printed.code, "--wait: no effect" in printed.err) == (2, True)
    assert not (tmp_path / "ran").exists()
    assert cli("emulator", "exec", detached, "--", PYTHON, "-c", program).code == 0


def test_exec_uses_the_emulator_that_is_running(cli, detached):
    pid = connection.running(detached).pid
    printed = cli("emulator", "exec", detached, "--wait", "60", "--", PYTHON, PUBLISHER)
    assert printed.code == 0, printed.err
    assert connection.running(detached).pid == pid
    shown = cli("show", "Sales.Stores", "-C", detached / "Workspace/Mirror")
    assert "Wien" in shown.out
    program = PUBLISHER.read_text().replace("00002.csv", "00004.csv").replace("00001.csv", "00005.csv")
    printed = cli("emulator", "exec", detached, "--wait", "60", "--", PYTHON, "-c", program)
    assert (printed.code, "Workspace/Mirror: Sales.Stores is blocked" in printed.err) == (3, True)


@pytest.fixture
def held(tmp_path):
    """The default item of a STORE, on which another engine is running."""
    root = tmp_path / "store/Workspace/Mirror"
    (root / ZONE).mkdir(parents=True)
    with lock_root(root):
        yield


@pytest.mark.usefixtures("held")
def test_exec_wait_shows_why_a_running_engine_ended(cli, detached):
    printed = cli("emulator", "exec", detached, "--wait", "60", "--", PYTHON, PUBLISHER)
    assert (printed.code, "Workspace/Mirror: " in printed.err) == (3, True)
    assert "another engine is running here" in printed.err


@pytest.mark.parametrize(
    ("detached", "wait", "code", "said"),
    [
        (["--inject-fault", "replicator_throttled for=600"], "1", 4, "replication is being throttled"),
        (["--token", TOKEN, "--inject-fault", "paused"], "60", 3, "Workspace/Mirror: replication is paused"),
        (["--single-port", "--host", "127.0.0.2", "--inject-fault", "paused"], "60", 3, "replication is paused"),
    ],
    indirect=["detached"],
)
def test_exec_wait_ends_beside_a_running_emulator_as_alone(cli, detached, wait, code, said):
    printed = cli("emulator", "exec", detached, "--wait", wait, "--", "true")
    assert (printed.code, said in printed.err) == (code, True)


def test_exec_wait_ends_with_the_running_emulator(cli, detached):
    program = f"{PUBLISHER.read_text()}\nimport os, signal; os.kill({connection.running(detached).pid}, signal.SIGKILL)"
    printed = cli("emulator", "exec", detached, "--wait", "600", "--", PYTHON, "-c", program)
    assert (printed.code, "the emulator has ended" in printed.err) == (4, True)


def test_exec_says_which_options_a_running_emulator_does_not_have(cli, detached, monkeypatch):
    """Those on the command line are rejected; of others a line tells."""
    for option in (["--inject-fault", "paused"], ["--storage-only"], ["--poll-interval", "5s"]):
        printed = cli("emulator", "exec", detached, *option, "--", "true")
        assert (printed.code, option[0] in printed.err, "emulator stop" in printed.err) == (2, True, True)
    idle = f"no effect, the emulator of {detached} is already running"
    (detached / "mirror-engine.toml").write_text('poll_interval = "5s"\n')
    printed = cli("emulator", "exec", detached, "--", "true")
    assert (printed.code, printed.err.count("\n")) == (0, 1)
    assert printed.err.startswith(f"mirror-engine.toml: poll_interval: {idle}")
    monkeypatch.setenv("MIRROR_ENGINE_POLL_INTERVAL", "5s")
    printed = cli("emulator", "exec", detached, "--", "true")
    assert (printed.code, printed.err.count("\n")) == (0, 1)
    assert printed.err.startswith(f"MIRROR_ENGINE_POLL_INTERVAL: {idle}")
    monkeypatch.setenv("HTTPS_PROXY", connection.running(detached).environment["HTTPS_PROXY"])
    assert "--unset" in cli("emulator", "stop", detached).err


@pytest.mark.usefixtures("writers")
@pytest.mark.parametrize(
    ("words", "ends_with", "code", "said"),
    [
        (["--wait", "600"], 0, 3, ["Workspace/Mirror: Sales.Stores is blocked: 00000000000000000002.csv is missing"]),
        (["--wait", "600"], 7, 7, []),
        ([], 0, 0, ["Sales.Stores", "emulator exec --wait DURATION"]),
        (["--wait", "600", "--inject-fault", "paused"], 0, 3, ["Workspace/Mirror: replication is paused"]),
        (["--wait", "1", "--inject-fault", "replicator_throttled for=600"], 0, 4, ["replication is being throttled"]),
    ],
    ids=["at a blocked table", "after a failed command", "without --wait", "at a paused database", "while throttled"],
)
def test_exec_does_not_wait_for_what_does_not_come(  # noqa: PLR0913, PLR0917 - cases and fixtures
    cli, tmp_path, words, ends_with, code, said
):
    program = PUBLISHER.read_text().replace("00002.csv", "00003.csv") + f"\nraise SystemExit({ends_with})\n"
    printed = cli("emulator", "exec", tmp_path / "store", *words, "--", PYTHON, "-c", program)
    assert printed.code == code
    assert [text for text in said if text not in printed.err] == []
