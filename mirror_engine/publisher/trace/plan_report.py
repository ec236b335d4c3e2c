"""Tells what the engine would do with a table now, step by step, and why not more."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from typing_extensions import assert_never

from mirror_engine.engine.batch_reader import is_full
from mirror_engine.engine.plan import (
    ApplyBatch,
    DropTable,
    MarkFolderMissing,
    RecordFolderState,
    StartGeneration,
    UpdateFolderIdentity,
    VerifyPassthroughFiles,
)
from mirror_engine.landing_zone.diagnostics import count, printable
from mirror_engine.monitoring.words import describe, help_for

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from mirror_engine.config import Config
    from mirror_engine.engine.plan import Step
    from mirror_engine.landing_zone.diagnostics import Diagnostic
    from mirror_engine.landing_zone.listing import LandedFile
    from mirror_engine.monitoring.status import FileStatus
    from mirror_engine.publisher.trace.replay import TraceContext


@dataclass(frozen=True)
class PlannedStep:
    """One step of the plan.

    Attributes:
        step: its kind, `apply_batch`.
        text: what is done, in one sentence.
        files: that are applied, in order, by path from the table folder.
        commits: how many commits they make, at most.
    """

    step: str
    text: str
    files: tuple[str, ...] = ()
    commits: int = 0


@dataclass(frozen=True)
class PlanReport:
    """A table's plan in words.

    Attributes:
        state, state_text, advice: how the table is, in a word, in a sentence, and what a person can do about it.
        steps: in order; empty where there is nothing to do.
        left: files that stay unread all the same, each with its reason.
        ignored: paths passed over, each with its reason.
        next_expected: by partition, the name that comes next.
    """

    state: str
    state_text: str
    advice: str
    steps: tuple[PlannedStep, ...]
    left: tuple[FileStatus, ...]
    ignored: tuple[Diagnostic, ...]
    next_expected: Mapping[str, str]


def trace_plan(scene: TraceContext) -> PlanReport:
    """What the next cycle would do with a table; nothing is read but its folder, nothing is changed."""
    steps = tuple(_planned(step, scene) for step in scene.plan.steps)
    applied = {path for step in steps for path in step.files}
    return PlanReport(
        state=scene.plan.state.code,
        state_text=describe(scene.name, scene.plan.state),
        advice=help_for(scene.plan.state, engine_running=True),
        steps=steps,
        left=tuple(file for file in scene.status.pending_files if file.path not in applied),
        ignored=scene.status.ignored,
        next_expected=scene.status.next_files,
    )


def _planned(step: Step, scene: TraceContext) -> PlannedStep:  # noqa: PLR0911 - one line per step, read as a table
    match step:
        case DropTable(diagnostic):
            return PlannedStep("drop_table", f"drop the Delta table and forget it: {diagnostic.coded_message}")
        case StartGeneration():
            return PlannedStep("begin_generation", "begin a new life of the folder: nothing of it is applied yet")
        case UpdateFolderIdentity():
            return PlannedStep("learn_identity", "know the folder again: ROOT was copied, moved or restored")
        case RecordFolderState():
            return PlannedStep("remember", _remembered(step))
        case MarkFolderMissing():
            return PlannedStep("note_gone", "note that the folder is gone; its table is dropped once the delay is over")
        case VerifyPassthroughFiles():
            return PlannedStep("inspect_files", "look at the rows of files that went in as they lay")
        case ApplyBatch(files):
            commits = _commits(files, scene.context.config)
            return PlannedStep("apply_batch", _applied(files, commits), tuple(file.path for file in files), commits)
        case _:
            assert_never(step)


def _remembered(step: RecordFolderState) -> str:
    waiting = "no file waits" if not step.waiting else f"{count(len(step.waiting), 'file')} not applied yet"
    if step.latch:
        found = step.latch.diagnostic
        return f"remember: {waiting}; latched at {printable(found.path)}: {found.coded_message}"
    return f"remember: {waiting}" if step.armed else f"remember: {waiting}, and the folder is no table yet"


def _applied(files: Sequence[LandedFile], commits: int) -> str:
    span = files[0].path if len(files) == 1 else f"{files[0].path} … {files[-1].path}"
    return f"apply {count(len(files), 'file')} in {count(commits, 'commit')}: {printable(span)}"


def _commits(files: Sequence[LandedFile], config: Config) -> int:
    """How many commits the files make by count and size (LZ-4.16)."""
    commits, held, size = 1, 0, 0
    for file in files:
        if is_full(config, held, size, file):
            commits, held, size = commits + 1, 0, 0
        held, size = held + 1, size + file.size
    return commits
