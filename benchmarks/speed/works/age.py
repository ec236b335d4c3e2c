"""The cost of a commit, an idle cycle and a start after many files, partitions and commits; and of many idle tables."""

from __future__ import annotations

import os
import shutil
import threading
import time
from collections import defaultdict
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import product
from multiprocessing import get_context
from statistics import median
from typing import TYPE_CHECKING, Any, Literal
from unittest.mock import patch

import pyarrow as pa
from deltalake import DeltaTable

from mirror_engine import Config, Mirror, RunResult
from mirror_engine.landing_zone.layout import ENGINE, ZONE
from mirror_engine.landing_zone.names import READY_TO_DELETE_FOLDER
from mirror_engine.testing.landing_zone_writer import LandingZoneWriter, LandOptions
from speed.bench import Goal, Line, Measured, shown
from speed.lake import WORKSPACE, clients_of, requests_to, url_of
from speed.places import TABLE, fresh, mirrored, prepared
from speed.rows import KEY

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from speed.bench import Bench, Figures, Turn

FLAT = 1.2
MAX_LISTED_IN_STORE = 10_000  # files: the emulator takes half a minute to list ten times as many
FILES_A_BATCH = 10_000
COMMITS_A_SYNC, COMMITS_BETWEEN_MAINTENANCE = 100, 500
FIRST_NEW_KEY = 10**9
IDLE_SECONDS = 0.2  # of idle cycles that are measured at least: one takes half a millisecond, or two seconds
IDLE_CYCLES, POLL_SECONDS = 6, 5.0
NO_STOP = threading.Event()
Cleanup = Literal["ready", "off"]
AXES = ("files", "partitions", "commits")
PLACES = ("disk", "store")
CLEANUPS: tuple[Cleanup, ...] = ("ready", "off")
MEASURES = {
    "commit": "a commit",
    "work": "a commit beyond its scan",
    "bytes": "bytes of a commit",
    "requests": "requests for a commit",
    "idle": "an idle cycle",
    "start": "start",
}
COUNTED = {"bytes", "requests"}  # all others are seconds


@dataclass(frozen=True)
class State:
    """A ROOT with a past: a number of applied files, partitions or commits."""

    axis: str
    count: int
    place: str
    cleanup: Cleanup

    def figure(self, measure: str) -> str:
        """The name of a figure of this state."""
        return f"{self.place}, clean-up {_on(self.cleanup)}, {self.count:,} {self.axis}, {measure}"

    def partition(self, number: int) -> LandOptions:
        """Where its file of that number lands."""
        return LandOptions(partition=f"site={number:05}") if self.axis == "partitions" else LandOptions()


def age(bench: Bench) -> Line:
    """Measure commits and idle cycles of one table; then many tables with nothing to do."""
    sizes, home = bench.sizes, bench.home / "prepared/lake"
    counts = dict(zip(AXES, (sizes.age_files, sizes.age_partitions, sizes.age_commits), strict=True))
    states = [
        State(axis, min(count, MAX_LISTED_IN_STORE) if (place, cleanup) == ("store", "off") else count, place, cleanup)
        for place, cleanup, axis in product(PLACES, CLEANUPS, AXES)
        for count in counts[axis]
    ]
    lake: str = bench.ask("lake", "serve", store=home)
    with patch.dict(os.environ, clients_of(lake, home.with_name("lake-state"))):
        turns = {f"{number}": _turn(bench, state, lake) for number, state in enumerate(states)}
        figures = bench.compare({**turns, "idle": _idle(bench)}, 0)
    goals = (*_goals(figures, states), *_idle_goals(bench, figures))
    return Line(figures, goals, "see the table of ages", table=_table(figures, states))


