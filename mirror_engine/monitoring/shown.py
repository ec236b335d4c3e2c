"""What the page and the metrics ask of whoever has the mirrored databases."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from mirror_engine.endpoint.databases import DatabaseStatus

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import pyarrow as pa

    from mirror_engine.delta.history import HistoryEntry
    from mirror_engine.monitoring.status import MirrorStatus


class Viewed(Protocol):
    """A mirror that is looked at; every method raises `MirrorError` where it cannot tell."""

    def status(self) -> MirrorStatus:
        """How every table is: a fresh look."""

    def history(self, table: str, *, limit: int | None = None) -> Sequence[HistoryEntry]:
        """The commits of a Delta folder, newest first."""

    def rows(self, table: str, *, version: int | None = None, limit: int | None = None) -> pa.Table:
        """Rows of a Delta folder at a version; the newest by default."""


@dataclass(frozen=True)
class ShownItem:
    """One mirrored database.

    Attributes:
        id: its GUID.
        workspace, name: as they are displayed.
        state: in Fabric's words (LZ-9.4).
        error: why its engine ended; `""` where it did not.
        view: its mirror, to be looked at; raises `MirrorError` where it has gone.
    """

    id: str
    workspace: str
    name: str
    state: DatabaseStatus
    error: str
    view: Callable[[], Viewed]

    @property
    def should_run(self) -> bool:
        """Whether somebody wants it mirrored now: started and not stopped, or ended by a failure."""
        return bool(self.error) or self.state in {DatabaseStatus.STARTING, DatabaseStatus.RUNNING}


class Shown(Protocol):
    """The mirrored databases of one server; may be asked by several threads."""

    def items(self) -> Sequence[ShownItem]:
        """Every one there is, by workspace and name."""
