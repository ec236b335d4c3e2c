"""Ends of a command: exit codes; errors, each as a message, help and an exit code, never a traceback; and signals.

Of Ctrl+C, SIGTERM and SIGHUP the first ends the work after the current commit, the second ends the process; a repeated
SIGHUP does not.
"""

from __future__ import annotations

import json
import os
import shlex
import signal
import sys
import threading
from contextlib import redirect_stderr, redirect_stdout, suppress
from datetime import UTC
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, TextIO, cast

import click

from mirror_engine.errors import (
    InternalError,
    MirrorError,
    NoAccess,
    RootLocked,
    TableDamaged,
    TransientError,
    UsageError,
    traceback_of,
)
from mirror_engine.landing_zone.diagnostics import RejectedFile
from mirror_engine.landing_zone.text import CONTROLS, printable

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from types import FrameType

    Error = dict[str, Any]  # its code, message and help

SUCCESS = 0
FAILURE = 1
USAGE = 2
NEEDS_ATTENTION = 3
RETRY = 4
INTERRUPTED = 130

CHECK_SECONDS = 0.5
NOTICE = b"\nStopping after the current commit. Press Ctrl+C again to stop immediately.\n"

# what they did counts, even if their report is lost; of all others the output is all
CHANGING = {"sync", "run", "wait", "init", "maintain", "rebuild", "pull"}
CHANGING |= {"emulator start", "emulator stop", "emulator exec"}
OUTPUT_HELP = "the command has run, but its output is lost: free space, or redirect it to another file"

MEANINGS = {
    SUCCESS: "success",
    FAILURE: "missing prerequisite, no access to a store, or internal error",
    USAGE: "usage error",
    NEEDS_ATTENTION: "needs attention: a table is stuck, or the check found problems",
    RETRY: "temporary: storage, conflict, lock or timeout; retry",
    INTERRUPTED: "interrupted",
}


def of_error(error: MirrorError) -> int:
    """The exit code of a foreseen error, as drawn in `mirror_engine.errors`."""
    match error:
        case UsageError():
            return USAGE
        case RejectedFile() | TableDamaged():
            return NEEDS_ATTENTION
        case TransientError() | RootLocked() if not isinstance(error, InternalError | NoAccess):
            return RETRY
        case _:
            return FAILURE


def run_command(call: Callable[[], int], words: Sequence[str], command: str | None) -> int:
    """Call a command and return its exit code. Exceptions and unwritable results are reported on stderr.

    `--json` among the words of the command line makes errors JSON.
    """
    out = Output(sys.stdout, is_result=True)
    with redirect_stdout(cast("TextIO", out)), redirect_stderr(cast("TextIO", Output(sys.stderr))):
        code = _call(call, words, command)
        if out.failure:
            lost = {"code": "output_lost", "message": f"stdout: {out.failure.strerror}", "help": OUTPUT_HELP}
            code = code or (SUCCESS if command in CHANGING else FAILURE)
            _print_error(lost, code, words, command)
    return code


# As JSON has them, so that its values stay
_ESCAPED = {code: f"\\u{code:04x}" for code in CONTROLS if chr(code) not in "\t\n\r"}
_STYLED = {code: text for code, text in _ESCAPED.items() if chr(code) != "\x1b"}


class Output:
    """Stdout or stderr, through which all text goes: no control character of a name or message reaches the reader.

    What cannot be written goes nowhere, and `failure` is why; a reader that left is raised. Escapes of colours and bars
    pass where these are shown; names have none, since `printable` writes them.
    """

    def __init__(self, stream: TextIO, *, is_result: bool = False) -> None:
        self.failure: OSError | None = None
        self._stream = stream
        self._is_result = is_result
        self._escaped = _STYLED if _is_styled(stream) else _ESCAPED

    def write(self, text: str) -> int:
        self._attempt(self._stream.write, text.translate(self._escaped))
        return len(text)

    def flush(self) -> None:
        self._attempt(self._stream.flush)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def _attempt(self, call: Callable[..., object], *arguments: str) -> None:
        try:
            call(*arguments)
        except OSError as error:
            if self._is_result and isinstance(error, BrokenPipeError):
                raise
            self.failure = error
            _write_nowhere(self._stream)


def _is_styled(stream: TextIO) -> bool:
    """Whether colours and bars may be written: on a terminal, and where the environment asks for them."""
    if not {"FORCE_COLOR", "TTY_COMPATIBLE"}.isdisjoint(os.environ):
        return True
    with suppress(ValueError):  # it is closed
        return stream.isatty()
    return False


