"""What work costs, in counts that no busy machine changes: lines of Python, entries of folders, bytes of commits."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections import Counter
from contextlib import contextmanager
from pathlib import Path

CLOSEST = 5


def lines(work):
    """How many lines of Python a call runs, in this thread and in those that it starts; a loop counts every round."""
    count = Counter()
    counted(work, count)
    return count


def counted(work, count):
    """Call `work`, and count each line in `count` as it runs, by file and number."""

    def trace(frame, event, _):
        if event == "line":
            count[frame.f_code.co_filename, frame.f_lineno] += 1
        return trace

    before, before_threads = sys.gettrace(), threading.gettrace()
    threading.settrace(trace)
    sys.settrace(trace)
    try:
        work()
    finally:
        sys.settrace(before)
        threading.settrace(before_threads)


def most_frequent_growth(small, large):
    """The lines whose count grew most from one call to another: number and place of each."""
    grown = Counter(large)
    grown.subtract(small)
    return [(times, f"{Path(file).name}:{line}") for (file, line), times in grown.most_common(CLOSEST)]


@contextmanager
def counted_entries(monkeypatch):
    """While entered, counts the entries that Python lists, by folder; what Rust code lists is not seen."""
    listed = Counter()
    scandir, listdir = os.scandir, os.listdir

    class Scanned:
        def __init__(self, folder, entries):
            self._folder, self._entries = folder, entries

        def __enter__(self):
            return self

        def __exit__(self, *_):
            self._entries.close()

        def __iter__(self):
            return self

        def __next__(self):
            entry = next(self._entries)
            listed[self._folder] += 1
            return entry

        def close(self):
            self._entries.close()

    def scan(folder="."):
        return Scanned(os.fspath(folder) if not isinstance(folder, int) else folder, scandir(folder))

    def names(folder="."):
        found = listdir(folder)
        listed[os.fspath(folder) if not isinstance(folder, int) else folder] += len(found)
        return found

    with monkeypatch.context() as patched:
        patched.setattr(os, "scandir", scan)
        patched.setattr(os, "listdir", names)
        # `pathlib` of Python 3.10 keeps its own references
        accessor = getattr(sys.modules["pathlib"], "_NormalAccessor", None)
        if accessor:
            patched.setattr(accessor, "scandir", staticmethod(scan))
            patched.setattr(accessor, "listdir", staticmethod(names))
        yield listed


def least_seconds(work, times=5):
    """Processor time of this process for a call, the least of several: what no other program adds to."""
    found = []
    for _ in range(times):
        began = time.process_time()
        work()
        found.append(time.process_time() - began)
    return min(found)


def commit_bytes(table):
    """Sizes of a Delta table's commits in bytes, by version."""
    return {int(entry.name[:20]): entry.stat().st_size for entry in (table / "_delta_log").glob("*.json")}
