"""How far a table is: what the ledger stores, and what every Delta commit carries so that it can be rebuilt."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from mirror_engine.landing_zone.diagnostics import Diagnostic
from mirror_engine.landing_zone.schema import Column

if TYPE_CHECKING:
    from collections.abc import Mapping

_END_OF_TIME = 253_402_300_799.0  # of year 9999, in seconds since 1970


@dataclass(frozen=True)
class AppliedFile:
    """One change file that is in the table.

    Attributes:
        etag: of the content that was applied.
        digest: of its bytes, hex (ME064).
        version: the Delta version it went into; -1 where only the ledger's rebuilding knew of it.
        rows: how many rows it held.
        modified_ns: its LastModified when applied (LZ-3.5).
        way: how it got there: `staged`, `appended`, `merged`; `""` where that is not known.
        reason: why it was not staged; `""` where it was, or where that is not known.
    """

    etag: str
    digest: str
    version: int
    rows: int
    modified_ns: int
    way: str = ""
    reason: str = ""

    @property
    def is_plain(self) -> bool:
        """Whether the fields are what they are told to be: they may come from a damaged file."""
        texts, counts = (self.etag, self.digest, self.way, self.reason), (self.version, self.rows, self.modified_ns)
        return all(isinstance(text, str) for text in texts) and all(type(number) is int for number in counts)


@dataclass(frozen=True)
class Rejection:
    """Why a table reads no further.

    Attributes:
        diagnostic: the error.
        path: the refused file, from the table folder; `_metadata.json` for metadata; `""` for the folder itself.
        identity: of the refused file when it was refused (LZ-3.11).
        etag: likewise.
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
    """How far one generation of a table is.

    Attributes:
        generation: one life of the table folder, a random id; names the Delta application id.
        identity: the table folder's creation stamp in this generation.
        batch: how many batches this generation has committed; the Delta transaction version.
        delta_version: of the last commit; -1 before the first.
        watermarks: per Hive folder (`""` without partitions) the highest sequence applied.
        applied: applied files by path from the table folder.
        key_columns: those in force at the last commit; None before the first.
        declared_columns: SchemaDefinition in force at the first commit (LZ-6.11).
        naive_columns, utc_columns: timestamp columns that came so (ME051).
        markers_seen: whether a file with markers has been applied (ME042).
        rows_processed, bytes_processed: of the whole generation (LZ-9.2, LZ-9.3).
        foreign_version: the newest Delta version in which another program changed rows or columns; -1 for none.
        synced_at: seconds since 1970 of the last commit; 0 before the first.
        armed_at: seconds since 1970 when usable metadata was first seen (LZ-7.1).
        gone_at: seconds since 1970 when its folder was first missed; 0 while it is there (LZ-7.4).
        latch: the refusal in force.
        waiting: etags of files seen but not applied, by path (ME025).
        diagnostics: what the applied files of this generation raised, with how often.
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
    foreign_version: int = -1
    synced_at: float = 0.0
    armed_at: float = 0.0
    gone_at: float = 0.0
    latch: Rejection | None = None
    waiting: Mapping[str, str] = field(default_factory=dict)
    diagnostics: Mapping[Diagnostic, int] = field(default_factory=dict)

    @property
    def has_table(self) -> bool:
        """Whether anything has been committed."""
        return self.delta_version >= 0

    def to_json(self) -> dict[str, Any]:
        """The same as plain values; what a younger engine adds, an older one passes over."""
        return {
            **{name: getattr(self, name) for name in _PLAIN},
            "watermarks": dict(self.watermarks),
            "applied": {path: asdict(file) for path, file in self.applied.items()},
            "key_columns": None if self.key_columns is None else list(self.key_columns),
            "declared_columns": [asdict(column) for column in self.declared_columns],
            "naive_columns": sorted(self.naive_columns),
            "utc_columns": sorted(self.utc_columns),
            "latch": self.latch and self.latch.to_json(),
            "waiting": dict(self.waiting),
            "diagnostics": [[_diagnostic_to_json(found), count] for found, count in self.diagnostics.items()],
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Progress:
        """Back from `to_json`.

        Raises:
            ValueError: it is no progress.
        """
        try:
            made = cls(
                **{name: value[name] for name in _PLAIN if name in value},
                watermarks=dict(value["watermarks"]),
                applied={path: AppliedFile(**file) for path, file in value["applied"].items()},
                key_columns=None if value["key_columns"] is None else tuple(value["key_columns"]),
                declared_columns=tuple(Column(**column) for column in value["declared_columns"]),
                naive_columns=frozenset(value["naive_columns"]),
                utc_columns=frozenset(value["utc_columns"]),
                latch=None if value["latch"] is None else Rejection.from_json(value["latch"]),
                waiting=dict(value["waiting"]),
                diagnostics={_diagnostic_from_json(found): count for found, count in value["diagnostics"]},
            )
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError("no progress") from error
        _check(made)
        return made


_PLAIN = (
    "generation",
    "identity",
    "batch",
    "delta_version",
    "markers_seen",
    "rows_processed",
    "bytes_processed",
    "foreign_version",
    "synced_at",
    "armed_at",
    "gone_at",
)


def _check(found: Progress) -> None:
    """Hold what was read to the types that it is told to have: it comes from a file that may be damaged.

    Raises:
        ValueError: it is no progress.
    """
    columns = found.declared_columns
    texts = [
        *(found.generation, found.identity, *found.watermarks, *found.applied, *(found.key_columns or ())),
        *(*found.naive_columns, *found.utc_columns, *found.waiting, *found.waiting.values()),
        *(text for column in columns for text in (column.name, column.type)),
        *((found.latch.path, found.latch.identity, found.latch.etag) if found.latch else ()),
    ]
    counts = [found.batch, found.delta_version, found.foreign_version, found.rows_processed, found.bytes_processed]
    counts += [*found.watermarks.values(), *found.diagnostics.values()]
    times = [found.synced_at, found.armed_at, found.gone_at]
    is_good = (
        all(isinstance(text, str) for text in texts)
        and all(type(number) is int for number in counts)
        and all(isinstance(time, float | int) and 0 <= time < _END_OF_TIME for time in times)
        and all(isinstance(flag, bool) for flag in (found.markers_seen, *(column.nullable for column in columns)))
        and all(file.is_plain for file in found.applied.values())
    )
    if not is_good:
        raise ValueError("no progress")


def _diagnostic_to_json(diagnostic: Diagnostic) -> dict[str, Any]:
    """Only what cannot be looked up in the register."""
    return {**asdict(diagnostic), "details": dict(diagnostic.details)}


def _diagnostic_from_json(value: Mapping[str, Any]) -> Diagnostic:
    details = tuple((str(name), str(detail)) for name, detail in value["details"].items())
    made = Diagnostic(value["code"], value["path"], value["row"], value["column"], details, value["strict"])
    _ = made.message, made.help  # what is missing is missed here, and not when it is to be told
    if not (isinstance(made.row, int | None) and isinstance(made.column, str | None) and isinstance(made.strict, bool)):
        raise TypeError(made.code)
    return made
