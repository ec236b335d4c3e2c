"""The cost of a commit, an idle cycle and a start after many files, partitions and commits, and of many tables."""

from __future__ import annotations

import os
from collections import defaultdict
from dataclasses import dataclass
from itertools import product
from multiprocessing import get_context
from statistics import median
from typing import TYPE_CHECKING

from speed import aging
from speed.aging import ACCOUNT, WORKSPACE
from speed.bench import Goal, Line, Measured, shown
from speed.places import fresh, prepared
from speed.programs import MIRROR, seconds_of, sync

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from speed.aging import Cleanup
    from speed.bench import Bench, Figures, Turn

FLAT = 1.2
MAX_LISTED_IN_STORE = 10_000  # files: the emulator takes half a minute to list ten times as many
AXES = ("files", "partitions", "commits")
PLACES = ("disk", "store")
CLEANUPS: tuple[Cleanup, ...] = ("ready", "off")
MEASURES = ("commit", "work", "bytes", "entries", "requests", "idle", "start")
IN_SECONDS = {"commit", "work", "idle", "start"}
WORDS = {
    "work": "a commit beyond its scan",
    "bytes": "bytes of a commit",
    "idle": "an idle cycle",
    "entries": "entries listed for a commit",
    "requests": "requests for a commit",
}
_HEAD = f"""| place | clean-up | after | a commit, ms | beyond its scan, ms | bytes in `_delta_log` | entries listed\
 | requests | an idle cycle, ms | start, ms |
{"| --- " * 10}|"""

Found = defaultdict[str, list[float]]  # every round of each measure


@dataclass(frozen=True)
class State:
    """A ROOT with a past: a number of applied files, partitions or commits."""

    axis: str
    count: int
    place: str
    cleanup: Cleanup

    @property
    def name(self) -> str:
        return f"{self.place}, clean-up {_on(self.cleanup)}, {shown_count(self.count)} {self.axis}"


def age(bench: Bench) -> Line:
    """Measure commits and idle cycles of one table; then many tables with nothing to do."""
    home, environment = bench.home / "prepared/lake", dict(os.environ)
    lake: str = bench.ask("lake", "serve", store=home)
    os.environ.update(aging.clients_of(lake, home.with_name("lake-state")))
    try:
        return _measured(bench, lake)
    finally:
        os.environ.clear()
        os.environ.update(environment)


def _measured(bench: Bench, lake: str) -> Line:
    counts = dict(zip(AXES, (bench.sizes.age_files, bench.sizes.age_partitions, bench.sizes.age_commits), strict=True))
    states = [
        State(axis, min(count, MAX_LISTED_IN_STORE) if (place, cleanup) == ("store", "off") else count, place, cleanup)
        for place, cleanup, axis in product(PLACES, CLEANUPS, AXES)
        for count in counts[axis]
    ]
    found: dict[State, Found] = {state: defaultdict(list) for state in states}
    turns = {state.name: _turn(bench, state, lake, found[state]) for state in states}
    figures = bench.compare({**turns, **_idle(bench), "many tables": _many(bench)}, 0)
    goals = [*_goals(found), *_idle_goals(bench, figures)]
    return Line(figures, tuple(goals), "see the table of ages", table=_table(found))


def _goals(found: Mapping[State, Found]) -> list[Goal]:
    """What a commit costs beyond its scan stays flat; a scan does where it lists no more files and folders.

    Without clean-up a scan takes so long that the difference of two of them says little.
    """
    unlisted = ("files", "commits")  # each partition is a folder that every scan lists
    wanted: list[tuple[str, str, str, Sequence[str]]] = [(place, "ready", "work", AXES) for place in PLACES]
    wanted += [(place, cleanup, "bytes", AXES) for place in PLACES for cleanup in CLEANUPS]
    wanted += [("disk", "ready", each, unlisted) for each in ("idle", "entries")]
    wanted += [("store", "ready", "idle", unlisted), ("store", "ready", "requests", AXES)]
    goals = []
    for place, cleanup, measure, axes in wanted:
        ratios = {axis: _ratio(found, axis, place, cleanup, measure) for axis in axes}
        worst = max(ratios, key=ratios.__getitem__)
        words = f"{place}, clean-up {_on(cleanup)}, {WORDS[measure]}: last ≤ {FLAT} x first (worst: {worst})"
        goals.append(Goal(words, ratios[worst], FLAT))
    return goals


def _ratio(found: Mapping[State, Found], axis: str, place: str, cleanup: str, measure: str) -> float:
    """The last state of an axis by its first, round by round."""
    along = [state for state in found if (state.axis, state.place, state.cleanup) == (axis, place, cleanup)]
    first, last = (found[end(along, key=lambda state: state.count)][measure] for end in (min, max))
    return median(one / max(other, 1e-9) for one, other in zip(last, first, strict=True)) if any(first) else 1.0


