"""Detection: which files of a table folder are change files, and their order (LZ-3)."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import cached_property
from itertools import groupby
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Literal

from mirror_engine.landing_zone.diagnostics import Diagnostic, diagnose
from mirror_engine.landing_zone.listing import partition_of
from mirror_engine.landing_zone.metadata import Metadata, Strategy
from mirror_engine.landing_zone.partitions import agreed_columns, columns_of, leaves
from mirror_engine.landing_zone.progress import FolderProgress, Mark
from mirror_engine.landing_zone.schema import folded
from mirror_engine.landing_zone.text import count

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from mirror_engine.landing_zone.listing import Entry
    from mirror_engine.landing_zone.names import TableName
    from mirror_engine.landing_zone.progress import AppliedFile

DIGITS = 20
_DATA_NAME = re.compile(
    r"(.*/)?([^._/][^/]*\.(parquet|parq|pqt?|csv|tsv|psv|txt|gz|gzip|zst|bz2|zip|deflate|snappy)"
    r"|[0-9]{20}(\.(avro|orc|jsonl?|ndjson|xlsx?|dat))?)\s*",
    re.IGNORECASE,
)
_COMPRESSED = re.compile(r"(.*)\.(gz|gzip|zst|zstd|snappy)", re.IGNORECASE)
LAST = 10**DIGITS - 1
_UNMARKED = Mark()
NESTED_TABLE, FOLDER_OF_TABLES = "table folder", "folder of tables"  # in a table folder (ME003)


def numbered_name(sequence: int, extension: str = "parquet") -> str:
    """The name of the change file with a number from 1 to `LAST` (LZ-3.2); raises `ValueError` for others."""
    if not 1 <= sequence <= LAST:
        raise ValueError(f"sequence is {sequence}, a change file's is 1 to {LAST}")
    return f"{sequence:0{DIGITS}d}.{extension}"


def sequence_of(name: str) -> int:
    """A change file's number: exactly 20 ASCII digits, a dot and something after it (LZ-3.2); 0 for other names."""
    digits = name[:DIGITS]
    # isascii, for "²" and the digits of other scripts are digits to Python, too
    is_numbered = name[DIGITS : DIGITS + 1] == "." and len(name) > DIGITS + 1 and digits.isascii() and digits.isdigit()
    return int(digits) if is_numbered else 0


def number_of(path: str) -> int:
    """The number in a file's path."""
    return sequence_of(path.rpartition("/")[2])


def marks_after(marks: Mapping[str, Mark], files: Mapping[str, AppliedFile], *, in_order: bool) -> dict[str, Mark]:
    """Return the marks of these files' partitions once they are applied; `in_order` where numbers order them."""
    after: dict[str, Mark] = {}
    for path, file in files.items():
        place = partition_of(path)
        mark = after.get(place) or marks.get(place, Mark())
        after[place] = mark.after(path, number_of(path), file.modified_ns, in_order=in_order)
    return after


def is_data(path: str) -> bool:
    """Whether a file is data by its name: not hidden, with an ending that change files have."""
    return _DATA_NAME.fullmatch(path) is not None


def never_arrives(found: Diagnostic) -> bool:
    """Whether a diagnostic means that landed data is never read, even if its table continues."""
    details = dict(found.details)
    match found.code:
        case "ME005" | "ME020" | "ME022" | "ME026" | "ME030" | "ME031":
            return True
        case "ME002" | "ME021" | "ME074":
            return is_data(found.path)
        case "ME003":
            return details.get("kind") in {NESTED_TABLE, FOLDER_OF_TABLES}
        case "ME008":
            return details.get("count") != "0"
        case "ME012":
            return details.get("meant") == "keyColumns"
        case _:
            return False


@dataclass(frozen=True)
class Detection:
    """The files of one table folder in reading order, leaves in path order (LZ-3.8)."""

    ready: tuple[Entry, ...] = ()
    later: tuple[Entry, ...] = ()  # numbered files after a gap (LZ-3.3)
    missing_file: str | None = None  # path of the first missing file before later ones; None if there is no gap
    # By partition, the name that comes next; empty for `LastUpdateTimeFileDetection`
    next_files: Mapping[str, str] = field(default_factory=dict)
    partition_columns: tuple[str, ...] = ()  # that leaves must name, in order; empty without partitions
    ignored: tuple[Entry, ...] = ()  # files that are never applied in their place, by path
    diagnostics: tuple[Diagnostic, ...] = ()  # of the files


