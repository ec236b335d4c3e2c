"""Plans as data: the closed set of steps, and the plan of one table."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mirror_engine.landing_zone.detection import Detection
    from mirror_engine.landing_zone.diagnostics import Diagnostic
    from mirror_engine.landing_zone.listing import LandedFile
    from mirror_engine.landing_zone.metadata import Metadata
    from mirror_engine.landing_zone.names import TableName
    from mirror_engine.landing_zone.progress import Rejection
    from mirror_engine.landing_zone.states import TableState


@dataclass(frozen=True)
class DropTable:
    """Drop the Delta table and its progress (LZ-7.2, LZ-7.3)."""

    diagnostic: Diagnostic


@dataclass(frozen=True)
class StartGeneration:
    """Start the progress of a new generation of the table folder."""

    identity: str


@dataclass(frozen=True)
class UpdateFolderIdentity:
    """Record the new identity of a known folder: ROOT was copied, moved or restored."""

    identity: str


@dataclass(frozen=True)
class RecordFolderState:
    """Record the state of the folder, without any effect on the Delta table.

    Attributes:
        is_configured: whether it has usable metadata.
        pending_etags: of files not applied, by path.
        rejection: the rejection in force.
        diagnostics: those that are reported once, and are to be kept.
    """

    is_configured: bool
    pending_etags: Mapping[str, str]
    rejection: Rejection | None
    diagnostics: tuple[Diagnostic, ...] = ()


@dataclass(frozen=True)
class MarkFolderMissing:
    """Record that the folder is missing; its table is dropped after the delay (LZ-7.4)."""

    at: float


@dataclass(frozen=True)
class ApplyBatch:
    """Apply change files, in order; the replayer divides them into commits."""

    files: tuple[LandedFile, ...]
    metadata: Metadata


Step = DropTable | StartGeneration | UpdateFolderIdentity | RecordFolderState | MarkFolderMissing | ApplyBatch


@dataclass(frozen=True)
class Plan:
    """What is to be done for one table, and its state.

    Attributes:
        table: its name.
        state: before the steps.
        steps: in order.
        detection: how its files were classified; None where they were not.
        diagnostics: all that hold now, except those of applied files.
    """

    table: TableName
    state: TableState
    steps: tuple[Step, ...] = ()
    detection: Detection | None = None
    diagnostics: tuple[Diagnostic, ...] = ()
