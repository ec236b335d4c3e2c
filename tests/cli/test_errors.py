"""However a command ends: a message, help, the documented exit code, never a traceback; and signals at any moment."""

from __future__ import annotations

import errno
import json
import re
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from unittest.mock import Mock

import pytest

from mirror_engine import RunResult, errors
from mirror_engine.cli import exits
from mirror_engine.cli.exits import Stopping
from mirror_engine.cli.main import main
from mirror_engine.errors import InternalError, StorageUnavailable, UsageError, as_internal_error
from mirror_engine.landing_zone.diagnostics import RejectedFile, diagnose
from mirror_engine.landing_zone.text import CONTROLS

FULL = Path("/dev/full")
INTERRUPTED_WHILE_IMPORTING = """
import os, signal, sys
from types import SimpleNamespace

def find_spec(name, *_):
    if name == interrupted:
        os.kill(os.getpid(), signal.SIGINT)

interrupted = sys.argv.pop()
sys.meta_path.insert(0, SimpleNamespace(find_spec=find_spec))
from mirror_engine.__main__ import main
sys.exit(main())
"""


def test_no_control_character_leaves_by_stdout_or_stderr(capsys):
    """Whatever wrote it: a name, a header, an error of a library; what is JSON stays so, with its value."""
    everything = "".join(map(chr, CONTROLS))

    def call():
        print(json.dumps({"name": everything}, ensure_ascii=False))
        print(everything.replace("\n", "").replace("\r", "").replace("\t", ""), file=sys.stderr)
        raise UsageError(f"{everything}: wrong", f"mend {everything}")

    assert exits.run_command(call, [], "x") == exits.USAGE
    printed = capsys.readouterr()
    assert json.loads(printed.out) == {"name": everything}
    assert not set(printed.out + printed.err) & {chr(code) for code in CONTROLS if code != 10}
    assert r"\u202e" in printed.err


@pytest.mark.slow
@pytest.mark.parametrize("name", ["\x1b[2J", "a\x9bb", "a\u202eb", "\x1b]0;pwn\x07"])
def test_no_command_writes_a_name_of_control_characters(name, tmp_path, cli):
    """Of a table, of a file, of a column."""
    folder = tmp_path / "LandingZone" / name
    folder.mkdir(parents=True)
    (folder / "_metadata.json").write_text(json.dumps({"keyColumns": ["id"], "fileFormat": "CSV", name: 1}))
    (folder / f"{1:020}.csv").write_text(f"{name},x\n1,2\n", encoding="utf-8")
    (folder / f"{name}.csv").write_text("x")
    root = tmp_path / "root"
    (root / "Files").mkdir(parents=True)
    (tmp_path / "LandingZone").rename(root / "Files/LandingZone")
    forms = [["validate", root, "--format", form] for form in ("text", "json", "github", "junit", "sarif")]
    commands = [["sync", root], ["sync", root, "--json"], ["status", root], ["status", root, "--json"], ["plan", root]]
    for words in (*forms, *commands, ["show", name, "-C", root], ["history", name, "-C", root]):
        printed = cli(*map(str, words))
        assert not set(printed.out + printed.err) & {chr(code) for code in CONTROLS if code != 10}, words


def every_error(tree=errors.MirrorError):
    return [tree, *(leaf for branch in tree.__subclasses__() for leaf in every_error(branch))]


def documented_codes():
    """The exit codes in the tree that errors.py draws; a branch without one has its parent's."""
    codes, parents = {}, []
    for line in errors.__doc__.split("```")[1].splitlines()[1:]:
        depth, name = (len(line) - len(line.lstrip("│├└─ "))) // 4, line.lstrip("│├└─ ").split()[0]
        parents[depth:] = [name]
        _, found, code = line.partition("exit ")
        codes[name] = int(code) if found else codes[parents[-2]] if depth else 1
    return codes


def made(kind):
    if kind is RejectedFile:
        return RejectedFile(diagnose("ME023", "Items/1.parquet"))
    return kind("the place: what was found", "what to do")


@pytest.mark.parametrize("kind", every_error())
def test_every_error_of_the_tree_ends_with_its_code(cli, monkeypatch, tmp_path, kind):
    (tmp_path / "Tables").mkdir()
    monkeypatch.setattr("mirror_engine.mirror.Mirror", Mock(side_effect=made(kind)))
    printed = cli("sync", tmp_path)
    named = kind.__base__ if kind.__name__.startswith("_") else kind  # a module's own is to others what it is based on
    assert printed.code == documented_codes()[named.__name__]
    assert printed.err == exits.error_text(made(kind).message, made(kind).help)
    document = json.loads(cli("sync", tmp_path, "--json").err)["error"]
    assert document == {
        "code": re.sub("(?<=.)([A-Z])", r"_\1", named.__name__).lower(),
        "message": made(kind).message,
        "help": made(kind).help or None,
        "exit_code": printed.code,
    }


