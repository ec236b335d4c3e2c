"""Landing zones and tables, made once and copied for each round."""

from __future__ import annotations

import os
import shutil
from typing import TYPE_CHECKING

from mirror_engine.testing.landing_zone_writer import LandingZoneWriter
from speed.rows import NUMBER

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from speed.bench import Bench
    from speed.rows import Keys

TABLE = "Orders"


def mirrored(root: Path, table: str = TABLE) -> Path:
    """Where a mirror keeps a table."""
    return root / "Tables/dbo" / table


def zone(root: Path, tables: Sequence[str] = (TABLE,), keys: Keys = NUMBER) -> LandingZoneWriter:
    """A landing zone with empty tables."""
    publisher = LandingZoneWriter(root)
    for table in tables:
        publisher.table(table, keys=list(keys))
    return publisher


def land(root: Path, files: Sequence[Path], table: str = TABLE) -> None:
    """Copy change files into a table folder, each under a temporary name first."""
    folder = root / "Files/LandingZone" / table
    for file in files:
        temporary = folder / f"_{file.name}"
        shutil.copyfile(file, temporary)
        temporary.rename(folder / file.name)


def prepared(folder: Path, make: Callable[[Path], object]) -> Path:
    """A folder that is made once, where it stays: a JVM may have its passing files there. Half of one is made anew."""
    made = folder.with_name(folder.name + ".made")
    if not made.exists():
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        make(folder)
        made.touch()
    return folder


def fresh(source: Path, target: Path) -> Path:
    """A copy of a prepared folder: what never changes in place, Parquet files, by hard link."""

    def copy(file: str, to: str) -> str:
        if file.endswith(".parquet"):
            os.link(file, to)
            return to
        return shutil.copyfile(file, to)

    passing = shutil.ignore_patterns("scratch")
    shutil.copytree(source, target, copy_function=copy, ignore=passing, dirs_exist_ok=True)
    return target


def mirrored_load(bench: Bench, peer: str, name: str, files: Sequence[Path], keys: Keys = NUMBER) -> Path:
    """A ROOT whose one table holds the files, as an engine of ours made it."""

    def make(root: Path) -> None:
        zone(root, keys=keys)
        land(root, files)
        bench.ask(peer, "once", root=root)

    return prepared(bench.home / "prepared" / f"{peer}-{name}", make)


def appended(bench: Bench, peer: str, name: str, files: Sequence[Path]) -> Path:
    """A Delta table of a peer's own that holds the files."""

    def make(folder: Path) -> None:
        bench.ask(peer, "append", table=folder / TABLE, files=files)

    return prepared(bench.home / "prepared" / f"{peer}-{name}", make)
