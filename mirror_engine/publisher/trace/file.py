"""What one change file did: its rows by marker, the rows they matched, its commit; and what the next cycle would do."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

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
from mirror_engine.errors import UsageError
from mirror_engine.landing_zone.detection import sequence_of
from mirror_engine.landing_zone.diagnostics import count, printable
from mirror_engine.publisher.trace.replay import file_state, read_pending, replay_start, replay_table
from mirror_engine.tables.merge.keys_only import KeyWriter, keys_only

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from mirror_engine.config import Config
    from mirror_engine.engine.plan import Step
    from mirror_engine.landing_zone.diagnostics import Diagnostic
    from mirror_engine.landing_zone.listing import LandedFile
    from mirror_engine.publisher.trace.replay import TraceContext
    from mirror_engine.tables.base import BatchRecord, ChangeBatch, FileRows, Outcome, TableSnapshot
    from mirror_engine.tables.merge.keys_only import ChangeEffects

    FileState = Literal["applied", "pending", "rejected", "ignored"]


@dataclass(frozen=True)
class PlannedStep:
    """One step of the plan, the files that it applies, in order, and how many commits it makes at most."""

    kind: str
    message: str
    files: tuple[str, ...] = ()
    commits: int = 0


@dataclass(frozen=True)
class FileReport:
    """One change file.

    Attributes:
        reason: why it is not applied, or why its effect is not known; `""` if neither is so.
        has_marker: whether it has a marker column; None if it cannot be read.
        markers: how many rows of each effective marker; empty if it cannot be read.
        effects: what its changes matched and did; None if that is not known.
        delta_version: the one it went into; None if it is in none, or that is not known any more.
        files_of_commit: the files of that commit, itself among them.
        step: of the plan, to which it belongs; None if it belongs to none, or a rejected file keeps it out.
        diagnostics: all about it.
    """

    path: str
    state: FileState
    reason: str
    has_marker: bool | None
    markers: Mapping[int, int]
    effects: ChangeEffects | None
    delta_version: int | None
    files_of_commit: tuple[str, ...]
    step: PlannedStep | None
    diagnostics: tuple[Diagnostic, ...]

    @property
    def rows(self) -> int:
        """How many rows it holds."""
        return sum(self.markers.values())


class _FileWriter(KeyWriter):
    """A `KeyWriter` that also keeps each file's rows by path."""

    def __init__(self) -> None:
        super().__init__()
        self.files: dict[str, FileRows] = {}

    def apply(
        self, table: str, batch: ChangeBatch, record: BatchRecord, snapshot: TableSnapshot | None = None
    ) -> Outcome:
        self.files |= {file.path: file for file in batch.files}
        return super().apply(table, batch, record, snapshot)


def trace_file(trace: TraceContext, name: str) -> FileReport:
    """Replay a table and report on one file, given as `find_file` takes it; raises `UsageError` or `TransientError`."""
    path = find_file(trace, name)
    place, actual = f"{trace.name.folder}/{path}", trace.files.get(path)
    writer, start = _FileWriter(), replay_start(trace)
    replayed = replay_table(trace, start, writer, keys_only(file.size for file in trace.listing.files))
    pending = next((file for file in replayed.pending_files if file.path == path), None)
    file = writer.files.get(path) or read_pending(trace, path, writer, keys_only(None))
    state: FileState
    if actual is None:
        ignored = (found.coded_message for found in trace.status.ignored if found.path == place)
        state, reason = "ignored", next(ignored, "not a change file")
    else:
        status = file_state(trace, pending) if pending and actual.state != "applied" else actual
        state, reason = status.state, status.reason
    if not reason and start and path in start.not_replayed:
        reason = "it was applied along with or before a deleted file: the rows it matched are not known"
    elif not reason and start and path in start.progress.applied:
        reason = "it was deleted: its rows are not known"
    elif not reason and pending:
        reason = f"it was applied, but cannot be replayed: {pending.reason}"
    steps = planned_steps(trace) if path in writer.files or start else ()
    counted = [*trace.status.diagnostics, *replayed.diagnostics]
    return FileReport(
        path=path,
        state=state,
        reason=reason,
        has_marker=file.has_marker if file else None,
        markers=dict(sorted(file.markers.items())) if file else {},
        effects=writer.effects.get(trace.status.delta_folder, {}).get(path),
        delta_version=actual.delta_version if actual else None,
        files_of_commit=trace.files_of_commit(path),
        step=next((step for step in steps if path in step.files), None),
        diagnostics=tuple(dict.fromkeys(diagnostic for diagnostic, _ in counted if diagnostic.path == place)),
    )


def find_file(trace: TraceContext, name: str) -> str:
    """A change file's path from the table folder, by path, name or number; raises `UsageError` unless there is one."""
    paths = sorted({*trace.files, *(file.path for file in trace.listing.files)})
    wanted = name.removeprefix(f"{trace.name.folder}/").strip("/")
    number = int(wanted) if wanted.isascii() and wanted.isdigit() else 0
    matches = (
        [path for path in paths if path == wanted]
        or [path for path in paths if path.rpartition("/")[2] == wanted]
        or [path for path in paths if number and sequence_of(path.rpartition("/")[2]) == number]
    )
    if len(matches) == 1:
        return matches[0]
    if matches:
        raise UsageError(f"{name}: may be {' or '.join(matches)}", "name its folder, too")
    known = f"{paths[0]} … {paths[-1]}" if len(paths) > 1 else "".join(paths) or "none"
    raise UsageError(f"{name}: {trace.name.normalized} has no such change file", f"available: {known}")


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
