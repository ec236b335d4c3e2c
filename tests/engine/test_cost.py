"""Cost does not grow with age: what a change, an idle look and a start cost after many files, commits and partitions.

Counts where they can be had: bytes of a commit, lines of Python, entries of folders. `make bench ONLY=age` has seconds.
"""

from __future__ import annotations

import gc
import os
import sys
import threading
import time
import tracemalloc
from collections import Counter
from functools import partial
from pathlib import Path
from unittest.mock import Mock, patch

import pyarrow as pa
import pytest
from quick_folder import quick_folder
from shop import name

from mirror_engine import Config, Mirror, RunResult
from mirror_engine.events import CycleEnded, CycleStarted
from mirror_engine.landing_zone.layout import TABLES
from mirror_engine.testing.landing_zone_writer import LandingZoneWriter

pytestmark = pytest.mark.slow

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


FEW, MANY = 12, 1_000  # files applied before
LOOP = MANY // 4  # a line that ran this much oftener ran once for each of those files, or for a part of them
FORGOTTEN = {"delete_processed_after_seconds": 0.0}
LARGEST_COMMIT_BYTES = 16_384  # of one file in a table of two columns
TABLES_WITH_AGE = 20
HELD_BYTES_A_FILE = 50  # a million files within 50 MiB
SECOND = 2


def landed(root, files, *, tables=("Orders",)):
    """A zone whose tables have so many files of one row each."""
    zone = LandingZoneWriter(root)
    folders = [zone.table(table, keys=["id"]) for table in tables]
    for folder in folders:
        for number in range(1, files + 1):
            land_row(folder, number)
    return folders


def land_row(folder, number, **where):
    folder.land_parquet(pa.table({"id": [number], "n": [number]}), **where)


def mirror_of(root, **options):
    return Mirror(root, Config(merge_engine="arrow", **options))


def apply(root, **options):
    with mirror_of(root, **options) as mirror:
        report = mirror.sync()
    assert report.result is RunResult.CAUGHT_UP, report
    return report


def table_of(root, table="Orders"):
    return root / TABLES / "dbo" / table


def newest_commit_bytes(root):
    found = commit_bytes(table_of(root))
    return found[max(found)]


def test_commit_size_is_flat_without_cleanup(ram):
    """The 120th commit of one file each is as large as the tenth: it names its own file, not those before."""
    landed(ram, 121)
    apply(ram, cleanup="off", max_batch_files=1)
    with mirror_of(ram) as mirror:
        versions = {entry.files[0]: entry.version for entry in mirror.history("Orders") if entry.files}
    sizes = commit_bytes(table_of(ram))
    tenth, last = (sizes[versions[name(number)]] for number in (10, 120))
    assert last <= 1.5 * tenth


def test_commit_size_is_flat_within_a_backlog(ram):
    landed(ram, 61)
    apply(ram, max_batch_files=1)
    sizes = [size for _, size in sorted(commit_bytes(table_of(ram)).items())]
    assert sizes[-2] <= 1.5 * sizes[10]


def test_commit_size_is_flat_across_partitions(ram):
    """A change of one partition writes that one's watermark, not those of all."""

    def size(partitions):
        root = ram / str(partitions)
        orders = LandingZoneWriter(root).table("Orders", keys=["id"], partitioned=True)
        for number in range(partitions):
            land_row(orders, number, partition=f"site={number:03}")
        apply(root)
        land_row(orders, partitions, partition="site=000")
        apply(root)
        return newest_commit_bytes(root)

    assert size(200) <= 3 * size(10)


def age(folder, **options):
    """Two mirrors by number of applied files, few and many: their ROOT and table folder."""
    found = {}
    for files in (FEW, MANY):
        root = folder / str(files)
        (orders,) = landed(root, files)
        apply(root, max_batch_files=MANY, **options)
        land_row(orders, 0)  # the newest commit is that of one file, as it is in a table that has caught up
        apply(root, **options)
        found[files] = root, orders
    return found


@pytest.fixture(scope="module")
def aged():
    """Applied files that are deleted: nothing but the engine's own state can know them."""
    with quick_folder() as folder:
        yield age(Path(folder), **FORGOTTEN)


def assert_no_loop(counts):
    """No line ran once for each file that was ever applied."""
    grown = most_frequent_growth(counts[FEW], counts[MANY])
    assert grown[0][0] < LOOP, grown


def test_caught_up_sync_does_not_look_at_applied_files(aged):
    assert_no_loop({files: lines(lambda root=root: apply(root, **FORGOTTEN)) for files, (root, _) in aged.items()})


def test_commit_does_not_look_at_applied_files(aged):
    counts = {}
    for files, (root, orders) in aged.items():
        land_row(orders, -1)
        counts[files] = lines(lambda root=root: apply(root, **FORGOTTEN))
        assert newest_commit_bytes(root) < LARGEST_COMMIT_BYTES
    assert_no_loop(counts)


