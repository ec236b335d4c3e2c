"""However a command fails: a sentence, help, the documented exit code, never a traceback."""

from __future__ import annotations

import json
import signal
import subprocess
import sys

import pytest

from mirror_engine import errors
from mirror_engine.cli import exit_codes, opening
from mirror_engine.cli.signals import Stopping
from mirror_engine.engine.run import RunResult
from mirror_engine.landing_zone.diagnostics import RejectedFile, diagnose


def every_error(tree=errors.MirrorError) -> list[type]:
    return [tree, *(leaf for branch in tree.__subclasses__() for leaf in every_error(branch))]


def documented_codes() -> dict[str, int]:
    """The exit codes in the tree that errors.py draws; a branch without one has its parent's."""
    codes, parents = {}, []
    for line in errors.__doc__.split("```")[1].splitlines()[1:]:
        depth, name = (len(line) - len(line.lstrip("│├└─ "))) // 4, line.lstrip("│├└─ ").split()[0]
        parents[depth:] = [name]
        _, found, code = line.partition("exit ")
        codes[name] = int(code) if found else codes[parents[-2]] if depth else 1
    return codes


def made(kind: type) -> errors.MirrorError:
    if kind is RejectedFile:
        return RejectedFile(diagnose("ME023", "Items/1.parquet"))
    return kind("the place: what was found", "What to do.")


@pytest.mark.parametrize("kind", every_error())
def test_every_foreseen_error_ends_with_its_code(say, monkeypatch, tmp_path, kind) -> None:
    def fail(*_: object) -> None:
        raise made(kind)

    monkeypatch.setattr(opening, "open_mirror", fail)
    said = say("once", tmp_path)
    assert said.code == documented_codes()[kind.__name__]
    assert said.err == f"{made(kind)}\n"
    told = json.loads(say("once", tmp_path, "--json").err)["error"]
    assert told == {
        "kind": kind.__name__,
        "message": made(kind).message,
        "help": made(kind).help,
        "exit_code": said.code,
    }


def test_an_unforeseen_error_is_one_line_and_a_file(say, monkeypatch, tmp_path) -> None:
    def fail(*_: object) -> None:
        raise ZeroDivisionError("a row's value")

    monkeypatch.setattr(opening, "open_mirror", fail)
    monkeypatch.setenv("MIRROR_ENGINE_CACHE", str(tmp_path / "cache"))
    said = say("once", tmp_path)
    assert said.code == 1
    assert "unforeseen ZeroDivisionError: the whole story is in" in said.err
    assert "a row's value" not in said.err
    assert "Traceback" not in said.err
    (log,) = (tmp_path / "cache/logs").iterdir()
    assert "ZeroDivisionError" in log.read_text()


def test_an_interrupt_says_so_and_ends_with_130(say, monkeypatch, tmp_path) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(opening, "open_mirror", interrupt)
    said = say("once", tmp_path)
    assert (said.code, said.err) == (130, "interrupted\n")


@pytest.mark.parametrize(
    ("words", "said_first", "hinted"),
    [
        (["stauts", "."], "No such command 'stauts'", "--help"),
        (["once"], "Missing argument 'ROOT'", "once --help"),
        (["once", ".", "--wrkers", "2"], "No such option: --wrkers", "Did you mean --workers?"),
        (["show", ".", "Items", "--limit", "many"], "Invalid value for '--limit'", "show --help"),
        (["show", ".", "Items", "--limit", "-1"], "Invalid value for '--limit'", "show --help"),
        (["once", "/no/such/place"], "/no/such/place: no such folder", "init"),
        (["once", ".", "--workers", "0"], "1 invalid option:", "--help"),
        (["once", ".", "--config", "/no/such.toml"], "1 invalid option:", "--help"),
        (["validate", ".", "--format", "xml"], "Invalid value for '--format': 'xml' is not one of", "validate --help"),
        (["once", ".", "more"], "Got unexpected extra argument", "once --help"),
    ],
)
def test_wrong_usage_ends_with_2_and_a_hint(say, words, said_first, hinted) -> None:
    said = say(*words)
    assert said.code == 2
    assert said.err.startswith(said_first)
    assert hinted in said.err
    assert said.out == ""
    assert json.loads(say(*words, "--json").err)["error"]["exit_code"] == 2


def test_a_mistyped_command_is_answered_with_the_near_one(say) -> None:
    assert "Did you mean 'status'" in say("stauts").err


def test_all_wrong_options_are_told_at_once(say, tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("MIRROR_ENGINE_WORKERZ", "2")
    (tmp_path / "mirror-engine.toml").write_text("strikt = true\n")
    said = say("once", tmp_path, "--delete-processed-after", "soon", "--missing-metadata", "perhaps")
    assert said.err.startswith("4 invalid options:")
    assert "once" not in say("status", tmp_path).err
    for part in (
        "strikt",
        "did you mean strict",
        "MIRROR_ENGINE_WORKERZ",
        "--delete-processed-after",
        "--missing-metadata",
    ):
        assert part in said.err


def test_no_command_at_all_shows_the_help(say) -> None:
    said = say()
    assert (said.code, said.out) == (2, "")
    assert "Commands:" in said.err
    assert "says what it takes" not in said.err


def test_version_is_one_line(say) -> None:
    said = say("--version")
    assert said.code == 0
    assert said.out.startswith("mirror-engine 0.")


def test_every_result_has_an_exit_code() -> None:
    found = {result.name: exit_codes.of_result(result) for result in RunResult}
    assert found == {"CAUGHT_UP": 0, "FAILED": 1, "NEEDS_ATTENTION": 3, "RETRY": 4}


def test_the_second_signal_ends_at_once(monkeypatch) -> None:
    ended: list[int] = []
    monkeypatch.setattr("os._exit", ended.append)
    before = signal.getsignal(signal.SIGINT)
    with Stopping() as stopping:
        signal.raise_signal(signal.SIGTERM)
        assert (stopping.stop.is_set(), stopping.interrupted, ended) == (True, False, [])
        signal.raise_signal(signal.SIGINT)
    assert ended == [130]
    assert signal.getsignal(signal.SIGINT) is before


@pytest.mark.slow
def test_a_reader_that_goes_away_ends_it_without_a_word(tmp_path) -> None:
    words = [sys.executable, "-m", "mirror_engine.cli.main", "init", str(tmp_path / "x"), "--json"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout
        process.stdout.close()
        assert process.stderr
        assert process.stderr.read() == b""
    assert process.returncode == 1
