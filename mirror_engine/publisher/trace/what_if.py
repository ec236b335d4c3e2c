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


class _Files:
    """The files that can be replayed, in order, and the content that each is to have."""

    def __init__(self, trace: TraceContext, order: Sequence[str]) -> None:
        self._order = list(order)
        self._content: dict[str, str | None] = {path: path for path in order}
        self._scene = trace

    def skip(self, path: str) -> str:
        """Leave a file out; later ones of its partition move up, so that no number is missing."""
        self._check(path)
        partition = [place for place in self._order if partition_of(place) == partition_of(path)]
        position = next(position for position, place in enumerate(partition) if self._content[place] == path)
        later = partition[position:]
        contents = [self._content[place] for place in later[1:]]
        self._content |= dict(zip(later, [*contents, None], strict=True))
        return f"without {path}"

    def swap(self, first: str, second: str) -> str:
        """Exchange two files, so that the first comes before the second."""
        self._check(first)
        self._check(second)
        places = {content: place for place, content in self._content.items() if content}
        if partition_of(first) != partition_of(second):
            raise UsageError(f"--swap {first},{second}: files of two partitions have no order", "name files of one")
        if self._order.index(places[first]) <= self._order.index(places[second]):
            raise UsageError(f"--swap {first},{second}: they are in this order already", "name the later one first")
        self._content |= {places[first]: second, places[second]: first}
        return f"{first} and {second} exchanged"

    def describe(self, state: TableState) -> str:
        """A state after a replay of these files in a sentence, with the files' real names."""
        match state:
            case Halted(diagnostic):
                folder = self._scene.name.folder
                place = diagnostic.path.removeprefix(f"{folder}/")
                path = f"{folder}/{self._content.get(place, place)}"
                return describe(self._scene.name, replace(state, diagnostic=replace(diagnostic, path=path)))
            case Blocked(missing) if missing in self._content:  # a place from which the files moved up
                return describe(self._scene.name, replace(state, missing=self._next_name(missing)))
            case _:
                return describe(self._scene.name, state)

    def storage(self) -> Storage:
        """The table's storage with these files."""
        folder = f"{self._scene.zone}/{self._scene.name.folder}"
        times = {file.path: file.modified_ns for file in self._scene.listing.files}
        mapping = {
            f"{folder}/{place}": Source(f"{folder}/{content}", times[place]) if content else None
            for place, content in self._content.items()
            if content != place
        }
        return ZoneView(self._scene.storage, mapping)

    def _next_name(self, place: str) -> str:
        """The name that comes after all files of a place's partition."""
        last = max((path for path in self._order if partition_of(path) == partition_of(place)), key=number_of)
        name = f"{number_of(last) + 1:020}.{last.rpartition('.')[2]}"
        return f"{partition_of(place)}/{name}".lstrip("/")

    def _check(self, path: str) -> None:
        if path not in self._content.values():
            raise UsageError(
                f"{path}: is not replayed, so that nothing depends on it",
                "it is pending, rejected, deleted, or was applied before a deleted file: see mirror-engine trace file",
            )


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
    actual = _replay(trace, start, trace.storage)
    files = _Files(trace, _order(trace, actual, start))
    sentences = tuple(_change(text, trace, files) for text in changes)
    other = _replay(trace, start, files.storage())
    present = other.rows if actual.rows is None else actual.rows
    if present is None:
        raise UsageError(f"{trace.name.normalized}: none of its files can be replayed", "see mirror-engine plan")
    expected, rows = (present.schema.empty_table() if side.rows is None else side.rows for side in (actual, other))
    columns = [{folded(name) for name in table.column_names} for table in (expected, rows)]
    keys = trace.key_columns if all(folded(name) in names for name in trace.key_columns for names in columns) else ()
    return WhatIf(
        sentences,
        start,
        describe(trace.name, actual.status.state),
        files.describe(other.status.state),
        compare(rows, expected, keys, limit=limit),
    )


def _change(text: str, trace: TraceContext, files: _Files) -> str:
    kind, _, names = text.partition("=")
    paths = [find_file(trace, name.strip()) for name in names.split(",")] if names else []
    if kind == "skip" and len(paths) == 1:
        return files.skip(paths[0])
    if kind == "swap" and len(paths) == 2:  # noqa: PLR2004 - A and B
        return files.swap(*paths)
    raise UsageError(f"{text}: not a change", "--skip takes a file; --swap takes two, as 3,2")


@dataclass(frozen=True)
class _Replay:
    """A replayed table: its status, its rows (None if there is no table), and the applied files in order."""

    status: TableStatus
    rows: pa.Table | None
    files: tuple[str, ...]


def _replay(trace: TraceContext, start: ReplayStart | None, storage: Storage) -> _Replay:
    writer = MemoryDeltaWriter()
    with tempfile.TemporaryDirectory(prefix="mirror-engine-") as scratch:
        status = replay_table(trace, start, writer, all_rows(Path(scratch)), storage)
    folder = trace.status.delta_folder
    files = tuple(path for commit in reversed(writer.history(folder)) for path in commit.files)
    return _Replay(status, writer.rows(folder), files)


def _order(trace: TraceContext, replayed: _Replay, start: ReplayStart | None) -> list[str]:
    """The replayed files in their order, then those that only a rejected one keeps from being replayed."""
    order = list(replayed.files)
    numbers = dict(start.progress.watermarks) if start else {}
    numbers |= {partition_of(path): number_of(path) for path in order}
    is_numbered = trace.listing.usable is None or trace.listing.usable.strategy is Strategy.SEQUENTIAL
    for file in replayed.status.pending_files:
        partition, number = partition_of(file.path), number_of(file.path)
        if not is_numbered or number == numbers.get(partition, 0) + 1:
            order.append(file.path)
            numbers[partition] = number
    return order
