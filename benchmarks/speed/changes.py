"""Change files merged into a table that was loaded before, by each engine in its own way."""

from __future__ import annotations

import time
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from speed import floor
from speed.bench import Measured
from speed.places import TABLE, fresh, land, mirrored, prepared, zone
from speed.programs import seconds_of, sync

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from speed.bench import Bench, Turn

QUIET_SECONDS = 2.0


@dataclass
class Changes:
    """Turns that merge the same change files into copies of the same table.

    Attributes:
        name: of the prepared tables.
        base: the initial load's files.
        changes: the change files, numbered after those.
        before: change files that are merged first, untimed; `QUIET_SECONDS` follow.
    """

    bench: Bench
    name: str
    base: Sequence[Path]
    changes: Sequence[Path]
    before: Sequence[Path] = ()

    @cached_property
    def expected(self) -> floor.Fingerprint:
        return floor.of_query(floor.after(self.base, [*self.before, *self.changes]))

    def _mirrored(self, peer: str) -> Path:
        """A ROOT whose one table holds the initial load, made by an engine of ours."""

        def make(root: Path) -> None:
            zone(root)
            land(root, self.base)
            self.bench.ask(peer, "once", root=root)

        return prepared(self.bench.home / "prepared" / f"{peer}-{self.name}", make)

    def mirror(self, peer: str) -> Turn:
        """`Mirror.sync` in a process that is warm."""
        source = self._mirrored(peer)

        def turn(place: Path) -> Measured:
            fresh(source, place)
            for files in ([], self.before):  # the first call learns that ROOT was copied
                land(place, files)
                self.bench.ask(peer, "once", root=place)
            self._be_quiet()
            land(place, self.changes)
            seconds = self.bench.ask(peer, "once", root=place)
            self.bench.ask(peer, "close", root=place)
            return Measured({peer: seconds}, mirrored(place), self.expected)

        return turn

    def process(self, merge_engine: str) -> Turn:
        """`mirror-engine sync` as a whole process."""
        peer = f"{merge_engine}-engine"
        source = self._mirrored(peer)

        def turn(place: Path) -> Measured:
            fresh(source, place)
            land(place, self.changes)
            seconds = seconds_of(sync(place, merge_engine))
            return Measured({f"{peer}, whole process": seconds}, mirrored(place), self.expected)

        return turn

    def engine(self, peer: str, sample: int | None = None) -> Turn:
        """A merge per file. With `sample` only that many files are merged, and the time is scaled."""
        source = prepared(
            self.bench.home / "prepared" / f"{peer}-{self.name}",
            lambda folder: self.bench.ask(peer, "append", table=folder / TABLE, files=self.base),
        )
        files = self.changes[:sample]
        scale = len(self.changes) / len(files)
        expected = floor.of_query(floor.after(self.base, [*self.before, *files]))

        def turn(place: Path) -> Measured:
            table = fresh(source, place) / TABLE
            self.bench.ask(peer, "merge", table=table, files=self.before)
            self._be_quiet()
            seconds = self.bench.ask(peer, "merge", table=table, files=files)
            return Measured({peer: seconds * scale}, table, expected)

        return turn

    def floor(self) -> Turn:
        """DuckDB without a table format: it reads and writes everything."""

        def turn(place: Path) -> Measured:
            changes, target = [*self.before, *self.changes], place / "after.parquet"
            seconds = self.bench.ask("floor", "apply", base=self.base, changes=changes, target=target)
            return Measured({"DuckDB rewrites all": seconds})

        return turn

    def _be_quiet(self) -> None:
        if self.before:
            time.sleep(QUIET_SECONDS)
