"""The Delta jars: in the user's cache, copied there from what Spark fetched before, or fetched once."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import tempfile
import urllib.request
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit
from xml.sax.saxutils import quoteattr

from filelock import FileLock

from mirror_engine.errors import JarsMissing
from mirror_engine.events import SetupProgress
from mirror_engine.tables.spark.cache import cache_folder
from mirror_engine.tables.spark.java import telling_line
from mirror_engine.tables.spark.profile import quoted_option

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mirror_engine.config import Config
    from mirror_engine.events import Listener
    from mirror_engine.tables.spark.java import Java


HINT = (
    "Set DEFAULT_ARTIFACT_REPOSITORY to a mirror of Maven Central, HTTPS_PROXY to the way out, "
    "or --delta-jars-dir to a folder that holds the jars."
)
_SETTINGS = """\
<ivysettings>
  <settings defaultResolver="central"/>
  <timeout-constraints>
    <timeout-constraint name="patient" connectionTimeout="20000" readTimeout="60000"/>
  </timeout-constraints>
  <caches defaultCacheDir={cache}/>
  <resolvers><ibiblio name="central" m2compatible="true" usepoms="false" timeoutConstraint="patient"{root}/></resolvers>
</ivysettings>
"""
_WANTED = """\
<ivy-module version="2.0">
  <info organisation="mirror_engine" module="jars"/>
  <configurations><conf name="default"/></configurations>
  <dependencies>
{dependencies}
  </dependencies>
</ivy-module>
"""
_DEPENDENCY = '    <dependency org="{}" name="{}" rev="{}" conf="default->default" transitive="false"/>'
_RETRIEVED = "[artifact]-[revision].[ext]"
_DOWNLOADING = re.compile(r"downloading \S*/([^/\s]+)\.jar \.\.\.")
_UNRESOLVED = re.compile(r":: ([\w.-]+)#([\w.-]+);([\w.-]+): not found")
_DENIED = re.compile(r"Server access error at url \S+ \((.+?)\)\s*$", re.MULTILINE)
_NO_HOST = re.compile(r"Host \S+ not found")
_PASSWORD = re.compile(r"//[^/@\s]+@")


def repository() -> str:
    """Where jars come from, in words; no path, user or password."""
    if chosen := os.environ.get("DEFAULT_ARTIFACT_REPOSITORY", ""):
        return urlsplit(chosen).hostname or "DEFAULT_ARTIFACT_REPOSITORY"
    return "Maven Central"


def fetch(wanted: Sequence[tuple[str, str, str]], folder: Path, java: Java, listen: Listener) -> None:
    """Put the jars of the coordinates (organisation, name, version) into `folder`, without what they depend on.

    Raises:
        JarsMissing: the message says which, from where, and why not.
    """
    listen(SetupProgress(f"Delta's jars from {repository()}", 0, len(wanted)))
    with tempfile.TemporaryDirectory(dir=folder.parent) as work:
        command = _command(wanted, folder, java, Path(work))
        said: list[str] = []
        fetching = 0
        # the program is the Java that was found, its arguments are files written here
        with subprocess.Popen(  # noqa: S603
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            encoding="utf-8",
            errors="replace",
            # without a UTF-8 locale Java cannot open files with other than ASCII names
            env={**os.environ, "LC_ALL": "C.UTF-8"},
        ) as process:
            for line in process.stdout or ():
                said.append(line)
                if (download := _DOWNLOADING.search(line)) is not None:
                    listen(SetupProgress(f"{download[1]} from {repository()}", fetching, len(wanted)))
                    fetching += 1
    absent = [each for each in wanted if not (folder / f"{each[1]}-{each[2]}.jar").is_file()]
    if process.returncode != 0 or absent:
        raise JarsMissing(_what_failed("".join(said), absent or wanted), HINT)
    listen(SetupProgress(f"Delta's jars from {repository()}", len(wanted), len(wanted)))


def _command(wanted: Sequence[tuple[str, str, str]], folder: Path, java: Java, work: Path) -> list[str]:
    """Ivy's command line; its settings, and whatever may hold a password, go into files of this user alone."""
    chosen = os.environ.get("DEFAULT_ARTIFACT_REPOSITORY", "")
    root = f" root={quoteattr(chosen.rstrip('/') + '/')}" if chosen else ""
    _write(work / "settings.xml", _SETTINGS.format(cache=quoteattr(str(work / "cache")), root=root))
    dependencies = "\n".join(_DEPENDENCY.format(*each) for each in wanted)
    _write(work / "xml", _WANTED.format(dependencies=dependencies))
    _write(work / "java.options", "\n".join(quoted_option(option) for option in proxy_options()))
    return [
        *(java.command, f"@{work / 'java.options'}", f"-Duser.home={work}", "-jar", str(_ivy_jar())),
        *("-settings", str(work / "settings.xml"), "-ivy", str(work / "xml")),
        *("-retrieve", str(folder / _RETRIEVED)),
    ]


