"""Where a replay can begin: at the first file, or where the oldest files that are gone left the table."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

from mirror_engine.delta.arrow_types import arrow_schema, delta_type
from mirror_engine.errors import TableDamaged, UsageError
from mirror_engine.landing_zone.change import MARKER_COLUMN, RowMarker
from mirror_engine.landing_zone.change_file import number_of
from mirror_engine.landing_zone.column_types import Column, TableSchema
from mirror_engine.landing_zone.metadata import Strategy
from mirror_engine.landing_zone.sightings import partition_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from mirror_engine.delta.base import Chosen
    from mirror_engine.landing_zone.progress import Progress
    from mirror_engine.tracing.scene import Scene


@dataclass(frozen=True)
class Beginning:
    """A table whose first files cannot be replayed, for some of them are gone.

    Attributes:
        progress: how far the real table is now.
        gone: how many files lie nowhere.
        earlier: files that lie there and are not replayed, for they came before or along with one that is gone.
        version: the Delta version behind the last of them; None where it is not known.
        schema: the table's there; as it is now where `version` is None.
        rows: the table's there, or those chosen of them; None where they cannot be told.
        watermarks: by partition the last number before the replay (LZ-3.4).
        paths: of all files before the replay that are known by name.
    """

    progress: Progress
    gone: int
    earlier: tuple[str, ...]
    version: int | None
    schema: TableSchema
    rows: pa.Table | None
    watermarks: Mapping[str, int]
    paths: tuple[str, ...]

    def as_inserts(self) -> pa.Table:
        """The rows as a file would bring them, with markers; none where they cannot be told."""
        schema = arrow_schema(self.schema.columns)
        found = schema.empty_table() if self.rows is None else self.rows
        markers = pa.repeat(pa.scalar(RowMarker.INSERT.value, pa.int8()), found.num_rows)
        return found.append_column(pa.field(MARKER_COLUMN, pa.int8()), markers)


def beginning_of(scene: Scene, where: Chosen | None = None) -> Beginning | None:
    """Where the replay begins, with all rows or those chosen; None: at the first file of all."""
    progress = scene.progress
    state = scene.doors.writer.state(scene.status.delta_folder) if progress and progress.has_table else None
    if progress is None or state is None:
        return None
    lying = {file.path for file in scene.sighting.files}
    unnamed = _unnamed(scene, progress)
    by_version = _by_version(progress)
    lossy = [version for version, paths in by_version.items() if not lying.issuperset(paths)]
    if not lossy and not unnamed:
        return None
    last = max(lossy, default=-1)
    before = [path for version, paths in by_version.items() if version <= last for path in paths]
    known = last if last >= 0 else min((version for version in by_version if version >= 0), default=0) - 1
    rows = _rows(scene, known, where)
    return Beginning(
        progress,
        gone=len([path for path in before if path not in lying]) + sum(unnamed.values()),
        earlier=tuple(path for path in before if path in lying),
        version=None if rows is None else known,
        schema=state.schema if rows is None else _schema(rows, state.schema),
        rows=rows,
        watermarks=_watermarks(before, unnamed),
        paths=tuple(before),
    )


def _by_version(progress: Progress) -> dict[int, list[str]]:
    """Applied files by the Delta version they went into; -1 where it is not known any more."""
    found: defaultdict[int, list[str]] = defaultdict(list)
    for path, file in progress.applied.items():
        found[file.version].append(path)
    return dict(sorted(found.items()))


def _unnamed(scene: Scene, progress: Progress) -> dict[str, int]:
    """By partition how many numbers below the first that is known were applied: nothing else tells of these files."""
    config, metadata = scene.doors.config, scene.metadata
    if metadata is None or metadata.strategy is not Strategy.SEQUENTIAL or config.start_index == "lowest":
        return {}
    lowest = dict(progress.watermarks)
    known = {*progress.applied, *(file.path for file in scene.sighting.files)}
    for path in known:
        partition, number = partition_of(path), number_of(path)
        if number and partition in lowest:
            lowest[partition] = min(lowest[partition], number)
    return {partition: number - 1 for partition, number in lowest.items() if number > 1}


def _watermarks(before: Iterable[str], unnamed: Mapping[str, int]) -> dict[str, int]:
    found = dict(unnamed)
    for path in before:
        partition, number = partition_of(path), number_of(path)
        if number:
            found[partition] = max(number, found.get(partition, 0))
    return found


def _rows(scene: Scene, version: int, where: Chosen | None) -> pa.Table | None:
    """The real table's rows at a version, by time travel; None where it cannot tell them any more."""
    try:
        if version < 0:
            return None
        return scene.doors.writer.rows(scene.status.delta_folder, version=version, where=where)
    except (UsageError, TableDamaged):
        return None


def _schema(rows: pa.Table, now: TableSchema) -> TableSchema:
    columns = (Column(field.name, delta_type(field.type) or "string", field.nullable) for field in rows.schema)
    return TableSchema(tuple(columns), now.partition_columns)
