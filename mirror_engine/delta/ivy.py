"""Fetches jars with Ivy, the fetcher that lies among Spark's own jars."""

from __future__ import annotations

import os
import re
import subprocess
import tempfile
import urllib.request
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit
from xml.sax.saxutils import quoteattr

from mirror_engine.delta.java_output import telling_line
from mirror_engine.delta.profile import quoted_option
from mirror_engine.errors import JarsMissing
from mirror_engine.events import Preparing

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mirror_engine.delta.java import Java
    from mirror_engine.events import Listener

HINT = (
    "Set DEFAULT_ARTIFACT_REPOSITORY to a mirror of Maven Central, HTTPS_PROXY to the way out, "
    "or --jars to a folder that holds the jars."
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
    listen(Preparing(f"Delta's jars from {repository()}", 0, len(wanted)))
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
                    listen(Preparing(f"{download[1]} from {repository()}", fetching, len(wanted)))
                    fetching += 1
    absent = [each for each in wanted if not (folder / f"{each[1]}-{each[2]}.jar").is_file()]
    if process.returncode != 0 or absent:
        raise JarsMissing(_what_failed("".join(said), absent or wanted), HINT)
    listen(Preparing(f"Delta's jars from {repository()}", len(wanted), len(wanted)))


def _command(wanted: Sequence[tuple[str, str, str]], folder: Path, java: Java, work: Path) -> list[str]:
    """Ivy's command line; its settings, and whatever may hold a password, go into files of this user alone."""
    chosen = os.environ.get("DEFAULT_ARTIFACT_REPOSITORY", "")
    root = f" root={quoteattr(chosen.rstrip('/') + '/')}" if chosen else ""
    _write(work / "settings.xml", _SETTINGS.format(cache=quoteattr(str(work / "cache")), root=root))
    dependencies = "\n".join(_DEPENDENCY.format(*each) for each in wanted)
    _write(work / "ivy.xml", _WANTED.format(dependencies=dependencies))
    _write(work / "java.options", "\n".join(quoted_option(option) for option in proxy_options()))
    return [
        *(java.command, f"@{work / 'java.options'}", f"-Duser.home={work}", "-jar", str(_ivy_jar())),
        *("-settings", str(work / "settings.xml"), "-ivy", str(work / "ivy.xml")),
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
