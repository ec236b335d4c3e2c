"""The Delta jars: in the user's cache, copied there from what Spark fetched before, or fetched once."""

from __future__ import annotations

import hashlib
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from filelock import FileLock

from mirror_engine.delta import ivy
from mirror_engine.delta.cache import cache_folder
from mirror_engine.errors import JarsMissing

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mirror_engine.config import Config
    from mirror_engine.delta.java import Java
    from mirror_engine.events import Listener

SPARK_VERSION = "4.2.0"
DELTA_VERSION = "4.4.0"


@dataclass(frozen=True)
class Jar:
    """One jar: its Maven coordinate, and the digest of the content it must have."""

    organisation: str
    name: str
    version: str
    sha256: str

    @property
    def coordinate(self) -> str:
        """As Maven writes it."""
        return f"{self.organisation}:{self.name}:{self.version}"

    @property
    def file_name(self) -> str:
        """As Maven names the file."""
        return f"{self.name}-{self.version}.jar"

    @property
    def file_name_by_spark(self) -> str:
        """As Spark's own `--packages` names the file."""
        return f"{self.organisation}_{self.file_name}"


# What Delta asks for and Spark does not bring. Delta's list is longer by 25 jars (75 MB), all of them older versions
# of jars in Spark's own folder, which Spark's class loader would never look into.
JARS = (
    Jar(
        "com.fasterxml.jackson.datatype",
        "jackson-datatype-jdk8",
        "2.13.5",
        "e58761751fea8a00dc626aae1c5f1be38c5cfd487aeb333d933a4ab5f5a73c55",
    ),
    Jar("io.delta", "delta-kernel-api", "4.4.0", "ee9b5a14ac3b7efdff4d61a58478fe8eb0e5a3fbca43889dca7290795fe79a11"),
    Jar(
        "io.delta", "delta-kernel-defaults", "4.4.0", "225c975199e4718b38ee5b7e6da7f19e9585024262b2cec2656b32151a856b0b"
    ),
    Jar(
        "io.delta",
        "delta-kernel-unitycatalog",
        "4.4.0",
        "cea22dfb4ac562b3cd27bf652697750e8336009d73fb06631363aaaad5345ffa",
    ),
    Jar(
        "io.delta", "delta-spark_4.2_2.13", "4.4.0", "27d4fd8b1f879535c573ed1c718177d6a27f24d3e626ba02e216369725721ead"
    ),
    Jar("io.delta", "delta-storage", "4.4.0", "c46735481fa8e326b0957be02b4420cbcab4b325bb08009b7f2045a95133f1cc"),
    Jar(
        "io.unitycatalog",
        "unitycatalog-client",
        "0.6.0",
        "48257499a86b801a3e2372cec55ac226ca1c1c7eabe5c118e7302f29a1fdbc19",
    ),
    Jar(
        "io.unitycatalog",
        "unitycatalog-hadoop",
        "0.6.0",
        "c47b63c961c87102b9e1d63809a0915ba4c86b7652f57c8d39ca3a05b441a150",
    ),
)


def delta_jars(config: Config, java: Java, listen: Listener) -> tuple[Path, ...]:
    """Every jar that Spark needs beside its own, fetched if need be; several processes may ask at once.

    Raises:
        JarsMissing: they are not here and cannot be fetched, or `config.jars` lacks one.
    """
    if missing := missing_jars(config):
        if config.jars:
            names = ", ".join(jar.file_name for jar in missing)
            raise JarsMissing(
                f"the folder of jars {config.jars} lacks {names}",
                f"Copy them from {_cached()} of a machine that has fetched them.",
            )
        _fill_cache(java, listen)
    folder = jars_folder(config)
    return tuple(path for jar in JARS if (path := _find(jar, folder)) is not None)


def missing_jars(config: Config) -> tuple[Jar, ...]:
    """The jars that are not here; fetches nothing."""
    return tuple(jar for jar in JARS if _find(jar, jars_folder(config)) is None)


def jars_folder(config: Config) -> Path:
    """Where the jars are looked for."""
    return Path(config.jars).expanduser().absolute() if config.jars else _cached()


def _cached() -> Path:
    return cache_folder() / "jars" / f"delta-{DELTA_VERSION}-spark-{SPARK_VERSION}"


def _find(jar: Jar, folder: Path) -> Path | None:
    places = (folder / jar.file_name, folder / jar.file_name_by_spark)
    return next((place for place in places if place.is_file()), None)


def _fill_cache(java: Java, listen: Listener) -> None:
    """Gather all jars in a folder of their own, then rename it into place: a half fetch never looks complete."""
    folder = _cached()
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with (
            FileLock(folder.with_name(folder.name + ".lock")),
            tempfile.TemporaryDirectory(dir=folder.parent) as work,
        ):
            if all(_find(jar, folder) for jar in JARS):
                return  # another process was first
            gathered = Path(work) / "jars"
            gathered.mkdir()
            _gather(gathered, java, listen)
            shutil.rmtree(folder, ignore_errors=True)
            gathered.replace(folder)
    except OSError as error:
        raise JarsMissing(
            f"the Delta jars cannot be kept in {folder}: {error.strerror or error}",
            "Free some space, or set MIRROR_ENGINE_CACHE to a folder that can be written.",
        ) from error


def _gather(folder: Path, java: Java, listen: Listener) -> None:
    by_spark = Path.home() / ".ivy2.5.2" / "jars"
    wanting = []
    for jar in JARS:
        here = _find(jar, by_spark)
        if here is not None and _is(jar, here):
            shutil.copyfile(here, folder / jar.file_name)
        else:
            wanting.append(jar)
    if wanting:
        ivy.fetch([(jar.organisation, jar.name, jar.version) for jar in wanting], folder, java, listen)
        _check(wanting, folder)


def _check(jars: Sequence[Jar], folder: Path) -> None:
    for jar in jars:
        if not _is(jar, folder / jar.file_name):
            raise JarsMissing(
                f"{jar.coordinate} arrived from {ivy.repository()} with other content than was published",
                ivy.HINT,
            )


def _is(jar: Jar, path: Path) -> bool:
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest() == jar.sha256
    except OSError:
        return False
