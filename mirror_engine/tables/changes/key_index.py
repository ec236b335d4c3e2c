"""Where each key of a large data file is: a cache of sorted keys with their row numbers, one file per data file.

A data file never changes, so its index stays right while it exists. Only keys of one column that fit 64 bits exactly
are indexed: whole numbers, dates, times, booleans and decimals of up to 18 digits. For other keys a match would have to
be proven by the values, which costs as much as the scan that the index saves.

The folder may be deleted at any time, and holds no more than its limit: what was used least recently goes first.
"""

from __future__ import annotations

import hashlib
import logging
import os
import struct
import threading
import uuid
from contextlib import suppress
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from mirror_engine.tables.changes.net_changes import exact_numbers
from mirror_engine.tables.log.data_rows import scan_file

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

    from mirror_engine.tables.changes.net_changes import Integers
    from mirror_engine.tables.log.snapshot import DeltaLog
    from mirror_engine.tables.log.table_file import DataFile

_log = logging.getLogger(__name__)
_LEAST_ROWS = 100_000  # of a data file: a smaller one is scanned in a few milliseconds
_ROWS_PER_KEY = 8  # of a data file: with more keys a scan is quicker than as many searches
_KEY, _ROW = np.dtype("<i8"), np.dtype("<u4")
_ENTRY_BYTES = _KEY.itemsize + _ROW.itemsize
_SUFFIX = ".keys"
_MAGIC, _HEADER = b"keys 2\0\0", "<8s16sq"  # and of which column, and how many keys there are


class KeyIndex:
    """Indexes of data files in a folder.

    Args:
        folder: made when it is needed.
        limit: bytes that all indexes may take; 0 for none.
    """

    def __init__(self, folder: Path, limit: int) -> None:
        self._folder, self._limit = folder, limit
        self._lock = threading.Lock()

    def find(self, log: DeltaLog, file: DataFile, column: str, wanted: Integers) -> tuple[Integers, Integers] | None:
        """Look up distinct keys, ascending as from `exact_numbers`. Builds a missing index if the keys are few.

        Returns places in `wanted` and row numbers, of one length; None where a scan of the file is quicker.
        """
        rows = file.rows or 0
        if not _LEAST_ROWS <= rows <= self._limit // _ENTRY_BYTES:
            return None
        path, of_column = self._path(log, file), _digest(log.physical_names[column])
        try:
            entries = _opened(path, of_column, rows)
            if entries is None and len(wanted) * _ROWS_PER_KEY <= rows:
                made = _sorted_keys(log, file, column)
                with self._lock:  # the folder is cleared, too
                    self._make(path, of_column, *made)
                entries = _opened(path, of_column, rows)
        except (OSError, ValueError) as error:
            _log.warning("%s: no index of keys: %s", path.parent, error)
            return None
        return _search(*entries, wanted) if entries else None

    def forget(self, log: DeltaLog, file: DataFile) -> None:
        """Delete the index of a data file that leaves its table."""
        with suppress(OSError):
            self._path(log, file).unlink(missing_ok=True)

    def _path(self, log: DeltaLog, file: DataFile) -> Path:
        """Named for the table's id, and for the data file as its log has it."""
        known = (log.table_id, file.spelled, file.size, file.modified_ms)
        return self._folder / f"{_digest(repr(known)).hex()}{_SUFFIX}"

    def _make(self, path: Path, of_column: bytes, keys: Integers, rows: Integers) -> None:
        self._folder.mkdir(parents=True, exist_ok=True)
        self._make_room(_ENTRY_BYTES * len(keys))
        passing = path.with_name(f".{uuid.uuid4().hex}.tmp")
        try:
            with passing.open("wb") as opened:
                opened.write(struct.pack(_HEADER, _MAGIC, of_column, len(keys)))
                opened.write(keys.astype(_KEY).data)
                opened.write(rows.astype(_ROW).data)
                opened.flush()
                os.fsync(opened.fileno())  # a lost write would be an index without keys
            passing.replace(path)
        finally:
            passing.unlink(missing_ok=True)

    def _make_room(self, wanted: int) -> None:
        """Evict least recently used indexes until so many bytes fit, and leftovers of killed processes."""
        left = wanted
        for entry in sorted(self._folder.iterdir(), key=lambda entry: entry.stat().st_mtime_ns, reverse=True):
            left += entry.stat().st_size
            if left > self._limit or entry.suffix != _SUFFIX:
                entry.unlink(missing_ok=True)


def _digest(text: str) -> bytes:
    return hashlib.blake2b(text.encode(), digest_size=16).digest()


def _opened(path: Path, of_column: bytes, most: int) -> tuple[Integers, NDArray[np.uint32]] | None:
    """The keys and rows of an index, at most so many; None where there is none, or it is of another column or torn."""
    with suppress(FileNotFoundError), path.open("rb") as opened:
        start, size = struct.calcsize(_HEADER), os.fstat(opened.fileno()).st_size
        header = opened.read(start)
        if len(header) == start:
            magic, column, count = struct.unpack(_HEADER, header)
            if (magic, column) == (_MAGIC, of_column) and 0 <= count <= most and size == start + count * _ENTRY_BYTES:
                os.utime(path)  # what was used last goes last
                if not count:
                    return np.empty(0, _KEY), np.empty(0, _ROW)
                keys = np.memmap(opened, dtype=_KEY, mode="r", offset=start, shape=(count,))
                rows = np.memmap(opened, dtype=_ROW, mode="r", offset=start + keys.nbytes, shape=(count,))
                return keys, rows
    return None


def _sorted_keys(log: DeltaLog, file: DataFile, column: str) -> tuple[Integers, Integers]:
    """The keys of a data file in order, and the number of each one's row; rows without a key are left out."""
    keys, rows = [np.empty(0, dtype=np.int64)], [np.empty(0, dtype=np.int64)]
    for first, batch in scan_file(log, file, [column]):
        there = np.flatnonzero(batch.column(0).is_valid().to_numpy(zero_copy_only=False))
        numbers = exact_numbers(batch.column(0).take(pa.array(there)))
        if numbers is None:
            raise TypeError(column)
        keys.append(numbers)
        rows.append(there + first)
    key, row = np.concatenate(keys), np.concatenate(rows)
    if not len(key):
        return key, row
    lowest, bits = int(key.min()), int(row.max()).bit_length()
    if (int(key.max()) - lowest).bit_length() + bits <= _KEY.itemsize * 8 - 1:
        packed = np.sort((key - lowest) << bits | row)  # values sort several times as fast as places
        return (packed >> bits) + lowest, packed & ((1 << bits) - 1)
    order = np.argsort(key, kind="stable")
    return key[order], row[order]


def _search(keys: Integers, rows: NDArray[np.uint32], wanted: Integers) -> tuple[Integers, Integers] | None:
    """Search those of the wanted keys that lie within the bounds of an index; None where they are many."""
    first, end = (np.searchsorted(wanted, keys[0]), np.searchsorted(wanted, keys[-1], "right")) if len(keys) else (0, 0)
    if (end - first) * _ROWS_PER_KEY > len(keys):
        return None
    within = wanted[first:end]
    low, high = np.searchsorted(keys, within, "left"), np.searchsorted(keys, within, "right")
    counts = high - low
    at = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts) + np.repeat(low, counts)
    return np.repeat(np.arange(first, end), counts), rows[at].astype(np.int64)
