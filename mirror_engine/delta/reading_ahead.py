"""Reads small change files ahead in processes of their own: they cost the interpreter's time, not the disk's."""

from __future__ import annotations

import os
import signal
import sys
import threading
from concurrent.futures import BrokenExecutor, CancelledError, ProcessPoolExecutor
from contextlib import closing
from multiprocessing import get_context, parent_process
from typing import TYPE_CHECKING, NamedTuple

from mirror_engine.delta.read_request import ReadFile

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator, Sequence
    from concurrent.futures import Future
    from typing import TypeAlias

    from mirror_engine.delta.base import FileRows
    from mirror_engine.delta.read_request import ReadRequest, TableFacts, WaitingFiles
    from mirror_engine.delta.reader import ChangeFileReader
    from mirror_engine.landing_zone.sightings import FileSighting

    Answer: TypeAlias = tuple[FileRows, TableFacts | None] | None  # facts that stay are not sent

FEWEST_FILES = 128  # below, a helper costs more than it gives
LARGEST_BYTES = 1 << 18  # of a file that is asked for: rows beyond take longer to send than to read
ASKED_TOGETHER = 16  # files
WINDOW_FILES, WINDOW_BYTES = 512, 8 << 20  # the rows of so many files, and of as many again, may be held at a time
MOST_HELPERS = 3


def helpers_for(sizes: Sequence[int]) -> int:
    """How many processes help with files of these sizes, in bytes; 0 where forking is not to be trusted."""
    if sys.platform != "linux" or threading.active_count() > 1:
        return 0
    small = sum(size <= LARGEST_BYTES for size in sizes)
    return min(MOST_HELPERS, len(os.sched_getaffinity(0)) - 1) if small >= FEWEST_FILES else 0


class HelpedReader:
    """`ReadsInOrder` where helpers read from the back of what waits, until both meet.

    They read against the facts that are likely: an answer counts only where those are the facts in the end. Whatever
    else befalls a helper, its files are read here.

    Args:
        here: reads in this process.
        helpers: how many others; see `helpers_for`. They are forked at once, before this process has a second thread.
    """

    def __init__(self, here: ChangeFileReader, helpers: int) -> None:
        self._here = here
        self._pool = _forked(here, helpers) if helpers else None
        self._most = 2 * helpers
        self._is_closed = False

    def in_order(self, waiting: WaitingFiles) -> Generator[ReadFile, None, None]:
        """See `ReadsInOrder`.

        Raises:
            CancelledError: it was closed meanwhile: nobody waits for more.
        """
        facts = waiting.facts
        with closing(_Ahead(self._pool, waiting, self._most)) as ahead:
            for place in range(len(waiting.files)):
                if self._is_closed:
                    raise CancelledError
                found = ahead.answer(place, facts) or self._here.read(waiting.request(place, facts))
                facts = found.facts
                ahead.ask(place, facts)
                yield found

    def close(self) -> None:
        """End the helpers, and soon whoever reads. Repeatable."""
        self._is_closed = True
        if self._pool:
            self._pool.shutdown(cancel_futures=True)


class _Asked(NamedTuple):
    facts: TableFacts
    future: Future[list[Answer]]
    at: int  # in the future's list


class _Ahead:
    """What helpers were asked for of one table's files, by place."""

    def __init__(self, pool: ProcessPoolExecutor | None, waiting: WaitingFiles, most: int) -> None:
        self._pool = pool
        self._waiting = waiting
        self._most = most
        self._spans = (span for window in _windows(waiting.files) for span in _from_the_back(window))
        self._asked: dict[int, _Asked] = {}
        self._under_way: list[Future[list[Answer]]] = []

    def ask(self, place: int, facts: TableFacts) -> None:
        """Keep the helpers busy with files beyond a place, whose facts are likely to be these."""
        self._under_way = [future for future in self._under_way if not future.done()]
        while self._pool and len(self._under_way) < self._most:
            span = next(self._spans, None)
            if span is None:
                return
            if span.start > place and all(self._waiting.files[at].size <= LARGEST_BYTES for at in span):
                self._ask(self._pool, span, facts)

    def _ask(self, pool: ProcessPoolExecutor, span: range, facts: TableFacts) -> None:
        try:
            future = pool.submit(_answers, [self._waiting.request(at, facts) for at in span])
        except RuntimeError:  # a helper died, or all were ended
            return
        self._under_way.append(future)
        self._asked.update((place, _Asked(facts, future, at)) for at, place in enumerate(span))

    def answer(self, place: int, facts: TableFacts) -> ReadFile | None:
        """A file that was read ahead against these facts, if any was."""
        asked = self._asked.pop(place, None)
        if asked is None or asked.facts != facts:
            return None
        try:
            answer = asked.future.result()[asked.at]
        except (BrokenExecutor, CancelledError):
            return None
        return answer and ReadFile(answer[0], answer[1] or facts)

    def close(self) -> None:
        """Nobody waits for the rest."""
        for future in self._under_way:
            future.cancel()


def _windows(files: Sequence[FileSighting]) -> Iterator[range]:
    first = size = 0
    for place, file in enumerate(files):
        size += file.size
        if place - first == WINDOW_FILES or size > WINDOW_BYTES:
            yield range(first, place)
            first, size = place, file.size
    yield range(first, len(files))


def _from_the_back(window: range) -> Iterator[range]:
    return (window[max(0, end - ASKED_TOGETHER) : end] for end in range(len(window), 0, -ASKED_TOGETHER))


def _forked(here: ChangeFileReader, helpers: int) -> ProcessPoolExecutor | None:
    """None where the system has no room for more processes, or no semaphores."""
    try:
        pool = ProcessPoolExecutor(helpers, get_context("fork"), _begin, (here,))
        pool.submit(int)  # forks
    except (OSError, ImportError, NotImplementedError):
        return None
    return pool


_reader: ChangeFileReader  # in a helper


def _begin(reader: ChangeFileReader) -> None:
    """In a helper: it ends with its parent, who alone heeds Ctrl+C."""
    global _reader  # noqa: PLW0603 - how a pool's initializer hands over what cannot be pickled
    _reader = reader
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    if parent := parent_process():
        parent.join()
        os._exit(1)


def _answers(requests: Sequence[ReadRequest]) -> list[Answer]:
    return [_answer(request) for request in requests]


def _answer(request: ReadRequest) -> Answer:
    try:
        found = _reader.read(request)
    except Exception:  # noqa: BLE001 - whoever asked reads it again, and meets the same
        return None
    return found.rows, None if found.facts == request.facts else found.facts