def detect(  # noqa: PLR0913 - independent facts
    table: TableName,
    files: Sequence[Entry],
    metadata: Metadata,
    known: FolderProgress,
    first_file: Literal["1", "lowest"] = "1",
    *,
    strict: bool = False,
) -> Detection:
    """Detect the change files among all files of one table folder; their order in `files` does not count.

    `first_file` says where numbering begins (LZ-3.2).
    """
    by_path = sorted(files, key=attrgetter("path"))
    detector = _Detector(table, metadata, known, strict)
    partitions, columns = detector.by_partition(detector.change_files(by_path))
    applied = {place: mark for place, mark in known.marks.items() if bool(place) == metadata.partitioned}
    if metadata.strategy is Strategy.SEQUENTIAL:
        existing = {file.path for file in by_path}
        for partition in sorted({*partitions, *applied}):
            done = applied.get(partition, _UNMARKED)
            last = done.last_number
            detector.in_sequence(partition, partitions.get(partition, ()), last, first_file)
            newest = done.highest if done.number == last else ""
            if last and newest not in existing:  # publishers may delete it (LZ-8.4)
                following = detector.next_files.get(partition, "none")
                detector.add("ME073", newest or partition, next=following)
    else:
        for partition, members in partitions.items():
            detector.in_order_of_time(members, applied.get(partition, _UNMARKED).modified_ns)
    return Detection(
        ready=tuple(detector.ready),
        later=tuple(detector.later),
        missing_file=detector.missing_file,
        next_files=detector.next_files,
        partition_columns=columns,
        ignored=tuple(sorted(detector.ignored, key=attrgetter("path"))),
        diagnostics=tuple(detector.diagnostics),
    )