def _goals(figures: Figures, states: Sequence[State]) -> Iterator[Goal]:
    """What a commit costs beyond its scan stays flat; a scan does where it lists no more files and folders.

    Without clean-up a scan takes so long that the difference of two of them says little.
    """
    unlisted = ("files", "commits")  # each partition is a folder that every scan lists
    wanted: list[tuple[str, str, str, Sequence[str]]] = [(place, "ready", "work", AXES) for place in PLACES]
    wanted += [(place, cleanup, "bytes", AXES) for place in PLACES for cleanup in CLEANUPS]
    wanted += [(place, "ready", "idle", unlisted) for place in PLACES]
    wanted += [("store", "ready", "requests", AXES)]
    for place, cleanup, measure, axes in wanted:
        ratios = {}
        for axis in axes:
            along = [state for state in states if (state.axis, state.place, state.cleanup) == (axis, place, cleanup)]
            ratios[axis] = figures.ratio(along[-1].figure(measure), along[0].figure(measure))
        worst = max(ratios, key=ratios.__getitem__)
        words = f"{place}, clean-up {_on(cleanup)}, {MEASURES[measure]}: last ≤ {FLAT} x first (worst: {worst})"
        yield Goal(words, ratios[worst], FLAT)


def _table(figures: Figures, states: Sequence[State]) -> str:
    heads = [words if name in COUNTED else f"{words}, ms" for name, words in MEASURES.items()]
    lines = [["place", "clean-up", "after", *heads], ["---"] * (3 + len(heads))]
    for state in states:
        medians = {name: figures.median(state.figure(name)) for name in MEASURES}
        cells = [shown(value if name in COUNTED else 1_000 * value) for name, value in medians.items()]
        lines.append([state.place, _on(state.cleanup), f"{state.count:,} {state.axis}", *cells])
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _on(cleanup: str) -> str:
    return "on" if cleanup == "ready" else cleanup


def _turn(bench: Bench, state: State, lake: str) -> Turn:
    root, folder = _prepared(bench, state)

    def turn(_: Path) -> Measured:
        found = _measure(root, folder, state, bench.sizes.age_times, lake if state.place == "store" else "")
        return Measured({state.figure(measure): median(values) for measure, values in found.items()})

    return turn


def _prepared(bench: Bench, state: State) -> tuple[str, Path]:
    """ROOT, and its folder. Without clean-up, or in a store, it is made from the one on disk with clean-up."""
    home, name = bench.home / "prepared", f"age-{state.axis}-{state.count}"
    source = prepared(home / name, lambda root: _build(root, state))
    own = f"{name}-{state.place}-{state.cleanup}"
    is_in_store = state.place == "store"
    folder = home / "lake" / WORKSPACE / own if is_in_store else home / own / "root"
    root = url_of(own) if is_in_store else str(folder)

    def make(_: Path) -> None:
        fresh(source, folder)
        if state.cleanup == "off":
            _leave_files(folder)
        if is_in_store:  # its ledger is rebuilt from the Delta logs
            shutil.rmtree(folder / ENGINE)
        with _engine(root, cleanup=state.cleanup) as cycle:
            cycle(0)

    prepared(home / own, make)
    return root, folder


def _build(root: Path, state: State) -> None:
    """Give a ROOT's table a past: files of one row, spread over partitions, in large batches or a commit each."""
    in_commits = state.axis == "commits"
    table = LandingZoneWriter(root).table(TABLE, keys=[KEY], partitioned=state.axis == "partitions")
    step = COMMITS_A_SYNC if in_commits else FILES_A_BATCH
    config = Config(merge_engine="arrow", max_batch_files=1 if in_commits else FILES_A_BATCH)
    with Mirror(root, config) as mirror:
        for first in range(0, state.count, step):
            for number in range(first, min(first + step, state.count)):
                table.land_parquet(_row(number), **state.partition(number))
            report = mirror.sync()
            assert report.result is RunResult.CAUGHT_UP, report
            if in_commits and first % COMMITS_BETWEEN_MAINTENANCE == 0:
                mirror.maintain()  # as `run` does by itself
        mirror.maintain()


def _leave_files(root: Path) -> None:
    """Put applied files back where they landed, as without clean-up; a rename keeps their identity."""
    for folder in (root / ZONE).iterdir():
        archive = folder / READY_TO_DELETE_FOLDER
        for file in sorted(archive.rglob("*.parquet")):
            file.rename(folder / file.relative_to(archive))
        shutil.rmtree(archive, ignore_errors=True)