def test_status_does_not_look_at_applied_files(aged):
    counts = {}
    for files, (root, _) in aged.items():
        with mirror_of(root) as mirror:
            counts[files] = lines(mirror.status)
    assert_no_loop(counts)


def test_idle_cycle_does_not_look_at_applied_files(aged):
    assert_no_loop({files: lines_of_idle_cycle(root, **FORGOTTEN) for files, (root, _) in aged.items()})


def test_idle_cycle_of_many_tables_does_not_look_at_applied_files(ram):
    """What 1,000 tables with a million applied files pay in each cycle, as a count of fewer."""
    tables = [f"Orders{number}" for number in range(TABLES_WITH_AGE)]
    counts = {}
    for files, each in ((FEW, 1), (MANY, MANY // TABLES_WITH_AGE)):
        root = ram / str(files)
        landed(root, each, tables=tables)
        apply(root, **FORGOTTEN)
        counts[files] = lines_of_idle_cycle(root, **FORGOTTEN)
    assert_no_loop(counts)


def lines_of_idle_cycle(root, **options):
    """Lines that the second cycle of `run` executes, with those of the threads that it starts."""
    count, before = Counter(), []
    run = partial(run_two_cycles, root, lambda: before.append(count.copy()), lambda: None, **options)
    counted(run, count)
    count.subtract(before[0])
    return count


def run_two_cycles(root, begins, ends, **options):
    """`run`; calls functions when the second cycle begins, and when it has ended."""
    stop = threading.Event()

    def hear(event):
        if isinstance(event, CycleStarted) and event.number == SECOND:
            begins()
        elif isinstance(event, CycleEnded) and event.number == SECOND:
            ends()
            stop.set()
        elif isinstance(event, CycleEnded):
            mirror.wake()

    with Mirror(root, Config(merge_engine="arrow", **options), listeners=[hear]) as mirror:
        mirror.run(stop)


def test_memory_does_not_grow_with_applied_files(aged):
    """Of what Python holds while `run` waits; SQLite's own cache is bounded."""
    held = {}

    def weigh(files):
        gc.collect()
        held[files] = tracemalloc.get_traced_memory()[0]

    for files in (FEW, FEW, MANY):  # the first loads modules
        tracemalloc.start()
        try:
            run_two_cycles(aged[files][0], lambda: None, partial(weigh, files), **FORGOTTEN)
        finally:
            tracemalloc.stop()
    assert held[MANY] - held[FEW] < HELD_BYTES_A_FILE * (MANY - FEW)


def test_caught_up_sync_takes_no_longer_with_an_archive(ram):
    """A start lists the archive, to delete what is due: that is all it may cost."""
    found = age(ram)
    few, many = (least_seconds(lambda root=root: apply(root)) for root, _ in found.values())
    assert many <= 3 * few


def test_status_behind_a_gap_is_linear(ram):
    """Eight times the files that wait for a missing number take about eight times as long, not 64 times."""

    def seconds(files):
        root = ram / str(files)
        orders = LandingZoneWriter(root).table("Orders", keys=["id"])
        for number in range(2, files + 2):
            orders.land(b"", name=name(number))
        with mirror_of(root) as mirror:
            assert len(mirror._status().tables[0].pending_files) == files
            return least_seconds(mirror.status, 3)

    assert seconds(8_000) <= 16 * seconds(1_000)


@pytest.mark.nightly
def test_status_of_many_tables_is_no_slower_than_sync(ram):
    landed(ram, 1, tables=[f"Orders{number}" for number in range(300)])
    apply(ram)
    with mirror_of(ram) as mirror:
        status, sync = (least_seconds(work) for work in (mirror.status, mirror.sync))
    assert status <= 1.2 * sync


def test_commit_does_not_list_the_log(ram):
    """Names that are left in `_delta_log`, as of older commits or crashed writers, are not listed for a commit."""
    (orders,) = landed(ram, 55)
    apply(ram, max_batch_files=1, **FORGOTTEN)  # past the first checkpoint
    log = table_of(ram) / "_delta_log"
    for number in range(MANY):
        (log / f"_commit_{number:08}-0000-4000-8000-000000000000.json.tmp").touch()
    land_row(orders, 56)
    calls = {name: Mock(wraps=getattr(os, name)) for name in ("scandir", "listdir")}
    with patch.multiple(os, **calls):
        assert apply(ram, **FORGOTTEN).commits == 1
    listed = {str(*each.args) for call in calls.values() for each in call.call_args_list}
    assert any(folder.startswith(str(ram)) for folder in listed), "lists are seen"
    assert str(log) not in listed
