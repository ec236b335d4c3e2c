"""A calm, structured log on stderr: one line per event that matters, as `key=value` or JSON."""

from __future__ import annotations

import json
import sys
import threading
from contextlib import suppress
from datetime import datetime, timezone
from enum import Enum
from typing import TYPE_CHECKING, Any, TextIO

from mirror_engine.cli.event_words import words

if TYPE_CHECKING:
    from mirror_engine.events import Event

_BARE = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-./:+@%,")


class LogFormat(str, Enum):
    """How a log line is written."""

    TEXT = "text"  # key=value
    JSON = "json"  # one object a line


class Log:
    """A listener that writes; may be called from any thread."""

    def __init__(self, log_format: LogFormat, stream: TextIO | None = None) -> None:
        self._render = _json if log_format is LogFormat.JSON else _text
        self._stream = stream or sys.stderr
        self._lock = threading.Lock()

    def __call__(self, event: Event) -> None:
        """Write the event, unless it is a detail."""
        self.tell(event)

    def tell(self, event: Event, **where: str) -> None:
        """The same, with where it was."""
        level, name, fields = words(event)
        if level != "debug":
            self.say(level, name, **where, **fields)

    def say(self, level: str, name: str, **fields: Any) -> None:  # noqa: ANN401 - any JSON value
        """Write a line of the program's own."""
        now = datetime.now(timezone.utc).isoformat(timespec="milliseconds")[:-6] + "Z"
        with self._lock, suppress(OSError):  # a log on a full disk, or that nobody reads, stops no table
            self._stream.write(self._render({"time": now, "level": level, "event": name, **fields}) + "\n")
            self._stream.flush()


def _json(fields: dict[str, Any]) -> str:
    return json.dumps(fields, ensure_ascii=False)


def _text(fields: dict[str, Any]) -> str:
    return " ".join(f"{name}={_quoted(value)}" for name, value in fields.items() if value != "")


def _quoted(value: object) -> str:
    text = str(value)
    return text if _BARE.issuperset(text) else json.dumps(text, ensure_ascii=False)
