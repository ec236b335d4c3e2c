"""What the files of one table folder turned out to be (protocol chapter 3)."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import groupby
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Literal

from mirror_engine.landing_zone.diagnostics import Diagnostic, diagnose
from mirror_engine.landing_zone.metadata import Metadata, Strategy
from mirror_engine.landing_zone.partitions import files_by_partition

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from mirror_engine.landing_zone.listing import LandedFile
    from mirror_engine.landing_zone.names import TableName
    from mirror_engine.landing_zone.progress import Progress


@dataclass(frozen=True)
class Detection:
    """What the files of one table folder are, in detection order, leaves in path order (LZ-3.8).

    Attributes:
        ready: may be applied now, in this order.
        later: numbered files behind a gap (LZ-3.3).
        waits_for: path of the first missing file that has later ones behind it; None where nothing is blocked.
        next_expected: by partition, the name that comes next; empty for `LastUpdateTimeFileDetection`.
        partition_columns: that leaves must name, in order; empty without partitions.
        ignored: will never be applied as they lie there, by path.
        diagnostics: everything there is to say about the files.
    """

    ready: tuple[LandedFile, ...] = ()
    later: tuple[LandedFile, ...] = ()
    waits_for: str | None = None
    next_expected: Mapping[str, str] = field(default_factory=dict)
    partition_columns: tuple[str, ...] = ()
    ignored: tuple[LandedFile, ...] = ()
    diagnostics: tuple[Diagnostic, ...] = ()


@dataclass
class Draft:
    """A detection in the making."""

    table: TableName
    strict: bool
    ready: list[LandedFile] = field(default_factory=list)
    later: list[LandedFile] = field(default_factory=list)
    waits_for: str | None = None
    next_expected: dict[str, str] = field(default_factory=dict)
    ignored: list[LandedFile] = field(default_factory=list)
    diagnostics: list[Diagnostic] = field(default_factory=list)

    def say(self, code: str, path: str, **details: Any) -> None:  # noqa: ANN401 - what `diagnose` takes
        """Add a diagnostic about a path from the table folder; `""` for the folder itself."""
        place = f"{self.table.folder}/{path}" if path else self.table.folder
        self.diagnostics.append(diagnose(code, place, strict=self.strict, **details))

    def ignore(self, file: LandedFile, code: str, **details: Any) -> None:  # noqa: ANN401 - likewise
        """Leave a file aside, with the reason."""
        self.ignored.append(file)
        self.say(code, file.path, **details)

    def finished(self, partition_columns: tuple[str, ...]) -> Detection:
        """The detection, with nothing more to be found."""
        return Detection(
            ready=tuple(self.ready),
            later=tuple(self.later),
            waits_for=self.waits_for,
            next_expected=self.next_expected,
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
        """Read a file's name; None where it is a stranger's.

        Args:
            name: without folders.
            extension: the table's, as `Metadata` has it; any where it is None.
        """
        sequence = sequence_of(name)
        spelled = name[DIGITS + 1 :]
        if not sequence or (extension is not None and spelled.casefold() != extension):
            return None
        return cls(sequence, spelled)


def sequence_of(name: str) -> int:
    """A change file's number: exactly 20 ASCII digits, a dot and something after it (LZ-3.2); 0 for a stranger."""
    digits = name[:DIGITS]
    # isascii, for "²" and the digits of other scripts are digits to Python, too
    is_numbered = name[DIGITS : DIGITS + 1] == "." and len(name) > DIGITS + 1 and digits.isascii() and digits.isdigit()
    return int(digits) if is_numbered else 0


def number_of(path: str) -> int:
    """The same by a file's path, from whichever folder."""
    return sequence_of(path.rpartition("/")[2])


@dataclass
class _Applied:
    """What has been applied of one partition."""

    partition: str
    sequence: int = 0
    newest_path: str = ""
    modified_ns: int = -1


def detect(  # noqa: PLR0913 - the facts of one look, none of which belong together
    table: TableName,
    files: Sequence[LandedFile],
    metadata: Metadata,
    progress: Progress | None,
    first_file: Literal["1", "lowest"] = "1",
    *,
    strict: bool = False,
) -> Detection:
    """Sort out the files of one table folder; the order in which they are given does not count.

    Args:
        table: its name, for messages.
        files: as the poller saw them.
        metadata: in force.
        progress: what has been applied; None before anything was.
        first_file: where numbering begins (LZ-3.2).
        strict: whether severities are those of `strict`.
    """
    found = Draft(table, strict)
    by_path = sorted(files, key=attrgetter("path"))
    pending = [file for file in _unapplied(by_path, progress, found) if _is_named_right(file, metadata, found)]
    partitions, columns = files_by_partition(pending, metadata, progress, found)
    applied = _applied_by_partition(progress, metadata)
    if metadata.strategy is Strategy.SEQUENTIAL:
        lying = {file.path for file in by_path}
        for partition in sorted({*partitions, *applied}):
            done = applied.get(partition, _Applied(partition))
            _in_sequence(done, partitions.get(partition, ()), metadata.extension, first_file, found)
            if done.sequence and done.newest_path not in lying:
                _say_newest_is_gone(done, found)
    else:
        for partition, members in partitions.items():
            _in_order_of_time(members, applied.get(partition, _Applied(partition)), found)
    return found.finished(columns)