def proxy_options() -> list[str]:
    """HTTPS_PROXY, HTTP_PROXY and NO_PROXY, in either case, as Java's options."""
    options = []
    proxies = urllib.request.getproxies()
    for scheme in ("http", "https"):
        proxy = proxies.get(scheme, "")
        address = urlsplit(proxy if "//" in proxy else f"//{proxy}")
        if not address.hostname:
            continue
        options.append(f"-D{scheme}.proxyHost={address.hostname}")
        options.append(f"-D{scheme}.proxyPort={address.port or 80}")
        if address.username:
            options.append(f"-D{scheme}.proxyUser={unquote(address.username)}")
            options.append(f"-D{scheme}.proxyPassword={unquote(address.password or '')}")
            # since Java 8 a password is not sent to a proxy unless this is emptied
            options.append("-Djdk.http.auth.tunneling.disabledSchemes=")
    if options and (direct := [host.strip() for host in proxies.get("no", "").split(",") if host.strip()]):
        # `.example.org` and `example.org` both stand for the domain and all hosts in it
        hosts = [form for host in direct for form in (host.lstrip("."), "*." + host.lstrip("."))]
        options.append(f"-Dhttp.nonProxyHosts={'|'.join(hosts)}")
    return options


def _ivy_jar() -> Path:
    spark = find_spec("pyspark")
    folder = Path(spark.origin).parent / "jars" if spark is not None and spark.origin else Path()
    jars = sorted(folder.glob("ivy-2.*.jar"))
    if not jars:
        raise JarsMissing(f"no ivy jar in {folder}", "Run: python -m pip install --force-reinstall pyspark")
    return jars[-1]


def _what_failed(said: str, absent: Sequence[tuple[str, str, str]]) -> str:
    names = list(dict.fromkeys(":".join(each) for each in _UNRESOLVED.findall(said))) or [":".join(absent[0])]
    more = f" and {len(names) - 1} more" if len(names) > 1 else ""
    if denied := _DENIED.findall(said):
        reason = denied[-1]
    elif _NO_HOST.search(said):
        reason = "the host is not found"
    elif "not found" in said:
        reason = "not found there"
    else:
        reason = _PASSWORD.sub("//", telling_line(said)) or "Java gave no reason"
    return f"cannot fetch {names[0]}{more} from {repository()}: {reason}"


def _write(path: Path, text: str) -> None:
    path.touch(mode=0o600)
    path.write_text(text, encoding="utf-8")


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
        JarsMissing: they are not here and cannot be fetched, or `config.delta_jars_dir` lacks one.
    """
    if missing := missing_jars(config):
        if config.delta_jars_dir:
            names = ", ".join(jar.file_name for jar in missing)
            raise JarsMissing(
                f"the folder of jars {config.delta_jars_dir} lacks {names}",
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
    return Path(config.delta_jars_dir).expanduser().absolute() if config.delta_jars_dir else _cached()


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
        fetch([(jar.organisation, jar.name, jar.version) for jar in wanting], folder, java, listen)
        _check(wanting, folder)


def _check(jars: Sequence[Jar], folder: Path) -> None:
    for jar in jars:
        if not _is(jar, folder / jar.file_name):
            raise JarsMissing(
                f"{jar.coordinate} arrived from {repository()} with other content than was published",
                HINT,
            )


def _is(jar: Jar, path: Path) -> bool:
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest() == jar.sha256
    except OSError:
        return False
