"""The one place where errors end: each becomes a message, help and an exit code, never a traceback."""

from __future__ import annotations

import json
import os
import re
import sys
import tempfile
import traceback
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING

import click

from mirror_engine.cli import exit_codes
from mirror_engine.cli.output import envelope
from mirror_engine.errors import MirrorError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


def run_command(call: Callable[[], int], words: Sequence[str], *, command: str | None = None) -> int:
    """Call, and return the exit code; whatever is raised is printed on stderr.

    Args:
        call: returns an exit code.
        words: of the command line; `--json` among them makes errors JSON.
        command: name of the command, for JSON.
    """

    def fail(code_name: str, message: str, help: str, exit_code: int) -> int:
        if "--json" in words:
            error = {"code": code_name, "message": message, "help": help or None, "exit_code": exit_code}
            sys.stderr.write(json.dumps(envelope(command, {"error": error}), ensure_ascii=False) + "\n")
        else:
            sys.stderr.write(error_text(message, help))
        return exit_code

    try:
        return call()
    except MirrorError as error:
        return fail(code_of(error), error.message, error.help, exit_codes.of_error(error))
    except click.ClickException as error:
        return fail("usage_error", *_usage(error), exit_codes.USAGE)
    except (KeyboardInterrupt, click.Abort):
        return fail("interrupted", "interrupted", "", exit_codes.INTERRUPTED)
    except BrokenPipeError:
        # the reader of our output is gone: write nothing more, not even at exit
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return exit_codes.FAILURE
    except Exception as error:  # noqa: BLE001 - the last line of defence
        return fail("internal_error", *_internal(error), exit_codes.FAILURE)


def error_text(message: str, help: str) -> str:
    """`error: message` and `help: …`, a line each."""
    lines = "\n        ".join(help.splitlines())
    return f"error: {message}\n" + (f"  help: {lines}\n" if help else "")


def code_of(error: MirrorError) -> str:
    """An error's code in JSON: `root_locked` of `RootLocked`."""
    return re.sub(r"(?<!^)(?=[A-Z])", "_", type(error).__name__).lower()


def _usage(error: click.ClickException) -> tuple[str, str]:
    """What was wrong with the command line, and the nearest right thing."""
    near = getattr(error, "possibilities", None)
    message = (error.message if near else error.format_message()).rstrip(".")
    context = getattr(error, "ctx", None)
    see = f"see {context.command_path if context else 'mirror-engine'} --help"
    return message[:1].lower() + message[1:], f"did you mean {' or '.join(sorted(near))}? {see}" if near else see


def _internal(error: Exception) -> tuple[str, str]:
    from mirror_engine.config import cache_folder

    now = datetime.now(timezone.utc)
    help = "please report this bug and attach the file"
    for folder in (cache_folder() / "logs", Path(tempfile.gettempdir())):
        try:
            folder.mkdir(parents=True, exist_ok=True)
            path = folder / f"mirror-engine-{now:%Y%m%dT%H%M%S}-{os.getpid()}.log"
            path.write_text("".join(traceback.format_exception(error)), encoding="utf-8")
        except OSError:
            continue
        return f"internal error: {type(error).__name__} (details: {path})", help
    return f"internal error: {type(error).__name__} (no folder could be written for details)", "please report this bug"