@contextmanager
def _engine(root: str | Path, **options: Any) -> Iterator[Callable[[int], float]]:  # noqa: ANN401 - as of Config
    """Start an engine; gives a call that runs one cycle, of so many commits, and returns its seconds."""
    config = Config(merge_engine="arrow", auto_maintain="off", **options)
    with Mirror(root, config) as mirror, mirror._engine() as engine:  # noqa: SLF001 - `run` waits between its cycles

        def cycle(commits: int) -> float:
            started = time.perf_counter()
            result = engine.cycle(NO_STOP)
            seconds = time.perf_counter() - started
            assert (result.run_result, len(result.commits)) == (RunResult.CAUGHT_UP, commits), result
            return seconds

        yield cycle


def _measure(root: str, folder: Path, state: State, times: int, lake: str) -> dict[str, list[float]]:
    """Run the engine: its first cycle, idle ones, and commits of one file of one row each.

    Args:
        root: of the mirror, a folder or a URL.
        folder: where ROOT is on this machine.
        state: of the table.
        times: files, and at least as many idle cycles.
        lake: the emulator's address; empty for a ROOT on disk.

    Returns:
        seconds of a commit and of an idle cycle, bytes of a commit's JSON, requests for a commit and for the look that
        follows it; seconds of the start.
    """
    # a log is read from its last checkpoint, so each state begins just behind one
    DeltaTable(str(mirrored(folder))).create_checkpoint()
    table, log = LandingZoneWriter(folder).folder(TABLE), mirrored(folder) / "_delta_log"

    def requests() -> int:
        return requests_to(lake) if lake else 0

    found, began = defaultdict(list), time.perf_counter()
    with _engine(root, cleanup=state.cleanup) as cycle:
        cycle(0)
        found["start"].append(time.perf_counter() - began)
        while len(found["idle"]) < times or sum(found["idle"]) < IDLE_SECONDS:
            found["idle"].append(cycle(0))
        for number in range(times):
            table.land_parquet(_row(FIRST_NEW_KEY + number), **state.partition(0))
            before = requests()
            found["commit"].append(cycle(1))
            cycle(0)
            found["requests"].append(requests() - before)
            found["bytes"].append(max(log.glob("*.json")).stat().st_size)
    found["work"] = [median(found["commit"]) - median(found["idle"])]
    return found


def _row(number: int) -> pa.Table:
    return pa.table({KEY: [number], "Number": [number]})


def _idle(bench: Bench) -> Turn:
    """Tables of one applied file each, with nothing to do; each time in a new process."""
    tables = bench.sizes.idle_tables

    def make(root: Path) -> None:
        zone = LandingZoneWriter(root)
        for number in range(tables):
            zone.table(f"{TABLE}{number}", keys=[KEY]).land_parquet(_row(number))
        with Mirror(root, Config(merge_engine="arrow")) as mirror:
            assert mirror.sync().result is RunResult.CAUGHT_UP

    root = prepared(bench.home / "prepared" / f"age-idle-{tables}", make)

    def turn(_: Path) -> Measured:
        with get_context("spawn").Pool(1) as process:
            return Measured(process.apply(_measure_idle, (root,)))

    return turn


def _measure_idle(root: Path) -> dict[str, float]:
    """Run over idle tables: seconds of the first cycle and of later ones, and per cent of a core."""
    began = time.perf_counter()
    with _engine(root) as cycle:
        cycle(0)
        start = time.perf_counter() - began
        cycle(0)  # the work that follows a start is over
        used = time.process_time()
        seconds = median(cycle(0) for _ in range(IDLE_CYCLES))
        share = 100 * (time.process_time() - used) / (IDLE_CYCLES * POLL_SECONDS)
        return {"start": start, "cycle": seconds, "share": share}


def _idle_goals(bench: Bench, figures: Figures) -> Sequence[Goal]:
    return (
        Goal(f"{bench.sizes.idle_tables} idle tables: cycle ≤ 0.3 s", figures.median("cycle"), 0.3, " s"),
        Goal("≤ 5 % of a core", figures.median("share"), 5, " %"),
        Goal("start ≤ 1.5 s", figures.median("start"), 1.5, " s"),
    )
