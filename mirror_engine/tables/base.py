"""The port of the mirrored Delta tables, and the values that pass through it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeAlias, TypedDict, Unpack

from mirror_engine.landing_zone.metadata import Metadata
from mirror_engine.landing_zone.text import count
from mirror_engine.results import Count, Moment, Part

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    import pyarrow as pa

    from mirror_engine.landing_zone.diagnostics import Diagnostic, RejectedFile
    from mirror_engine.landing_zone.listing import Entry
    from mirror_engine.landing_zone.progress import Applied, Progress, Segment
    from mirror_engine.landing_zone.schema import TableSchema

    Chosen: TypeAlias = Callable[[pa.RecordBatch], pa.Array[Any]]  # which rows of a batch, as booleans
    ChosenColumns: TypeAlias = Callable[[Sequence[str]], Sequence[str]]  # which of a version's columns, by name

Way = Literal["passthrough", "append", "merge"]  # how files are applied
MIN_ACCOUNTED_ROW_BYTES = 32  # a row counts for so much at least: its key is in memory however well the file is packed


class RowStore(Protocol):
    """Typed rows in file order: filled first, then readable more than once; in memory at once only where they are few.

    `close` may come at any time.
    """

    @property
    def schema(self) -> pa.Schema:
        """The Arrow schema of every record batch."""

    def add(self, batch: pa.RecordBatch) -> None:
        """Take the next rows."""

    def finish(self) -> None:
        """Take no more rows."""

    def batches(self, columns: Sequence[str] | None = None) -> Iterator[pa.RecordBatch]:
        """The rows in order, all columns or those named."""

    def close(self) -> None:
        """Delete the rows' scratch files. Idempotent."""


@dataclass(frozen=True)
class ReadContext:
    """What a file is read against: what is known of its table before it, and after.

    Attributes:
        schema: its columns; None before its first file.
        is_empty: whether it surely holds no row (LZ-5.5).
        naive_columns, utc_columns: columns whose timestamps came without and with a time zone (ME051).
        markers_seen: whether a file with markers came before (ME042).
        takes_files: whether files can be added to the table unchanged (passthrough).
        feeds_changes: whether the table has a change data feed, or had one.
    """

    schema: TableSchema | None = None
    is_empty: bool = True
    naive_columns: frozenset[str] = frozenset()
    utc_columns: frozenset[str] = frozenset()
    markers_seen: bool = False
    takes_files: bool = True
    feeds_changes: bool = False


@dataclass(frozen=True)
class FileRows:
    """One change file, read and found good."""

    landed: Entry  # as it was read
    digest: str  # of its bytes, hex
    # typed rows: columns under the table's spelling, in the Arrow type of the table's type, then `MARKER_COLUMN` as
    # int8 (already filled in for marker-free files). Columns the file lacks are absent. Partition columns are there,
    # constant.
    rows: RowStore
    markers: Mapping[int, int]  # how many rows of each effective marker
    has_marker: bool  # whether the file had a marker column
    byte_count: int  # of its data columns (LZ-9.3)
    diagnostics: tuple[Diagnostic, ...] = ()
    # a verified copy, to be added to the table unchanged (LZ-4.19); None where rows are applied
    passthrough: Path | None = None
    passthrough_skipped_because: str = ""  # why it has none, in words; `""` where that was not looked at
    context: ReadContext = ReadContext()  # of the table after it

    @property
    def path(self) -> str:
        """From the table folder."""
        return self.landed.path

    @property
    def row_count(self) -> int:
        return sum(self.markers.values())

    @property
    def accounted_bytes(self) -> int:
        return accounted_bytes(self.landed, self.row_count)


def accounted_bytes(landed: Entry, row_count: int) -> int:
    """The bytes that a file adds to the limit of a batch."""
    return max(landed.size, row_count * MIN_ACCOUNTED_ROW_BYTES)


