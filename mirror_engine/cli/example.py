"""`explain --try`: land the example of a diagnostic, for a person to play with."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from mirror_engine.cli.setup import writing
from mirror_engine.config import Config, flag_of
from mirror_engine.errors import UsageError
from mirror_engine.results import Part
from mirror_engine.storage.roots import check_place, pasted

if TYPE_CHECKING:
    from pathlib import Path

    from mirror_engine.display import Lines


class LandedStage(Part, frozen=True):
    """A stage of an example.

    Attributes:
        removed: paths that were deleted, from ROOT
        files: that landed, from ROOT
    """

    title: str
    removed: Sequence[str]
    files: Sequence[str]


class Landed(Part, frozen=True):
    """What landed of an example; the engine ran after each stage but the last.

    Attributes:
        title: of the example
        options: flags that the commands take
    """

    title: str
    root: str
    options: Sequence[str]
    stages: Sequence[LandedStage]

    def lines(self) -> Lines:
        """What landed, and the commands to try."""
        yield from (f"{self.title}.", "")
        for number, stage in enumerate(self.stages):
            yield f"The engine has run. Then {stage.title}:" if number else f"Landed in {self.root}:"
            yield from (f"  deleted {path}" for path in stage.removed)
            yield from (f"  {path}" for path in stage.files)
        at = " ".join([pasted(self.root), *self.options])
        commands = ("sync",) if len(self.stages) > 1 else ("validate", "sync")  # `validate` sees the last stage alone
        yield from ("", "Next:", *(f"  mirror-engine {command} {at}" for command in commands))


def land_example(code: str, root: Path) -> Landed:
    """Land the case of a code in a new ROOT; the engine runs after each of its stages but the last.

    Raises:
        UsageError: its case lands no files, or there is something in the folder.
    """
    from mirror_engine.mirror import Mirror
    from mirror_engine.testing.cases import load

    case = load(code)
    if not case.stages:
        raise UsageError(f"{code} has no example to land", f"to read about it: mirror-engine explain {code}")
    with writing():
        check_place(root)
        if root.exists() and any(root.iterdir()):
            raise UsageError(f"{root} is not empty; nothing was written", "choose a new folder")
        for stage in case.stages[:-1]:
            stage.land(root)
            with Mirror(root, Config(**case.options)) as mirror:
                mirror.sync()
        case.stages[-1].land(root)
    flags = [flag_of(each) if value is True else f"{flag_of(each)} {value}" for each, value in case.options.items()]
    stages = [LandedStage(stage.title, stage.removed, [file.path for file in stage.files]) for stage in case.stages]
    return Landed(case.title, str(root), flags, stages)
