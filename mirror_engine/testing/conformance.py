"""The conformance kit: drives a publisher through ten exercises and reports which it survives."""

from __future__ import annotations

import textwrap
from dataclasses import dataclass
from difflib import get_close_matches
from enum import Enum
from typing import TYPE_CHECKING, Any

from mirror_engine.errors import UsageError
from mirror_engine.testing.exercise_world import World
from mirror_engine.testing.exercises import EXERCISES, Exercise

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from mirror_engine.config import Config
    from mirror_engine.testing.exercise_world import Publish


class Ending(str, Enum):
    """How an exercise ended."""

    SURVIVED = "survived"
    FAILED = "FAILED"
    NOT_REACHED = "NOT REACHED"  # the publisher never came to the point at which it was to be disturbed


@dataclass(frozen=True)
class ExerciseResult:
    """What became of one exercise.

    Attributes:
        name: the exercise.
        outcome: how it ended.
        faults: what is wrong, in words: of the mirrored table against the source's, and of what the mirror refused.
        remedy: what a publisher does that survives it; `""` where it was survived.
        diagnostics: warnings and errors of the mirror on the way, as messages.
    """

    name: str
    outcome: Ending
    faults: tuple[str, ...] = ()
    remedy: str = ""
    diagnostics: tuple[str, ...] = ()

    @property
    def survived(self) -> bool:
        """Whether the mirrored table was the source's in the end."""
        return self.outcome is Ending.SURVIVED

    def __str__(self) -> str:
        lines = [f"{self.outcome.value:<11}  {self.name}", *(f"    {fault}" for fault in self.faults)]
        if not self.survived:
            lines += [f"    the mirror said: {message}" for message in self.diagnostics]
            lines += [textwrap.fill(self.remedy, 110, initial_indent="    -> ", subsequent_indent="       ")]
        return "\n".join(lines)


@dataclass(frozen=True)
class ConformanceReport:
    """What a publisher survives; `str()` is the text for people."""

    results: tuple[ExerciseResult, ...]

    @property
    def survived(self) -> bool:
        """Whether all exercises were."""
        return all(result.survived for result in self.results)

    def __str__(self) -> str:
        count = sum(result.survived for result in self.results)
        return "\n".join([f"the publisher survives {count} of {len(self.results)} exercises", *map(str, self.results)])

    def assert_all_survived(self) -> None:
        """Raises `AssertionError` with the whole report where an exercise was not survived, or not reached."""
        __tracebackhide__ = True
        if not self.survived:
            raise AssertionError(str(self))

    def to_json(self) -> list[dict[str, Any]]:
        """The same as plain values."""
        return [
            {
                "name": result.name,
                "outcome": result.outcome.value.lower(),
                "faults": list(result.faults),
                "remedy": result.remedy,
                "diagnostics": list(result.diagnostics),
            }
            for result in self.results
        ]


def check_publisher(publish: Publish, *, only: Collection[str] = (), config: Config | None = None) -> ConformanceReport:
    """Drive a publisher through the exercises; starts no JVM.

    Args:
        publish: called as `publish(source, files, state)`. Each call is one run of the publisher's process: it
            publishes what is not yet published of `source` (a `Source`) through `files` (a `ZoneFiles`), and returns
            or raises. `state` is a mapping that is still there in its next run: its checkpoint. What it keeps
            elsewhere, the kit cannot take from it; what it does past `files`, the kit cannot interrupt.
        only: names of exercises; all by default.
        config: the mirror's options.

    Raises:
        UsageError: no exercise has such a name.
    """
    return ConformanceReport(tuple(_result(exercise, publish, config) for exercise in _chosen(only)))


def _chosen(only: Collection[str]) -> list[Exercise]:
    known = {exercise.name: exercise for exercise in EXERCISES}
    for name in only:
        if name not in known:
            near = get_close_matches(name, known, n=1)
            raise UsageError(f"{name}: no such exercise", f"Did you mean {near[0]}?" if near else ", ".join(known))
    return [exercise for name, exercise in known.items() if not only or name in only]


def _result(exercise: Exercise, publish: Publish, config: Config | None) -> ExerciseResult:
    """The first way of playing it that was not survived, or the last."""
    result = ExerciseResult(exercise.name, Ending.SURVIVED)
    for play in exercise.plays:
        result = _played(exercise, play, publish, config)
        if not result.survived:
            break
    return result


def _played(
    exercise: Exercise, play: Callable[[World], bool], publish: Publish, config: Config | None
) -> ExerciseResult:
    with World(publish, config) as world:
        happened = play(world)
        faults, said = tuple(world.faults()), tuple(world.diagnostics())
        remedy = world.remedy(exercise.remedy)
    if faults:
        return ExerciseResult(exercise.name, Ending.FAILED, faults, remedy, said)
    if not happened:
        why = "it was never at the point where it was to be disturbed: it read or wrote another way"
        remedy = "read with `source.rows()`, and write and rename change files through `files`"
        return ExerciseResult(exercise.name, Ending.NOT_REACHED, (why,), remedy, said)
    return ExerciseResult(exercise.name, Ending.SURVIVED, diagnostics=said)
