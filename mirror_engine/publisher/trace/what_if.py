"""Replay a table without a file, or in another order, and compare the result with the files as they are."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from mirror_engine.errors import UsageError
from mirror_engine.landing_zone.detection import number_of
from mirror_engine.landing_zone.listing import partition_of
from mirror_engine.landing_zone.metadata import Strategy
from mirror_engine.landing_zone.schema import folded
from mirror_engine.landing_zone.states import Blocked, Halted
from mirror_engine.monitoring.words import describe
from mirror_engine.publisher.diff import compare
from mirror_engine.publisher.trace.file import find_file
from mirror_engine.publisher.trace.replay import replay_start, replay_table
from mirror_engine.storage.zone_view import Source, ZoneView
from mirror_engine.tables.merge.memory import MemoryDeltaWriter
from mirror_engine.tables.reading.spill import all_rows

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa

    from mirror_engine.landing_zone.states import TableState
    from mirror_engine.monitoring.status import TableStatus
    from mirror_engine.publisher.diff import Difference
    from mirror_engine.publisher.trace.replay import ReplayStart, TraceContext
    from mirror_engine.storage.base import Storage

    Content = dict[str, str | None]  # by path, which file is shown there; None for none


@dataclass(frozen=True)
class WhatIf:
    """The same table, replayed with other files.

    Attributes:
        changes: one sentence each.
        start: where both replays start, if not at the first file.
        message, message_what_if: the table's state after each replay, in a sentence.
        difference: of the table with the changes from that of the files as they are (expected).
    """

    changes: tuple[str, ...]
    start: ReplayStart | None
    message: str
    message_what_if: str
    difference: Difference


def trace_what_if(trace: TraceContext, changes: Sequence[str], *, limit: int | None = 20) -> WhatIf:
    """Replay a table as it is, and with changes.

    Args:
        trace: the table.
        changes: `skip=FILE`, or `swap=A,B`: A takes the place of B, and B that of A.
        limit: how many rows of each kind of difference to return; None for all.

    Raises:
        UsageError: a change is not valid, or about a file that is not replayed; neither replay has a table.
        TransientError: something could not be read for now.
    """
    start = replay_start(trace)
    status, actual, applied = _replay(trace, start, trace.storage)
    order = _order(trace, applied, status, start)
    content: Content = {path: path for path in order}
    sentences = tuple(_change(text, trace, order, content) for text in changes)
    other_status, other, _ = _replay(trace, start, _storage(trace, content))
    known = other if actual is None else actual
    if known is None:
        raise UsageError(f"{trace.name.normalized}: none of its files can be replayed", "see mirror-engine plan")
    expected, rows = (known.schema.empty_table() if side is None else side for side in (actual, other))
    columns = [{folded(name) for name in table.column_names} for table in (expected, rows)]
    keys = trace.key_columns if all(folded(name) in names for name in trace.key_columns for names in columns) else ()
    return WhatIf(
        sentences,
        start,
        describe(trace.name, status.state),
        _describe(trace, order, content, other_status.state),
        compare(rows, expected, keys, limit=limit),
    )


def _replay(
    trace: TraceContext, start: ReplayStart | None, storage: Storage
) -> tuple[TableStatus, pa.Table | None, list[str]]:
    """A replayed table: its status, its rows (None if there is no table), and the applied files in order."""
    writer, folder = MemoryDeltaWriter(), trace.status.delta_folder
    with tempfile.TemporaryDirectory(prefix="mirror-engine-") as scratch:
        status = replay_table(trace, start, writer, all_rows(Path(scratch)), storage)
    return status, writer.rows(folder), [path for commit in reversed(writer.history(folder)) for path in commit.files]


def _order(trace: TraceContext, applied: list[str], status: TableStatus, start: ReplayStart | None) -> list[str]:
    """The replayed files in their order, then those that only a rejected one keeps from being replayed."""
    order = [*applied]
    numbers = dict(start.progress.watermarks) if start else {}
    numbers |= {partition_of(path): number_of(path) for path in order}
    is_numbered = trace.listing.usable is None or trace.listing.usable.strategy is Strategy.SEQUENTIAL
    for file in status.pending_files:
        partition, number = partition_of(file.path), number_of(file.path)
        if not is_numbered or number == numbers.get(partition, 0) + 1:
            order.append(file.path)
            numbers[partition] = number
    return order


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


def _storage(trace: TraceContext, content: Content) -> Storage:
    folder = f"{trace.zone}/{trace.name.folder}"
    times = {file.path: file.modified_ns for file in trace.listing.files}
    mapping = {
        f"{folder}/{place}": Source(f"{folder}/{file}", times[place]) if file else None
        for place, file in content.items()
        if file != place
    }
    return ZoneView(trace.storage, mapping)


def _describe(trace: TraceContext, order: Sequence[str], content: Content, state: TableState) -> str:
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
            name = f"{number_of(last) + 1:020}.{last.rpartition('.')[2]}"
            state = replace(state, missing=f"{partition}/{name}".lstrip("/"))
        case _:
            pass
    return describe(trace.name, state)
