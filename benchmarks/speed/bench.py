"""Run each work's turns round by round, check the rows, and compare the medians with the goals."""

from __future__ import annotations

import os
import shutil
import statistics
import sys
import tempfile
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from speed import floor

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from speed.peers import Peers
    from speed.sizes import Sizes

    Turn = Callable[[Path], "Measured"]


@dataclass(frozen=True)
class Measured:
    """One turn of one engine.

    Attributes:
        seconds: by the name of each figure.
        table: a Delta table to compare with `expected`; None if the turn writes none.
        expected: the rows that it must hold.
    """

    seconds: Mapping[str, float]
    table: Path | None = None
    expected: floor.Fingerprint | None = None


@dataclass
class Figures:
    """The figures of all rounds that count, by name."""

    rounds: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))

    def median(self, name: str) -> float:
        return statistics.median(self.rounds[name])

    def ratio(self, name: str, other: str) -> float:
        """The median of `name` / `other`, round by round: both had the same minute of a shared machine."""
        pairs = zip(self.rounds[name], self.rounds[other], strict=True)
        return statistics.median(one / two for one, two in pairs)

    def __str__(self) -> str:
        return ", ".join(f"{name} {shown(self.median(name))}" for name in self.rounds)


@dataclass(frozen=True)
class Goal:
    """One figure to reach.

    Attributes:
        words: the goal as the table shows it: `≤ 0.5 x the notebook`.
        found: the figure.
        bound: its upper bound, or its lower one if `is_least`.
        unit: of the figure: ` x`, ` s`.
    """

    words: str
    found: float
    bound: float
    unit: str = " x"
    is_least: bool = False

    @property
    def is_reached(self) -> bool:
        return self.found >= self.bound if self.is_least else self.found <= self.bound

    def __str__(self) -> str:
        return f"{self.words}: {shown(self.found)}{self.unit}, {'reached' if self.is_reached else '**NOT REACHED**'}"


@dataclass(frozen=True)
class Line:
    """The results of one work.

    Attributes:
        figures: of all rounds, in seconds.
        goals: compared with them.
        notes: facts that a reader needs to understand the figures.
        table: a Markdown table of the figures, if they are too many for a line.
    """

    figures: Figures
    goals: tuple[Goal, ...]
    notes: str = ""
    table: str = ""

    def __str__(self) -> str:
        """Its cells in the table of docs/performance.md, and its own table."""
        figures = "" if self.table else str(self.figures)
        facts = "; ".join(filter(None, [figures, self.notes]))
        return f"{facts} | {'<br>'.join(map(str, self.goals))} |\n{self.table}".rstrip("\n")


@dataclass(frozen=True)
class Bench:
    """One run of the benchmarks; `home` keeps data and prepared tables."""

    home: Path
    sizes: Sizes
    rounds: int
    peers: Peers

    def ask(self, peer: str, command: str, **given: Any) -> Any:  # noqa: ANN401 - each command has a result of its own
        """Call a method of an engine, after everything written so far is on the disk."""
        os.sync()
        return self.peers.ask(peer, command, **given)

    def compare(self, turns: Mapping[str, Turn], warm_ups: int | None = None) -> Figures:
        """Take each turn once a round, in a new folder; the first `warm_ups` rounds do not count.

        Raises:
            Unequal: a table does not hold the expected rows.
        """
        figures = Figures()
        places = self.home / "places"
        places.mkdir(exist_ok=True)
        first = -(self.sizes.warm_ups if warm_ups is None else warm_ups)
        for number in range(first, self.rounds):
            for name, turn in turns.items():
                place = Path(tempfile.mkdtemp(prefix=f"{name}-", dir=places))
                found = turn(place)
                if found.table is not None and found.expected is not None:
                    floor.check(name, found.table, found.expected)
                for what, seconds in found.seconds.items():
                    print(f"  {number + 1}, {name}: {what} {seconds:.3f}", file=sys.stderr, flush=True)
                    if number >= 0:
                        figures.rounds[what].append(seconds)
                if number > first:  # in the first one a JVM may keep temporary files
                    shutil.rmtree(place)
        return figures


def shown(value: float) -> str:
    """Format a figure with three digits."""
    return f"{value:.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"  # noqa: PLR2004 - its digits
