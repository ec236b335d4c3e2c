"""Progress of a table: stored by the ledger, and in every Delta commit so that the ledger can be rebuilt."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from mirror_engine.landing_zone.diagnostics import Diagnostic
from mirror_engine.landing_zone.schema import Column

if TYPE_CHECKING:
    from collections.abc import Mapping

_YEAR_10000 = 253_402_300_800.0  # in seconds since 1970


@dataclass(frozen=True)
class AppliedFile:
    """One change file that is in the table.

    Attributes:
        etag: of the content that was applied.
        digest: of its bytes, hex (ME064).
        version: the Delta version that applied it; -1 if only a rebuilt ledger knows the file.
        rows: how many rows it held.
        modified_ns: its LastModified when applied (LZ-3.5).
        applied_by: `passthrough`, `append` or `merge`; `""` if not known.
        passthrough_skipped_because: why its rows were rewritten; `""` if they were not, or not known.
    """

    etag: str
    digest: str
    version: int
    rows: int
    modified_ns: int
    applied_by: str = ""
    passthrough_skipped_because: str = ""

    @property
    def is_valid(self) -> bool:
        """Whether the fields have their types: they may come from a damaged file."""
        texts = (self.etag, self.digest, self.applied_by, self.passthrough_skipped_because)
        return all(isinstance(text, str) for text in texts) and all(
            type(number) is int for number in (self.version, self.rows, self.modified_ns)
        )


@dataclass(frozen=True)
class Rejection:
    """Why a table is halted.

    Attributes:
        diagnostic: the error.
        path: the rejected file, from the table folder; `_metadata.json` for metadata; `""` for the folder itself.
        identity: of the file when it was rejected (LZ-3.11).
        etag: the same.
    """

    diagnostic: Diagnostic
    path: str
    identity: str
    etag: str

    def to_json(self) -> dict[str, Any]:
        """The same as plain values."""
        return {**asdict(self), "diagnostic": _diagnostic_to_json(self.diagnostic)}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Rejection:
        """Back from `to_json`."""
        return cls(**{**value, "diagnostic": _diagnostic_from_json(value["diagnostic"])})


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
        external_change_version: the newest Delta version in which another program changed rows or columns; -1 for none.
        last_commit_at: seconds since 1970; 0 before the first commit.
        configured_at: seconds since 1970 when usable metadata was first seen (LZ-7.1); 0 before.
        missing_since: seconds since 1970 when its folder was first missing; 0 while it exists (LZ-7.4).
        rejection: why the table is halted; None if it is not.
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
    external_change_version: int = -1
    last_commit_at: float = 0.0
    configured_at: float = 0.0
    missing_since: float = 0.0
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
            **{name: getattr(self, name) for name in _PLAIN},
            "watermarks": dict(self.watermarks),
            "applied": {path: asdict(file) for path, file in self.applied.items()},
            "key_columns": None if self.key_columns is None else list(self.key_columns),
            "declared_columns": [asdict(column) for column in self.declared_columns],
            "naive_columns": sorted(self.naive_columns),
            "utc_columns": sorted(self.utc_columns),
            "rejection": self.rejection and self.rejection.to_json(),
            "pending_etags": dict(self.pending_etags),
            "diagnostics": [[_diagnostic_to_json(found), count] for found, count in self.diagnostics.items()],
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Progress:
        """Back from `to_json`.

        Raises:
            ValueError: it is no progress.
        """
        try:
            rejection = value["rejection"]
            progress = cls(
                **{name: value[name] for name in _PLAIN},
                watermarks=dict(value["watermarks"]),
                applied={path: AppliedFile(**file) for path, file in value["applied"].items()},
                key_columns=None if value["key_columns"] is None else tuple(value["key_columns"]),
                declared_columns=tuple(Column(**column) for column in value["declared_columns"]),
                naive_columns=frozenset(value["naive_columns"]),
                utc_columns=frozenset(value["utc_columns"]),
                rejection=None if rejection is None else Rejection.from_json(rejection),
                pending_etags=dict(value["pending_etags"]),
                diagnostics={_diagnostic_from_json(found): count for found, count in value["diagnostics"]},
            )
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError("no progress") from error
        _check(progress)
        return progress


_COUNTS = ("batch", "delta_version", "external_change_version", "rows_processed", "bytes_processed")
_TIMES = ("last_commit_at", "configured_at", "missing_since")
_PLAIN = ("generation", "identity", "markers_seen", *_COUNTS, *_TIMES)


def _check(progress: Progress) -> None:
    """Check the types of values that may come from a damaged file.

    Raises:
        ValueError: it is no progress.
    """
    columns, rejection = progress.declared_columns, progress.rejection
    texts = [
        *(
            progress.generation,
            progress.identity,
            *progress.watermarks,
            *progress.applied,
            *(progress.key_columns or ()),
        ),
        *(*progress.naive_columns, *progress.utc_columns, *progress.pending_etags, *progress.pending_etags.values()),
        *(text for column in columns for text in (column.name, column.type)),
        *((rejection.path, rejection.identity, rejection.etag) if rejection else ()),
    ]
    counts = [getattr(progress, name) for name in _COUNTS]
    counts += [*progress.watermarks.values(), *progress.diagnostics.values()]
    times = [getattr(progress, name) for name in _TIMES]
    is_valid = (
        all(isinstance(text, str) for text in texts)
        and all(type(number) is int for number in counts)
        and all(isinstance(time, float | int) and 0 <= time < _YEAR_10000 for time in times)
        and all(isinstance(flag, bool) for flag in (progress.markers_seen, *(column.nullable for column in columns)))
        and all(file.is_valid for file in progress.applied.values())
    )
    if not is_valid:
        raise ValueError("no progress")


def _diagnostic_to_json(diagnostic: Diagnostic) -> dict[str, Any]:
    """Without what its definition says."""
    return {**asdict(diagnostic), "details": dict(diagnostic.details)}


def _diagnostic_from_json(value: Mapping[str, Any]) -> Diagnostic:
    details = tuple((str(name), str(detail)) for name, detail in value["details"].items())
    diagnostic = Diagnostic(value["code"], value["path"], value["row"], value["column"], details, value["strict"])
    _ = diagnostic.message, diagnostic.help  # fail now if a detail is missing, not when it is printed
    row, column = diagnostic.row, diagnostic.column
    if not (isinstance(row, int | None) and isinstance(column, str | None) and isinstance(diagnostic.strict, bool)):
        raise TypeError(diagnostic.code)
    return diagnostic