def _table(found: Mapping[State, Found]) -> str:
    lines = [_HEAD]
    for state, measured in found.items():
        cells = [shown(median(measured[name]) * (1_000 if name in IN_SECONDS else 1)) for name in MEASURES]
        lines.append(f"| {' | '.join([state.place, _on(state.cleanup), f'{state.count:,} {state.axis}', *cells])} |")
    return "\n".join(lines)


def _on(cleanup: str) -> str:
    return "on" if cleanup == "ready" else cleanup


def _turn(bench: Bench, state: State, lake: str, found: Found) -> Turn:
    root, folder = _prepared(bench, state)

    def turn(_: Path) -> Measured:
        address = lake if state.place == "store" else ""
        measured = aging.measure(root, folder, bench.sizes.age_times, state.cleanup, address)
        measured["work"] = measured["commit"] - measured["idle"]
        for measure, value in measured.items():
            found[measure].append(value)
        return Measured({f"{state.name}, {measure}": measured[measure] for measure in ("commit", "idle", "start")})

    return turn


def _prepared(bench: Bench, state: State) -> tuple[str, Path]:
    """ROOT, and its folder. Without clean-up, or in a store, it is made from the one on disk with clean-up."""
    name = f"age-{state.axis}-{state.count}"
    partitions = state.count if state.axis == "partitions" else 1
    commits = state.count if state.axis == "commits" else 0
    source = prepared(bench.home / "prepared" / name, lambda root: aging.build(root, state.count, partitions, commits))
    own = f"{name}-{state.place}-{state.cleanup}"
    is_in_store = state.place == "store"
    folder = bench.home / "prepared/lake" / WORKSPACE / own if is_in_store else bench.home / "prepared" / own / "root"
    url = f"abfss://{WORKSPACE}@{ACCOUNT}.dfs.core.windows.net/{own}.MountedRelationalDatabase"

    def make(_: Path) -> None:
        folder.mkdir(parents=True)
        fresh(source, folder)
        if state.cleanup == "off":
            aging.leave_files(folder)
        aging.look(str(folder), state.cleanup)
        if is_in_store:
            aging.into_store(url, folder, state.cleanup)

    prepared(bench.home / "prepared" / own, make)
    return (url if is_in_store else str(folder)), folder


def _idle(bench: Bench) -> dict[str, Turn]:
    """Idle tables without a past, and with one; each time in a new process."""
    sizes = bench.sizes

    def turn_of(files: int) -> Turn:
        def make(root: Path) -> None:
            aging.tables(root, sizes.idle_tables)
            if files:
                aging.remember(root, files)

        root = prepared(bench.home / "prepared" / f"age-idle-{sizes.idle_tables}-{files}", make)

        def turn(_: Path) -> Measured:
            with get_context("spawn").Pool(1) as process:
                found = process.apply(aging.idle, (root, sizes.age_idle_seconds, sizes.idle_poll_seconds))
            return Measured({f"{_idle_name(bench, files)}, {name}": value for name, value in found.items()})

        return turn

    return {_idle_name(bench, files): turn_of(files) for files in (0, sizes.age_idle_files)}


def _idle_name(bench: Bench, files: int) -> str:
    return f"{bench.sizes.idle_tables} tables, {shown_count(bench.sizes.idle_tables * files)} files"


def _many(bench: Bench) -> Turn:
    """`status` and `sync` of tables without work, as whole processes."""
    count = bench.sizes.age_tables
    root = prepared(bench.home / "prepared" / f"age-tables-{count}", lambda root: aging.tables(root, count))
    commands = {"sync": sync(root, "arrow"), "status": [*MIRROR, "status", str(root)]}
    return lambda _: Measured({f"{count} tables, {name}": seconds_of(words) for name, words in commands.items()})


def _idle_goals(bench: Bench, figures: Figures) -> Sequence[Goal]:
    sizes, median = bench.sizes, figures.median
    young, old = (_idle_name(bench, files) for files in (0, sizes.age_idle_files))
    status, sync = (f"{sizes.age_tables} tables, {name}" for name in ("status", "sync"))
    more = median(f"{old}, memory") - median(f"{young}, memory")
    return (
        Goal(f"{old}: cycle ≤ 0.3 s", median(f"{old}, cycle"), 0.3, " s"),
        Goal("≤ 5 % of a core", 100 * median(f"{old}, share"), 5, " %"),
        Goal(f"memory ≤ 50 MiB above {young}", more, 50, " MiB"),
        Goal("start ≤ 1.5 s", median(f"{old}, start"), 1.5, " s"),
        Goal(
            f"{shown_count(sizes.age_tables)} tables: `status` ≤ `sync` without work", figures.ratio(status, sync), 1.0
        ),
    )


def shown_count(count: int) -> str:
    """`20M`, `400k`, `7`."""
    for unit, size in (("M", 1_000_000), ("k", 1_000)):
        if count >= size:
            return f"{count / size:g}{unit}"
    return str(count)
