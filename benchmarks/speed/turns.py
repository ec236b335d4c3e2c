"""The turns that several works share: the same changes to the same table, by each engine in its own way."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from speed import equality, floor
from speed.bench import Told
from speed.places import TABLE, appended, fresh, land, mirrored, mirrored_load
from speed.programs import seconds_of, sync
from speed.rows import NUMBER

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from speed.bench import Bench, Turn
    from speed.rows import Keys

QUIET_SECONDS = 2.0


class Changed:
    """Change files that go into a table that was loaded before.

    Args:
        bench: the run.
        name: of the prepared tables.
        base: the initial load's files.
        changes: the change files, numbered after those.
        before: change files that go in first, untimed, so that the session knows the table; then it is quiet for
            `QUIET_SECONDS`.
        keys: the key columns.
    """

    def __init__(  # noqa: PLR0913 - a comparison has six sides
        self,
        bench: Bench,
        name: str,
        base: Sequence[Path],
        changes: Sequence[Path],
        *,
        before: Sequence[Path] = (),
        keys: Keys = NUMBER,
    ) -> None:
        self._bench = bench
        self._name = name
        self._base = base
        self._changes = changes
        self._before = before
        self._keys = keys
        self._expected = equality.of_query(floor.after(base, [*before, *changes], keys))

    def mirror(self, peer: str, shown: str = "") -> Turn:
        """The product with one merge engine: the whole of `sync`, in a session that is warm."""
        source = mirrored_load(self._bench, peer, self._name, self._base, self._keys)

        def turn(place: Path) -> Told:
            fresh(source, place)
            for files in ([], self._before):  # the first learns that ROOT was copied
                land(place, files)
                self._bench.ask(peer, "once", root=place)
            self._be_quiet()
            land(place, self._changes)
            told = self._bench.ask(peer, "once", root=place)
            self._bench.ask(peer, "close", root=place)
            return Told({shown or peer: told["seconds"]}, mirrored(place), self._expected)

        return turn

    def process(self, merge_engine: str) -> Turn:
        """The product as users start it: `mirror-engine sync` as a whole process."""
        peer = f"{merge_engine}-engine"
        source = mirrored_load(self._bench, peer, self._name, self._base, self._keys)

        def turn(place: Path) -> Told:
            fresh(source, place)
            land(place, [*self._before, *self._changes])
            seconds = seconds_of(sync(place, merge_engine))
            return Told({f"{peer}, whole process": seconds}, mirrored(place), self._expected)

        return turn

    def engine(self, peer: str, sample: int = 0, shown: str = "") -> Turn:
        """An engine that merges file by file; with `sample` only so many of the files, and the time scaled."""
        source = appended(self._bench, peer, self._name, self._base)
        files = self._changes[: sample or len(self._changes)]
        keys = {} if self._keys == NUMBER else {"keys": self._keys}
        scale = len(self._changes) / len(files)
        expected = (
            equality.of_query(floor.after(self._base, [*self._before, *files], self._keys))
            if sample
            else self._expected
        )

        def turn(place: Path) -> Told:
            table = fresh(source, place) / TABLE
            self._bench.ask(peer, "merge", table=table, files=self._before, **keys)
            self._be_quiet()
            told = self._bench.ask(peer, "merge", table=table, files=files, **keys)
            return Told({shown or peer: told["seconds"] * scale}, table, expected)

        return turn

    def _be_quiet(self) -> None:
        if self._before:
            time.sleep(QUIET_SECONDS)

    def floor(self) -> Turn:
        """DuckDB, without a table format: reads all, writes all."""

        def turn(place: Path) -> Told:
            target = place / "after.parquet"
            told = self._bench.ask(
                "floor", "apply", base=self._base, changes=[*self._before, *self._changes], target=target
            )
            found = equality.of_query(floor.after([target], []))
            if found != self._expected:
                raise equality.Unequal(f"floor: {found.rows} rows, expected {self._expected.rows}")
            return Told({"DuckDB rewrites all": told["seconds"]})

        return turn
