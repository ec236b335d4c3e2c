"""A work's line: what was measured, what it has to reach, and whether it does; as JSON and as a line of the table."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

    from speed.bench import Figures


@dataclass(frozen=True)
class Goal:
    """One figure to reach.

    Attributes:
        words: the goal as the table says it, such as `≤ 0.5 x the notebook`.
        found: what was found.
        unit: of what was found, ` x` or ` s`.
        at_most: the bound from above, or None.
        at_least: the bound from below, or None.
    """

    words: str
    found: float
    unit: str = " x"
    at_most: float | None = None
    at_least: float | None = None

    @property
    def is_reached(self) -> bool:
        """Whether what was found lies within the bounds."""
        return not (
            (self.at_most is not None and self.found > self.at_most)
            or (self.at_least is not None and self.found < self.at_least)
        )

    def __str__(self) -> str:
        return f"{self.words}: {shown(self.found)}{self.unit}, {'reached' if self.is_reached else '**NOT REACHED**'}"


@dataclass(frozen=True)
class Line:
    """What one work came to.

    Attributes:
        figures: every round of everything measured, in seconds.
        goals: what is to be reached.
        notes: what a reader has to know to understand the figures, in short.
        besides: figures of other kinds, by name.
        table: a table of its own in Markdown, where a line is too short for all figures; the line has goals and notes.
    """

    figures: Figures
    goals: tuple[Goal, ...]
    notes: str = ""
    besides: Mapping[str, Any] = field(default_factory=dict)
    table: str = ""

    def as_cells(self) -> tuple[str, str]:
        """The table's cells: what was measured, and the goals."""
        seconds = (
            "" if self.table else ", ".join(f"{name} {shown(value)}" for name, value in self.figures.medians().items())
        )
        besides = ", ".join(f"{name} {value}" for name, value in self.besides.items())
        told = "; ".join(filter(None, [seconds, besides, self.notes]))
        return told, "<br>".join(map(str, self.goals))

    def as_json(self) -> dict[str, Any]:
        """All of it."""
        rounds = {name: [round(value, 4) for value in values] for name, values in self.figures.rounds.items()}
        return {
            "seconds": {name: round(value, 4) for name, value in self.figures.medians().items()},
            "rounds": rounds,
            "goals": [
                {"goal": goal.words, "found": round(goal.found, 4), "reached": goal.is_reached} for goal in self.goals
            ],
            "besides": dict(self.besides),
            "notes": self.notes,
        }


def shown(value: float) -> str:
    """Three figures that count, and no more."""
    return f"{value:.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"  # noqa: PLR2004 - its figures
