"""Reads small change files ahead in processes of their own: they cost the interpreter's time, not the disk's."""

from __future__ import annotations

import os
import sys
import threading
from collections import deque
from concurrent.futures import CancelledError
from contextlib import closing, suppress
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, NamedTuple

from mirror_engine.tables.reading.reading_helper import Helper, started

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator, Sequence

    from mirror_engine.landing_zone.listing import LandedFile
    from mirror_engine.tables.reading.reader import ChangeFileReader, ReadFile, TableContext, WaitingFiles

MIN_FILES = 128  # below, a helper costs more than it gives
LARGEST_BYTES = 1 << 18  # of a file that is asked for: larger ones cost the disk's time, or Arrow's
ASKED_TOGETHER = 16  # files
WINDOW_FILES, WINDOW_BYTES = 512, 8 << 20  # the rows of so many files, and of as many again, may be held at a time
MAX_HELPERS = 3


def helpers_for(sizes: Sequence[int]) -> int:
    """How many processes help with files of these sizes, in bytes; 0 where forking is not to be trusted."""
    if sys.platform != "linux" or threading.active_count() > 1:
        return 0
    small = sum(size <= LARGEST_BYTES for size in sizes)
    return min(MAX_HELPERS, len(os.sched_getaffinity(0)) - 1) if small >= MIN_FILES else 0


class HelpedReader:
    """`OrderedReader` where helpers read from the back of what waits, until both meet.

    They read against the facts that are likely: an answer counts only where those are the facts in the end. Whatever
    else befalls a helper, its files are read here.

    Args:
        here: reads in this process; what it makes of a file must go through a pipe where there are helpers.
        helpers: how many others; see `helpers_for`. They are forked at once, before this process has a second thread.
        batch_files: how many files a batch has at most: beyond, nothing is read ahead.
    """

    def __init__(self, here: ChangeFileReader, helpers: int, batch_files: int) -> None:
        self._here = here
        self._batch_files = batch_files
        self._helpers = started(here, helpers)
        self._idle: SimpleQueue[Helper] = SimpleQueue()
        for helper in self._helpers:
            self._idle.put(helper)
        self._is_closed = False

    def in_order(self, waiting: WaitingFiles) -> Generator[ReadFile, None, None]:
        """See `OrderedReader`.

        Raises:
            CancelledError: it was closed meanwhile: nobody waits for more.
        """
        facts = waiting.facts
        with closing(_Ahead(self._idle, waiting, self._batch_files)) as ahead:
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
        for helper in self._helpers:
            helper.end()


class _Asked(NamedTuple):
    span: range
    facts: TableContext


class _Ahead:
    """What idle helpers read of one table's files."""

    def __init__(self, idle: SimpleQueue[Helper], waiting: WaitingFiles, batch_files: int) -> None:
        self._idle = idle
        self._waiting = waiting
        self._helpers: list[Helper] = []
        self._windows = list(_windows(waiting.files[:batch_files]))
        self._spans = deque(span for window in self._windows for span in _from_the_back(window) if self._is_small(span))
        self._asked: dict[Helper, _Asked] = {}
        self._answers: dict[int, tuple[TableContext, ReadFile]] = {}  # by place, and against what

    def ask(self, place: int, facts: TableContext) -> None:
        """Keep helpers busy with files well beyond a place, whose facts are likely to be these."""
        for helper in self._helpers:
            if helper.has_answered:
                self._take(helper)
        while self._has_span(place) and (free := self._free_helper()) is not None:
            span = self._spans.popleft()
            self._asked[free] = _Asked(span, facts)
            free.ask([self._waiting.request(at, facts) for at in span])

    def _has_span(self, place: int) -> bool:
        """Whether there is one that is not reached before a helper has read it, in this window or the next."""
        while self._spans and self._spans[0].start <= place + ASKED_TOGETHER:
            self._spans.popleft()
        while len(self._windows) > 1 and self._windows[0].stop <= place:
            del self._windows[0]
        return bool(self._spans) and self._spans[0].start < self._windows[:2][-1].stop

    def _free_helper(self) -> Helper | None:
        free = next((helper for helper in self._helpers if helper.is_free), None)
        if free is None:
            with suppress(Empty):
                self._helpers.append(helper := self._idle.get_nowait())
                free = helper if helper.is_free else None
        return free

    def _is_small(self, span: range) -> bool:
        return all(self._waiting.files[at].size <= LARGEST_BYTES for at in span)

    def answer(self, place: int, facts: TableContext) -> ReadFile | None:
        """A file that was read ahead against these facts, if any was; waits for one that is being read."""
        for helper, asked in tuple(self._asked.items()):
            if place in asked.span:
                self._take(helper)
        against, found = self._answers.pop(place, (None, None))
        return found if against == facts else None

    def _take(self, helper: Helper) -> None:
        answers, asked = helper.answers(), self._asked.pop(helper, None)
        if asked is None:  # of somebody who did not wait for them
            return
        for place, found in zip(asked.span, answers, strict=False):
            if found is not None:
                self._answers[place] = asked.facts, found.after(asked.facts)

    def close(self) -> None:
        """Nobody waits for the rest."""
        for helper in self._helpers:
            self._idle.put(helper)


def _windows(files: Sequence[LandedFile]) -> Iterator[range]:
    first = size = 0
    for place, file in enumerate(files):
        size += file.size
        if place - first == WINDOW_FILES or size > WINDOW_BYTES:
            yield range(first, place)
            first, size = place, file.size
    yield range(first, len(files))


def _from_the_back(window: range) -> Iterator[range]:
    return (window[max(0, end - ASKED_TOGETHER) : end] for end in range(len(window), 0, -ASKED_TOGETHER))