def _write_nowhere(stream: TextIO) -> None:
    """Discard everything else that is written to a stream, also at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def _call(call: Callable[[], int], words: Sequence[str], command: str | None) -> int:
    try:
        code = call()
        sys.stdout.flush()
    except MirrorError as error:
        found, code = error.to_json(), of_error(error)
    except click.ClickException as error:
        found, code = _usage(error, words), USAGE
    except (KeyboardInterrupt, click.Abort):
        found, code = {"code": "interrupted", "message": "interrupted", "help": None}, INTERRUPTED
    except BrokenPipeError:
        _write_nowhere(sys.stdout)
        return FAILURE
    except Exception as error:  # noqa: BLE001 - the last line of defence
        found, code = _internal(error), FAILURE
    else:
        return code
    _print_error(found, code, words, command)
    return code


def _print_error(found: Error, code: int, words: Sequence[str], command: str | None) -> None:
    if "--json" in words:
        from mirror_engine.cli.output import envelope  # help does without
        from mirror_engine.results import CommandError, Failed

        document = envelope(command, CommandError(Failed(**found, exit_code=code)).to_json())
        sys.stderr.write(json.dumps(document, ensure_ascii=False) + "\n")
    else:
        sys.stderr.write(error_text(found["message"], found["help"]))


def error_text(message: str, help: str | None) -> str:
    """`error: message` and `help: …`, a line each."""
    first, *rest = map(printable, message.split("\n"))
    lines = "\n        ".join(map(printable, (help or "").splitlines()))
    return "\n".join([f"error: {first}", *rest]) + "\n" + (f"  help: {lines}\n" if help else "")


def takes_tables(command: click.Command) -> bool:
    """Whether a command's tables are chosen with an option, so that its argument is ROOT."""
    return any("--table" in each.opts for each in command.params)


def _usage(error: click.ClickException, words: Sequence[str]) -> Error:
    """Describe what is wrong with the command line, and suggest the nearest correct one."""
    near = getattr(error, "possibilities", None)
    message = (error.message if near else error.format_message()).rstrip(".")
    context = getattr(error, "ctx", None)
    help = f"see {context.command_path if context else 'mirror-engine'} --help"
    if near:
        help = f"did you mean {' or '.join(sorted(near))}? {help}"
    elif context and "extra argument" in message and takes_tables(context.command):
        help = f"choose a table with --table; {help}"
    elif context and "extra argument" in message and (folder := next(filter(os.path.isdir, words), None)):
        names = {parameter.name for parameter in context.command.params}
        if "root_option" in names and "root" not in names:  # of commands whose argument is a table
            help = f"give ROOT with -C: {context.command_path} -C {shlex.quote(folder)} …"
    return {"code": "usage_error", "message": message[:1].lower() + message[1:], "help": help}


def _internal(error: Exception) -> Error:
    """Describe an internal error; its traceback is written to a file for the bug report."""
    import tempfile
    from datetime import datetime

    from mirror_engine.config import cache_folder

    place, help = "no folder could be written for details", "please report this bug"
    name = f"mirror-engine-{datetime.now(UTC):%Y%m%dT%H%M%S}-{os.getpid()}.log"
    for folder in (cache_folder() / "logs", Path(tempfile.gettempdir())):
        try:
            folder.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text(traceback_of(error) + "\n", encoding="utf-8")
        except OSError:
            continue
        place, help = f"details: {folder / name}", "please report this bug and attach the file"
        break
    return {"code": "internal_error", "message": f"internal error: {type(error).__name__} ({place})", "help": help}


class Stopping:
    """Context in which signals set an event.

    Attributes:
        stop: set by the first signal.
        interrupted: whether that was Ctrl+C, not SIGTERM or SIGHUP.
    """

    def __init__(self) -> None:
        self.stop = threading.Event()
        self.interrupted = False
        self._first = 0  # the first signal; 0 before

    def __enter__(self) -> Self:
        numbers = [signal.SIGINT, signal.SIGTERM]
        if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:  # `nohup` lets a terminal's end pass
            numbers.append(signal.SIGHUP)
        self._before = {number: signal.signal(number, self._handle) for number in numbers}
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def wait(self) -> None:
        """Wait for a signal. Polls, because a signal that another thread receives does not wake this one."""
        while not self.stop.wait(CHECK_SECONDS):
            pass

    def exit_code(self, otherwise: int) -> int:
        """130 after Ctrl+C, else the given one."""
        return INTERRUPTED if self.interrupted else otherwise

    def _handle(self, number: int, _: FrameType | None) -> None:
        if number == self._first == signal.SIGHUP:  # of one hangup: the shell and `emulator exec` send it
            return
        if self._first:
            os._exit(INTERRUPTED)  # every commit is whole or absent: nothing to tidy up
        self.interrupted = number == signal.SIGINT
        self._first = number
        # this thread may be waiting for `stop`, and hold its lock
        threading.Thread(target=self.stop.set, name="stopping", daemon=True).start()
        if sys.stderr.isatty():
            os.write(2, NOTICE)
