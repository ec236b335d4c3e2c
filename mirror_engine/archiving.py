"""Makes Java's class-data archive: a small mirror of its own, worked on in the background while nobody waits.

A program of its own, `python -m mirror_engine.archiving`, which a session that had to do without starts at its end.
"""

from __future__ import annotations

import os
import sys
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from filelock import FileLock, Timeout

from mirror_engine.config import Config
from mirror_engine.events import ignore
from mirror_engine.landing_zone.layout import LOGS, SCRATCH, TABLES
from mirror_engine.mirror import Mirror
from mirror_engine.publisher.landing_zone_writer import LandingZoneWriter
from mirror_engine.tables.merge.spark import SparkDeltaWriter
from mirror_engine.tables.spark.jars import delta_jars
from mirror_engine.tables.spark.java import find_java
from mirror_engine.tables.spark.launch import LaunchPlan
from mirror_engine.tables.spark.session import start_session

if TYPE_CHECKING:
    from mirror_engine.tables.spark.archive import Archive
    from mirror_engine.tables.spark.profile import Profile

_MIN_URGENT = 19


def make_archive(config: Config, profile: Profile) -> Archive | None:
    """Make the archive for sessions of this kind; None where it is not wanted, or another process is at it."""
    java = find_java()
    archive = LaunchPlan(profile, java, delta_jars(config, java, ignore), config.driver_memory, Path()).archive()
    if not archive.is_wanted:
        return None
    with suppress(Timeout), FileLock(archive.lock, timeout=0):
        with tempfile.TemporaryDirectory(dir=archive.path.parent) as folder:
            made = Path(folder) / "made.jsa"
            try:
                _work(Path(folder), config, profile, made)
                made.replace(archive.path)
            except Exception:
                archive.failed.touch()
                raise
        archive.remove_unused()
        return archive
    return None


def _work(root: Path, config: Config, profile: Profile, made: Path) -> None:
    """What a mirror does with Spark, once each: a first load, and changes to it."""
    writer = SparkDeltaWriter(
        root / TABLES,
        root / SCRATCH,
        lambda: start_session(
            config, scratch=root / SCRATCH, log_file=root / LOGS / "spark.log", profile=profile, archive_to=made
        ),
    )
    table = LandingZoneWriter(root).table("Orders", keys=["id"])
    with Mirror(root, config, writer=writer) as mirror:
        table.insert(*({"id": number, "name": str(number), "amount": number / 2} for number in range(20)))
        mirror.sync()
        table.apply_changes(
            (0, {"id": 20, "name": "20", "amount": 10.0}), (4, {"id": 1, "name": "x"}), (2, {"id": 2, "name": None})
        )
        mirror.sync()


def main(arguments: list[str]) -> None:
    """Make the archive for a profile and a folder of jars, less urgently than anything else."""
    profile, jars = arguments
    if hasattr(os, "nice"):
        os.nice(_MIN_URGENT)
    make_archive(Config(spark_profile="ci", delta_jars_dir=jars), "brief" if profile == "brief" else "steady")


if __name__ == "__main__":
    main(sys.argv[1:])
