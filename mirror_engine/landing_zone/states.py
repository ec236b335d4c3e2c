"""States of a table: a closed set, each with its own facts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from mirror_engine.landing_zone.diagnostics import Severity

if TYPE_CHECKING:
    from mirror_engine.landing_zone.diagnostics import Diagnostic


@dataclass(frozen=True)
class Unconfigured:
    """A folder without usable metadata, not a table yet. `diagnostic` says what is missing (ME008, ME010 …)."""

    code: ClassVar[str] = "unconfigured"
    diagnostic: Diagnostic
    files: int


@dataclass(frozen=True)
class Empty:
    """Metadata without data (LZ-7.1); `expired` once it has been so for 14 days."""

    code: ClassVar[str] = "empty"
    diagnostic: ClassVar[None] = None
    expired: bool


@dataclass(frozen=True)
class Loading:
    """Files are pending and nothing has been committed yet."""

    code: ClassVar[str] = "loading"
    diagnostic: ClassVar[None] = None
    files: int


@dataclass(frozen=True)
class CaughtUp:
    """All landed files are applied."""

    code: ClassVar[str] = "caught_up"
    diagnostic: ClassVar[None] = None


@dataclass(frozen=True)
class Behind:
    """Files are pending."""

    code: ClassVar[str] = "behind"
    diagnostic: ClassVar[None] = None
    files: int


@dataclass(frozen=True)
class Blocked:
    """A numbered file is missing; later files are pending (LZ-3.3)."""

    code: ClassVar[str] = "blocked"
    diagnostic: ClassVar[None] = None
    missing: str
    files: int


@dataclass(frozen=True)
class Halted:
    """A file or the metadata was rejected; nothing is applied until that is replaced."""

    code: ClassVar[str] = "halted"
    diagnostic: Diagnostic
    files: int


@dataclass(frozen=True)
class Deleted:
    """Its folder was deleted: the next cycle drops the Delta table, or a later one once the delay is over (LZ-7.4)."""

    code: ClassVar[str] = "deleted"
    diagnostic: Diagnostic


@dataclass(frozen=True)
class Unlisted:
    """Its folder cannot be listed, or may be hidden: nothing is known of it, applied or dropped (LZ-7.2, ME070)."""

    code: ClassVar[str] = "unlisted"
    diagnostic: Diagnostic


TableState = Unconfigured | Empty | Loading | CaughtUp | Behind | Blocked | Halted | Deleted | Unlisted


def needs_attention(state: TableState) -> bool:
    """Whether a table cannot go on until something is landed, corrected or removed."""
    match state:
        case Halted() | Blocked():
            return True
        case Empty(expired):
            return expired
        case Unconfigured(diagnostic):
            return diagnostic.severity is Severity.ERROR
        case _:
            return False