@dataclass(frozen=True)
class ChangeBatch:
    """Consecutive change files that go into one commit."""

    # in detection order; may be empty when only a table is to be created. All are passthrough, or none.
    files: tuple[FileRows, ...]
    schema: TableSchema  # the table's schema after this batch: that before it, plus new columns at the end
    # in the table's spelling; empty in a keyless table (then every marker is 0). Where no file has a row, those of
    # unknown type are left out (LZ-5.13).
    key_columns: tuple[str, ...] = ()
    # the table that its files were read against; None where there was none, or another program's rows do not matter
    snapshot: TableSnapshot | None = field(default=None, compare=False, repr=False)
    metadata: Metadata = field(default_factory=Metadata)  # by which its files were read
    diagnostics: tuple[Diagnostic, ...] = ()  # of its files
    rejected: RejectedFile | None = None  # why the file after the last is not in it, where it broke the protocol

    @property
    def passthrough(self) -> tuple[Path, ...]:
        """The verified copies, where files are added to the table unchanged; empty where rows are applied."""
        return tuple(file.passthrough for file in self.files if file.passthrough)

    @property
    def accounted_bytes(self) -> int:
        return sum(file.accounted_bytes for file in self.files)

    def close(self) -> None:
        """Release memory and scratch files of its rows. Idempotent."""
        for file in self.files:
            file.rows.close()


APPLICATIONS = "mirror_engine:"  # begins the application id of every generation


def application_of(generation: str) -> str:
    """The Delta transaction identifier's application id of a table's generation, whichever ledger's engine commits."""
    return f"{APPLICATIONS}{generation}"


@dataclass(frozen=True)
class RecordHead:
    """What a commit says about its table as a whole: its record without the files."""

    mirror: str  # this ROOT's mirror, a random id
    root_identity: str  # of ROOT's own folders at that time; distinguishes a copied ROOT from a recreated folder
    # after the batch, without rejection and diagnostics; `progress.batch` is the transaction version
    progress: Progress
    folder: str  # the table folder, from the landing zone's top

    @property
    def application(self) -> str:
        """The Delta transaction identifier's application id: this mirror and the table's generation."""
        return application_of(self.progress.generation)


@dataclass(frozen=True)
class BatchRecord(RecordHead):
    """What a commit says about itself: it goes, as JSON, into the commit (see `record`)."""

    applied: Applied  # this batch's files, by path from the table folder, and their partitions' marks after it
    merge_plan: str = ""  # how the batch was merged, in words for people; `""` where there was no choice
    # of a record that is said again in a later commit, what the commits since the newest segment have applied
    earlier: Applied | None = field(default=None, compare=False)

    @property
    def files(self) -> tuple[str, ...]:
        """This batch's files, by path from the table folder."""
        return tuple(self.applied.files)


@dataclass(frozen=True)
class TableSnapshot:
    """One version of a Delta table, opened once for a batch and passed on. Opening it starts no JVM."""

    version: int  # the newest when it was opened
    schema: TableSchema  # columns in order, with nullability; partition columns
    # of the newest commit that carries one (external commits carry none); None where none does
    record: RecordHead | None
    record_version: int  # the version that holds its files; -1 where none does
    takes_files: bool = True  # whether data files can be added to it without Spark
    feeds_changes: bool = False  # whether it has a change data feed, or had one
    # returns how many rows it holds; None where that is not known
    count_rows: Callable[[], int | None] = field(default=lambda: None, compare=False, repr=False)
    log: Any = field(default=None, compare=False, repr=False)  # what its writer has opened
    # returns the newest batch of an application by the log's transactions, which outlive its commits; None for none
    batch_of: Callable[[str], int | None] = field(default=lambda _: None, compare=False, repr=False)
    # returns whether a checkpoint came after the record's commit: log cleanup may take it (LZ-4.18)
    may_lose_record: Callable[[], bool] = field(default=lambda: False, compare=False, repr=False)


@dataclass(frozen=True)
class MatchCounts:
    """How many of one file's changes matched unexpected rows, each at its position (LZ-4.3, LZ-4.4)."""

    duplicate_inserts: int = 0  # inserts of a key that had a row (ME039)
    multi_row_changes: int = 0  # updates and deletes that matched several rows (ME043)


@dataclass(frozen=True)
class CommitResult:
    """What a commit did."""

    version: int
    matches: tuple[MatchCounts, ...] = ()  # per file of the batch, in order
    applied_by: str = ""  # how its files were applied: `passthrough`, `append`, `merge`; `""` where no row changed


