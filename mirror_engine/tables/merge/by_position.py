"""Merge by position: which rows of which data files go, which rows come, and what one commit says of both.

Rows that go are marked by a deletion vector, or their file is rewritten without them. Rows that come, and what is left
of rewritten files, are new data files. Where the change data feed is on, files of change data have every change.
"""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from mirror_engine.errors import CommitFailed
from mirror_engine.tables.changes.counted import in_schema, taken_rows
from mirror_engine.tables.changes.net_changes import Role
from mirror_engine.tables.log.commit import VECTORS_FROM_ROWS, add_action, marked_action, remove_action
from mirror_engine.tables.log.data_files import CHANGE_TYPE, DataFiles
from mirror_engine.tables.log.data_rows import rows_left, scan_file, whole_files
from mirror_engine.tables.log.snapshot import stated_rows
from mirror_engine.tables.log.table_file import read_footer
from mirror_engine.tables.log.table_path import for_each
from mirror_engine.tables.log.vectors import new_vectors

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from mirror_engine.config import DeletionVectors
    from mirror_engine.tables.base import ChangeBatch
    from mirror_engine.tables.changes.counted import CountedChanges
    from mirror_engine.tables.changes.net_changes import Integers
    from mirror_engine.tables.log.commit import Evolution
    from mirror_engine.tables.log.data_files import Json, WrittenFile
    from mirror_engine.tables.log.snapshot import DeltaLog
    from mirror_engine.tables.log.table_file import DataFile
    from mirror_engine.tables.log.vectors import NewVectors

_VECTOR_FILE_ROWS = 50_000  # of a data file: a smaller one is rewritten in a few milliseconds
_MOST_MARKED = 3  # one row in so many: of a file with more marks, less is left to rewrite than readers would skip


def is_marked(rows: int, gone: int) -> bool:
    """Whether a data file stays, with a deletion vector; otherwise its remaining rows are rewritten."""
    return rows >= _VECTOR_FILE_ROWS and gone * _MOST_MARKED <= rows


def is_large(log: DeltaLog) -> bool:
    """Whether a table is large enough for deletion vectors, and for indexes of its keys."""
    return stated_rows(log) >= VECTORS_FROM_ROWS


class Merge:
    """One batch's changes as the actions of one commit, and the files that these name.

    Args:
        evolution: what the commit says anew of the table.
        touched: the table's data files of which rows go.
        folder: an existing scratch folder.

    Attributes:
        files: new data files and files of change data.
        vectors: the new file of deletion vectors, or none.
    """

    def __init__(  # noqa: PLR0913 - what a merge is made from
        self,
        log: DeltaLog,
        batch: ChangeBatch,
        changes: CountedChanges,
        evolution: Evolution,
        *,
        touched: Sequence[TouchedFile],
        folder: Path,
    ) -> None:
        self.files: Sequence[WrittenFile] = ()
        self.vectors: Sequence[NewVectors] = ()
        self._log, self._batch, self._changes, self._evolution, self._touched = log, batch, changes, evolution, touched
        self._feeds = bool(touched) and evolution.feeds_changes
        self._data = DataFiles(folder, evolution.fields, batch.schema.partition_columns)
        self._fed = DataFiles(folder, evolution.fields, batch.schema.partition_columns, of_changes=True)

    @property
    def applied_by(self) -> str:
        """How rows change, in the words of `CommitResult`."""
        return "merge" if self._touched else "append" if len(self._changes.net.position) else ""

    @property
    def words(self) -> str:
        """How the table's data files change, for readers of its history."""
        marked = sum(file.is_marked for file in self._touched)
        counts = {"marked": marked, "rewritten or removed": len(self._touched) - marked}
        return "; ".join(f"{count} files {word}" for word, count in counts.items() if count)

    def actions(self) -> Sequence[Json]:
        """Write the new files into the scratch folder; the actions that put them in the table."""
        with closing(self._data), closing(self._fed):
            carried = [file for file in self._touched if self._feeds or file.is_rewritten]
            whole = whole_files(self._log, [file.file for file in carried], self._batch.schema.names)
            for file, data in zip(carried, whole, strict=True):
                self._carry_over(file, data)
            for rows, kinds in self._coming_rows():
                self._data.add(rows)
                self._feed_rows(rows, kinds)
            added, fed = self._data.finish(), self._fed.finish()
        self.files = [*added, *fed]
        columns = self._evolution.indexed
        marked = [file for file in self._touched if file.is_marked]
        self.vectors = [new_vectors([file.gone for file in marked])] if marked else []
        descriptors = self.vectors[0].descriptors if marked else ()
        stay = for_each(
            self._log.folder,
            lambda pair: marked_action(self._log, pair[0].file, pair[1], columns),
            zip(marked, descriptors, strict=True),
        )
        return [
            *({"cdc": {**file.action, "dataChange": False}} for file in fed),
            *(remove_action(self._log, file.file) for file in self._touched),
            *stay,
            *(add_action(file, columns) for file in added),
        ]

    def _carry_over(self, file: TouchedFile, data: DataFile) -> None:
        """Write the remaining rows of a removed file, and its deleted rows to the change data feed."""
        only = None if file.is_rewritten else file.going
        for first, rows in scan_file(self._log, data, self._batch.schema.names, only=only):
            whole = in_schema(rows, self._batch.schema)
            if file.is_rewritten:
                self._data.add(whole.filter(rows_left(file.gone, first, rows.num_rows)))
            if self._feeds:
                low, high = np.searchsorted(file.going, (first, first + rows.num_rows))
                roles = self._changes.fate[file.codes[low:high]]
                kinds = np.where(roles == Role.DELETE, "delete", "update_preimage")
                self._feed_rows(whole.take(pa.array(file.going[low:high] - first)), kinds)

    def _coming_rows(self) -> Iterator[tuple[pa.RecordBatch, NDArray[np.str_]]]:
        """New rows, each batch with its kinds of change. An update without insert yields one row per matched row."""
        net, changes = self._changes.net, self._changes
        matched = np.zeros(len(net.position), dtype=np.int64)
        sets = net.role == Role.SET_ONLY
        matched[sets] = changes.prior[changes.codes[net.position[sets]]]
        times = matched + net.copies
        rank = np.arange(times.sum()) - np.repeat(np.cumsum(times) - times, times)  # within its net change
        kinds = np.where(rank < np.repeat(matched, times), "update_postimage", "insert")
        for rows, part in taken_rows(self._batch, np.repeat(net.position, times)):
            for column in self._batch.schema.columns:
                if not column.nullable and rows.column(column.name).null_count:
                    raise CommitFailed(
                        f"a constraint of the Delta table refuses rows of this batch: column {column.name} is NOT NULL",
                        "Drop the constraint, or correct the rows at their source.",
                    )
            yield rows, kinds[part]

    def _feed_rows(self, rows: pa.RecordBatch, kinds: NDArray[np.str_]) -> None:
        if self._feeds and rows.num_rows:
            self._fed.add(rows.append_column(CHANGE_TYPE, pa.array(kinds, pa.string())))


