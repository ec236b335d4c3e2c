"""Live pages: a stream of events, each the changed part of a page, made by what makes the page itself."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING

from starlette.concurrency import run_in_threadpool
from starlette.responses import PlainTextResponse, Response, StreamingResponse

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

MOST_STREAMS = 32
LOOK_SECONDS = 1.0
SILENT_LOOKS = 15  # after which a comment tells that the connection still stands


class Live:
    """The streams of one server."""

    def __init__(self) -> None:
        self._ended = threading.Event()
        self._streams = 0

    def end(self) -> None:
        """End all streams, within `LOOK_SECONDS`; from any thread."""
        self._ended.set()

    def answer(self, make: Callable[[], str]) -> Response:
        """A stream of what `make` gives, whenever it gives something else; 503 where there are too many.

        Args:
            make: gives HTML without carriage returns; may take a while.
        """
        if self._streams >= MOST_STREAMS:
            return PlainTextResponse("Too many pages are open.\n", 503, {"Retry-After": "60"})
        return StreamingResponse(self._events(make), media_type="text/event-stream")

    async def _events(self, make: Callable[[], str]) -> AsyncIterator[str]:
        self._streams += 1
        try:
            last, silent = "", 0
            while not self._ended.is_set():
                shown = await run_in_threadpool(make)
                silent += 1
                if shown != last:
                    yield "".join(f"data: {line}\n" for line in shown.split("\n")) + "\n"
                    last, silent = shown, 0
                elif silent >= SILENT_LOOKS:
                    yield ": still here\n\n"
                    silent = 0
                await asyncio.sleep(LOOK_SECONDS)
        finally:
            self._streams -= 1
