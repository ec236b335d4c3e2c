"""Detection: which files of a table folder are change files, and their order (LZ-3)."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import groupby
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Literal

from mirror_engine.landing_zone.diagnostics import Diagnostic, diagnose
from mirror_engine.landing_zone.metadata import Metadata, Strategy
from mirror_engine.landing_zone.partitions import agreed_columns, columns_of, leaves
from mirror_engine.landing_zone.schema import folded

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from mirror_engine.landing_zone.listing import LandedFile
    from mirror_engine.landing_zone.names import TableName
    from mirror_engine.landing_zone.progress import Progress


@dataclass(frozen=True)
class Detection:
    """The files of one table folder in reading order, leaves in path order (LZ-3.8).

    Attributes:
        ready: may be applied now, in this order.
        later: numbered files after a gap (LZ-3.3).
        missing_file: path of the first missing file before later ones; None if there is no gap.
        next_files: by partition, the name that comes next; empty for `LastUpdateTimeFileDetection`.
        partition_columns: that leaves must name, in order; empty without partitions.
        ignored: files that are never applied in their place, by path.
        diagnostics: of the files.
    """

    ready: tuple[LandedFile, ...] = ()
    later: tuple[LandedFile, ...] = ()
    missing_file: str | None = None
    next_files: Mapping[str, str] = field(default_factory=dict)
    partition_columns: tuple[str, ...] = ()
    ignored: tuple[LandedFile, ...] = ()
    diagnostics: tuple[Diagnostic, ...] = ()


@dataclass
class _Draft:
    """A detection under construction."""

    table: TableName
    strict: bool
    ready: list[LandedFile] = field(default_factory=list)
    later: list[LandedFile] = field(default_factory=list)
    missing_file: str | None = None
    next_files: dict[str, str] = field(default_factory=dict)
    ignored: list[LandedFile] = field(default_factory=list)
    diagnostics: list[Diagnostic] = field(default_factory=list)

    def add(self, code: str, path: str, **details: Any) -> None:  # noqa: ANN401 - what `diagnose` takes
        """Add a diagnostic about a path from the table folder; `""` for the folder itself."""
        place = f"{self.table.folder}/{path}" if path else self.table.folder
        self.diagnostics.append(diagnose(code, place, strict=self.strict, **details))

    def ignore(self, file: LandedFile, code: str, **details: Any) -> None:  # noqa: ANN401 - what `diagnose` takes
        """Ignore a file, with the reason."""
        self.ignored.append(file)
        self.add(code, file.path, **details)

    def finished(self, partition_columns: tuple[str, ...]) -> Detection:
        """The detection, with nothing more to be draft."""
        return Detection(
            ready=tuple(self.ready),
            later=tuple(self.later),
            missing_file=self.missing_file,
            next_files=self.next_files,
            partition_columns=partition_columns,
            ignored=tuple(sorted(self.ignored, key=attrgetter("path"))),
            diagnostics=tuple(self.diagnostics),
        )


DIGITS = 20
LAST = 10**DIGITS - 1


@dataclass(frozen=True, order=True)
class ChangeFileName:
    """A numbered change file's name (LZ-3.2): orders by number, prints as it was spelled.

    Attributes:
        sequence: 1 to 10^20 - 1.
        extension: as spelled, without the dot.

    Raises:
        ValueError: no name of 20 digits has this sequence.
    """

    sequence: int
    extension: str = "parquet"

    def __post_init__(self) -> None:
        if not 1 <= self.sequence <= LAST:
            raise ValueError(f"sequence is {self.sequence}, a change file's is 1 to {LAST}")

    def __str__(self) -> str:
        return f"{self.sequence:0{DIGITS}d}.{self.extension}"

    @property
    def following(self) -> ChangeFileName | None:
        """The name one step further; None after the last."""
        return None if self.sequence == LAST else ChangeFileName(self.sequence + 1, self.extension)

    @classmethod
    def parse(cls, name: str, extension: str | None = None) -> ChangeFileName | None:
        """Parse a file's name; None if it is not a change file's.

        Args:
            name: without folders.
            extension: the table's, as in `Metadata`; None for any.
        """
        sequence = sequence_of(name)
        spelled = name[DIGITS + 1 :]
        if not sequence or (extension is not None and spelled.casefold() != extension):
            return None
        return cls(sequence, spelled)


def sequence_of(name: str) -> int:
    """A change file's number: exactly 20 ASCII digits, a dot and something after it (LZ-3.2); 0 for other names."""
    digits = name[:DIGITS]
    # isascii, for "²" and the digits of other scripts are digits to Python, too
    is_numbered = name[DIGITS : DIGITS + 1] == "." and len(name) > DIGITS + 1 and digits.isascii() and digits.isdigit()
    return int(digits) if is_numbered else 0


