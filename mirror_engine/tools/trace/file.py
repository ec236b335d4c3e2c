"""What one change file did, what the next cycle would do, and a table without a file, or in another order of files."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, assert_never

from msgspec.structs import asdict

from mirror_engine.engine import planner as plan
from mirror_engine.engine.batch_reader import is_full
from mirror_engine.errors import UsageError
from mirror_engine.landing_zone.detection import detect, number_of, numbered_name, sequence_of
from mirror_engine.landing_zone.listing import partition_of
from mirror_engine.landing_zone.metadata import Metadata
from mirror_engine.landing_zone.progress import FolderProgress
from mirror_engine.landing_zone.schema import folded
from mirror_engine.landing_zone.states import Blocked, Halted
from mirror_engine.landing_zone.text import count, printable
from mirror_engine.monitoring.state_text import DROPPED_BECAUSE, describe
from mirror_engine.results import Finding, PlannedStep
from mirror_engine.storage.zone_view import Source, ZoneView
from mirror_engine.tables.dry_run.keys_only import KeyWriter, keys_only
from mirror_engine.tables.dry_run.memory import MemoryDeltaWriter
from mirror_engine.tables.reading.spill import all_rows
from mirror_engine.tools.diff import diff_tables
from mirror_engine.tools.trace.dry_run import dry_run_start, dry_run_table, file_state, read_pending
from mirror_engine.tools.trace.results import FileEffects, FileTrace, WhatIfTrace

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import pyarrow as pa

    from mirror_engine.config import Config
    from mirror_engine.landing_zone.listing import Entry
    from mirror_engine.landing_zone.states import TableState
    from mirror_engine.storage.base import Storage
    from mirror_engine.tables.base import BatchRecord, ChangeBatch, CommitResult, FileRows
    from mirror_engine.tools.trace.context import TraceContext
    from mirror_engine.tools.trace.dry_run import DryRunStart
    from mirror_engine.tools.trace.results import FileState

    Content = dict[str, str | None]  # by path, which file is shown there; None for none


class _FileWriter(KeyWriter):
    """A `KeyWriter` that also keeps each file's rows by path."""

    def __init__(self) -> None:
        super().__init__()
        self.files: dict[str, FileRows] = {}

    def apply(
        self, table: str, batch: ChangeBatch, record: BatchRecord, check: Callable[[], None] = lambda: None
    ) -> CommitResult:
        self.files |= {file.path: file for file in batch.files}
        return super().apply(table, batch, record, check)


def trace_file(trace: TraceContext, name: str) -> FileTrace:
    """Replay a table and report on one file, given as `find_file` takes it; raises `UsageError` or `TransientError`."""
    path = find_file(trace, name)
    place, actual = f"{trace.name.folder}/{path}", trace.files.get(path)
    writer, start = _FileWriter(), dry_run_start(trace)
    replayed = dry_run_table(trace, start, writer, keys_only(file.size for file in trace.listing.files))
    pending = next((file for file in replayed.pending_files if file.path == path), None)
    file = writer.files.get(path) or read_pending(trace, path, writer, keys_only(None))
    state: FileState
    if actual is None:
        ignored = (found.coded_message for found in trace.status.ignored if found.path == place)
        state, reason = "ignored", next(ignored, "not a change file")
    else:
        status = file_state(trace, pending) if pending and actual.state != "applied" else actual
        state, reason = status.state, status.reason or ""
    if not reason and start and path in start.shown.not_replayed:
        reason = "it was applied along with or before a deleted file: the rows it matched are not known"
    elif not reason and start and path in start.applied.files:
        reason = "it was deleted: its rows are not known"
    elif not reason and pending:
        reason = f"it was applied, but cannot be replayed: {pending.reason}"
    steps = planned_steps(trace.plan, trace.context.config) if path in writer.files or start else ()
    counted = [*trace.status.diagnostics, *replayed.diagnostics]
    markers = dict(sorted(file.markers.items())) if file else {}
    effects = writer.effects.get(trace.status.delta_folder, {}).get(path)
    return FileTrace(
        **asdict(trace.reference),
        path=path,
        state=state,
        reason=reason or None,
        has_marker=file.has_marker if file else None,
        markers={str(marker): rows for marker, rows in markers.items()},
        rows=sum(markers.values()),
        effects=FileEffects.taken_from(effects) if effects else None,
        delta_version=actual.delta_version if actual else None,
        files_of_commit=trace.files_of_commit(path),
        step=next((step for step in steps if path in step.files), None),
        diagnostics=[*map(Finding.of, dict.fromkeys(found for found, _ in counted if found.path == place))],
    )


def find_file(trace: TraceContext, name: str) -> str:
    """Find a change file's path from the table folder by path, name or number; `UsageError` unless exactly one."""
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


_RECORDED = {
    "start_generation": "start a new generation of the folder: nothing of it is applied yet",
    "update_folder_identity": "update the folder's identity: ROOT was copied or restored",
    "mark_folder_missing": "record that the folder is missing; its table is dropped after the delay",
}


def planned_steps(planned: plan.Plan, config: Config) -> tuple[PlannedStep, ...]:
    """What the next cycle would do."""
    return tuple(_planned(step, config) for step in planned.steps)


