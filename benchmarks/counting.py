"""Counts entries of folders that Python lists; what Rust code lists is not seen."""

from __future__ import annotations

import os
from collections import Counter
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Self
from unittest.mock import patch

if TYPE_CHECKING:
    from collections.abc import Iterator


Folder = Any  # a path, or the number of an open folder


class _Scanned:
    """`os.scandir`'s iterator, which counts."""

    def __init__(self, entries: Any, folder: Folder, listed: Counter[Folder]) -> None:  # noqa: ANN401 - has no public type
        self._entries, self._folder, self._listed = entries, folder, listed

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> os.DirEntry[str]:
        entry: os.DirEntry[str] = next(self._entries)
        self._listed[self._folder] += 1
        return entry

    def close(self) -> None:
        self._entries.close()


@contextmanager
def counted_entries() -> Iterator[Counter[Folder]]:
    """Count while entered, by folder as it was given: in all threads."""
    listed: Counter[Folder] = Counter()
    scandir, listdir = os.scandir, os.listdir

    def scan(folder: Folder = ".") -> _Scanned:
        return _Scanned(scandir(folder), _named(folder), listed)

    def names(folder: Folder = ".") -> list[str]:
        found: list[str] = listdir(folder)
        listed[_named(folder)] += len(found)
        return found

    with patch.object(os, "scandir", scan), patch.object(os, "listdir", names):
        yield listed


def _named(folder: Folder) -> Folder:
    return folder if isinstance(folder, int) else os.fspath(folder)