def _unapplied(by_path: Iterable[LandedFile], progress: Progress | None, found: Draft) -> Iterable[LandedFile]:
    """Files whose path was never applied in this generation (LZ-3.6); the others only if their content changed."""
    applied = progress.applied if progress else {}
    for file in by_path:
        known = applied.get(file.path)
        if known is None:
            yield file
        elif known.etag != file.etag:
            found.ignore(file, "ME026")


def _is_named_right(file: LandedFile, metadata: Metadata, found: Draft) -> bool:
    """Whether the name is a change file's under the table's strategy (LZ-3.2, LZ-3.5, LZ-3.9)."""
    name, expected = file.name, metadata.extension
    if name[0] in "._":
        found.ignored.append(file)
        found.diagnostics.append(hidden_name(f"{found.table.folder}/{file.path}", expected, strict=found.strict))
        return False
    folded = name.casefold()
    if not folded.endswith(f".{expected}"):
        found.ignore(file, "ME021", found=name.partition(".")[2] or "none", expected=expected)
        return False
    if metadata.strategy is Strategy.SEQUENTIAL:
        stem = folded[: -len(expected) - 1]
        is_number = stem.isascii() and stem.isdigit()
        if not is_number or len(stem) != DIGITS:
            found.ignore(file, "ME020", digits=len(stem) if is_number else "not only")
            return False
    return True


def hidden_name(path: str, expected: str, *, strict: bool = False) -> Diagnostic:
    """What to say of a name that begins with `_` or `.` in a table folder (LZ-1.6, LZ-3.9); `path` from the zone."""
    name = path.rpartition("/")[2]
    kind = name.lstrip("._").partition(".")[2] or "none"
    return diagnose("ME021", path, strict=strict, found=f"{kind} behind a leading `{name[0]}`", expected=expected)


def _applied_by_partition(progress: Progress | None, metadata: Metadata) -> dict[str, _Applied]:
    """How far each partition is, by numbers and by time, whichever strategy was in force (LZ-3.15)."""
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
    found: Draft,
) -> None:
    """Take numbered files one by one up to the first gap (LZ-3.2, LZ-3.3, LZ-3.4)."""
    waiting = _waiting_by_number(members, done.sequence, extension, found)
    numbers = list(waiting)
    expected = done.sequence + 1
    if first_file == "lowest" and not done.sequence and numbers:
        expected = numbers[0]
    ready = 0
    while ready < len(numbers) and numbers[ready] == expected:
        expected, ready = expected + 1, ready + 1
    files = list(waiting.values())
    found.ready += files[:ready]
    found.later += files[ready:]
    if expected > LAST:
        return
    name = str(ChangeFileName(expected, extension))
    found.next_expected[done.partition] = name
    if files[ready:]:
        found.waits_for = found.waits_for or f"{done.partition}/{name}".lstrip("/")
        found.say("ME019", done.partition, name=name, count=len(files) - ready)


def _waiting_by_number(
    members: Sequence[LandedFile], watermark: int, extension: str, found: Draft
) -> dict[int, LandedFile]:
    """The files above the watermark, by number, ascending; of two spellings of one number, the plain one counts."""
    waiting: dict[int, LandedFile] = {}
    for file in sorted(members, key=lambda file: (file.name[:DIGITS], file.name[DIGITS + 1 :] != extension)):
        sequence = sequence_of(file.name)
        if sequence <= watermark or sequence in waiting:
            found.ignore(file, "ME022", watermark=max(watermark, sequence))
        else:
            waiting[sequence] = file
    return waiting


def _say_newest_is_gone(done: _Applied, found: Draft) -> None:
    """Publishers may delete the newest applied file; say with which number to go on (LZ-8.4)."""
    following = found.next_expected.get(done.partition, "none")
    found.say("ME073", done.newest_path or done.partition, next=following)


def _in_order_of_time(members: Sequence[LandedFile], done: _Applied, found: Draft) -> None:
    """Take every file, oldest first, equal times by name (LZ-3.5, LZ-3.6)."""
    ordered = sorted(members, key=attrgetter("modified_ns"))  # by path before, so that equal times go by name
    found.ready += ordered
    for file in ordered:
        if file.modified_ns < done.modified_ns:
            found.say("ME029", file.path)
    for _, tied in groupby(ordered, key=attrgetter("modified_ns")):
        first, *others = tied
        if others:
            found.say("ME028", first.path, count=1 + len(others))
