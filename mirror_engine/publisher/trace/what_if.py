"""Replays a table otherwise, without a file or with two in each other's place, beside the way it was."""

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
from mirror_engine.publisher.trace.replay import beginning_of, replay_table
from mirror_engine.storage.zone_view import Source, ZoneView
from mirror_engine.tables.merge.memory import MemoryDeltaWriter
from mirror_engine.tables.reading.spill import all_rows

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    import pyarrow as pa

    from mirror_engine.landing_zone.states import TableState
    from mirror_engine.monitoring.status import TableStatus
    from mirror_engine.publisher.diff import Difference
    from mirror_engine.publisher.trace.replay import ReplayStart, TraceContext
    from mirror_engine.storage.base import Storage


@dataclass(frozen=True)
class WhatIf:
    """The same table, replayed otherwise.

    Attributes:
        supposed: what was supposed, one sentence each.
        beginning: where both replays begin, if not at the first file.
        state, state_otherwise: how the table stands after each, in a sentence.
        difference: the table replayed otherwise (found) against that of the files as they are (expected).
    """

    supposed: tuple[str, ...]
    beginning: ReplayStart | None
    state: str
    state_otherwise: str
    difference: Difference


class _Files:
    """The files that can be replayed, in order: what lies at each place, to be rearranged."""

    def __init__(self, scene: TraceContext, order: Sequence[str]) -> None:
        self._order = list(order)
        self._content: dict[str, str | None] = {path: path for path in order}
        self._scene = scene

    def skip(self, path: str) -> str:
        """Leave a file out; the numbered ones behind it move up, so that no gap blocks them."""
        self._check(path)
        partition = [each for each in self._order if partition_of(each) == partition_of(path)]
        place = next(each for each in partition if self._content[each] == path)
        later = partition[partition.index(place) :]
        contents = [self._content[each] for each in later[1:]]
        self._content |= dict(zip(later, [*contents, None], strict=True))
        return f"without {path}"

    def exchange(self, first: str, second: str) -> str:
        """Put two files in each other's place, so that the first comes before the second."""
        self._check(first)
        self._check(second)
        places = {content: place for place, content in self._content.items() if content}
        if partition_of(first) != partition_of(second):
            raise UsageError(f"order={first},{second}: two partitions have no order between them", "Name files of one.")
        if self._order.index(places[first]) <= self._order.index(places[second]):
            raise UsageError(f"order={first},{second}: they are in this order already", "Name the later one first.")
        self._content |= {places[first]: second, places[second]: first}
        return f"{first} in the place of {second}, and the other way round"

    def told(self, state: TableState) -> str:
        """A state after a replay of the rearranged files in a sentence, with the names they really have."""
        match state:
            case Halted(diagnostic):
                place = diagnostic.path.removeprefix(f"{self._scene.name.folder}/")
                path = f"{self._scene.name.folder}/{self._content.get(place, place)}"
                return describe(self._scene.name, replace(state, diagnostic=replace(diagnostic, path=path)))
            case Blocked(missing) if missing in self._content:  # a place from which the files moved up
                return describe(self._scene.name, replace(state, missing=self._behind(missing)))
            case _:
                return describe(self._scene.name, state)

    def _behind(self, place: str) -> str:
        """The name that comes after all files of a place's partition."""
        last = max((each for each in self._order if partition_of(each) == partition_of(place)), key=number_of)
        name = f"{number_of(last) + 1:020}.{last.rpartition('.')[2]}"
        return f"{partition_of(place)}/{name}".lstrip("/")

    def storage(self) -> Storage:
        """The scene's storage, rearranged."""
        scene = self._scene
        times = {file.path: file.modified_ns for file in scene.listing.files}
        slots = {
            f"{scene.folder}/{place}": Source(f"{scene.folder}/{content}", times[place]) if content else None
            for place, content in self._content.items()
            if content != place
        }
        return ZoneView(scene.storage, slots)

    def _check(self, path: str) -> None:
        if path not in self._content.values():
            raise UsageError(
                f"{path}: is not replayed, so that nothing depends on it",
                "It waits, was refused, is gone or came before a file that is gone: see --file.",
            )


