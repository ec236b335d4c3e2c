"""Looks at this machine and says, as data, what the engine needs and finds; starts nothing and fetches nothing."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import re
import shutil
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from mirror_engine.errors import JavaMissing
from mirror_engine.tables.spark.archive import archives_folder
from mirror_engine.tables.spark.jars import DELTA_VERSION, JARS, SPARK_VERSION, jars_folder, missing_jars
from mirror_engine.tables.spark.java import find_java

if TYPE_CHECKING:
    from mirror_engine.config import Config

_GIB = 1024**3
_MIB = 1024**2
_UNITS = {"": 1, "k": 1024, "m": 1024**2, "g": _GIB, "t": 1024**4}
_BESIDE_THE_HEAP = _GIB  # Java's own memory and Python's record batches
_FREE_DISK = 2 * _GIB
_PYTHON = (3, 10)


@dataclass(frozen=True)
class Check:
    """One thing the engine needs.

    Attributes:
        name: what it is.
        ok: whether it is as it should be.
        found: what is there, in words.
        remedy: what to do; `""` where nothing is.
    """

    name: str
    ok: bool
    found: str
    remedy: str = ""


def checks(root: Path | None, config: Config) -> list[Check]:
    """Everything the engine needs of this machine, in under two seconds.

    Args:
        root: the mirrored database's folder; None leaves out what depends on it.
        config: `jars` and `driver_memory` count.
    """
    here = [
        _python(),
        _java(),
        _package("Spark", "pyspark", SPARK_VERSION),
        _package("Delta", "delta-spark", DELTA_VERSION),
        _jars(config),
        _archives(),
        _memory(config),
        _disk("Disk for passing files", Path(tempfile.gettempdir())),
    ]
    return here if root is None else [*here, _disk("Disk of ROOT", root), _writable(root)]


def _python() -> Check:
    ok = sys.version_info >= _PYTHON
    return Check("Python", ok, platform.python_version(), "" if ok else "Install Python 3.10 or newer.")


def _java() -> Check:
    try:
        java = find_java()
    except JavaMissing as error:
        return Check("Java", ok=False, found=error.message, remedy=error.help)
    return Check("Java", ok=True, found=f"{java.version} in {java.home}")


def _package(name: str, package: str, wanted: str) -> Check:
    remedy = f"Run: python -m pip install {package}=={wanted}"
    try:
        version = importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return Check(name, ok=False, found=f"{package} is not installed", remedy=remedy)
    if version == wanted:
        return Check(name, ok=True, found=f"{package} {version}")
    return Check(name, ok=False, found=f"{package} {version}, and {wanted} is needed", remedy=remedy)


def _jars(config: Config) -> Check:
    folder = jars_folder(config)
    missing = missing_jars(config)
    if not missing:
        return Check("Delta's jars", ok=True, found=f"{len(JARS)} in {folder}")
    found = f"{len(JARS) - len(missing)} of {len(JARS)} in {folder}"
    if config.delta_jars_dir:
        names = ", ".join(jar.file_name for jar in missing)
        return Check("Delta's jars", ok=False, found=found, remedy=f"Put into that folder: {names}")
    return Check(
        "Delta's jars", ok=False, found=found, remedy="They are fetched by the first run, which needs a network."
    )


def _archives() -> Check:
    """Nothing needs them; they may be removed at any time."""
    folder = archives_folder()
    made = [archive.stat().st_size for archive in folder.glob("*.jsa")]
    found = f"{len(made)} of Java's classes, {sum(made) / _MIB:.0f} MiB in {folder}" if made else "none yet"
    if failed := len(list(folder.glob("*.failed"))):
        found += f"; {failed} could not be made: remove {folder} to have it tried again"
    return Check("Archives for a quick start", ok=True, found=found)


def _memory(config: Config) -> Check:
    available = available_memory()
    needed = memory_bytes(config.driver_memory) + _BESIDE_THE_HEAP
    if available is None:
        return Check("Memory", ok=True, found="this system does not tell")
    ok = available >= needed
    found = f"{_gib(available)} available, {_gib(needed)} wanted (driver_memory {config.driver_memory} and 1 GiB)"
    return Check("Memory", ok, found, "" if ok else "End other programs, or set a smaller --driver-memory.")


def memory_bytes(written: str) -> int:
    """The bytes of a size as Spark writes it: `2g`, `512m`, `1024` (MiB where no unit is given); 0 for no size."""
    found = re.fullmatch(r"(\d+)([kmgt]?)b?", written.strip().lower())
    if found is None:
        return 0
    return int(found[1]) * _UNITS[found[2] or "m"]


def available_memory() -> int | None:
    """Bytes that can be had now, a container's limit included; None where the system does not tell."""
    try:
        told = re.search(r"MemAvailable:\s+(\d+) kB", Path("/proc/meminfo").read_text(encoding="ascii"))
    except OSError:
        return None
    free = [int(told[1]) * 1024] if told else []
    group = Path("/sys/fs/cgroup")
    try:
        limit = (group / "memory.max").read_text(encoding="ascii").strip()
        used = int((group / "memory.current").read_text(encoding="ascii"))
    except OSError:
        limit, used = "max", 0
    if limit != "max":
        free.append(max(0, int(limit) - used))
    return min(free, default=None)


def _disk(name: str, folder: Path) -> Check:
    place = _nearest(folder)
    free = shutil.disk_usage(place).free
    ok = free >= _FREE_DISK
    return Check(name, ok, f"{_gib(free)} free at {place}", "" if ok else f"Free at least {_gib(_FREE_DISK)} there.")


def _writable(root: Path) -> Check:
    place = _nearest(root)
    name = "Write permission"
    remedy = f"Give {_user()} the right to write there, or choose another ROOT."
    if not place.is_dir():
        return Check(name, ok=False, found=f"{place} is not a folder", remedy="Choose a folder as ROOT.")
    try:
        with tempfile.TemporaryFile(dir=place):
            pass
    except OSError as error:
        return Check(name, ok=False, found=f"{place}: {error.strerror or error}", remedy=remedy)
    return Check(name, ok=True, found=f"{place} can be written" + ("" if place == root else f", {root} will be made"))


def _nearest(folder: Path) -> Path:
    """The folder itself, or the nearest one above it that exists."""
    return next(place for place in (folder.absolute(), *folder.absolute().parents) if place.exists())


def _user() -> str:
    return f"user {os.geteuid()}" if hasattr(os, "geteuid") else "this user"


def _gib(count: int) -> str:
    return f"{count / _GIB:.1f} GiB"
