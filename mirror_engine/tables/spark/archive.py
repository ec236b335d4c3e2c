"""Java's class-data archive: what it read, checked and laid out once, so that the next JVM starts in half the time."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from mirror_engine.tables.spark.cache import cache_folder
from mirror_engine.tables.spark.gateway import MODULE_OPTIONS

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from mirror_engine.tables.spark.java import Java

UNUSED_DAYS = 30
_QUIET = ("-Xlog:cds=off", "-Xlog:cds+dynamic=off", "-Xlog:class+path=off")


@dataclass(frozen=True)
class Archive:
    """The archive of one environment: of a Java, its options and its class path; deleted, it is made again.

    Attributes:
        path: where it lies once it is made.
    """

    path: Path

    @property
    def is_made(self) -> bool:
        """Whether it is there."""
        return self.path.is_file()

    @property
    def failed(self) -> Path:
        """A file that is there where making it failed: it is not tried again."""
        return self.path.with_suffix(".failed")

    @property
    def lock(self) -> Path:
        """Held by the one that makes it."""
        return self.path.with_suffix(".lock")

    @property
    def is_wanted(self) -> bool:
        """Whether somebody should make it now."""
        folder = self.path.parent
        if self.is_made or self.failed.exists() or os.pathsep in str(folder):  # Java would read two paths
            return False
        with suppress(OSError):
            folder.mkdir(parents=True, exist_ok=True)
        return os.access(folder, os.W_OK)

    def options(self) -> tuple[str, ...]:
        """What Java is told to use it: nothing where it is not there. One that does not fit is passed over by Java."""
        if not self.is_made:
            return ()
        with suppress(OSError):
            os.utime(self.path)  # it is in use
        return (f"-XX:SharedArchiveFile={self.path}", "-Xshare:auto", *_QUIET)

    def remove_unused(self) -> None:
        """Delete the archives that no JVM has used for a while: of versions that are gone."""
        oldest = time.time() - UNUSED_DAYS * 86400
        for other in self.path.parent.glob("*.jsa"):
            with suppress(OSError):
                if other.stat().st_mtime < oldest:
                    other.unlink()


def archive_of(java: Java, options: Sequence[str], jars: Sequence[Path]) -> Archive:
    """The archive of an environment.

    Args:
        java: the runtime.
        options: those that tell one archive from another: of the heap and the compilers.
        jars: every jar of the class path.
    """
    told = [java.command, java.build, *MODULE_OPTIONS, *options]
    for jar in jars:
        stat = jar.stat()
        told.append(f"{jar} {stat.st_size} {stat.st_mtime_ns}")
    digest = hashlib.sha256("\n".join(told).encode("utf-8", "surrogateescape")).hexdigest()[:16]
    return Archive(archives_folder() / f"{digest}.jsa")


def begin_to_make(arguments: Sequence[str]) -> None:
    """Make an archive in a process of its own, which nobody waits for and which outlives this one."""
    if sys.executable:
        with suppress(OSError):
            subprocess.Popen(  # noqa: S603 - this very Python
                # a program, not a function: it is a mirror of its own, of which this room knows nothing
                [sys.executable, "-m", "mirror_engine.archiving", *arguments],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )


def options_to_make(path: Path) -> tuple[str, ...]:
    """What Java is told to leave an archive when it ends."""
    return (f"-XX:ArchiveClassesAtExit={path}", *_QUIET)


def archives_folder() -> Path:
    """Where all archives lie; may not exist."""
    return cache_folder() / "classes"