class TouchedFile:
    """A data file that loses rows; `before` are those that were deleted earlier.

    Attributes:
        going: numbers of the rows that go with this commit, ascending; `codes` has the code of each one's key.
        gone: numbers of all rows that are gone after it.
        is_marked: whether the file stays, with a vector of them.
    """

    def __init__(self, file: DataFile, going: Integers, codes: Integers, before: Integers | None) -> None:
        self.file, self.going, self.codes = file, going, codes
        self._rows = read_footer(file.path).num_rows if file.rows is None else file.rows
        is_gone = np.zeros(self._rows, dtype=np.bool_)
        is_gone[going if before is None else np.concatenate([before, going])] = True
        self.gone: Integers = np.flatnonzero(is_gone)
        self.is_marked = False

    @property
    def is_emptied(self) -> bool:
        """Whether no row is left."""
        return len(self.gone) == self._rows

    @property
    def is_rewritten(self) -> bool:
        """Whether the file is removed and its remaining rows are rewritten."""
        return not (self.is_marked or self.is_emptied)

    @property
    def may_be_marked(self) -> bool:
        """Whether a deletion vector costs less than rewriting the remaining rows, in a table that is large enough.

        Polars does not find the vector of a file whose path is percent-encoded, and reads the rows that are gone.
        """
        return not self.is_emptied and "%" not in self.file.spelled and is_marked(self._rows, len(self.gone))


def touched_files(log: DeltaLog, changes: CountedChanges, vectors: DeletionVectors) -> Sequence[TouchedFile]:
    """Data files that lose rows; in a large table some get deletion vectors."""
    held = changes.held
    goes = np.flatnonzero(changes.fate[held.code] != Role.INSERT)
    order = goes[np.lexsort((held.position[goes], held.file[goes]))]
    file, position, code = held.file[order], held.position[order], held.code[order]

    def touched(place: int) -> TouchedFile:
        low, high = np.searchsorted(file, (place, place + 1))
        touched = held.files[place]
        return TouchedFile(touched, position[low:high], code[low:high], held.gone.get(touched.spelled))

    found = list(for_each(log.folder, touched, np.unique(file).tolist()))
    if vectors == "auto" and any(file.may_be_marked for file in found) and is_large(log):
        for each in found:
            each.is_marked = each.may_be_marked
    return found
