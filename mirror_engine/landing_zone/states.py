"""The states a table can be in: a closed set, each with its own facts. Fabric's words are a rendering elsewhere."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from mirror_engine.landing_zone.register import Severity

if TYPE_CHECKING:
    from mirror_engine.landing_zone.diagnostics import Diagnostic


@dataclass(frozen=True)
class Unarmed:
    """A folder without usable metadata: listed, not a table. `diagnostic` says what is missing (ME008, ME010 …)."""

    diagnostic: Diagnostic
    files: int


@dataclass(frozen=True)
class Waiting:
    """Metadata without data (LZ-7.1); `expired` once it has been so for 14 days."""

    expired: bool


@dataclass(frozen=True)
class Loading:
    """Files are ready and nothing has been committed yet."""

    files: int


@dataclass(frozen=True)
class Level:
    """Everything landed is in the table."""


@dataclass(frozen=True)
class Behind:
    """Files are ready and not yet in the table."""

    files: int


@dataclass(frozen=True)
class Blocked:
    """Later files wait for a missing one (LZ-3.3): nothing is wrong, nothing is ready."""

    waits_for: str
    files: int


@dataclass(frozen=True)
class Latched:
    """The table refused something and reads no further until that is replaced."""

    diagnostic: Diagnostic
    files: int


TableState = Unarmed | Waiting | Loading | Level | Behind | Blocked | Latched


def needs_a_person(state: TableState) -> bool:
    """Whether a table stands still until somebody lands, mends or removes something."""
    match state:
        case Latched() | Blocked():
            return True
        case Waiting(expired):
            return expired
        case Unarmed(diagnostic):
            return diagnostic.severity is Severity.ERROR
        case _:
            return False
