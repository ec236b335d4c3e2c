"""A process that reads change files for another one, which it ends with."""

from __future__ import annotations

import os
import signal
import threading
from contextlib import contextmanager, suppress
from multiprocessing import get_context, parent_process
from typing import TYPE_CHECKING, NamedTuple

from mirror_engine.tables.reading.reader import ReadFile

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from multiprocessing.connection import Connection
    from typing import Any

    from mirror_engine.tables.base import FileRows
    from mirror_engine.tables.reading.reader import ChangeFileReader, ReadRequest, TableContext

MAX_ROWS = 8192  # of a file that is sent: more take longer to hold and to send than to read
_NO_PROCESS = (OSError, RuntimeError, AssertionError)  # no room, no thread, a daemon that may have no children


class Answer(NamedTuple):
    """A file, read; `facts` are those after it, None where they stayed the same."""

    rows: FileRows
    facts: TableContext | None

    def after(self, before: TableContext) -> ReadFile:
        """As it is where it was read."""
        return ReadFile(self.rows, self.facts or before)


class Helper:
    """Reads what it is asked for, one request after the other; one thread at a time may ask."""

    def __init__(self, reader: ChangeFileReader) -> None:
        context: Any = get_context("fork")
        self._pipe, theirs = context.Pipe()
        self._process = context.Process(target=_serve, args=(reader, theirs), daemon=True)
        with theirs, _uninterrupted():
            self._process.start()
        self._is_asked = self._is_lost = False

    @property
    def is_free(self) -> bool:
        """Whether it can be asked."""
        return not (self._is_asked or self._is_lost)

    @property
    def has_answered(self) -> bool:
        """Whether there is an answer, or never will be one."""
        return self._is_asked and (self._is_lost or bool(self._pipe.poll()))

    def ask(self, requests: Sequence[ReadRequest]) -> None:
        """Let it read files; it must be free, so that it listens."""
        self._is_asked = True
        try:
            self._pipe.send(requests)
        except Exception:  # noqa: BLE001 - it has ended, or has heard half a sentence: what it was asked is read here
            self._is_lost = True

    def answers(self) -> Sequence[Answer | None]:
        """What it made of what it was asked for last, None for each file that is to be read here; waits for it.

        Nothing where it has ended.
        """
        self._is_asked = False
        if self._is_lost:
            return ()
        try:
            answers: Sequence[Answer | None] = self._pipe.recv()
        except Exception:  # noqa: BLE001 - it was killed in the midst of a sentence: no byte of it is believed
            self._is_lost = True
            return ()
        return answers

    def end(self) -> None:
        """Whatever it does. Repeatable."""
        self._process.kill()
        self._process.join()


def started(reader: ChangeFileReader, count: int) -> list[Helper]:
    """So many helpers, or as many as the system has room for."""
    helpers: list[Helper] = []
    with suppress(*_NO_PROCESS):
        while len(helpers) < count:
            helpers.append(Helper(reader))
    return helpers


@contextmanager
def _uninterrupted() -> Iterator[None]:
    """Ctrl+C waits, so that it finds no process half made."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _serve(reader: ChangeFileReader, pipe: Connection[Any, Any]) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # its parent heeds it
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    with suppress(Exception):  # it ends, and says no word: its parent reads what it did not answer
        threading.Thread(target=_end_with_parent, daemon=True).start()
        while True:
            pipe.send([_answer(reader, request) for request in pipe.recv()])


def _end_with_parent() -> None:
    if parent := parent_process():
        parent.join()
        os._exit(1)


def _answer(reader: ChangeFileReader, request: ReadRequest) -> Answer | None:
    try:
        found = reader.read(request)
    except Exception:  # noqa: BLE001 - whoever asked reads it again, and meets the same
        return None
    if found.rows.row_count > MAX_ROWS:
        return None
    return Answer(found.rows, None if found.facts == request.facts else found.facts)
