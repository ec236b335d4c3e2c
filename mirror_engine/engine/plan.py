"""A plan is data: the closed set of steps, and what the planner makes of one table."""

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
    """The Delta table and all memory of it go (LZ-7.2, LZ-7.3)."""

    diagnostic: Diagnostic


@dataclass(frozen=True)
class StartGeneration:
    """A new life of the table folder starts to be remembered."""

    identity: str


@dataclass(frozen=True)
class UpdateFolderIdentity:
    """The folder is the one we know under a new identity: ROOT was copied, moved or restored."""

    identity: str


@dataclass(frozen=True)
class RecordFolderState:
    """Facts about the folder to keep, without any effect on the Delta table.

    Attributes:
        armed: whether it has usable metadata.
        waiting: etags of files not applied, by path.
        latch: the refusal in force.
        said: what will not show again, and is to be kept.
    """

    armed: bool
    waiting: Mapping[str, str]
    latch: Rejection | None
    said: tuple[Diagnostic, ...] = ()


@dataclass(frozen=True)
class MarkFolderMissing:
    """The folder is missed for the first time; its table is dropped once the delay is over (LZ-7.4)."""

    at: float


@dataclass(frozen=True)
class ApplyBatch:
    """Change files to be replayed, in order; the replayer cuts them into commits."""

    files: tuple[LandedFile, ...]
    metadata: Metadata


Step = DropTable | StartGeneration | UpdateFolderIdentity | RecordFolderState | MarkFolderMissing | ApplyBatch


@dataclass(frozen=True)
class Plan:
    """What is to be done for one table, and why not more.

    Attributes:
        table: its name.
        state: as it is before the steps.
        steps: in order.
        detection: how its files were classified; None where they were not looked at.
        diagnostics: everything there is to say about it now, applied files aside.
    """

    table: TableName
    state: TableState
    steps: tuple[Step, ...] = ()
    detection: Detection | None = None
    diagnostics: tuple[Diagnostic, ...] = ()