class RowChoice(TypedDict, total=False):
    """Which rows are read: all of the newest version by default.

    Attributes:
        limit: at most so many.
        where: those alone; the others are in memory only a batch at a time.
        columns: no others are read.
    """

    version: int | None
    limit: int | None
    where: Chosen | None
    columns: ChosenColumns | None


class DeltaReader(Protocol):
    """What is asked of the Delta tables under one `ROOT/Tables`, without changing them.

    A table is named by its folder from `ROOT/Tables`: `Sales/Stores`. Calls may run in parallel, also for one table.
    None starts a JVM. Absent tables are no error. Commits that others make meanwhile may or may not be seen, each as
    a whole and in order.

    Every method raises `StorageUnavailable` when it fails for reasons outside the table, and `TableDamaged` when the
    table cannot be read.
    """

    def tables(self) -> Sequence[str]:
        """Every Delta table below, by folder, sorted."""

    def snapshot(self, table: str) -> TableSnapshot | None:
        """The table as it is; None where there is none."""

    def count_rows(self, table: str) -> int | None:
        """How many rows the table holds; None where there is none, or that is not known."""
        found = self.snapshot(table)
        return found.count_rows() if found else None

    def log_stamp(self, table: str, since: int) -> str:  # noqa: ARG002 - not known by default
        """Version, size and time of the newest commit from `since` on; `""` where that says nothing.

        While it stays the same, nothing was committed.
        """
        return ""

    def needed_stamp(self, table: str) -> str:  # noqa: ARG002 - not known by default
        """A hash over names, sizes and times of the files that make up the log's newest version; `""` if unknown.

        While it stays the same, the log reads as it did. Always unknown in a store.
        """
        return ""

    def folder_identity(self, folder: str) -> tuple[str, bool]:  # noqa: ARG002 - not known by default
        """The identity of a folder, links followed, and whether it is a link or a mount.

        It is named from `ROOT/Tables`, which is `""`. The identity is `""` where there is none, and always in a store.
        """
        return "", False

    def is_mirrored(self, table: str) -> bool:  # noqa: ARG002 - not known by default
        """Whether its log has a transaction of any mirror, as far as it can be read."""
        return False

    def latest_external_change(self, table: str, since: int, columns: str = "") -> int:
        """The newest version after `since` in which another program changed rows or columns; -1 for none.

        Names, types and nullability of columns count, not their order or comments. `columns`: the digest of the schema
        at `since`, for a commit before which the log was cleaned up; `""` if it is not known: it counts then.
        Costs little where nothing was committed.
        """

    def rows(self, table: str, **choice: Unpack[RowChoice]) -> pa.Table | None:
        """Return the chosen rows; None if there is no such table.

        Raises:
            UsageError: the table has no such version.
        """

    def history(self, table: str, *, limit: int | None = None, until: int | None = None) -> Sequence[HistoryEntry]:
        """The table's commits, newest first; those up to the version `until` without a look for newer ones."""

    def applied_since(self, table: str, snapshot: TableSnapshot, known: Progress | None) -> Applied:
        """Return what the table's commits have applied after what is known, up to the snapshot's record; None: all.

        Reads the commits since the newest segment of the record, and older segments: of both what is not `known`.

        Raises:
            TableDamaged: a commit or a segment that says it is gone.
        """

    def make_durable(self, table: str, since: int) -> None:
        """Fsync every commit after a version: one that `apply` did not make may not be on the disk.

        Idempotent.

        Raises:
            TableDamaged: a commit lost its data files with the power; it never counted as done.
        """


