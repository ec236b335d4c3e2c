"""The ten exercises of the conformance kit: what happens to a publisher, and what helps."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from mirror_engine.testing.zone_files import Harm, Interruption

if TYPE_CHECKING:
    from collections.abc import Callable

    from mirror_engine.testing.exercise_world import Rehearsal
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
    plays: tuple[Callable[[Rehearsal], bool], ...]
    remedy: str


def _write_during_the_initial_load(stage: Rehearsal) -> bool:
    def meanwhile() -> None:
        stage.source.update(1, city="Steyr")  # read already
        stage.source.update(4, city="Traun")  # not read yet
        stage.source.delete(3)
        stage.source.insert(0, city="Leonding")  # behind the cursor
        stage.source.insert(9, city="Ansfelden")  # before it
        stage.source.update(9, city="Marchtrenk")

    stage.source.meanwhile = meanwhile
    stage.settle()
    happened = stage.source.meanwhile is None
    stage.settle()
    return happened


def _key_change(stage: Rehearsal) -> bool:
    stage.settle()
    stage.source.update(2, id=20)
    stage.settle()
    stage.source.update(20, city="Steyr")
    stage.source.update(3, id=30, city="Traun")
    stage.source.update(30, id=31)
    stage.settle()
    return True


def _rapid_changes(stage: Rehearsal) -> bool:
    stage.settle()
    source = stage.source
    for key, passing in ((3, 7), (4, 8)):  # twice, so that it falls into one file however many changes that takes
        source.delete(key)
        source.insert(key, city="Steyr")
        source.update(1, amount=key)
        source.insert(passing, city="Traun")
        source.delete(passing)
    source.insert(7, city="Enns")
    source.update(7, city="Perg")
    source.update(7, city="Wels")
    stage.settle()
    return True


def _interrupted(stage: Rehearsal, harm: Harm) -> bool:
    """Harm at the first file of changes; the source goes on meanwhile."""
    stage.settle()
    _some_changes(stage.source)
    interruption = Interruption(harm)
    stage.run(interruption)
    _more_changes(stage.source)
    stage.settle()
    return interruption.has_struck


def _second_file_fails(stage: Rehearsal) -> bool:
    """A publisher that lands one file a run meets it in its next run."""
    stage.settle()
    interruption = Interruption(Harm.REFUSED, number=2)
    for key in range(50, 62):
        stage.source.insert(key, city="Steyr", amount=key)
    stage.run(interruption)
    _some_changes(stage.source)
    stage.run(interruption)
    _more_changes(stage.source)
    stage.settle()
    return interruption.has_struck


def _lost_state(stage: Rehearsal) -> bool:
    stage.settle()
    _some_changes(stage.source)
    stage.settle()
    stage.state.clear()
    _more_changes(stage.source)
    stage.settle()
    return True


def _schema_change(stage: Rehearsal) -> bool:
    stage.settle()
    stage.source.update(1, city="Steyr")
    stage.source.add_column("note", str)
    stage.source.insert(5, city="Traun", note="new")
    stage.source.update(2, note="known")
    stage.settle()
    stage.source.update(3, note="later")
    stage.settle()
    return True


def _two_at_once(stage: Rehearsal, harm: Harm, *, loaded: bool) -> bool:
    """A second publisher acts while the first is about to name its file, or just has; the source goes on, too."""
    if loaded:
        stage.settle()
    _some_changes(stage.source)

    def rival() -> None:
        stage.source.update(4, city="Perg")
        stage.source.insert(70, city="Grein")
        stage.rival()

    interruption = Interruption(harm, rival=rival)
    stage.run(interruption)
    _more_changes(stage.source)
    stage.settle()
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
