"""Exit codes, and the one place where errors end: each becomes a message, help and an exit code, never a traceback."""

from __future__ import annotations

import json
import os
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from mirror_engine.errors import InternalError, MirrorError, RootLocked, TableDamaged, TransientError, UsageError
from mirror_engine.landing_zone.diagnostics import RejectedFile

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from mirror_engine.engine.run import RunResult

    Error = dict[str, Any]  # its code, message and help

SUCCESS = 0
FAILURE = 1
USAGE = 2
NEEDS_ATTENTION = 3
RETRY = 4
INTERRUPTED = 130

MEANINGS = {
    SUCCESS: "success",
    FAILURE: "missing prerequisite or internal error",
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
        case TransientError() | RootLocked() if not isinstance(error, InternalError):
            return RETRY
        case _:
            return FAILURE


def of_errors(errors: Iterable[MirrorError]) -> int:
    """The exit code of errors of several tables: that of the worst, which is the smallest."""
    return min(map(of_error, errors), default=SUCCESS)


def of_result(result: RunResult) -> int:
    """The exit code of a finished run."""
    return {"CAUGHT_UP": SUCCESS, "NEEDS_ATTENTION": NEEDS_ATTENTION, "RETRY": RETRY, "FAILED": FAILURE}[result.name]


def run_command(call: Callable[[], int], words: Sequence[str], command: str | None) -> int:
    """Call, and return the exit code; whatever is raised is printed on stderr.

    Args:
        call: returns an exit code.
        words: of the command line; `--json` among them makes errors JSON.
        command: name of the command, for JSON.
    """
    try:
        return call()
    except MirrorError as error:
        found, code = error_json(error), of_error(error)
    except click.ClickException as error:
        found, code = _usage(error), USAGE
    except (KeyboardInterrupt, click.Abort):
        found, code = {"code": "interrupted", "message": "interrupted", "help": None}, INTERRUPTED
    except BrokenPipeError:
        # the reader of our output is gone: write nothing more, not even at exit
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return FAILURE
    except Exception as error:  # noqa: BLE001 - the last line of defence
        found, code = _internal(error), FAILURE
    if "--json" in words:
        from mirror_engine.cli.output import envelope  # help does without

        document = envelope(command, {"error": {**found, "exit_code": code}})
        sys.stderr.write(json.dumps(document, ensure_ascii=False) + "\n")
    else:
        sys.stderr.write(error_text(found["message"], found["help"]))
    return code


def error_text(message: str, help: str | None) -> str:
    """`error: message` and `help: …`, a line each."""
    lines = "\n        ".join((help or "").splitlines())
    return f"error: {message}\n" + (f"  help: {lines}\n" if help else "")


def error_json(error: MirrorError) -> Error:
    """An error as plain values; its code is `root_locked` of `RootLocked`."""
    code = re.sub(r"(?<!^)(?=[A-Z])", "_", type(error).__name__).lower()
    return {"code": code, "message": error.message, "help": error.help or None}


def _usage(error: click.ClickException) -> Error:
    """What was wrong with the command line, and the nearest right thing."""
    near = getattr(error, "possibilities", None)
    message = (error.message if near else error.format_message()).rstrip(".")
    context = getattr(error, "ctx", None)
    help = f"see {context.command_path if context else 'mirror-engine'} --help"
    if near:
        help = f"did you mean {' or '.join(sorted(near))}? {help}"
    return {"code": "usage_error", "message": message[:1].lower() + message[1:], "help": help}


def _internal(error: Exception) -> Error:
    """A defect, whose traceback is written to a file that is to be reported."""
    import tempfile
    import traceback
    from datetime import datetime, timezone

    from mirror_engine.config import cache_folder

    place, help = "no folder could be written for details", "please report this bug"
    name = f"mirror-engine-{datetime.now(timezone.utc):%Y%m%dT%H%M%S}-{os.getpid()}.log"
    for folder in (cache_folder() / "logs", Path(tempfile.gettempdir())):
        try:
            folder.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text("".join(traceback.format_exception(error)), encoding="utf-8")
        except OSError:
            continue
        place, help = f"details: {folder / name}", "please report this bug and attach the file"
        break
    return {"code": "internal_error", "message": f"internal error: {type(error).__name__} ({place})", "help": help}
