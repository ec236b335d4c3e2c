"""Tells what one change file did: its rows by marker, what they met, where it went, or why it has not."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from mirror_engine.errors import UsageError
from mirror_engine.landing_zone.detection import sequence_of
from mirror_engine.publisher.trace.plan_report import PlannedStep, trace_plan
from mirror_engine.publisher.trace.replay import beginning_of, read_unapplied, replay_table, standing
from mirror_engine.tables.merge.keys_only import KeyWriter, keys_only

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from mirror_engine.landing_zone.diagnostics import Diagnostic
    from mirror_engine.monitoring.status import TableStatus
    from mirror_engine.publisher.trace.replay import ReplayStart, TraceContext
    from mirror_engine.tables.base import BatchRecord, ChangeBatch, Outcome
    from mirror_engine.tables.merge.keys_only import ChangeEffects


@dataclass(frozen=True)
class FileReport:
    """One change file.

    Attributes:
        path: from the table folder.
        state: how it really is.
        why: it is not applied, or what it did cannot be told; `""` where neither is so.
        has_marker: whether it has a marker column; None where it cannot be read.
        markers: how many rows of each effective marker; empty where it cannot be read.
        effects: what its changes met and did; None where that is not known.
        version: the Delta version it went into; None where it is in none, or that is not known any more.
        batch: the files that went into that commit, itself among them.
        step: of the plan, to which it belongs; None where it belongs to none, or a refused file keeps it out.
        diagnostics: everything there is to say about it.
    """

    path: str
    state: Literal["applied", "pending", "rejected", "ignored"]
    why: str
    has_marker: bool | None
    markers: Mapping[int, int]
    effects: ChangeEffects | None
    version: int | None
    batch: tuple[str, ...]
    step: PlannedStep | None
    diagnostics: tuple[Diagnostic, ...]

    @property
    def rows(self) -> int:
        """How many rows it holds."""
        return sum(self.markers.values())


class _FileWriter(KeyWriter):
    """A `KeyWriter` that also knows the files' markers, by path."""

    def __init__(self) -> None:
        super().__init__()
        self.markers: dict[str, tuple[bool, dict[int, int]]] = {}

    def apply(self, table: str, batch: ChangeBatch, record: BatchRecord) -> Outcome:
        """See `DeltaWriter`."""
        self.markers |= {file.path: (file.has_marker, dict(sorted(file.markers.items()))) for file in batch.files}
        return super().apply(table, batch, record)


def trace_file(scene: TraceContext, named: str) -> FileReport:
    """Replay a table and tell of one file.

    Args:
        scene: the table.
        named: its path from the table folder, its name alone, or its number.

    Raises:
        UsageError: there is no such file, or there are several.
        TransientError: something could not be read for a while.
    """
    path = find_file(scene, named)
    writer, beginning = _FileWriter(), beginning_of(scene)
    replayed = replay_table(scene, beginning, writer, keys_only(file.size for file in scene.listing.files))
    state, why = _state(scene, replayed, path)
    has_marker, markers = writer.markers.get(path) or _unapplied(scene, path, writer)
    steps = trace_plan(scene).steps if path in writer.markers or beginning else ()
    real = scene.files.get(path)
    return FileReport(
        path=path,
        state=state,
        why=why or _untold(beginning, path, replayed),
        has_marker=has_marker,
        markers=markers,
        effects=writer.effects.get(scene.status.delta_folder, {}).get(path),
        version=real.delta_version if real else None,
        batch=scene.batch_of(path),
        step=next((step for step in steps if path in step.files), None),
        diagnostics=_diagnostics(scene, replayed, path),
    )


def find_file(scene: TraceContext, named: str) -> str:
    """A change file's path from the table folder, by path, name or number.

    Raises:
        UsageError: there is no such file, or there are several.
    """
    known = sorted({*scene.files, *(file.path for file in scene.listing.files)})
    wanted = named.removeprefix(f"{scene.name.folder}/").strip("/")
    names = {path: path.rpartition("/")[2] for path in known}
    choices = (
        [path for path in known if path == wanted],
        [path for path, name in names.items() if name == wanted],
        [path for path, name in names.items() if _is_number(wanted) and sequence_of(name) == int(wanted)],
    )
    found = next((paths for paths in choices if paths), [])
    if len(found) == 1:
        return found[0]
    if found:
        raise UsageError(f"{named}: may be {' or '.join(found)}", "Name its folder, too.")
    there = f"{known[0]} … {known[-1]}" if len(known) > 1 else "".join(known) or "none"
    raise UsageError(f"{named}: {scene.name.normalized} has no such change file", f"There are: {there}.")


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and int(text) > 0


def _state(
    scene: TraceContext, replayed: TableStatus, path: str
) -> tuple[Literal["applied", "pending", "rejected", "ignored"], str]:
    real = scene.files.get(path)
    if real is None:
        passed_over = (found for found in scene.status.ignored if found.path == f"{scene.name.folder}/{path}")
        return "ignored", next((found.coded_message for found in passed_over), "it is no change file")
    seen = next((file for file in replayed.pending_files if file.path == path), None)
    told = standing(scene, seen) if seen and real.state != "applied" else real
    return told.state, told.reason


def _unapplied(scene: TraceContext, path: str, writer: _FileWriter) -> tuple[bool | None, dict[int, int]]:
    """Whether a file that cannot be applied yet has a marker column, and its markers, if it can be read."""
    found = read_unapplied(scene, path, writer, keys_only(None))
    return (found.has_marker, dict(sorted(found.markers.items()))) if found else (None, {})


def _untold(beginning: ReplayStart | None, path: str, replayed: TableStatus) -> str:
    """Why it is not known what an applied file did; `""` where it is."""
    if beginning and path in beginning.earlier:
        return "it was applied along with or before a file that is gone: what it met is not known"
    if beginning and path in beginning.paths:
        return "it is gone: what it held is not known"
    unread = (file for file in replayed.pending_files if file.path == path)
    return next((f"it was applied, but cannot be replayed: {file.reason}" for file in unread), "")


def _diagnostics(scene: TraceContext, replayed: TableStatus, path: str) -> tuple[Diagnostic, ...]:
    """What the engine said of the file, and what the replay says."""
    place = f"{scene.name.folder}/{path}"
    said: Iterable[Diagnostic] = (
        found for status in (scene.status, replayed) for found, _ in status.diagnostics if found.path == place
    )
    return tuple(dict.fromkeys(said))
