"""`DeltaWriter` whose libraries are imported at the first call that needs them: 0.2 s of every caught-up `sync`."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mirror_engine.tables.log.record import commit_file
from mirror_engine.tables.log.tables_folder import TablesFolder, log_stamp

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from mirror_engine.storage.store_url import Place
    from mirror_engine.tables.base import DeltaWriter


class DeferredWriter:
    """Answers from file names and sizes what these can answer; everything else goes to the real writer.

    Args:
        tables: `ROOT/Tables`.
        make: imports and makes the real writer.
    """

    def __init__(self, tables: Place, make: Callable[[], DeltaWriter]) -> None:
        self._tables = TablesFolder(tables, Path())
        self._make = make
        self._made: DeltaWriter | None = None
        self._lock = threading.Lock()

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - every other method of `DeltaWriter`
        return getattr(self._writer, name)

    @property
    def _writer(self) -> DeltaWriter:
        with self._lock:
            self._made = self._made or self._make()
            return self._made

    def prepare(self) -> None:
        """Get the real writer ready, when it is called, not when it is looked up."""
        self._writer.prepare()

    def tables(self) -> Sequence[str]:
        """Every Delta table, by folder, sorted."""
        return self._tables.tables()

    def log_stamp(self, table: str, since: int) -> str:
        """Version, size and time of the newest commit."""
        return log_stamp(self._tables.path(table), since)

    def latest_external_change(self, table: str, since: int) -> int:
        """The newest external change; -1 without reading anything where there is no newer commit."""
        try:
            commit_file(self._tables.path(table), since + 1).stat()
        except FileNotFoundError:
            return -1
        except OSError:
            pass  # the real writer raises the error that names the table
        return self._writer.latest_external_change(table, since)

    def close(self) -> None:
        """Close the real writer, if it was made."""
        if self._made:
            self._made.close()
