"""What the next cycle would do with a table, step by step."""

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
)
from mirror_engine.landing_zone.diagnostics import count, printable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mirror_engine.config import Config
    from mirror_engine.engine.plan import Step
    from mirror_engine.landing_zone.listing import LandedFile
    from mirror_engine.publisher.trace.replay import TraceContext


@dataclass(frozen=True)
class PlannedStep:
    """One step of the plan, the files that it applies, in order, and how many commits it makes at most."""

    kind: str
    message: str
    files: tuple[str, ...] = ()
    commits: int = 0


def planned_steps(trace: TraceContext) -> tuple[PlannedStep, ...]:
    """What the next cycle would do; reads only the table folder's listing."""
    return tuple(_planned(step, trace.context.config) for step in trace.plan.steps)


def _planned(step: Step, config: Config) -> PlannedStep:
    match step:
        case DropTable(diagnostic):
            return PlannedStep("drop_table", f"drop the Delta table: {diagnostic.coded_message}")
        case StartGeneration():
            return PlannedStep("start_generation", "start a new generation of the folder: nothing of it is applied yet")
        case UpdateFolderIdentity():
            return PlannedStep("update_folder_identity", "update the folder's identity: ROOT was copied or restored")
        case RecordFolderState(pending_etags=pending):
            more = "" if step.is_configured else "; the folder is not configured yet"
            if step.rejection:
                diagnostic = step.rejection.diagnostic
                more = f"; halted at {printable(diagnostic.path)}: {diagnostic.coded_message}"
            return PlannedStep("record_folder_state", f"record: {count(len(pending), 'pending file')}{more}")
        case MarkFolderMissing():
            text = "record that the folder is missing; its table is dropped after the delay"
            return PlannedStep("mark_folder_missing", text)
        case ApplyBatch(files):
            commits = _commits(files, config)
            span = files[0].path if len(files) == 1 else f"{files[0].path} … {files[-1].path}"
            text = f"apply {count(len(files), 'file')} in {count(commits, 'commit')}: {printable(span)}"
            return PlannedStep("apply_batch", text, tuple(file.path for file in files), commits)
        case _:
            assert_never(step)


def _commits(files: Sequence[LandedFile], config: Config) -> int:
    """How many commits the files make by number and size (LZ-4.16)."""
    commits, in_batch, size = 1, 0, 0
    for file in files:
        if is_full(config, in_batch, size, file):
            commits, in_batch, size = commits + 1, 0, 0
        in_batch, size = in_batch + 1, size + file.size
    return commits
