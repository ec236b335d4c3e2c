"""How thoroughly a change file is read, and what is kept of its rows."""

from __future__ import annotations

from typing import TYPE_CHECKING, BinaryIO, Protocol

from mirror_engine.delta.digest import digest
from mirror_engine.delta.measure import byte_count
from mirror_engine.delta.rows import Spool

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable
    from pathlib import Path

    import pyarrow as pa

    from mirror_engine.delta.base import RowSource
    from mirror_engine.landing_zone.sightings import FileSighting


class RowSpool(Protocol):
    """Takes accepted rows in file order, batch after batch."""

    def add(self, batch: pa.RecordBatch) -> None:
        """Take the next rows, in the schema the spool was made for."""

    def finish(self) -> RowSource:
        """What was kept of them."""

    def discard(self) -> None:
        """Forget the rows; they turned out to be no good."""


class Reading(Protocol):
    """What a reader looks at, and what it keeps.

    Attributes:
        threads: whether Arrow may read the columns of a file side by side: sooner where every row is kept, but each
            of its threads holds on to memory.
    """

    threads: bool

    def digest(self, file: FileSighting, content: BinaryIO) -> tuple[str, int]:
        """A digest of the file's bytes in hex, `""` where nobody needs one, and how many there are."""

    def columns(self, file: FileSighting, needed: Collection[str]) -> Collection[str] | None:
        """The columns to be read, when those in `needed` must be; None for all of them."""

    def byte_count(self, columns: Iterable[pa.Array]) -> int:
        """How many bytes cells count for (LZ-9.3); 0 where nobody asks."""

    def spool(self, schema: pa.Schema, key_columns: Collection[str]) -> RowSpool:
        """Where accepted rows of that schema go."""


class WholeFiles:
    """What a `Reading` says that looks at everything, whatever it keeps."""

    threads = True

    def digest(self, file: FileSighting, content: BinaryIO) -> tuple[str, int]:  # noqa: ARG002 - every file alike
        """See `Reading`."""
        return digest(content)

    def columns(self, file: FileSighting, needed: Collection[str]) -> Collection[str] | None:  # noqa: ARG002 - as above
        """See `Reading`."""
        return None

    def byte_count(self, columns: Iterable[pa.Array]) -> int:
        """See `Reading`."""
        return byte_count(columns)


class EveryRow(WholeFiles):
    """A `Reading` that keeps all rows: what is needed to apply a file."""

    def __init__(self, scratch: Path) -> None:
        self._scratch = scratch

    def spool(self, schema: pa.Schema, key_columns: Collection[str]) -> Spool:  # noqa: ARG002 - keys are nothing special
        """See `Reading`."""
        return Spool(schema, self._scratch)