def number_of(path: str) -> int:
    """The number in a file's path."""
    return sequence_of(path.rpartition("/")[2])


@dataclass
class _Applied:
    """The applied files of one partition."""

    partition: str
    sequence: int = 0
    newest_path: str = ""
    modified_ns: int = -1


def detect(  # noqa: PLR0913 - independent facts
    table: TableName,
    files: Sequence[LandedFile],
    metadata: Metadata,
    progress: Progress | None,
    first_file: Literal["1", "lowest"] = "1",
    *,
    strict: bool = False,
) -> Detection:
    """Detect the change files of one table folder; their order in `files` does not count.

    Args:
        table: its name, for messages.
        files: all in the folder.
        metadata: in force.
        progress: of the table; None before the first commit.
        first_file: where numbering begins (LZ-3.2).
        strict: whether severities are those of `strict`.
    """
    draft = _Draft(table, strict)
    by_path = sorted(files, key=attrgetter("path"))
    pending = [file for file in _unapplied(by_path, progress, draft) if _has_change_file_name(file, metadata, draft)]
    partitions, columns = _files_by_partition(pending, metadata, progress, draft)
    applied = _applied_by_partition(progress, metadata)
    if metadata.strategy is Strategy.SEQUENTIAL:
        existing = {file.path for file in by_path}
        for partition in sorted({*partitions, *applied}):
            done = applied.get(partition, _Applied(partition))
            _in_sequence(done, partitions.get(partition, ()), metadata.extension, first_file, draft)
            if done.sequence and done.newest_path not in existing:
                _report_missing_newest(done, draft)
    else:
        for partition, members in partitions.items():
            _in_order_of_time(members, applied.get(partition, _Applied(partition)), draft)
    return draft.finished(columns)


def _unapplied(by_path: Iterable[LandedFile], progress: Progress | None, draft: _Draft) -> Iterable[LandedFile]:
    """Files whose path was never applied in this generation (LZ-3.6); the others only if their content changed."""
    applied = progress.applied if progress else {}
    for file in by_path:
        known = applied.get(file.path)
        if known is None:
            yield file
        elif known.etag != file.etag:
            draft.ignore(file, "ME026")


def _has_change_file_name(file: LandedFile, metadata: Metadata, draft: _Draft) -> bool:
    """Whether the name is a change file's under the table's strategy (LZ-3.2, LZ-3.5, LZ-3.9)."""
    name, expected = file.name, metadata.extension
    if name[0] in "._":
        draft.ignored.append(file)
        draft.diagnostics.append(hidden_name(f"{draft.table.folder}/{file.path}", expected, strict=draft.strict))
        return False
    lower = name.casefold()
    if not lower.endswith(f".{expected}"):
        draft.ignore(file, "ME021", found=name.partition(".")[2] or "none", expected=expected)
        return False
    if metadata.strategy is Strategy.SEQUENTIAL:
        stem = lower[: -len(expected) - 1]
        is_number = stem.isascii() and stem.isdigit()
        if not is_number or len(stem) != DIGITS:
            draft.ignore(file, "ME020", digits=len(stem) if is_number else "not only")
            return False
    return True


def hidden_name(path: str, expected: str, *, strict: bool = False) -> Diagnostic:
    """ME021 for a name that begins with `_` or `.` in a table folder (LZ-1.6, LZ-3.9); `path` from the zone."""
    name = path.rpartition("/")[2]
    kind = name.lstrip("._").partition(".")[2] or "none"
    return diagnose("ME021", path, strict=strict, found=f"{kind} behind a leading `{name[0]}`", expected=expected)


def _applied_by_partition(progress: Progress | None, metadata: Metadata) -> dict[str, _Applied]:
    """The applied files of each partition by number and time, under any former strategy (LZ-3.15)."""
    partitions: dict[str, _Applied] = {} if metadata.partitioned else {"": _Applied("")}
    if not progress:
        return partitions
    for partition, watermark in progress.watermarks.items():
        if bool(partition) == metadata.partitioned:
            partitions.setdefault(partition, _Applied(partition)).sequence = watermark
    for path, file in progress.applied.items():
        partition, _, name = path.rpartition("/")
        if bool(partition) != metadata.partitioned:
            continue
        done = partitions.setdefault(partition, _Applied(partition))
        done.modified_ns = max(done.modified_ns, file.modified_ns)
        sequence = sequence_of(name)
        if sequence > 0 and sequence >= done.sequence:
            done.sequence, done.newest_path = sequence, path
    return partitions


