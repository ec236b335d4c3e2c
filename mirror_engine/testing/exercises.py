"""The ten exercises of the conformance kit: what happens to a publisher, and what helps."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from mirror_engine.testing.zone_files import Harm, Interruption

if TYPE_CHECKING:
    from collections.abc import Callable

    from mirror_engine.testing.exercise_world import World
    from mirror_engine.testing.source import Source


@dataclass(frozen=True)
class Exercise:
    """One exercise.

    Attributes:
        name: what happens, in a few words.
        plays: each plays it one way in a world of its own; returns whether what was to happen did happen.
        remedy: what a publisher does that survives it.
    """

    name: str
    plays: tuple[Callable[[World], bool], ...]
    remedy: str


def _write_during_the_initial_load(world: World) -> bool:
    def meanwhile() -> None:
        world.source.update(1, city="Steyr")  # read already
        world.source.update(4, city="Traun")  # not read yet
        world.source.delete(3)
        world.source.insert(0, city="Leonding")  # behind the cursor
        world.source.insert(9, city="Ansfelden")  # before it
        world.source.update(9, city="Marchtrenk")

    world.source.meanwhile = meanwhile
    world.settle()
    happened = world.source.meanwhile is None
    world.settle()
    return happened


def _key_change(world: World) -> bool:
    world.settle()
    world.source.update(2, id=20)
    world.settle()
    world.source.update(20, city="Steyr")
    world.source.update(3, id=30, city="Traun")
    world.source.update(30, id=31)
    world.settle()
    return True


def _rapid_changes(world: World) -> bool:
    world.settle()
    source = world.source
    for key, passing in ((3, 7), (4, 8)):  # twice, so that it falls into one file however many changes that takes
        source.delete(key)
        source.insert(key, city="Steyr")
        source.update(1, amount=key)
        source.insert(passing, city="Traun")
        source.delete(passing)
    source.insert(7, city="Enns")
    source.update(7, city="Perg")
    source.update(7, city="Wels")
    world.settle()
    return True


def _interrupted(world: World, harm: Harm) -> bool:
    """Harm at the first file of changes; the source goes on meanwhile."""
    world.settle()
    _some_changes(world.source)
    interruption = Interruption(harm)
    world.run(interruption)
    _more_changes(world.source)
    world.settle()
    return interruption.has_struck


def _second_file_fails(world: World) -> bool:
    """A publisher that lands one file a run meets it in its next run."""
    world.settle()
    interruption = Interruption(Harm.REFUSED, number=2)
    for key in range(50, 62):
        world.source.insert(key, city="Steyr", amount=key)
    world.run(interruption)
    _some_changes(world.source)
    world.run(interruption)
    _more_changes(world.source)
    world.settle()
    return interruption.has_struck


def _lost_state(world: World) -> bool:
    world.settle()
    _some_changes(world.source)
    world.settle()
    world.state.clear()
    _more_changes(world.source)
    world.settle()
    return True


def _schema_change(world: World) -> bool:
    world.settle()
    world.source.update(1, city="Steyr")
    world.source.add_column("note", str)
    world.source.insert(5, city="Traun", note="new")
    world.source.update(2, note="known")
    world.settle()
    world.source.update(3, note="later")
    world.settle()
    return True


def _two_at_once(world: World, harm: Harm, *, loaded: bool) -> bool:
    """A second publisher acts while the first is about to name its file, or just has; the source goes on, too."""
    if loaded:
        world.settle()
    _some_changes(world.source)

    def rival() -> None:
        world.source.update(4, city="Perg")
        world.source.insert(70, city="Grein")
        world.rival()

    interruption = Interruption(harm, rival=rival)
    world.run(interruption)
    _more_changes(world.source)
    world.settle()
    return interruption.has_struck


def _some_changes(source: Source) -> None:
    source.insert(5, city="Steyr", amount=50)
    source.update(1, city="Traun")
    source.delete(2)


def _more_changes(source: Source) -> None:
    source.update(1, city="Leonding")
    source.insert(6, city="Perg", amount=60)
    source.delete(5)


EXERCISES = (
    Exercise(
        "write during the initial load",
        (_write_during_the_initial_load,),
        "note the source's position before the first row is read, then publish every change behind it as 4 and 2: "
        "a row may be in the load already (LZ-4.13, LZ-4.3)",
    ),
    Exercise("key change", (_key_change,), "publish it as 2 with the old key, then 4 or 0 with the new row (LZ-4.7)"),
    Exercise(
        "rapid changes to one key",
        (_rapid_changes,),
        "keep the source's order within a file and between files; no grouping by kind (LZ-4.2)",
    ),
    Exercise(
        "failed temporary upload",
        (partial(_interrupted, harm=Harm.UPLOAD_CUT),),
        "write to a name that begins with `_`, rename only after the upload has succeeded, begin anew after a failure "
        "(LZ-3.9, LZ-3.10)",
    ),
    Exercise(
        "lost rename answer",
        (partial(_interrupted, harm=Harm.LOST_ANSWER),),
        "after a failed rename look whether the name is there before doing anything else; a number that is there is "
        "never written again (LZ-3.13)",
    ),
    Exercise(
        "crash after publish",
        (partial(_interrupted, harm=Harm.CRASH),),
        "at the start read from the landing zone how far you are: keep the position in the change file itself; the "
        "newest file always stays (LZ-8.1)",
    ),
    Exercise(
        "second file fails",
        (_second_file_fails,),
        "stop at the first file that fails, and go on from there in the next run: no later file under its number, no "
        "number left out (LZ-3.3)",
    ),
    Exercise(
        "lost state",
        (_lost_state,),
        "find the position in the newest change file; or delete the table folder and land everything anew (LZ-7.3)",
    ),
    Exercise(
        "schema change",
        (_schema_change,),
        "read the columns with every run; a new nullable column may come with any file (LZ-5.3)",
    ),
    Exercise(
        "two publishers at once",
        (
            partial(_two_at_once, harm=Harm.RIVAL_BEFORE, loaded=True),
            partial(_two_at_once, harm=Harm.RIVAL_AFTER, loaded=True),
            partial(_two_at_once, harm=Harm.RIVAL_BEFORE, loaded=False),
        ),
        "rename so that a taken name is refused (`If-None-Match: *`), and where it is, read again how far you are "
        "(LZ-3.13)",
    ),
)
