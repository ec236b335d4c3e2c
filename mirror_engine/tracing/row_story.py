"""Tells why a row is what it is: every change to its key in order, what each met and did, and where it went."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import pyarrow as pa
from typing_extensions import assert_never

from mirror_engine.delta.arrow_types import arrow_schema
from mirror_engine.landing_zone.change import MARKER_COLUMN, RowMarker, same_rows
from mirror_engine.tracing.beginning import Beginning, beginning_of
from mirror_engine.tracing.one_key import ROW_COLUMN, KeyChange, OneKeyReading, OneKeyWriter
from mirror_engine.tracing.replaying import read_unapplied, replay_table, standing
from mirror_engine.tracing.row_values import Row, changed_columns, plain_rows
from mirror_engine.tracing.wanted_key import WantedKey

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from mirror_engine.monitoring.status import FileStatus
    from mirror_engine.tracing.scene import Scene

Did = Literal["inserted", "updated", "deleted", "nothing"]
# what a change most likely did to rows that nobody knows
_UNSEEN: dict[RowMarker, Did] = {
    RowMarker.INSERT: "inserted",
    RowMarker.UPDATE: "updated",
    RowMarker.DELETE: "deleted",
    RowMarker.UPSERT: "updated",
}


@dataclass(frozen=True)
class TracedChange:
    """One change to the key, and what became of it.

    Attributes:
        change: the change itself.
        is_known: whether it is known what it met; where old files are gone, it may not be.
        did: `nothing` where the rows are the same as before.
        why: what it met, where that is not what its marker expects, or why it did nothing; `""` otherwise.
        columns: those whose values it changed.
        version: the Delta version its file went into; None where it is in none, or that is not known any more.
        batch: the files that went into that commit, its own among them.
        waits: why its file is not in the table yet; `""` for one that is.
    """

    change: KeyChange
    is_known: bool
    did: Did
    why: str
    columns: tuple[str, ...]
    version: int | None
    batch: tuple[str, ...]
    waits: str


@dataclass(frozen=True)
class Unread:
    """A file the table cannot read.

    Attributes:
        path: from the table folder.
        state: `waiting` or `refused`.
        why: so.
        rows: places in it of rows with the key, each with its marker; None where they cannot be told.
    """

    path: str
    state: str
    why: str
    rows: tuple[tuple[int, RowMarker], ...] | None


@dataclass(frozen=True)
class RowStory:
    """Everything there is to say about one key.

    Attributes:
        key: its values as given, by column.
        beginning: where the replay begins, if not at the first file.
        first: the rows the key had there.
        changes: in order.
        unread: files the table cannot read, each with its reason and the changes to the key that wait in it.
        overwritten: files of these changes whose content is another than the one that was applied.
        end: the key's rows after all changes.
        applied: the key's rows after the changes that are in the table.
        real: the key's rows in the Delta table; None where there is no table.
    """

    key: Mapping[str, str]
    beginning: Beginning | None
    first: tuple[Row, ...]
    changes: tuple[TracedChange, ...]
    unread: tuple[Unread, ...]
    overwritten: tuple[str, ...]
    end: tuple[Row, ...]
    applied: tuple[Row, ...]
    real: tuple[Row, ...] | None

    @property
    def is_known(self) -> bool:
        """Whether the row the replay begins with is known."""
        return self.beginning is None or self.beginning.rows is not None

    @property
    def agrees(self) -> bool | None:
        """Whether the Delta table has what the replay has; None where there is nothing to compare."""
        return same_rows(self.applied, self.real) if self.is_known and self.real is not None else None


def trace_key(scene: Scene, given: Sequence[str]) -> RowStory:
    """Replay the changes to one key.

    Args:
        scene: the table.
        given: the key, as `WantedKey.parse` takes it.

    Raises:
        UsageError: the key is none of this table's.
        TransientError: something could not be read for a while.
    """
    known = _columns_of(scene)
    key = WantedKey.parse(given, scene.name.normalized, scene.key_columns, known.names)
    key.rows_of(pa.RecordBatch.from_pylist([], known))  # a key that no row can have is refused before all is read
    writer, beginning = OneKeyWriter(), beginning_of(scene, key.rows_of)
    replayed = replay_table(scene, beginning, writer, OneKeyReading(key))
    changes = tuple(_traced_all(writer.changes, scene, beginning))
    is_applied = [change.waits == "" for change in changes]
    files = dict.fromkeys(change.file for change in writer.changes)
    last = len(changes) - is_applied[::-1].index(True) if any(is_applied) else 0
    return RowStory(
        key=key.texts,
        beginning=beginning,
        first=writer.first,
        changes=changes,
        unread=tuple(_unread(file, scene, writer, key) for file in replayed.waiting),
        overwritten=tuple(path for path in files if path in scene.overwritten),
        end=changes[-1].change.after if changes else writer.first,
        applied=changes[last - 1].change.after if last else writer.first,
        real=_real(scene, key),
    )


def _columns_of(scene: Scene) -> pa.Schema:
    """The Delta table's columns, or those declared; none where neither tells them."""
    state = scene.doors.writer.state(scene.status.delta_folder) if scene.commits else None
    declared = scene.metadata.declared_columns if scene.metadata else ()
    return arrow_schema(state.schema.columns if state else declared)