def _in_sequence(
    done: _Applied,
    members: Sequence[LandedFile],
    extension: str,
    first_file: Literal["1", "lowest"],
    draft: _Draft,
) -> None:
    """Take numbered files one by one up to the first gap (LZ-3.2, LZ-3.3, LZ-3.4)."""
    pending = _pending_by_number(members, done.sequence, extension, draft)
    numbers = list(pending)
    expected = done.sequence + 1
    if first_file == "lowest" and not done.sequence and numbers:
        expected = numbers[0]
    ready = 0
    while ready < len(numbers) and numbers[ready] == expected:
        expected, ready = expected + 1, ready + 1
    files = list(pending.values())
    draft.ready += files[:ready]
    draft.later += files[ready:]
    if expected > LAST:
        return
    name = str(ChangeFileName(expected, extension))
    draft.next_files[done.partition] = name
    if files[ready:]:
        draft.missing_file = draft.missing_file or f"{done.partition}/{name}".lstrip("/")
        draft.add("ME019", done.partition, name=name, count=len(files) - ready)


def _pending_by_number(
    members: Sequence[LandedFile], watermark: int, extension: str, draft: _Draft
) -> dict[int, LandedFile]:
    """The files above the watermark, by number, ascending; of two spellings of one number, the plain one counts."""
    pending: dict[int, LandedFile] = {}
    for file in sorted(members, key=lambda file: (file.name[:DIGITS], file.name[DIGITS + 1 :] != extension)):
        sequence = sequence_of(file.name)
        if sequence <= watermark or sequence in pending:
            draft.ignore(file, "ME022", watermark=max(watermark, sequence))
        else:
            pending[sequence] = file
    return pending


def _report_missing_newest(done: _Applied, draft: _Draft) -> None:
    """ME073 with the next number: publishers may delete the newest applied file (LZ-8.4)."""
    following = draft.next_files.get(done.partition, "none")
    draft.add("ME073", done.newest_path or done.partition, next=following)


def _in_order_of_time(members: Sequence[LandedFile], done: _Applied, draft: _Draft) -> None:
    """Take every file, oldest first, equal times by name (LZ-3.5, LZ-3.6)."""
    ordered = sorted(members, key=attrgetter("modified_ns"))  # by path before, so that equal times go by name
    draft.ready += ordered
    for file in ordered:
        if file.modified_ns < done.modified_ns:
            draft.add("ME029", file.path)
    for _, tied in groupby(ordered, key=attrgetter("modified_ns")):
        first, *others = tied
        if others:
            draft.add("ME028", first.path, count=1 + len(others))


def _files_by_partition(
    pending: Iterable[LandedFile], metadata: Metadata, progress: Progress | None, draft: _Draft
) -> tuple[dict[str, list[LandedFile]], tuple[str, ...]]:
    """The files by the partition they count for, by path, and the partition columns (LZ-3.7, LZ-3.8)."""
    folders: dict[str, list[LandedFile]] = {}
    for file in pending:
        folders.setdefault(file.partition, []).append(file)
    if not metadata.partitioned:
        top = folders.pop("", [])
        for folder in sorted(folders):
            draft.ignored += folders[folder]
            draft.add("ME030", folder)
        return {"": top}, ()
    ends = leaves(folders)
    columns = agreed_columns(ends, progress)
    counting = {leaf: folders[leaf] for leaf in ends if columns and _names_alike(columns_of(leaf), columns)}
    _ignore_outside([folders[folder] for folder in sorted(folders) if folder not in counting], ends, columns, draft)
    keys = {folded(key) for key in metadata.key_columns}
    for column in columns if keys else ():
        if folded(column) not in keys:
            draft.add("ME033", "", column=column)
    return counting, columns


def _names_alike(some: tuple[str, ...] | None, others: tuple[str, ...]) -> bool:
    """Whether both have the same columns in the same order, in any case (LZ-5.7)."""
    return some is not None and tuple(map(folded, some)) == tuple(map(folded, others))


def _ignore_outside(
    outside: Iterable[list[LandedFile]], ends: Iterable[str], columns: Iterable[str], draft: _Draft
) -> None:
    """Ignore each leaf of other columns, and each file outside a leaf."""
    expected = "/".join(columns) or "(there are none)"
    foreign = frozenset(ends)
    for members in outside:
        draft.ignored += members
        folder = members[0].partition
        for path in [folder] if folder in foreign else [file.path for file in members]:
            draft.add("ME031", path, column=expected)
