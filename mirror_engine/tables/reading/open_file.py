"""An open change file, and bounds on the memory that its rows take: a small file must not fill it."""

from __future__ import annotations

import os
import resource
from abc import ABC, abstractmethod
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from mirror_engine.errors import SetupError
from mirror_engine.landing_zone.change import looks_like_marker
from mirror_engine.landing_zone.diagnostics import RejectedFile, diagnose

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from mirror_engine.config import Config
    from mirror_engine.landing_zone.diagnostics import Diagnostic
    from mirror_engine.landing_zone.schema import Column

MAX_EXPANDED_ROWS = 64  # a file may expand to as many rows of the longest length allowed …
MAX_EXPANSION = 256  # … or to as many times its own length
MIN_ROW_BYTES = 256  # of a row while its batch is reduced to net changes (100 measured): empty rows cost, too


WRITE_ASIDE = "delete it, write under a temporary name, then rename"  # help for a file that was read too early


class OpenFile(ABC):
    """An open change file.

    Args:
        handle: its bytes, seekable; stays open, and is the caller's to close after the last batch.
        path: for messages, from the landing zone's top.
        config: all options.

    Attributes:
        columns: data columns in file order, without the marker; observed types in Delta's words, `VOID` for a
            null-typed one. For text: the declared columns that the header names.
        marker: the marker column's name as spelled; None for a marker-free file.
        naive_columns, utc_columns: timestamp columns without and with a time zone.
        has_rows: whether it may hold a row.
    """

    columns: Sequence[Column] = ()
    marker: str | None = None
    naive_columns: frozenset[str] = frozenset()
    utc_columns: frozenset[str] = frozenset()
    has_rows: bool = True

    def __init__(self, handle: BinaryIO, path: str, config: Config) -> None:
        self._handle = handle
        self._size = handle.seek(0, os.SEEK_END)
        self._path = path
        self._config = config
        self._noted: dict[Diagnostic, None] = {}

    @abstractmethod
    def batches(self) -> Iterator[pa.RecordBatch]:
        """Rows in file order, in bounded batches, readable more than once.

        Columns under the file's own names, in file order, each in the Arrow type of its observed Delta type (see
        `arrow_types`), then, where there is a marker, `MARKER_COLUMN` as int8, each of them one the protocol knows.

        Raises:
            RejectedFile: a row, cell or page cannot be read (ME024, ME037 for a marker outside int8, ME060,
                ME061, ME075).
        """

    @property
    def diagnostics(self) -> list[Diagnostic]:
        """Warnings and information; grows while rows are read."""
        return list(self._noted)

    def _note(self, code: str, row: int | None = None, /, **details: object) -> None:
        """Add a diagnostic, once: rows are read more than once."""
        self._noted[self._diagnostic(code, row, **details)] = None

    def _is_meant_as_marker(self, name: str) -> bool:
        """Whether a column looks like the marker in a file that has none."""
        return self.marker is None and looks_like_marker(name)

    def _note_misspelled_marker(self, names: Iterable[str]) -> None:
        """Note the first of a file's columns that looks like the marker, where there is none (ME095)."""
        if found := next(filter(self._is_meant_as_marker, names), None):
            self._note("ME095", column=found)

    def _diagnostic(self, code: str, row: int | None = None, /, **details: object) -> Diagnostic:
        return diagnose(code, self._path, row=row, strict=self._config.strict, **details)

    def _rejected(self, code: str, row: int | None = None, /, **details: object) -> RejectedFile:
        return RejectedFile(self._diagnostic(code, row, **details))

    def _broken(self, reason: str, help: str = WRITE_ASIDE) -> RejectedFile:
        """The rejection of an incomplete or damaged file (LZ-3.10)."""
        return self._rejected("ME024", reason=reason, help=help)

    def _too_large(self, reason: str, limit: int, row: int | None = None) -> RejectedFile:
        """The rejection of what is beyond a bound that the option `max_row_size` moves."""
        return self._rejected("ME075", row, reason=reason, limit=f"{limit:,} bytes", option="max_row_size")

    def _check_total(self, expanded_bytes: int, rows: int) -> None:
        """Refuse so many bytes of values in memory where the file's size and `max_row_size` allow less (ME075)."""
        limit = max(MAX_EXPANDED_ROWS * self._config.max_row_size, MAX_EXPANSION * self._size)
        total = max(expanded_bytes, rows * MIN_ROW_BYTES)
        if total > limit:
            raise self._too_large(f"{self._size:,} bytes that unfold to {total:,} or more", limit)

    def _check_lengths(self, batch: pa.RecordBatch, first_row: int) -> int:
        """Refuse a row longer than `max_row_size` (ME075); returns how many bytes all rows take."""
        total, limit = int(batch.nbytes), self._config.max_row_size
        if total > limit:
            lengths = np.zeros(batch.num_rows, dtype=np.int64)
            for cells in batch.columns:
                if pa.types.is_string(cells.type) or pa.types.is_binary(cells.type):
                    lengths += pc.fill_null(pc.binary_length(cells), 0).to_numpy()
            longest = int(lengths.argmax())
            if lengths[longest] > limit:
                raise self._too_large(f"a row of {lengths[longest]:,} bytes", limit, first_row + longest)
        return total


def limit_memory(size: int) -> None:
    """Let the process's address space grow by `size` bytes from now on; beyond, allocations fail.

    Raises:
        SetupError: the system knows no such limit.
    """
    try:
        used_pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0])
    except FileNotFoundError:
        raise SetupError("memory_limit needs Linux", "Leave it out, or limit the process from outside.") from None
    pa.set_memory_pool(pa.system_memory_pool())  # the others reserve address space far ahead
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (used_pages * resource.getpagesize() + size, hard))


@contextmanager
def unlimited_memory() -> Iterator[None]:
    """Lift the limit while a process is started that would inherit it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (hard, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
