"""The one place where errors end: each becomes a sentence, help and an exit code, never a traceback."""

from __future__ import annotations

import json
import os
import sys
import tempfile
import traceback
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from mirror_engine.cli import exit_codes
from mirror_engine.config import cache_folder
from mirror_engine.errors import MirrorError

if TYPE_CHECKING:
    from collections.abc import Callable


def exit_code_of(call: Callable[[], int], *, as_json: bool) -> int:
    """Call, and return the exit code; whatever is raised is told on stderr.

    Args:
        call: returns an exit code.
        as_json: whether errors are told as one JSON object, for programs.
    """
    tell = _tell_json if as_json else _tell_text
    try:
        return call()
    except MirrorError as error:
        return tell(type(error).__name__, error.message, error.help, exit_codes.of_error(error))
    except typer.TyperException as error:
        return tell("WrongUsage", *_usage(error), exit_codes.USAGE)
    except (KeyboardInterrupt, typer.Abort):
        return tell("Interrupted", "interrupted", "", exit_codes.INTERRUPTED)
    except BrokenPipeError:
        # the reader of our output has gone: nothing is left to say, not even at exit
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return exit_codes.FAILURE
    except Exception as error:  # noqa: BLE001 - the last line of defence
        return tell("InternalErrorMiddleware", *_unforeseen(error), exit_codes.FAILURE)


def _tell_text(_: str, message: str, help: str, code: int) -> int:
    sys.stderr.write(str(MirrorError(message, help)) + "\n")
    return code


def _tell_json(kind: str, message: str, help: str, code: int) -> int:
    told = {"error": {"kind": kind, "message": message, "help": help, "exit_code": code}}
    sys.stderr.write(json.dumps(told, ensure_ascii=False) + "\n")
    return code


def _usage(error: typer.TyperException) -> tuple[str, str]:
    """What was wrong with the command line, and the nearest right thing."""
    near = getattr(error, "possibilities", None)
    message = error.message.rstrip(".") if near else error.format_message().rstrip(".").replace("Value error, ", "")
    context = getattr(error, "ctx", None)
    see = f"{context.command_path if context else 'mirror-engine'} --help says what it takes."
    return message, f"Did you mean {' or '.join(sorted(near))}? {see}" if near else see


def _unforeseen(error: Exception) -> tuple[str, str]:
    story = "".join(traceback.format_exception(error))
    now = datetime.now(timezone.utc)
    help = "This is a fault of the program; please report it with that file."
    for folder in (cache_folder() / "logs", Path(tempfile.gettempdir())):
        try:
            folder.mkdir(parents=True, exist_ok=True)
            path = folder / f"mirror-engine-{now:%Y%m%dT%H%M%S}-{os.getpid()}.log"
            path.write_text(story, encoding="utf-8")
        except OSError:
            continue
        return f"unforeseen {type(error).__name__}: the whole story is in {path}", help
    return f"unforeseen {type(error).__name__}, and no place to write its story", help