def _planned(step: plan.Step, config: Config) -> PlannedStep:
    match step:
        case plan.DropTable(diagnostic, reason):
            return PlannedStep("drop_table", f"drop the Delta table: {DROPPED_BECAUSE[reason]} [{diagnostic.code}]")
        case plan.RecordProgress("record_folder_state" as kind, progress, _, pending):
            more = "" if progress.configured_at else "; the folder is not configured yet"
            if progress.rejection:
                diagnostic = progress.rejection.diagnostic
                more = f"; halted at {printable(diagnostic.path)}: {diagnostic.coded_message}"
            return PlannedStep(kind, f"record: {count(sum(map(bool, pending.values())), 'pending file')}{more}")
        case plan.RecordProgress(kind):
            return PlannedStep(kind, _RECORDED[kind])
        case plan.ApplyBatch(files):
            commits = _commits(files, config)
            span = files[0].path if len(files) == 1 else f"{files[0].path} … {files[-1].path}"
            text = f"apply {count(len(files), 'file')} in {count(commits, 'commit')}: {printable(span)}"
            return PlannedStep("apply_batch", text, tuple(file.path for file in files), commits)
        case _:
            assert_never(step)


def _commits(files: Sequence[Entry], config: Config) -> int:
    """The number of commits that the limits on files and bytes make of these files (LZ-4.16)."""
    commits, in_batch, size = 1, 0, 0
    for file in files:
        if is_full(config, in_batch, size, file):
            commits, in_batch, size = commits + 1, 0, 0
        in_batch, size = in_batch + 1, size + file.size
    return commits


def trace_what_if(trace: TraceContext, changes: Sequence[str], *, limit: int | None = 20) -> WhatIfTrace:
    """Replay a table as it is, and with changes: `skip=FILE`, or `swap=A,B`, each of which takes the other's place.

    `limit` is how many rows of each kind of difference to return. Raises `TransientError`, and `UsageError` where a
    change is not valid, or about a file that is not replayed, or neither replay has a table.
    """
    start, metadata = dry_run_start(trace), trace.listing.usable or Metadata()
    known = FolderProgress(start.applied.marks, start.applied.files) if start else FolderProgress()
    first_file = trace.context.config.first_file
    order = [file.path for file in detect(trace.name, trace.listing.files, metadata, known, first_file).ready]
    content: Content = {path: path for path in order}
    sentences = tuple(_change(text, trace, order, content) for text in changes)
    folder, times = f"{trace.zone}/{trace.name.folder}", {file.path: file.modified_ns for file in trace.listing.files}
    mapping = {
        f"{folder}/{place}": Source(f"{folder}/{file}", times[place]) if file else None
        for place, file in content.items()
        if file != place
    }
    state, actual = _replay(trace, start, trace.storage)
    other_state, other = _replay(trace, start, ZoneView(trace.storage, mapping))
    either = other if actual is None else actual
    if either is None:
        raise UsageError(f"{trace.name.normalized}: none of its files can be replayed", "see mirror-engine plan")
    expected, rows = (either.schema.empty_table() if side is None else side for side in (actual, other))
    columns = [{folded(name) for name in table.column_names} for table in (expected, rows)]
    keys = trace.key_columns if all(folded(name) in names for name in trace.key_columns for names in columns) else ()
    return WhatIfTrace(
        **asdict(diff_tables(rows, expected, keys, limit=limit)),
        **asdict(trace.reference),
        changes=sentences,
        message=describe(trace.name, state),
        message_what_if=_described(trace, order, content, other_state),
        replay_start=start.shown if start else None,
    )


def _replay(trace: TraceContext, start: DryRunStart | None, storage: Storage) -> tuple[TableState, pa.Table | None]:
    """A replayed table: its state, and its rows (None if there is no table)."""
    writer = MemoryDeltaWriter()
    state = dry_run_table(trace, start, writer, all_rows(Path(), math.inf), storage).state
    return state, writer.rows(trace.status.delta_folder)


def _change(text: str, trace: TraceContext, order: Sequence[str], content: Content) -> str:
    """Make one change to the content of the replayed files; returns it as a sentence."""
    kind, _, names = text.partition("=")
    paths = [find_file(trace, name.strip()) for name in names.split(",")] if names else []
    if len(paths) != {"skip": 1, "swap": 2}.get(kind):
        raise UsageError(f"{text}: not a change", "--skip takes a file; --swap takes two, as 3,2")
    places = {file: place for place, file in content.items() if file}
    for path in paths:
        if path not in places:
            raise UsageError(
                f"{path}: is not replayed, so that nothing depends on it",
                "it is pending, rejected, deleted, or was applied before a deleted file: see mirror-engine trace file",
            )
    if kind == "skip":  # later files of the partition move up, so that no number is missing
        (path,) = paths
        partition = [place for place in order if partition_of(place) == partition_of(path)]
        later = partition[partition.index(places[path]) :]
        content |= dict(zip(later, [*(content[place] for place in later[1:]), None], strict=True))
        return f"without {path}"
    first, second = paths
    if partition_of(first) != partition_of(second):
        raise UsageError(f"--swap {first},{second}: files of two partitions have no order", "name files of one")
    if order.index(places[first]) <= order.index(places[second]):
        raise UsageError(f"--swap {first},{second}: they are in this order already", "name the later one first")
    content |= {places[first]: second, places[second]: first}
    return f"{first} and {second} exchanged"


def _described(trace: TraceContext, order: Sequence[str], content: Content, state: TableState) -> str:
    """A state after a replay of changed files in a sentence, with the files' real names."""
    match state:
        case Halted(diagnostic):
            folder = trace.name.folder
            place = diagnostic.path.removeprefix(f"{folder}/")
            path = f"{folder}/{content.get(place, place)}"
            state = replace(state, diagnostic=replace(diagnostic, path=path))
        case Blocked(missing) if missing in content:  # a place from which the files moved up: the name after all others
            partition = partition_of(missing)
            last = max((path for path in order if partition_of(path) == partition), key=number_of)
            name = numbered_name(number_of(last) + 1, last.rpartition(".")[2])
            state = replace(state, missing=f"{partition}/{name}".lstrip("/"))
        case _:
            pass
    return describe(trace.name, state)
