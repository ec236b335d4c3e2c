"""Reads a table's next file on a second core while the current one is read, on the guess that it changes no context."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable
    from concurrent.futures import Executor, Future

    from mirror_engine.tables.base import FileRows
    from mirror_engine.tables.reading.request import ReadRequest


class ReadAhead:
    """At most one file of a table that is being read, or was, before its turn.

    Args:
        pool: where it is read.
        read: reads a file.
    """

    def __init__(self, pool: Executor, read: Callable[[ReadRequest], FileRows]) -> None:
        self._pool = pool
        self._read = read
        self._begun: tuple[ReadRequest, Future[FileRows]] | None = None

    def begin(self, request: ReadRequest) -> None:
        """Read a file in the pool; what was begun before is dropped."""
        self.close()
        self._begun = request, self._pool.submit(self._read, request)

    def taken(self, request: ReadRequest) -> FileRows | None:
        """Return the rows that `begin` read; None for another file or context, or if the read had not started.

        Raises what `read` raised.
        """
        if self._begun is None or self._begun[0] != request or self._begun[1].cancel():
            return None
        begun, self._begun = self._begun[1], None
        return begun.result()

    def close(self) -> None:
        """Drop what was begun, with its scratch file. Idempotent."""
        if self._begun is None:
            return
        begun, self._begun = self._begun[1], None
        if not begun.cancel() and not begun.exception():  # waits where it is running
            begun.result().rows.close()