def _traced_all(changes: Iterable[KeyChange], scene: Scene, beginning: Beginning | None) -> Iterator[TracedChange]:
    """All changes; what the first of them met is only known where the beginning is, up to one that leaves no doubt."""
    is_known = beginning is None or beginning.rows is not None
    for change in changes:
        yield _traced(change, scene, is_known=is_known)
        is_known = is_known or change.marker is not RowMarker.INSERT


def _traced(change: KeyChange, scene: Scene, *, is_known: bool) -> TracedChange:
    file = scene.files.get(change.file)
    did, why = _effect(change) if is_known else (_UNSEEN[change.marker], "what it met is not known")
    columns = _columns(change) if did == "updated" and is_known else ()
    return TracedChange(
        change=change,
        is_known=is_known,
        did=did,
        why=why,
        columns=columns,
        version=file.version if file else None,
        batch=scene.batch_of(change.file),
        waits=_waits(file),
    )


def _waits(file: FileStatus | None) -> str:
    """Why what a file holds is not in the table; `""` where it is."""
    if file is None:
        return "it was moved away, and the table never held it"
    return "" if file.state == "applied" else file.why


def _columns(change: KeyChange) -> tuple[str, ...]:
    found = (changed_columns(before, after) for before, after in zip(change.before, change.after, strict=True))
    return tuple(dict.fromkeys(name for names in found for name in names))


def _effect(change: KeyChange) -> tuple[Did, str]:
    """What a change did, and why it did nothing or not what its marker says (LZ-4.1, LZ-4.3, LZ-4.4)."""
    met = len(change.before)
    match change.marker:
        case RowMarker.INSERT:
            return "inserted", f"a marker 0 never replaces: {_rows(met + 1)} have this key now [ME039]" if met else ""
        case RowMarker.UPDATE | RowMarker.UPSERT:
            if not met:
                return "inserted", "no row had the key" if change.marker is RowMarker.UPDATE else ""
            if same_rows(change.before, change.after):
                return "nothing", "the row had these values already"
            return "updated", f"all {_rows(met)} with this key became this row [ME043]" if met > 1 else ""
        case RowMarker.DELETE:
            if not met:
                return "nothing", "no row had the key"
            return "deleted", f"all {_rows(met)} with this key went [ME043]" if met > 1 else ""
        case _:
            assert_never(change.marker)


def _rows(count: int) -> str:
    return "1 row" if count == 1 else f"{count} rows"


def _unread(replayed: FileStatus, scene: Scene, writer: OneKeyWriter, key: WantedKey) -> Unread:
    """A file the replay could not read; with the engine's own reason, where it has met what stops the replay."""
    told = standing(scene, replayed)
    rows = None if replayed.state == "refused" else _waiting_rows(replayed.path, scene, writer, key)
    return Unread(replayed.path, told.state, told.why, rows)


def _waiting_rows(
    path: str, scene: Scene, writer: OneKeyWriter, key: WantedKey
) -> tuple[tuple[int, RowMarker], ...] | None:
    """Rows with the key in a file that cannot be applied yet: where they stand and what they ask for."""
    read = read_unapplied(scene, path, writer, OneKeyReading(key))
    if read is None:
        return None
    return tuple(
        (row[ROW_COLUMN], RowMarker(row[MARKER_COLUMN]))
        for batch in read.rows.batches([ROW_COLUMN, MARKER_COLUMN])
        for row in batch.to_pylist()
    )


def _real(scene: Scene, key: WantedKey) -> tuple[Row, ...] | None:
    """The key's rows in the Delta table itself."""
    if not scene.commits:
        return None
    found = scene.doors.writer.rows(scene.status.delta_folder, where=key.rows_of)
    return None if found is None else tuple(row for batch in found.to_batches() for row in plain_rows(batch))
