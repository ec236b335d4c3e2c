"""Landing zones and tables: prepared once, copied for each round."""

from __future__ import annotations

import os
import shutil
from typing import TYPE_CHECKING

from mirror_engine.testing.landing_zone_writer import LandingZoneWriter
from speed.rows import KEY

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

TABLE = "Orders"


def mirrored(root: Path, table: str = TABLE) -> Path:
    """The Delta table of a ROOT."""
    return root / "Tables/dbo" / table


def zone(root: Path, tables: Sequence[str] = (TABLE,)) -> None:
    """Make a landing zone with empty tables."""
    for table in tables:
        LandingZoneWriter(root).table(table, keys=[KEY])


def land(root: Path, files: Sequence[Path], table: str = TABLE) -> None:
    """Copy change files into a table folder, each under a temporary name first."""
    folder = root / "Files/LandingZone" / table
    for file in files:
        temporary = folder / f"_{file.name}"
        shutil.copyfile(file, temporary)
        temporary.rename(folder / file.name)


def prepared(folder: Path, make: Callable[[Path], object]) -> Path:
    """Make a folder once, where it stays: a JVM may keep temporary files there. An unfinished one is made again."""
    made = folder.with_name(folder.name + ".made")
    if not made.exists():
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        make(folder)
        made.touch()
    return folder


def fresh(source: Path, target: Path) -> Path:
    """Copy a prepared folder. Parquet files never change in place, so they are hard links."""

    def copy(file: str, to: str) -> str:
        if file.endswith(".parquet"):
            os.link(file, to)
            return to
        return shutil.copyfile(file, to)

    scratch = shutil.ignore_patterns("scratch")
    shutil.copytree(source, target, copy_function=copy, ignore=scratch, dirs_exist_ok=True)
    return target
