"""Runs the turns of a work one after the other, round by round; a time counts only where the rows are right."""

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

from speed import equality

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from speed.peers import Peers
    from speed.sizes import Sizes

    Turn = Callable[[Path], "Told"]


@dataclass(frozen=True)
class Told:
    """What came of one turn.

    Attributes:
        seconds: how long the work took; other figures of the same turn by their own names.
        table: a Delta table to be held against `expected`; None for what makes none.
        expected: what it must hold.
    """

    seconds: Mapping[str, float]
    table: Path | None = None
    expected: equality.Fingerprint | None = None


@dataclass
class Figures:
    """What all counted rounds came to, by name."""

    rounds: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))

    def median(self, name: str) -> float:
        """Half of the rounds took less."""
        return statistics.median(self.rounds[name])

    def ratio(self, name: str, other: str) -> float:
        """The median of `name` divided by `other`, round by round: both had the same minute of a shared machine."""
        pairs = zip(self.rounds[name], self.rounds[other], strict=True)
        return statistics.median(one / two for one, two in pairs)

    def medians(self) -> dict[str, float]:
        """Of everything measured."""
        return {name: self.median(name) for name in self.rounds}


@dataclass(frozen=True)
class Bench:
    """One run: where it works, how large and how often.

    Attributes:
        home: a folder of its own; data and prepared tables stay in it.
        peers: every engine.
    """

    home: Path
    sizes: Sizes
    rounds: int
    peers: Peers

    def ask(self, peer: str, command: str, **given: Any) -> dict[str, Any]:  # noqa: ANN401 - any JSON value
        """What a peer answers; what lies in memory is on the disk before, so that nobody pays for another's writing."""
        os.sync()
        return self.peers.ask(peer, command, **{name: _plain(value) for name, value in given.items()})

    def compare(self, turns: Mapping[str, Turn], warm_ups: int | None = None) -> Figures:
        """Every turn once a round, each in a folder of its own, warm-ups first.

        Raises:
            Unequal: a table does not hold what it must.
        """
        figures = Figures()
        places = self.home / "places"
        places.mkdir(exist_ok=True)
        warm_ups = self.sizes.warm_ups if warm_ups is None else warm_ups
        for number in range(-warm_ups, self.rounds):
            for name, turn in turns.items():
                place = Path(tempfile.mkdtemp(prefix=f"{name}-", dir=places))
                told = turn(place)
                if told.table is not None and told.expected is not None:
                    equality.check(name, told.table, told.expected)
                _say(f"  {'warm-up' if number < 0 else f'round {number + 1}'}, {name}", told.seconds)
                if number >= 0:
                    for what, seconds in told.seconds.items():
                        figures.rounds[what].append(seconds)
                if number > -warm_ups:  # in the first one a JVM may have its passing files
                    shutil.rmtree(place)
        return figures


def _plain(value: Any) -> Any:  # noqa: ANN401 - any JSON value
    if isinstance(value, (list, tuple)):
        return [_plain(part) for part in value]
    if isinstance(value, dict):
        return {name: _plain(part) for name, part in value.items()}
    return value if isinstance(value, (str, int, float)) else str(value)


def _say(what: str, seconds: Mapping[str, float]) -> None:
    told = ", ".join(f"{name} {value:.3f}" for name, value in seconds.items())
    print(f"{what}: {told}", file=sys.stderr, flush=True)