def test_an_internal_error_is_one_line_and_a_file(cli, monkeypatch, tmp_path):
    def fail(*_, **__):
        raise ZeroDivisionError("a row's value")

    (tmp_path / "Tables").mkdir()
    monkeypatch.setattr("mirror_engine.mirror.Mirror", fail)
    monkeypatch.setenv("MIRROR_ENGINE_CACHE", str(tmp_path / "cache"))
    printed = cli("sync", tmp_path)
    assert printed.code == 1
    assert "error: internal error: ZeroDivisionError (details: " in printed.err
    assert "a row's value" not in printed.err
    assert "Traceback" not in printed.err
    (log,) = (tmp_path / "cache/logs").iterdir()
    assert "ZeroDivisionError" in log.read_text()
    assert "in fail" in log.read_text()
    assert log.read_text().endswith("\nZeroDivisionError\n")  # its message may quote a row


def test_internal_error_of_a_table_logs_frames_without_values(caplog):
    def fail():
        try:
            int("a row's value")
        except ValueError as cause:
            raise StorageUnavailable("Items: no answer") from cause

    def fail_unforeseen():
        try:
            fail()
        except StorageUnavailable:
            raise KeyError("a row's value")  # noqa: B904 - its context is told, too

    with pytest.raises(InternalError, match="KeyError"):
        as_internal_error(fail_unforeseen)
    assert re.findall(r"^[A-Z]\w+.*", caplog.text.partition("\n")[2], re.MULTILINE) == [
        "ValueError",
        "StorageUnavailable: Items: no answer",
        "KeyError",
    ]
    assert "in fail_unforeseen" in caplog.text
    assert "value'" not in caplog.text.replace('int("a row\'s value")', "").replace('KeyError("a row\'s value")', "")


def test_init_on_a_full_disk_names_the_file_that_it_writes(cli, monkeypatch, tmp_path):
    def full(source, target):
        raise OSError(errno.ENOSPC, "No space left on device", str(source), None, str(target))

    monkeypatch.setattr("shutil.copyfile", full)
    printed = cli("init", tmp_path / "shop")
    assert printed.code == 4
    assert re.match(rf"error: {tmp_path}/shop/.*: No space left on device\n  help: Free disk space", printed.err)


def test_suggested_commands_are_quoted(cli, tmp_path):
    printed = cli("init", tmp_path / "Mein Lager")
    assert f"  mirror-engine -C '{tmp_path}/Mein Lager' sync " in printed.out


def test_init_needs_a_writable_folder(cli, monkeypatch, tmp_path):
    unfit = OSError(errno.EROFS, "wholly unfit", "the folder")
    monkeypatch.setattr("mirror_engine.cli.setup._land_example", Mock(side_effect=unfit))
    printed = cli("init", tmp_path)
    assert (printed.code, printed.err) == (2, "error: the folder: wholly unfit\n  help: choose another folder\n")


def test_interrupt_ends_with_130(cli, monkeypatch, tmp_path):
    (tmp_path / "Tables").mkdir()
    monkeypatch.setattr("mirror_engine.mirror.Mirror", Mock(side_effect=KeyboardInterrupt))
    printed = cli("sync", tmp_path)
    assert (printed.code, printed.err) == (130, "error: interrupted\n")


def test_a_usage_error_is_json_where_json_is_asked_for(cli):
    error = json.loads(cli("show", "--json").err)["error"]
    assert (error["code"], error["exit_code"], error["message"]) == ("usage_error", 2, "missing argument 'TABLE'")


@pytest.mark.parametrize("words", [(), ("trace",), ("emulator",)])
def test_no_command_shows_the_help(cli, words):
    printed = cli(*words)
    assert (printed.code, printed.out) == (2, "")
    assert printed.err.startswith("Usage: mirror-engine ")


def test_version_is_one_line(cli):
    printed = cli("--version")
    assert printed.code == 0
    assert printed.out.startswith("mirror-engine 0.")


@pytest.mark.skipif(not FULL.exists(), reason="the system has no full device")
@pytest.mark.parametrize(("words", "code"), [(("sync",), 0), (("sync", "--json"), 0), (("status",), 1)])
def test_output_that_is_lost_is_said_and_what_was_done_keeps_its_code(sales, capsys, monkeypatch, words, code):
    with FULL.open("w") as full:
        monkeypatch.setattr(sys, "stdout", full)
        assert main([*words, "-C", str(sales.root)]) == code
    assert "stdout: No space left on device" in capsys.readouterr().err
    with FULL.open("w", buffering=1) as full:  # by lines, as stderr is
        monkeypatch.setattr(sys, "stderr", full)
        assert main(["status", str(sales.root / "nowhere")]) == 2


