"""Progress of a table: stored by the ledger, and in every Delta commit so that the ledger can be rebuilt."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, is_dataclass, replace
from functools import cache
from types import UnionType
from typing import Any, get_args, get_origin, get_type_hints

from mirror_engine.landing_zone.diagnostics import Diagnostic
from mirror_engine.landing_zone.schema import Column  # noqa: TC001 - `_typed` reads the fields' types

_YEAR_10000 = 253_402_300_800.0  # in seconds since 1970


@dataclass(frozen=True)
class AppliedFile:
    """One change file that is in the table."""

    etag: str  # of the content that was applied; `""` if only a rebuilt ledger knows the file
    digest: str  # of its bytes, hex (ME064)
    version: int  # the Delta version that applied it; -1 for none (LZ-5.13)
    rows: int  # how many rows it held
    modified_ns: int  # its LastModified when applied (LZ-3.5); without an etag the time of its commit, which is later
    applied_by: str = ""  # `passthrough`, `append` or `merge`; `""` if not known
    passthrough_skipped_because: str = ""  # why its rows were rewritten; `""` if they were not, or not known

    def is_same(self, etag: str, modified_ns: int) -> bool:
        """Whether a file at its path is the applied one; without an own etag, one not modified after the commit."""
        return self.etag == etag if self.etag else modified_ns <= self.modified_ns


@dataclass(frozen=True)
class Rejection:
    """Why a table is halted."""

    diagnostic: Diagnostic
    path: str  # the rejected file, from the table folder; `_metadata.json` for metadata; `""` for the folder itself
    identity: str  # of the file when it was rejected (LZ-3.11)
    etag: str  # the same


@dataclass(frozen=True)
class Progress:
    """Progress of one generation of a table.

    Attributes:
        generation: a random id for one life of the table folder; names the Delta application id.
        identity: the table folder's creation stamp in this generation.
        batch: how many batches this generation has committed; the Delta transaction version.
        delta_version: of the last commit; -1 before the first.
        watermarks: per Hive folder (`""` without partitions) the highest sequence applied.
        applied: applied files by path from the table folder.
        key_columns: those in force at the last commit; None before the first.
        declared_columns: SchemaDefinition in force at the first commit (LZ-6.11).
        naive_columns, utc_columns: timestamp columns that occurred without and with a time zone (ME051).
        markers_seen: whether a file with markers has been applied (ME042).
        rows_processed, bytes_processed: of the whole generation (LZ-9.2, LZ-9.3).
        external_change_version: the newest Delta version in which another program changed rows or columns; else None.
        last_commit_at: seconds since 1970; 0 before the first commit.
        configured_at: seconds since 1970 when usable metadata was first seen (LZ-7.1); 0 before.
        missing_since: seconds since 1970 when its folder was first missing; None while it exists (LZ-7.4).
        pending_etags: etags of files seen but not applied, by path (ME025).
        diagnostics: those of the applied files of this generation, with their counts.
    """

    generation: str
    identity: str
    batch: int = 0
    delta_version: int = -1
    watermarks: Mapping[str, int] = field(default_factory=dict)
    applied: Mapping[str, AppliedFile] = field(default_factory=dict)
    key_columns: tuple[str, ...] | None = None
    declared_columns: tuple[Column, ...] = ()
    naive_columns: frozenset[str] = frozenset()
    utc_columns: frozenset[str] = frozenset()
    markers_seen: bool = False
    rows_processed: int = 0
    bytes_processed: int = 0
    external_change_version: int | None = None
    last_commit_at: float = 0.0
    configured_at: float = 0.0
    missing_since: float | None = None
    rejection: Rejection | None = None
    pending_etags: Mapping[str, str] = field(default_factory=dict)
    diagnostics: Mapping[Diagnostic, int] = field(default_factory=dict)

    @property
    def has_table(self) -> bool:
        """Whether anything has been committed."""
        return self.delta_version >= 0

    def to_json(self) -> dict[str, Any]:
        """The same as plain values."""
        return {
            **asdict(replace(self, diagnostics={})),
            "naive_columns": sorted(self.naive_columns),
            "utc_columns": sorted(self.utc_columns),
            "diagnostics": [[asdict(diagnostic), count] for diagnostic, count in self.diagnostics.items()],
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Progress:
        """Back from `to_json`.

        Raises:
            ValueError: it is no progress.
        """
        try:
            progress: Progress = _typed(cls, {**value, "diagnostics": {}})
            diagnostics = {_typed(Diagnostic, found): _typed(int, count) for found, count in value["diagnostics"]}
            for diagnostic in (*diagnostics, *([progress.rejection.diagnostic] if progress.rejection else ())):
                _ = diagnostic.message, diagnostic.help  # fail now if a detail is missing, not when it is printed
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError("no progress") from error
        return replace(progress, diagnostics=diagnostics)


_types_of = cache(get_type_hints)


def _typed(kind: Any, value: Any) -> Any:  # noqa: ANN401 - any type, and JSON
    """A value of this type from plain values, which may come from a damaged file.

    Raises:
        TypeError, AttributeError, ValueError, KeyError: it has another type, or lacks a field.
    """
    outer, inner = get_origin(kind), get_args(kind)
    if isinstance(kind, type) and is_dataclass(kind):
        return kind(**{name: _typed(field_type, value[name]) for name, field_type in _types_of(kind).items()})
    if outer is UnionType:
        return None if value is None else _typed(inner[0], value)
    if outer is Mapping:
        return {_typed(inner[0], name): _typed(inner[1], item) for name, item in value.items()}
    if outer is not None:  # a tuple or set
        if not isinstance(value, list | tuple):
            raise TypeError(kind)
        types = inner if outer is tuple and inner[-1] is not Ellipsis else inner[:1] * len(value)
        return outer(_typed(*pair) for pair in zip(types, value, strict=True))
    if type(value) is not kind and not (kind is float and type(value) is int):
        raise TypeError(kind)
    if kind is float and not 0 <= value < _YEAR_10000:  # each of them is a time
        raise ValueError(value)
    return value
