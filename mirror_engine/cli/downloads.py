"""Consent to downloads from a store: as many bytes as `--max-download` need none."""

from __future__ import annotations

import sys
import threading
import time
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, cast

import click

from mirror_engine.cli.output import verbosity
from mirror_engine.config import cache_folder
from mirror_engine.errors import UsageError
from mirror_engine.landing_zone.layout import TABLES
from mirror_engine.landing_zone.text import count
from mirror_engine.storage.requests import Requests
from mirror_engine.storage.stores import open_storage

if TYPE_CHECKING:
    from mirror_engine.storage.base import Storage
    from mirror_engine.storage.listing import StoreStorage
    from mirror_engine.storage.store_url import Place

SHOWN_SECONDS = {True: 2.0, False: 10.0}  # between two lines on downloads, on a terminal or elsewhere


class Downloads:
    """The downloads of one command. The first `max_download` bytes need no confirmation."""

    def __init__(self, max_download: int) -> None:
        self._max_download, self._total = max_download, 0
        self._is_quiet = verbosity() < 0
        self._answer: UsageError | bool = False  # whether more is allowed; asked once
        self._lock = threading.Lock()
        self._shown_at = time.monotonic()

    def open(self, place: Place, top: str) -> Storage:
        """Open a folder to read what is below `top`. In a store, shows its state at the first listing."""
        storage = open_storage(place, Requests(partial(self._show, "listing")))
        if isinstance(place, Path):
            return storage
        from mirror_engine.storage.listing import Cache, FolderOfStore

        cache = Cache(cache_folder() / "stores" / sha256(str(place).encode()).hexdigest()[:16])
        return FolderOfStore(cast("StoreStorage", storage), top, cache, self.add, self._show)

    def add(self, byte_count: int) -> None:
        """Count bytes that are about to be downloaded.

        Raises:
            UsageError: it is more than the user allows.
        """
        with self._lock:
            self._total += byte_count
            if self._total > self._max_download and self._answer is False:
                from rich import filesize

                limit, total = filesize.decimal(self._max_download), filesize.decimal(self._total)
                text = f"more than {limit} would be downloaded ({total} so far)"
                help = "allow it with --max-download, or read less, such as one table"
                if not sys.stdin.isatty():
                    self._answer = UsageError(text, help)
                else:
                    is_confirmed = click.confirm(f"{text[:1].upper()}{text[1:]}. Go on?", err=True)
                    self._answer = is_confirmed or UsageError("not confirmed", help)
            if isinstance(self._answer, UsageError):
                raise self._answer

    def add_table(self, root: Place, folder: str, version: int | None = None, limit: int | None = None) -> None:
        """Count the files of a Delta table in a store before its rows are read.

        Args:
            root: the ROOT.
            folder: of the table, from its `Tables`.
            version: the newest by default.
            limit: the most rows that are read; None for all.

        Raises:
            UsageError: it is more than the user allows; or no such version.
        """
        from mirror_engine.tables.log.snapshot import byte_count, open_log  # imports Arrow
        from mirror_engine.tables.log.table_path import table_path

        if not isinstance(root, Path) and (log := open_log(table_path(root / TABLES / folder), version)):
            self.add(byte_count(log, limit))

    def _show(self, doing: str, files: int) -> None:
        with self._lock:
            if not self._is_quiet and time.monotonic() - self._shown_at >= SHOWN_SECONDS[sys.stderr.isatty()]:
                self._shown_at = time.monotonic()
                sys.stderr.write(f"{doing} {count(files, 'file')}\n")