class _Detector:
    """A detection under construction."""

    def __init__(self, table: TableName, metadata: Metadata, known: FolderProgress, strict: bool) -> None:  # noqa: FBT001 - as in `detect`
        self._table = table
        self._metadata = metadata
        self._known = known
        self._strict = strict
        self._files: Sequence[Entry] = ()  # in the folder
        self.ready: list[Entry] = []
        self.later: list[Entry] = []
        self.missing_file: str | None = None
        self.next_files: dict[str, str] = {}
        self.ignored: list[Entry] = []
        self.diagnostics: list[Diagnostic] = []

    def add(self, code: str, path: str, **details: Any) -> None:  # noqa: ANN401 - what `diagnose` takes
        """Add a diagnostic about a path from the table folder; `""` for the folder itself."""
        place = f"{self._table.folder}/{path}" if path else self._table.folder
        self.diagnostics.append(diagnose(code, place, strict=self._strict, **details))

    def _ignore(self, file: Entry, code: str, **details: Any) -> None:  # noqa: ANN401 - what `diagnose` takes
        self.ignored.append(file)
        self.add(code, file.path, **details)

    @cached_property
    def _present(self) -> frozenset[str]:
        return frozenset(file.path for file in self._files)

    def change_files(self, by_path: Sequence[Entry]) -> list[Entry]:
        """Files with a change file's name whose path was never applied in this generation (LZ-3.6)."""
        self._files = by_path
        applied = self._known.applied
        pending = []
        for file in by_path:
            known = applied.get(file.path)
            if known and not known.is_same(file.etag, file.modified_ns):
                self._ignore(file, "ME026")
            elif not known and self._has_change_file_name(file):
                pending.append(file)
        return pending

    def _has_change_file_name(self, file: Entry) -> bool:
        """Whether the name is a change file's under the table's strategy (LZ-3.2, LZ-3.5, LZ-3.9)."""
        expected, lower = self._metadata.extension, file.name.casefold()
        if lower[0] in "._":
            self._ignore(file, "ME082", first=lower[0])
            return False
        if not lower.endswith(f".{expected}"):
            found = file.name.partition(".")[2]
            self._ignore(file, "ME021", found=f"extension `{found}`" if found else "no extension", **self._meant(file))
            return False
        stem = lower[: -len(expected) - 1]
        is_number = stem.isascii() and stem.isdigit()
        if self._metadata.strategy is Strategy.SEQUENTIAL and not (is_number and len(stem) == DIGITS):
            self._ignore(file, "ME020", extension=expected, **self._misnumbered(file, stem))
            return False
        return True

    def _meant(self, file: Entry) -> dict[str, str]:
        """The extension that a file should have, and what to do (ME021)."""
        expected = self._metadata.extension
        packed = _COMPRESSED.fullmatch(file.name)
        help = "rename it when it is complete, or set `FileFormat` to its format"
        if packed and packed[1].casefold().endswith(f".{expected}"):
            is_text = self._metadata.is_text and packed[2].casefold() != "snappy"  # which is not read (LZ-6.2)
            help = f"{'rename' if is_text else 'decompress'} it to `{packed[1]}`"
            help += "; compression is detected by content" if is_text else ""
        return {"expected": expected, "help": help}

    def _misnumbered(self, file: Entry, stem: str) -> dict[str, str]:
        """The fault in a sequential name, and the probable intended name (ME020)."""
        digits, _, more = stem.partition(".")
        is_number = digits.isascii() and digits.isdigit() and int(digits or 0) <= LAST
        found = (
            f"`.{more}` after the digits"
            if more and len(digits) == DIGITS and is_number
            else f"`{file.name[: len(stem)]}`"
        )
        found = count(len(stem), "digit") if not more and is_number else found
        help = f"rename it to 20 digits and `.{self._metadata.extension}`, numbered from 1 without gaps"
        if is_number and int(digits):
            name = numbered_name(int(digits), self._metadata.extension)
            is_late = int(digits) <= self._known.marks.get(file.partition, Mark()).last_number
            is_taken = is_late or f"{file.partition}/{name}".lstrip("/") in self._present
            help = "rename it to the next free number, with 20 digits" if is_taken else f"rename it to `{name}`"
        return {"found": found, "help": help}

    def by_partition(self, pending: Iterable[Entry]) -> tuple[dict[str, list[Entry]], tuple[str, ...]]:
        """The files by the partition they count for, by path, and the partition columns (LZ-3.7, LZ-3.8)."""
        folders: dict[str, list[Entry]] = {}
        for file in pending:
            folders.setdefault(file.partition, []).append(file)
        if not self._metadata.partitioned:
            top = folders.pop("", [])
            for folder in sorted(folders):
                self.ignored += folders[folder]
                self.add("ME030", folder)
            return {"": top}, ()
        ends = leaves(folders)
        columns = agreed_columns(ends, self._known.marks)
        counting = {leaf: folders[leaf] for leaf in ends if columns and _folded(columns_of(leaf)) == _folded(columns)}
        expected = f" of `{'/'.join(columns)}`" if columns else ""
        for folder in sorted(folders.keys() - counting.keys()):  # leaves of other columns, and files outside a leaf
            self.ignored += folders[folder]
            for path in [folder] if folder in ends else [file.path for file in folders[folder]]:
                self.add("ME031", path, expected=expected)
        keys = _folded(self._metadata.key_columns) or ()
        for column in columns if keys else ():
            if folded(column) not in keys:
                self.add("ME033", "", column=column)
        return counting, columns

    def in_sequence(
        self, partition: str, members: Sequence[Entry], last: int, first_file: Literal["1", "lowest"]
    ) -> None:
        """Take numbered files after the last applied one, up to the first gap (LZ-3.2, LZ-3.3, LZ-3.4)."""
        pending = self._pending_by_number(members, last) if members else {}
        expected = min(pending) if pending and first_file == "lowest" and not last else last + 1
        while file := pending.pop(expected, None):
            self.ready.append(file)
            expected += 1
        self.later += pending.values()
        if expected > LAST:
            return
        name = numbered_name(expected, self._metadata.extension)
        self.next_files[partition] = name
        if pending:
            self.missing_file = self.missing_file or f"{partition}/{name}".lstrip("/")
            self.add("ME019", partition, name=name, count=len(pending))

    def _pending_by_number(self, members: Sequence[Entry], watermark: int) -> dict[int, Entry]:
        """Files above the watermark by number, ascending; of two spellings of one number, the plain one counts."""
        extension = self._metadata.extension
        pending: dict[int, Entry] = {}
        for file in sorted(members, key=lambda file: (file.name[:DIGITS], file.name[DIGITS + 1 :] != extension)):
            sequence = sequence_of(file.name)
            if sequence <= watermark or sequence in pending:
                self._ignore(file, "ME022", watermark=max(watermark, sequence))
            else:
                pending[sequence] = file
        return pending

    def in_order_of_time(self, members: Sequence[Entry], last_ns: int) -> None:
        """Take every file, oldest first, equal times by name (LZ-3.5); report those older than `last_ns` (LZ-3.6)."""
        ordered = sorted(members, key=attrgetter("modified_ns"))  # by path before, so that equal times go by name
        self.ready += ordered
        for file in ordered:
            if file.modified_ns < last_ns:
                self.add("ME029", file.path)
        for _, tied in groupby(ordered, key=attrgetter("modified_ns")):
            first, *others = tied
            if others:
                self.add("ME028", first.path, count=1 + len(others))


def _folded(names: Iterable[str] | None) -> tuple[str, ...] | None:
    return None if names is None else tuple(map(folded, names))
