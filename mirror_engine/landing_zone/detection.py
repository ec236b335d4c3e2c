"""What the files of one table folder turned out to be (protocol chapter 3)."""

from __future__ import annotations

from dataclasses import dataclass, field
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from mirror_engine.landing_zone.diagnostics import Diagnostic, diagnose

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mirror_engine.landing_zone.names import TableName
    from mirror_engine.landing_zone.sightings import FileSighting


@dataclass(frozen=True)
class Detection:
    """What the files of one table folder are, in detection order, leaves in path order (LZ-3.8).

    Attributes:
        ready: may be applied now, in this order.
        later: numbered files behind a gap (LZ-3.3).
        waits_for: path of the first missing file that has later ones behind it; None where nothing is blocked.
        next_expected: by partition, the name that comes next; empty for `LastUpdateTimeFileDetection`.
        partition_columns: that leaves must name, in order; empty without partitions.
        ignored: will never be applied as they lie there, by path.
        diagnostics: everything there is to say about the files.
    """

    ready: tuple[FileSighting, ...] = ()
    later: tuple[FileSighting, ...] = ()
    waits_for: str | None = None
    next_expected: Mapping[str, str] = field(default_factory=dict)
    partition_columns: tuple[str, ...] = ()
    ignored: tuple[FileSighting, ...] = ()
    diagnostics: tuple[Diagnostic, ...] = ()


@dataclass
class Draft:
    """A detection in the making."""

    table: TableName
    strict: bool
    ready: list[FileSighting] = field(default_factory=list)
    later: list[FileSighting] = field(default_factory=list)
    waits_for: str | None = None
    next_expected: dict[str, str] = field(default_factory=dict)
    ignored: list[FileSighting] = field(default_factory=list)
    diagnostics: list[Diagnostic] = field(default_factory=list)

    def say(self, code: str, path: str, **details: Any) -> None:  # noqa: ANN401 - what `diagnose` takes
        """Add a diagnostic about a path from the table folder; `""` for the folder itself."""
        place = f"{self.table.folder}/{path}" if path else self.table.folder
        self.diagnostics.append(diagnose(code, place, strict=self.strict, **details))

    def ignore(self, file: FileSighting, code: str, **details: Any) -> None:  # noqa: ANN401 - likewise
        """Leave a file aside, with the reason."""
        self.ignored.append(file)
        self.say(code, file.path, **details)

    def finished(self, partition_columns: tuple[str, ...]) -> Detection:
        """The detection, with nothing more to be found."""
        return Detection(
            ready=tuple(self.ready),
            later=tuple(self.later),
            waits_for=self.waits_for,
            next_expected=self.next_expected,
            partition_columns=partition_columns,
            ignored=tuple(sorted(self.ignored, key=attrgetter("path"))),
            diagnostics=tuple(self.diagnostics),
        )
