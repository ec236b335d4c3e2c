"""Stores as commands that only read open them: listed once, cached, with progress and a limit on downloads."""

from __future__ import annotations

import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

import click

from mirror_engine.cli.exits import Output
from mirror_engine.errors import UsageError
from mirror_engine.landing_zone.diagnostics import count
from mirror_engine.monitoring.words import size_text
from mirror_engine.storage.cached import Downloads
from mirror_engine.storage.reading import open_tree

if TYPE_CHECKING:
    from mirror_engine.storage.base import Storage
    from mirror_engine.storage.store_url import Place

SHOWN_SECONDS = {True: 0.1, False: 10.0}  # between two lines, on a terminal or elsewhere


class Reading:
    """Opens stores for one command.

    Args:
        max_download: bytes after which the user is asked.
        is_quiet: whether no progress is shown.
    """

    def __init__(self, max_download: int, *, is_quiet: bool = False) -> None:
        self._max_download, self._is_quiet = max_download, is_quiet
        self._downloads = Downloads(max_download, self._confirm)
        self._refused: UsageError | None = None
        self._lock = threading.Lock()
        self._shown_at = time.monotonic()

    def open(self, place: Place, top: str) -> Storage:
        """Open a folder to read what is below `top` in it."""
        return open_tree(place, top, self._downloads, self._show)

    def allow_rows(self, tables: Place, folder: str, version: int | None = None, limit: int | None = None) -> None:
        """Count the files of a Delta table in a store, from which rows are about to be read.

        Args:
            tables: `ROOT/Tables`.
            folder: of the table, from there.
            version: the newest by default.
            limit: the most rows that are read; None for all.

        Raises:
            UsageError: it is more than the user allows; or no such version.
        """
        from mirror_engine.tables.log.snapshot import byte_count, open_log  # imports Arrow
        from mirror_engine.tables.log.table_path import table_path

        if not isinstance(tables, Path) and (log := open_log(table_path(tables / folder), version)):
            self._downloads.add(byte_count(log, limit))

    def _show(self, doing: str, files: int) -> None:
        is_terminal = sys.stderr.isatty()
        with self._lock:
            if self._is_quiet or time.monotonic() - self._shown_at < SHOWN_SECONDS[is_terminal]:
                return
            self._shown_at = time.monotonic()
            text = f"{doing} {count(files, 'file')}"
            if is_terminal and isinstance(sys.stderr, Output):
                sys.stderr.pass_by(f"\r{text}")
            else:
                sys.stderr.write(f"{text}\n")

    def _confirm(self, total: int) -> None:
        if self._refused is None:
            text = f"more than {size_text(self._max_download)} would be downloaded ({size_text(total)} so far)"
            help = "allow it with --max-download, or ask for less, such as one table"
            if not sys.stdin.isatty():
                self._refused = UsageError(text, help)
            elif not click.confirm(f"{text[:1].upper()}{text[1:]}. Go on?", err=True):
                self._refused = UsageError("not confirmed", help)
        if self._refused:
            raise self._refused
