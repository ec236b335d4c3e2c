"""Checks of this machine, as data: what Spark and the engine need, and what to do. Starts nothing, fetches nothing."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import re
import shutil
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from mirror_engine.errors import JavaMissing
from mirror_engine.results import Check
from mirror_engine.tables.spark.choice import is_spark_by_default, merges_with_spark
from mirror_engine.tables.spark.java import (
    DELTA_VERSION,
    SPARK_VERSION,
    find_jars,
    find_java,
    jars_folder,
    java_home_fault,
)

if TYPE_CHECKING:
    from mirror_engine.config import Config
    from mirror_engine.storage.store_url import Place

_GIB = 1024**3
_UNITS = {"k": 1024, "m": 1024**2, "g": _GIB, "t": 1024**4}
_MEMORY_APART_FROM_HEAP = _GIB  # Java's own memory and Python's record batches
_FREE_DISK = 2 * _GIB
_SUGGESTION = (
    "Spark merges because PySpark is installed. --merge-engine arrow applies a small change in about 0.05 s "
    "instead of 0.9 s, without Java."
)


def checks(root: Path | None, config: Config) -> list[Check]:
    """All requirements of the engine, in under two seconds; `root=None` leaves out what depends on ROOT."""
    is_spark = merges_with_spark(config)
    engine = suggestion(config) or ("spark" if is_spark else "arrow, which needs no Java")
    found = [
        Check("Python", ok=True, found=platform.python_version()),
        Check("Merge engine", ok=True, found=engine),
    ]
    if is_spark:
        spark, delta = ("Spark", "pyspark", SPARK_VERSION), ("Delta", "delta-spark", DELTA_VERSION)
        found += [_java(), _package(*spark), _package(*delta), _jars(config), _memory(config)]
    found.append(_disk("Temporary disk", Path(tempfile.gettempdir())))
    return found if root is None else [*found, _disk("Disk of ROOT", root), _writable(root)]


def suggestion(config: Config, root: Place | None = None) -> str:
    """The advantage of `--merge-engine arrow`; empty if an engine was chosen or Spark is not local.

    The figures are measured: docs/performance.md.
    """
    return _SUGGESTION if is_spark_by_default(config, root) else ""


def _java() -> Check:
    try:
        java = find_java()
    except JavaMissing as error:
        return Check("Java", ok=False, found=error.message, help=error.help or None)
    passed_over = f"; {fault}" if (fault := java_home_fault()) else ""
    return Check("Java", ok=True, found=f"{java.version} in {java.home}{passed_over}")


def _package(name: str, package: str, required: str) -> Check:
    command = f"Run: python -m pip install {package}=={required}"
    try:
        version = importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return Check(name, ok=False, found=f"{package} is not installed", help=command)
    if version == required:
        return Check(name, ok=True, found=f"{package} {version}")
    return Check(name, ok=False, found=f"{package} {version}, expected {required}", help=command)


def _jars(config: Config) -> Check:
    jars = find_jars(config)
    missing = [coordinate for coordinate, path in jars.items() if path is None]
    command = "The first run downloads them, and needs a network."
    if config.delta_jars_dir:
        command = f"Copy into that folder: {', '.join(missing)}"
    found = f"{len(jars) - len(missing)} of {len(jars)} in {jars_folder(config)}"
    return Check("Delta jars", not missing, found, command if missing else None)


def _memory(config: Config) -> Check:
    required = memory_bytes(config.driver_memory) + _MEMORY_APART_FROM_HEAP
    if (available := available_memory()) is None:
        return Check("Memory", ok=True, found="unknown on this system")
    ok = available >= required
    found = f"{_gib(available)} available, {_gib(required)} needed (driver_memory {config.driver_memory} and 1 GiB)"
    return Check("Memory", ok, found, None if ok else "End other programs, or set a smaller --driver-memory.")


def memory_bytes(text: str) -> int:
    """The bytes of a size as Spark writes it: `2g`, `512m`, `1024` (MiB where no unit is given); 0 for no size."""
    size = re.fullmatch(r"(\d+)([kmgt]?)b?", text.strip().lower())
    return int(size[1]) * _UNITS[size[2] or "m"] if size else 0


def available_memory() -> int | None:
    """Available bytes, a container's limit included; None where the system does not say."""
    try:
        free = re.search(r"MemAvailable:\s+(\d+) kB", Path("/proc/meminfo").read_text(encoding="ascii"))
    except OSError:
        return None
    bounds = [int(free[1]) * 1024] if free else []
    with suppress(OSError, ValueError):  # no container, or "max"
        limit, used = (int(Path(f"/sys/fs/cgroup/memory.{name}").read_text("ascii")) for name in ("max", "current"))
        bounds.append(max(0, limit - used))
    return min(bounds, default=None)


def _disk(name: str, folder: Path) -> Check:
    place = _nearest(folder)
    free = shutil.disk_usage(place).free
    ok = free >= _FREE_DISK
    return Check(name, ok, f"{_gib(free)} free at {place}", None if ok else f"Free at least {_gib(_FREE_DISK)} there.")


def _writable(root: Path) -> Check:
    name, place = "Write permission", _nearest(root)
    if not place.is_dir():
        return Check(name, ok=False, found=f"{place} is not a folder", help="Choose a folder as ROOT.")
    try:
        with tempfile.TemporaryFile(dir=place):
            made = "" if place == root.absolute() else f", {root} will be created"
            return Check(name, ok=True, found=f"{place} can be written{made}")
    except OSError as error:
        user = f"user {os.geteuid()}" if hasattr(os, "geteuid") else "this user"
        command = f"Give {user} the right to write there, or choose another ROOT."
        return Check(name, ok=False, found=f"{place}: {error.strerror or error}", help=command)


def _nearest(folder: Path) -> Path:
    """The folder itself, or the nearest one above it that exists."""
    return next(place for place in (folder.absolute(), *folder.absolute().parents) if place.exists())


def _gib(count: int) -> str:
    return f"{count / _GIB:.1f} GiB"
