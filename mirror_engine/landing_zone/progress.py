"""Progress of a table: a small head, and what was applied. The ledger stores both; each Delta commit adds its part."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, is_dataclass, replace
from functools import cache, lru_cache, partial
from types import UnionType
from typing import Any, get_args, get_origin, get_type_hints

from mirror_engine.landing_zone.diagnostics import Diagnostic
from mirror_engine.landing_zone.schema import Column  # noqa: TC001 - `typed` reads the fields' types

_YEAR_10000 = 253_402_300_800.0  # in seconds since 1970
_LATER = {"columns": "", "forgotten_until": -1}  # fields that values from earlier versions of this engine lack


@dataclass(frozen=True, slots=True)
class AppliedFile:
    """One change file that is in the table."""

    etag: str  # of the content that was applied; `""` where only Fabric's cleanup tells that it was
    digest: str  # of its bytes, hex (ME064)
    version: int  # the Delta version that applied it; -1 for none (LZ-5.13)
    rows: int  # how many rows it held
    modified_ns: int  # its LastModified when applied (LZ-3.5)
    applied_by: str = ""  # `passthrough`, `append` or `merge`; `""` if not known
    passthrough_skipped_because: str = ""  # why its rows were rewritten; `""` if they were not, or not known

    def is_same(self, etag: str, modified_ns: int) -> bool:
        """Whether a file at its path is the applied one; without an own etag, one not modified after the commit."""
        return self.etag == etag if self.etag else modified_ns <= self.modified_ns


@dataclass(frozen=True, slots=True)
class Mark:
    """What was applied in one partition, or directly in the table folder.

    Attributes:
        watermark: the highest number applied in order (LZ-3.4); 0 where time has always ordered the files.
        number: the highest number of an applied file, under any strategy (LZ-3.15).
        highest: that file, by path from the table folder; `""` if none had a number.
        modified_ns: the latest LastModified of an applied file; -1 if it is not known.
        latest: that file, by path.
    """

    watermark: int = 0
    number: int = 0
    highest: str = ""
    modified_ns: int = -1
    latest: str = ""

    def after(self, path: str, number: int, modified_ns: int, *, in_order: bool) -> Mark:
        """Return the mark once a file is applied; `in_order` where numbers order the files."""
        changed = self
        if (modified_ns, path) >= (self.modified_ns, self.latest):
            changed = replace(changed, modified_ns=modified_ns, latest=path)
        if number and number >= self.number:
            changed = replace(changed, number=number, highest=path)
        return replace(changed, watermark=max(number, self.watermark)) if in_order else changed

    @property
    def last_number(self) -> int:
        """The number after which the next one is expected."""
        return max(self.watermark, self.number)


@dataclass(frozen=True)
class FolderProgress:
    """Known facts about the files of a listing. Its size does not grow with applied files that are gone.

    Attributes:
        marks: what was applied, by partition (`""` without one); of every partition.
        applied: those of the listed files that were applied, by path.
        pending: etags of files that were seen before and not applied, by path (ME025).
    """

    marks: Mapping[str, Mark] = field(default_factory=dict)
    applied: Mapping[str, AppliedFile] = field(default_factory=dict)
    pending: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Segment:
    """A file in the Delta log's folder that says what older commits have applied (LZ-4.18).

    It covers the commits after the segment before it, up to its own version.
    """

    until: int  # the Delta version
    count: int  # of its files and marks
    written_at: float  # seconds since 1970
    name: str
    # The Delta version up to which this one names only files that were still in the landing zone; -1 for none
    forgotten_until: int = -1


@dataclass(frozen=True)
class Applied:
    """What some commits have applied: files by path, and the marks of their partitions after them."""

    files: Mapping[str, AppliedFile] = field(default_factory=dict)
    marks: Mapping[str, Mark] = field(default_factory=dict)
    segments: tuple[Segment, ...] = ()  # in a segment: those before it

    def with_each(self, **facts: Any) -> Applied:  # noqa: ANN401 - fields of `AppliedFile`
        """Return a copy in which each file has these fields."""
        return replace(self, files={path: replace(file, **facts) for path, file in self.files.items()})

    def to_json(self) -> dict[str, Any]:
        """Return the fields as plain values."""
        return {
            "files": {path: _plain(file) for path, file in self.files.items()},
            "marks": {partition: _plain(mark) for partition, mark in self.marks.items()},
            "segments": [_plain(segment) for segment in self.segments],
        }


@dataclass(frozen=True)
class Rejection:
    """Why a table is halted."""

    diagnostic: Diagnostic
    path: str  # the rejected file, from the table folder; `_metadata.json` for metadata; `""` for the folder itself
    identity: str  # of the file when it was rejected (LZ-3.11)
    etag: str  # the same


@dataclass(frozen=True)
class Progress:
    """Progress of one generation of a table: a head of constant size, without the files that were applied.

    Attributes:
        generation: a random id for one life of the table folder; names the Delta application id.
        identity: the table folder's creation stamp in this generation.
        batch: how many batches this generation has committed; the Delta transaction version.
        delta_version: of the last commit; -1 before the first.
        key_columns: those in force at the last commit; None before the first.
        declared_columns: SchemaDefinition in force at the first commit (LZ-6.11).
        naive_columns, utc_columns: timestamp columns that occurred without and with a time zone (ME051).
        markers_seen: whether a file with markers has been applied (ME042).
        files_processed, rows_processed, bytes_processed: of the whole generation (LZ-9.2, LZ-9.3).
        external_change_version: the newest Delta version in which another program changed rows or columns; else None.
        last_commit_at: seconds since 1970; 0 before the first commit.
        configured_at: seconds since 1970 when usable metadata was first seen (LZ-7.1); 0 before.
        missing_since: seconds since 1970 when its folder was first missing; None while it exists (LZ-7.4).
        diagnostics: those of the applied files of this generation, with their counts; a few of each code.
        segments: what was applied before the newest commits, oldest first, in a commit the last one alone; None if the
            next commit says all anew.
        columns: the digest of the table's schema at the last commit; `""` if it is not known.
    """

    generation: str
    identity: str
    batch: int = 0
    delta_version: int = -1
    key_columns: tuple[str, ...] | None = None
    declared_columns: tuple[Column, ...] = ()
    naive_columns: frozenset[str] = frozenset()
    utc_columns: frozenset[str] = frozenset()
    markers_seen: bool = False
    files_processed: int = 0
    rows_processed: int = 0
    bytes_processed: int = 0
    external_change_version: int | None = None
    last_commit_at: float = 0.0
    configured_at: float = 0.0
    missing_since: float | None = None
    rejection: Rejection | None = None
    diagnostics: Mapping[Diagnostic, int] = field(default_factory=dict)
    segments: tuple[Segment, ...] | None = ()
    columns: str = ""

    @property
    def has_table(self) -> bool:
        """Whether anything has been committed."""
        return self.delta_version >= 0

    @property
    def covered(self) -> int:
        """The last Delta version that its segments cover; -1 without a segment."""
        return self.segments[-1].until if self.segments else -1

    @property
    def in_commit(self) -> Progress:
        """The part that commits record; facts about the folder are only in the ledger."""
        return replace(self, rejection=None, diagnostics={}, segments=(self.segments or ())[-1:])

    def to_json(self) -> dict[str, Any]:
        """Return the fields as plain values."""
        return {
            **vars(self),
            "declared_columns": [_plain(column) for column in self.declared_columns],
            "naive_columns": sorted(self.naive_columns),
            "utc_columns": sorted(self.utc_columns),
            "rejection": self.rejection and asdict(self.rejection),
            "diagnostics": [[_of_diagnostic(found), count] for found, count in self.diagnostics.items()],
            "segments": self.segments and [_plain(segment) for segment in self.segments],
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Progress:
        """Convert back from `to_json`.

        Raises:
            ValueError: it is no progress.
        """
        try:
            progress: Progress = typed(cls, {**value, "diagnostics": {}})
            diagnostics = {typed(Diagnostic, found): typed(int, count) for found, count in value["diagnostics"]}
            for diagnostic in (*diagnostics, *([progress.rejection.diagnostic] if progress.rejection else ())):
                _ = diagnostic.definition  # fail now if its code is unknown, not when it is printed
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError("no progress") from error
        return replace(progress, diagnostics=diagnostics)


_of_diagnostic = lru_cache(1024)(asdict)  # the same few are in each commit of a table


def _plain(value: AppliedFile | Mark | Segment | Column) -> dict[str, Any]:
    """Fields of a flat dataclass as a dict; `asdict` copies each value and takes ten times as long."""
    return {name: getattr(value, name) for name in value.__dataclass_fields__}


def typed(kind: Any, value: Any) -> Any:  # noqa: ANN401 - any type, and JSON
    """A value of this type from plain values, which may come from a damaged file.

    Raises:
        TypeError, AttributeError, ValueError, KeyError: it has another type, or lacks a field.
    """
    return _reader(kind)(value)


@cache
def _reader(kind: Any) -> Callable[[Any], Any]:  # noqa: ANN401 - any type
    """What `typed` does for a type."""
    outer, inner = get_origin(kind), get_args(kind)
    if isinstance(kind, type) and is_dataclass(kind):
        readers = {name: _reader(field_type) for name, field_type in get_type_hints(kind).items()}
        later = {name: default for name, default in _LATER.items() if name in readers}

        def of_fields(value: Any) -> Any:  # noqa: ANN401 - the same
            given = {**later, **value} if later else value
            return kind(**{name: read(given[name]) for name, read in readers.items()})

        return of_fields
    if outer is UnionType:
        read = _reader(inner[0])
        return lambda value: None if value is None else read(value)
    if outer is Mapping:
        name_of, read = map(_reader, inner)
        return lambda value: {name_of(name): read(item) for name, item in value.items()}
    if outer is not None:  # a tuple or set
        of_items = [_reader(each) for each in inner if each is not Ellipsis]
        has_any_length = outer is not tuple or inner[-1] is Ellipsis
        return lambda value: outer(_items(of_items * len(value) if has_any_length else of_items, value))
    return partial(_single, kind)


def _items(readers: Sequence[Callable[[Any], Any]], values: Any) -> Iterator[Any]:  # noqa: ANN401 - the same
    if not isinstance(values, list | tuple):
        raise TypeError(values)
    return (read(value) for read, value in zip(readers, values, strict=True))


def _single(kind: Any, value: Any) -> Any:  # noqa: ANN401 - the same
    if type(value) is not kind and not (kind is float and type(value) is int):
        raise TypeError(kind)
    if kind is float and not 0 <= value < _YEAR_10000:  # each of them is a time
        raise ValueError(value)
    return value
