"""What work costs, in counts that no busy machine changes: lines of Python, bytes of commits."""

from __future__ import annotations

import sys
import threading
import time
from collections import Counter
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
