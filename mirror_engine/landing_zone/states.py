"""The states a table can be in: a closed set, each with its own facts. Fabric's words are a rendering elsewhere."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from mirror_engine.landing_zone.diagnostics import Severity

if TYPE_CHECKING:
    from mirror_engine.landing_zone.diagnostics import Diagnostic


@dataclass(frozen=True)
class Unconfigured:
    """A folder without usable metadata: listed, not a table. `diagnostic` says what is missing (ME008, ME010 …)."""

    code: ClassVar[str] = "unconfigured"
    diagnostic: Diagnostic
    files: int


@dataclass(frozen=True)
class Empty:
    """Metadata without data (LZ-7.1); `expired` once it has been so for 14 days."""

    code: ClassVar[str] = "empty"
    expired: bool


@dataclass(frozen=True)
class Loading:
    """Files are ready and nothing has been committed yet."""

    code: ClassVar[str] = "loading"
    files: int


@dataclass(frozen=True)
class CaughtUp:
    """Everything landed is in the table."""

    code: ClassVar[str] = "caught_up"


@dataclass(frozen=True)
class Behind:
    """Files are ready and not yet in the table."""

    code: ClassVar[str] = "behind"
    files: int


@dataclass(frozen=True)
class Blocked:
    """Later files wait for a missing one (LZ-3.3): nothing is wrong, nothing is ready."""

    code: ClassVar[str] = "blocked"
    waits_for: str
    files: int


@dataclass(frozen=True)
class Halted:
    """The table refused something and reads no further until that is replaced."""

    code: ClassVar[str] = "halted"
    diagnostic: Diagnostic
    files: int


TableState = Unconfigured | Empty | Loading | CaughtUp | Behind | Blocked | Halted


def needs_a_person(state: TableState) -> bool:
    """Whether a table stands still until somebody lands, mends or removes something."""
    match state:
        case Halted() | Blocked():
            return True
        case Empty(expired):
            return expired
        case Unconfigured(diagnostic):
            return diagnostic.severity is Severity.ERROR
        case _:
            return False
