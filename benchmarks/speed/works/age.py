"""What a commit, an idle cycle and a start cost after many files, partitions and commits, and with many tables."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import defaultdict
from dataclasses import dataclass
from itertools import product
from statistics import median
from typing import TYPE_CHECKING, Any

from speed.aging import ACCOUNT, WORKSPACE
from speed.bench import Told
from speed.figures import Goal, Line, shown
from speed.peers import environment
from speed.places import fresh, prepared
from speed.programs import MIRROR, seconds_of
from speed.works.growth import shown_count

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from speed.bench import Bench, Turn

FLAT = 1.2
MAX_LISTED_IN_STORE = 10_000  # files: the emulator takes half a minute to list ten times as many
AXES = ("files", "partitions", "commits")
PLACES = ("disk", "store")
CLEANUPS = ("ready", "off")
MEASURES = ("commit", "work", "bytes", "entries", "requests", "idle", "start")
IN_SECONDS = {"commit", "work", "idle", "start"}
WORDS = {
    "work": "a commit beyond its scan",
    "bytes": "bytes of a commit",
    "idle": "an idle cycle",
    "entries": "entries listed for a commit",
    "requests": "requests for a commit",
}
_COLUMNS = [
    "place",
    "clean-up",
    "after",
    "a commit, ms",
    "beyond its scan, ms",
    "bytes in `_delta_log`",
    "entries listed",
]
_COLUMNS += ["requests", "an idle cycle, ms", "start, ms"]

Found = defaultdict[str, list[float]]  # every round of each measure


@dataclass(frozen=True)
class State:
    """A ROOT with a past: so many of one thing, applied files, partitions or commits."""

    axis: str
    count: int
    place: str
    cleanup: str

    @property
    def name(self) -> str:
        """As figures have it."""
        return f"{self.place}, clean-up {_on(self.cleanup)}, {shown_count(self.count)} {self.axis}"


def age(bench: Bench) -> Line:
    """Commits and idle cycles of one table; then many tables with nothing to do."""
    lake = bench.ask("lake", "serve", store=bench.home / "prepared/lake")
    counts = dict(zip(AXES, (bench.sizes.age_files, bench.sizes.age_partitions, bench.sizes.age_commits), strict=True))
    states = [
        State(axis, min(count, MAX_LISTED_IN_STORE) if (place, cleanup) == ("store", "off") else count, place, cleanup)
        for place, cleanup, axis in product(PLACES, CLEANUPS, AXES)
        for count in counts[axis]
    ]
    found: dict[State, Found] = {state: defaultdict(list) for state in states}
    turns = {state.name: _turn(bench, state, lake, found[state]) for state in states}
    idle = _idle(bench)
    figures = bench.compare({**turns, **idle, "many tables": _many(bench)}, 0)
    goals = [*_goals(found), *_idle_goals(bench, figures.medians())]
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
        goals.append(Goal(words, ratios[worst], at_most=FLAT))
    return goals


def _ratio(found: Mapping[State, Found], axis: str, place: str, cleanup: str, measure: str) -> float:
    """The last state of an axis by its first, round by round."""
    along = [state for state in found if (state.axis, state.place, state.cleanup) == (axis, place, cleanup)]
    first, last = (found[min(along, key=_count)][measure], found[max(along, key=_count)][measure])
    return median(one / max(other, 1e-9) for one, other in zip(last, first, strict=True)) if any(first) else 1.0


def _count(state: State) -> int:
    return state.count


def _table(found: Mapping[State, Found]) -> str:
    lines = [f"| {' | '.join(_COLUMNS)} |", f"|{' --- |' * len(_COLUMNS)}"]
    for state, measured in found.items():
        cells = [shown(median(measured[name]) * (1_000 if name in IN_SECONDS else 1)) for name in MEASURES]
        lines.append(f"| {' | '.join([state.place, _on(state.cleanup), f'{state.count:,} {state.axis}', *cells])} |")
    return "\n".join(lines)


def _on(cleanup: str) -> str:
    return "on" if cleanup == "ready" else cleanup


def _turn(bench: Bench, state: State, lake: Mapping[str, Any], found: Found) -> Turn:
    root, folder = _prepared(bench, state, lake)
    served = lake if state.place == "store" else {}

    def turn(_: Path) -> Told:
        told = bench.ask(
            "aging",
            "measure",
            root=root,
            folder=folder,
            times=bench.sizes.age_times,
            cleanup=state.cleanup,
            lake=served,
        )
        told["work"] = told["commit"] - told["idle"]
        for measure, value in told.items():
            found[measure].append(value)
        return Told({f"{state.name}, {measure}": told[measure] for measure in ("commit", "idle", "start")})

    return turn


def _prepared(bench: Bench, state: State, lake: Mapping[str, Any]) -> tuple[str, Path]:
    """ROOT, and where it is on this machine; one without clean-up, or in a store, is made of one on disk with it."""
    name = f"age-{state.axis}-{state.count}"
    by_commit, by_partition = state.axis == "commits", state.axis == "partitions"
    source = prepared(
        bench.home / "prepared" / name,
        lambda root: bench.ask(
            "aging",
            "build",
            root=root,
            files=state.count,
            partitions=state.count if by_partition else 1,
            commits=state.count if by_commit else 0,
        ),
    )
    own = f"{name}-{state.place}-{state.cleanup}"
    is_in_store = state.place == "store"
    folder = bench.home / "prepared/lake" / WORKSPACE / own if is_in_store else bench.home / "prepared" / own / "root"
    url = f"abfss://{WORKSPACE}@{ACCOUNT}.dfs.core.windows.net/{own}.MountedRelationalDatabase"

    def make(_: Path) -> None:
        folder.mkdir(parents=True)
        fresh(source, folder)
        if state.cleanup == "off":
            bench.ask("aging", "leave_files", root=folder)
        bench.ask("aging", "look", root=folder, cleanup=state.cleanup)
        if is_in_store:
            bench.ask("aging", "into_store", root=url, folder=folder, cleanup=state.cleanup, lake=lake)

    prepared(bench.home / "prepared" / own, make)
    return (url if is_in_store else str(folder)), folder


def _idle(bench: Bench) -> dict[str, Turn]:
    """Idle tables without a past, and with one."""
    sizes = bench.sizes

    def turn(files: int) -> Turn:
        def make(root: Path) -> None:
            bench.ask("aging", "tables", root=root, count=sizes.idle_tables)
            if files:
                bench.ask("aging", "remember", root=root, files=files)

        root = prepared(bench.home / "prepared" / f"age-idle-{sizes.idle_tables}-{files}", make)

        def turn(_: Path) -> Told:
            given = (str(root), str(sizes.age_idle_seconds), str(sizes.idle_poll_seconds))
            done = subprocess.run(  # noqa: S603 - our own
                [sys.executable, "-m", "speed.aging", *given],
                env=environment(),
                check=True,
                capture_output=True,
                text=True,
            )
            told = json.loads(done.stdout)
            return Told({f"{_idle_name(bench, files)}, {name}": value for name, value in told.items()})

        return turn

    return {_idle_name(bench, files): turn(files) for files in (0, sizes.age_idle_files)}


def _idle_name(bench: Bench, files: int) -> str:
    return f"{bench.sizes.idle_tables} tables, {shown_count(bench.sizes.idle_tables * files)} files"


def _many(bench: Bench) -> Turn:
    """`status` and `sync` of tables without work, as whole processes."""
    count = bench.sizes.age_tables
    root = prepared(
        bench.home / "prepared" / f"age-tables-{count}",
        lambda root: bench.ask("aging", "tables", root=root, count=count),
    )

    def turn(_: Path) -> Told:
        commands = {"sync": [*MIRROR, "sync", str(root), "--merge-engine", "arrow"]}
        commands["status"] = [*MIRROR, "status", str(root)]
        return Told({f"{count} tables, {name}": seconds_of(command) for name, command in commands.items()})

    return turn


def _idle_goals(bench: Bench, medians: Mapping[str, float]) -> Sequence[Goal]:
    sizes = bench.sizes
    young, old = (_idle_name(bench, files) for files in (0, sizes.age_idle_files))
    status, sync = (medians[f"{sizes.age_tables} tables, {name}"] for name in ("status", "sync"))
    return (
        Goal(f"{old}: cycle ≤ 0.3 s", medians[f"{old}, cycle"], " s", at_most=0.3),
        Goal("≤ 5 % of a core", 100 * medians[f"{old}, share"], " %", at_most=5),
        Goal(
            f"memory ≤ 50 MiB above {young}",
            medians[f"{old}, memory"] - medians[f"{young}, memory"],
            " MiB",
            at_most=50,
        ),
        Goal("start ≤ 1.5 s", medians[f"{old}, start"], " s", at_most=1.5),
        Goal(f"{shown_count(sizes.age_tables)} tables: `status` ≤ `sync` without work", status / sync, at_most=1.0),
    )
