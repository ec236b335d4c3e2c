"""The Delta jars: Spark fetches them once with its own Ivy, afterwards its local copies go on the class path."""

from __future__ import annotations

import os
import re
import urllib.request
import zipfile
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from filelock import FileLock

from mirror_engine.config import cache_folder
from mirror_engine.errors import JarsMissing

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mirror_engine.config import Config

SPARK_VERSION = "4.2.0"
DELTA_VERSION = "4.4.0"
# what Delta needs and Spark does not contain
COORDINATES = (
    f"io.delta:delta-spark_4.2_2.13:{DELTA_VERSION}",
    f"io.delta:delta-storage:{DELTA_VERSION}",
    f"io.delta:delta-kernel-api:{DELTA_VERSION}",
    f"io.delta:delta-kernel-defaults:{DELTA_VERSION}",
    f"io.delta:delta-kernel-unitycatalog:{DELTA_VERSION}",
    "io.unitycatalog:unitycatalog-client:0.6.0",
    "io.unitycatalog:unitycatalog-hadoop:0.6.0",
    "com.fasterxml.jackson.datatype:jackson-datatype-jdk8:2.13.5",
)
# the other 25 jars that Delta names, 75 MB: other versions of those in Spark's own folder, which come first anyway
_IN_SPARK = "org.*:*,commons-*:*,com.g*:*,com.fasterxml.jackson.core:*,io.airlift:*,javax.*:*"
HELP = (
    "Set DEFAULT_ARTIFACT_REPOSITORY to a mirror of Maven Central, HTTPS_PROXY to a proxy, "
    "or --delta-jars-dir to a folder that holds the jars."
)
_FAILED = re.compile(r"unresolved dependenc|download failed|Server access error|SERVER ERROR", re.IGNORECASE)
_REASONS = (
    re.compile(r"Server access error at url \S+ \((.+?)\)\s*$", re.MULTILINE),
    re.compile(r"(Host \S+ not found)"),
    re.compile(r":: ([\w.-]+#[\w.-]+;[\w.-]+: not found)"),
    re.compile(r"(download failed: \S+)"),
)


def ivy_folder() -> Path:
    """The folder in which Spark's Ivy keeps jars: that of every Spark 4.2, or below `$MIRROR_ENGINE_CACHE`."""
    return cache_folder() / "ivy" if os.environ.get("MIRROR_ENGINE_CACHE") else Path.home() / ".ivy2.5.2"


def jars_folder(config: Config) -> Path:
    """The folder in which the jars are expected."""
    return Path(config.delta_jars_dir).expanduser().absolute() if config.delta_jars_dir else ivy_folder() / "jars"


def find_jars(config: Config) -> dict[str, Path | None]:
    """The path of each jar by its Maven coordinate, None where it is missing or a download was cut short."""
    folder = jars_folder(config)
    return {coordinate: _find(folder, *coordinate.split(":")) for coordinate in COORDINATES}


def _find(folder: Path, organisation: str, name: str, version: str) -> Path | None:
    paths = (folder / f"{organisation}_{name}-{version}.jar", folder / f"{name}-{version}.jar")
    return next((path for path in paths if path.is_file() and zipfile.is_zipfile(path)), None)


@contextmanager
def local_jars(config: Config) -> Iterator[list[Path]]:
    """The paths of all jars; none where Spark is to fetch them meanwhile, which one process does at a time.

    Raises:
        JarsMissing: `config.delta_jars_dir` lacks one, or the folder for them cannot be written.
    """
    found = find_jars(config)
    missing = [coordinate for coordinate, path in found.items() if path is None]
    if config.delta_jars_dir and missing:
        raise JarsMissing(
            f"the folder of jars {config.delta_jars_dir} lacks {', '.join(missing)}",
            f"Copy them from {ivy_folder() / 'jars'} of a machine that has fetched them.",
        )
    with ExitStack() as stack:
        if missing:
            try:
                ivy_folder().mkdir(parents=True, exist_ok=True)
                stack.enter_context(FileLock(ivy_folder() / "mirror_engine.lock"))
            except OSError as error:
                raise JarsMissing(
                    f"the Delta jars cannot be stored in {ivy_folder()}: {error.strerror or error}",
                    "Free disk space, or set MIRROR_ENGINE_CACHE to a folder that can be written.",
                ) from error
            found = find_jars(config)  # another process may have fetched them
        yield [] if None in found.values() else [path for path in found.values() if path is not None]


def download_settings() -> dict[str, str]:
    """Spark settings that fetch the jars when Spark starts."""
    return {
        "spark.jars.packages": COORDINATES[0],
        "spark.jars.excludes": _IN_SPARK,
        "spark.jars.ivy": str(ivy_folder()),
    }


def proxy_options() -> list[str]:
    """Java options for HTTPS_PROXY, HTTP_PROXY and NO_PROXY; passwords are left out, as everybody can see options."""
    proxies = urllib.request.getproxies()
    options = []
    for scheme in ("http", "https"):
        address = urlsplit(proxies[scheme] if "//" in proxies.get(scheme, "") else f"//{proxies.get(scheme, '')}")
        if address.hostname:
            options += [f"-D{scheme}.proxyHost={address.hostname}", f"-D{scheme}.proxyPort={address.port or 80}"]
    direct = [host.strip().lstrip(".") for host in proxies.get("no", "").split(",") if host.strip()]
    if options and direct:
        options.append("-Dhttp.nonProxyHosts=" + "|".join(f"{host}|*.{host}" for host in direct))
    return options


def repository() -> str:
    """The host that jars come from, for messages; no path, user or password."""
    if url := os.environ.get("DEFAULT_ARTIFACT_REPOSITORY"):
        return urlsplit(url).hostname or "DEFAULT_ARTIFACT_REPOSITORY"
    return "Maven Central"


def download_failure(log: str) -> str:
    """Why Spark could not fetch the jars, in one line of its log; `""` where it could."""
    if not _FAILED.search(log):
        return ""
    reasons = (match[-1] for pattern in _REASONS if (match := pattern.findall(log)))
    return re.sub(r"//[^/@\s]+@", "//", next(reasons, "no reason given"))