class DeltaCommitter(Protocol):
    """What changes rows, or takes tables away: each in one step that readers see whole or not at all.

    Calls for one table come one at a time, for different tables in parallel. What a call did is on the disk when it
    returns. After an error it did nothing, or, where a store did not answer, may have: repeated, it does nothing twice.
    Only `apply` may start a JVM.

    Every method raises as those of `DeltaReader`, and `SetupError` when this machine lacks what the merge engine needs.
    """

    def apply(
        self, table: str, batch: ChangeBatch, record: BatchRecord, check: Callable[[], None] = lambda: None
    ) -> CommitResult:
        """Evolve the schema, replay the batch's changes and record them, atomically, exactly once.

        Rows that another program changed since the batch's snapshot, which is opened here where there is none, are a
        conflict. `check`, which raises where another engine may have taken over, is called between the commit and what
        follows it: small files put together, the log cleaned up. The result equals `landing_zone.change.replay`,
        whatever the table holds. A commit is made even where no row changes: progress is recorded. The record's
        transaction version makes it exactly-once: where the table already carries this application id at this version
        or above, nothing is done and `CommitConflict` is raised, so that the caller reads the state again. The commit
        is on the disk when this returns. A table that is not there is made by a commit before. Passthrough files are
        added unchanged; a new table's first ones in the commit that makes it.

        Raises:
            CommitConflict: another writer was first, or the table no longer takes files; nothing was committed.
            CommitFailed: the merge engine could not do it; nothing was committed.
            RejectedFile: a file of the batch turned out to be unreadable after all; nothing was committed.
            RootLocked: `check` raised it; the batch was committed.
        """

    def write_segment(self, table: str, segment: Segment, applied: Applied) -> None:
        """Store what older commits have applied, durably, for the commit that names the segment. Idempotent.

        Raises:
            TableDamaged: one of the segments before it, which it names, is missing.
        """

    def say_again(self, table: str, record: BatchRecord) -> int:
        """Commit the newest record once more, without rows, and return the version: its commit is gone, or may go.

        Raises:
            CommitConflict: another writer was first.
        """

    def drop(self, table: str, check: Callable[[], None] = lambda: None) -> None:
        """Remove the table in one step (readers see it whole or not at all); absent is no error. Idempotent.

        `check`, which raises where another engine may have taken over, is called before each step of it.
        """

    def finish_drop(self, table: str, check: Callable[[], None] = lambda: None) -> None:  # noqa: ARG002 - see below
        """Finish an interrupted drop; call before creating a table.

        Takes back a late commit, too.
        """
        return  # by default a drop is one step

    def take_back(self, table: str, generation: str) -> None:  # noqa: ARG002 - see below
        """Remove the newest commit if its generation was dropped and another table was made in its place.

        For one that lost the lease while it committed (LZ-4.18): all other commits may be another engine's. On a disk
        nobody can lose it.
        """
        return  # by default nobody commits late


class DeltaMaintainer(Protocol):
    """What changes files, but no row of a version within the retention; one call at a time. May start a JVM."""

    def maintain(
        self, table: str, retention_hours: float, is_wanted: Callable[[], bool] = lambda: False
    ) -> Mapping[str, Any]:
        """OPTIMIZE, then VACUUM what is older than the retention; returns what was done, in numbers.

        Where the table is wanted between the two, VACUUM is left to the next time.
        """


class DeltaWriter(DeltaReader, DeltaCommitter, DeltaMaintainer, Protocol):
    """Everything that the engine asks of the Delta tables; one contract suite for all implementations."""

    def close(self) -> None:
        """End the session, if one was started."""
        return


class HistoryEntry(Part, frozen=True):
    """One commit of a Delta table.

    Attributes:
        committed_at: of the commit, ISO 8601 in UTC
        operation: in Delta's words
        files: change files it applied
        rows: of those files
        files_added: data files with rows that it added or changed; none of a compaction
        engine: that made it
        metrics: Delta's operation metrics
        applied_by: how its files got there
        passthrough_skipped_because: why files were rewritten, by path
        merge_plan: how the batch was merged, where there was a choice
    """

    version: Count
    committed_at: Moment
    operation: str
    files: tuple[str, ...] = ()
    rows: Count = 0
    files_added: Count = 0
    engine: str | None = None
    metrics: Mapping[str, str] = {}
    applied_by: Way | None = None
    passthrough_skipped_because: Mapping[str, str] = {}
    merge_plan: str | None = None

    def __str__(self) -> str:
        files = f": {', '.join(self.files)}" if self.files else ""
        at = f"{self.committed_at:%Y-%m-%d %H:%M:%S} UTC"
        return f"v{self.version}  {at}  {self.operation}  {count(self.rows, 'row')}{files}"


def with_applied_by(record: BatchRecord, applied_by: str) -> BatchRecord:
    """The record with how its files are applied."""
    return replace(record, applied=record.applied.with_each(applied_by=applied_by))
