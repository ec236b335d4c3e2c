"""Counts entries of folders that Python lists; what Rust code lists is not seen."""

from __future__ import annotations

import os
import pathlib
from collections import Counter
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from typing_extensions import Self

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

    _replace(scan, names)
    try:
        yield listed
    finally:
        _replace(scandir, listdir)


def _replace(scan: Callable[..., Any], names: Callable[..., Any]) -> None:
    for place in filter(None, (os, getattr(pathlib, "_NormalAccessor", None))):  # Python 3.10's `Path` has its own
        place.scandir = scan if place is os else staticmethod(scan)
        place.listdir = names if place is os else staticmethod(names)


def _named(folder: Folder) -> Folder:
    return folder if isinstance(folder, int) else os.fspath(folder)