def trace_what_if(scene: TraceContext, suppositions: Sequence[str], *, limit: int | None = 20) -> WhatIf:
    """Replay a table as it is, and otherwise.

    Args:
        scene: the table.
        suppositions: `skip=FILE`, or `order=A,B`: A takes the place of B, and B that of A.
        limit: how many rows of each kind of difference are told; None for all.

    Raises:
        UsageError: a supposition is none, or about no file that is replayed; neither way can any file be.
        TransientError: something could not be read for a while.
    """
    keys, beginning = scene.key_columns, beginning_of(scene)
    usual = _replayed(scene, beginning, scene.storage)
    files = _Files(scene, _order(scene, usual.status, usual.files, beginning))
    supposed = tuple(_suppose(text, scene, files) for text in suppositions)
    otherwise = _replayed(scene, beginning, files.storage())
    as_is, changed = _tables(scene, usual.rows, otherwise.rows)
    columns = [{folded(name) for name in rows.column_names} for rows in (as_is, changed)]
    known = keys if all(folded(name) in names for name in keys for names in columns) else ()
    return WhatIf(
        supposed,
        beginning,
        describe(scene.name, usual.status.state),
        files.told(otherwise.status.state),
        compare(changed, as_is, known, limit=limit),
    )


def _tables(scene: TraceContext, usual: pa.Table | None, otherwise: pa.Table | None) -> tuple[pa.Table, pa.Table]:
    """Both tables; one that is not there has the other's columns and no rows."""
    there = otherwise if usual is None else usual
    if there is None:
        raise UsageError(f"{scene.name.normalized}: no file of it can be replayed", "See --plan.")
    nothing = there.schema.empty_table()
    return nothing if usual is None else usual, nothing if otherwise is None else otherwise


def _suppose(text: str, scene: TraceContext, files: _Files) -> str:
    what, _, named = text.partition("=")
    paths = [find_file(scene, name.strip()) for name in named.split(",")] if named else []
    if what == "skip" and len(paths) == 1:
        return files.skip(paths[0])
    if what == "order" and len(paths) == 2:  # noqa: PLR2004 - A and B
        return files.exchange(*paths)
    raise UsageError(
        f"--what-if {text}: nothing to suppose", "Write skip=3, or order=3,2: 3 takes the place of 2, and 2 that of 3."
    )


def _order(scene: TraceContext, replayed: TableStatus, done: Iterable[str], beginning: ReplayStart | None) -> list[str]:
    """Files in the order in which they were replayed, then those that only a refused one keeps from it."""
    order = list(done)
    numbers = dict(beginning.watermarks) if beginning else {}
    numbers |= {partition_of(path): number_of(path) for path in order}
    is_numbered = scene.metadata is None or scene.metadata.strategy is Strategy.SEQUENTIAL
    for file in replayed.pending_files:
        partition, number = partition_of(file.path), number_of(file.path)
        if not is_numbered or number == numbers.get(partition, 0) + 1:
            order.append(file.path)
            numbers[partition] = number
    return order


@dataclass(frozen=True)
class _Replay:
    """A table replayed: how it then stands, its rows (None where there is no table), and its files in order."""

    status: TableStatus
    rows: pa.Table | None
    files: tuple[str, ...]


def _replayed(scene: TraceContext, beginning: ReplayStart | None, storage: Storage) -> _Replay:
    writer = MemoryDeltaWriter()
    with tempfile.TemporaryDirectory(prefix="mirror-engine-") as scratch:
        status = replay_table(scene, beginning, writer, all_rows(Path(scratch)), storage)
    folder = scene.status.delta_folder
    files = tuple(path for commit in reversed(writer.history(folder)) for path in commit.files)
    return _Replay(status, writer.rows(folder), files)