@pytest.mark.slow
@pytest.mark.parametrize("closed", ["2>&-", ">&-", ">&- 2>&-", "2>&- <&-"])
def test_a_closed_stream_changes_nothing_else(tmp_path, closed):
    line = f"{sys.executable} -m mirror_engine init {tmp_path}/shop {closed}"
    done = subprocess.run(["/bin/sh", "-c", line], capture_output=True, check=False)
    assert (done.returncode, done.stderr, bool(done.stdout)) == (0, b"", not closed.startswith(">"))


@pytest.mark.slow
def test_a_closed_pipe_ends_it_silently(tmp_path):
    words = [sys.executable, "-m", "mirror_engine.cli.main", "init", str(tmp_path / "x"), "--json"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout
        process.stdout.close()
        assert process.stderr
        assert process.stderr.read() == b""
    assert process.returncode == 1


@pytest.fixture
def hangups():
    """SIGHUP as a shell gives it to a program; the tests themselves may run under `nohup`."""
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, before)


@pytest.mark.timeout(20)
@pytest.mark.usefixtures("hangups")
def test_hangup_ends_the_work_as_sigterm_does():
    with Stopping() as stopping:
        signal.raise_signal(signal.SIGHUP)
        stopping.wait()
    assert not stopping.interrupted
    assert signal.getsignal(signal.SIGHUP) is signal.SIG_DFL


@pytest.mark.usefixtures("hangups")
def test_repeated_hangup_does_not_end_the_process(monkeypatch):
    """The shell sends it to the whole job, and `emulator exec` passes it on."""
    ended = []
    monkeypatch.setattr("mirror_engine.cli.exits.os._exit", ended.append)
    with Stopping() as stopping:
        for _ in range(3):
            signal.raise_signal(signal.SIGHUP)
        stopping.wait()
        assert ended == []
        signal.raise_signal(signal.SIGTERM)
    assert ended == [130]
    ended.clear()
    with Stopping():
        for number in (signal.SIGTERM, signal.SIGHUP):
            signal.raise_signal(number)
    assert ended == [130]


def test_hangup_is_ignored_under_nohup():
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with Stopping() as stopping:
            signal.raise_signal(signal.SIGHUP)
            assert not stopping.stop.wait(0.1)
    finally:
        signal.signal(signal.SIGHUP, before)


def test_a_signal_in_the_midst_of_a_wait_is_not_lost():
    with Stopping() as stopping:
        with stopping.stop._cond:  # what `wait` holds while it looks whether it has to wait
            signal.raise_signal(signal.SIGTERM)
        assert stopping.stop.wait(10)
        assert not stopping.interrupted


@pytest.mark.slow
@pytest.mark.timeout(20)
def test_a_signal_that_another_thread_takes_ends_the_wait():
    """A system may hand it to any thread; it is the main thread that has to hear of it."""

    def take():
        time.sleep(0.2)
        signal.pthread_kill(threading.get_ident(), signal.SIGTERM)

    with Stopping() as stopping:
        threading.Thread(target=take).start()
        stopping.wait()
    assert stopping.stop.is_set()


def test_the_second_signal_ends_the_process(monkeypatch):
    ended = []
    monkeypatch.setattr("os._exit", ended.append)
    before = signal.getsignal(signal.SIGINT)
    with Stopping() as stopping:
        signal.raise_signal(signal.SIGTERM)
        assert (stopping.stop.is_set(), stopping.interrupted, ended) == (True, False, [])
        signal.raise_signal(signal.SIGINT)
    assert ended == [130]
    assert signal.getsignal(signal.SIGINT) is before


@pytest.mark.slow
@pytest.mark.parametrize(
    ("module", "words"),
    [
        ("click", ()),
        ("mirror_engine.cli.exits", ()),
        ("mirror_engine.mirror", ()),
        ("mirror_engine.mirror", ("--json",)),
    ],
)
def test_ctrl_c_while_modules_are_imported_leaves_no_traceback(sales, module, words):
    command = [sys.executable, "-c", INTERRUPTED_WHILE_IMPORTING, "status", str(sales.root), *words, module]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, done.stdout) == (130, "")
    if words:
        assert json.loads(done.stderr)["error"]["code"] == "interrupted"
    else:
        assert done.stderr == "error: interrupted\n"


def test_every_result_has_an_exit_code():
    found = {result.name: result.exit_code for result in RunResult}
    assert found == {"CAUGHT_UP": 0, "FAILED": 1, "NEEDS_ATTENTION": 3, "RETRY": 4}
