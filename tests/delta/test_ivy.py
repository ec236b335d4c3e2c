"""Fetching with Ivy: progress, proxies, and the reason of a failure in one line."""

from __future__ import annotations

import stat
from typing import TYPE_CHECKING

import pytest

from mirror_engine.errors import JarsMissing
from mirror_engine.events import Event, SetupProgress
from mirror_engine.tables.spark import jars as ivy
from mirror_engine.tables.spark.java import Java, find_java

if TYPE_CHECKING:
    from pathlib import Path

_WANTED = [("io.example", "one", "1.0"), ("io.example", "two", "2.0")]
_NO_ROUTE = """
:: problems summary ::
\t\tmodule not found: io.example#two;2.0
\t\t:: io.example#two;2.0: not found
:::: ERRORS
\tServer access error at url https://u:secret@repo.example/two-2.0.jar (java.net.ConnectException: Connection refused)

:: USE VERBOSE OR DEBUG MESSAGE LEVEL FOR MORE DETAILS
"""
_ABSENT = """
\t\t:: io.example#one;1.0: not found
\t\t:: io.example#two;2.0: not found
"""
_NO_HOST = "\tHost repo.example not found. url=https://u:secret@repo.example/x\n" + _ABSENT
_BROKEN = """Exception in thread "main" java.lang.IllegalStateException: outer
\tat org.apache.ivy.Main.run(Main.java:1)
Caused by: java.io.IOException: https://u:secret@repo.example/ is no repository
\t... 7 more
"""


@pytest.fixture(autouse=True)
def _no_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)
    monkeypatch.delenv("DEFAULT_ARTIFACT_REPOSITORY", raising=False)


def _java(home: Path, script: str) -> Java:
    program = home / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(f"#!/bin/sh\n{script}\n", encoding="utf-8")
    program.chmod(0o755)
    return Java(home, "17.0.1")


def _fetch(tmp_path: Path, script: str) -> list[Event]:
    told: list[Event] = []
    folder = tmp_path / "jars"
    folder.mkdir()
    ivy.fetch(_WANTED, folder, _java(tmp_path / "java", f'folder="{folder}"\n{script}'), told.append)
    return told


@pytest.mark.parametrize(
    ("said", "message"),
    [
        (_NO_ROUTE, "io.example:two:2.0 from Maven Central: java.net.ConnectException: Connection refused"),
        (_ABSENT, "io.example:one:1.0 and 1 more from Maven Central: not found there"),
        (_NO_HOST, "io.example:one:1.0 and 1 more from Maven Central: the host is not found"),
        (_BROKEN, "io.example:one:1.0 from Maven Central: java.io.IOException: https://repo.example/ is no repository"),
        ("", "io.example:one:1.0 from Maven Central: Java gave no reason"),
    ],
)
def test_a_failure_says_which_jar_from_where_and_why(tmp_path: Path, said: str, message: str) -> None:
    (tmp_path / "said").write_text(said, encoding="utf-8")
    with pytest.raises(JarsMissing) as raised:
        _fetch(tmp_path, f'cat "{tmp_path}/said"; exit 1')
    assert raised.value.message == f"cannot fetch {message}"
    for name in ("DEFAULT_ARTIFACT_REPOSITORY", "HTTPS_PROXY", "--delta-jars-dir"):
        assert name in raised.value.help


def test_each_download_is_told_with_its_count(tmp_path: Path) -> None:
    script = (
        'echo "downloading https://repo.example/io/one/1.0/one-1.0.jar ..."; touch "$folder/one-1.0.jar"\n'
        'echo "..."; echo "downloading https://repo.example/io/two/2.0/two-2.0.jar ..."; touch "$folder/two-2.0.jar"'
    )
    assert _fetch(tmp_path, script) == [
        SetupProgress("Delta's jars from Maven Central", 0, 2),
        SetupProgress("one-1.0 from Maven Central", 0, 2),
        SetupProgress("two-2.0 from Maven Central", 1, 2),
        SetupProgress("Delta's jars from Maven Central", 2, 2),
    ]


def test_an_exit_without_all_jars_is_a_failure(tmp_path: Path) -> None:
    with pytest.raises(JarsMissing, match=r"cannot fetch io\.example:two:2\.0 from"):
        _fetch(tmp_path, 'touch "$folder/one-1.0.jar"')


def test_a_repository_of_ones_own_replaces_the_public_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DEFAULT_ARTIFACT_REPOSITORY", "https://user:secret@mirror.example/maven?a&b")
    ivy._command(_WANTED, tmp_path, Java(tmp_path, "17"), tmp_path)
    assert 'root="https://user:secret@mirror.example/maven?a&amp;b/"' in (tmp_path / "settings.xml").read_text()
    assert stat.S_IMODE((tmp_path / "settings.xml").stat().st_mode) == 0o600
    assert ivy.repository() == "mirror.example"


def test_proxies_become_javas_options(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("https_proxy", "http://us%40er:p%3Aw@proxy.example:3128")
    monkeypatch.setenv("no_proxy", "localhost, .inner.example")
    assert ivy.proxy_options() == [
        "-Dhttps.proxyHost=proxy.example",
        "-Dhttps.proxyPort=3128",
        "-Dhttps.proxyUser=us@er",
        "-Dhttps.proxyPassword=p:w",
        "-Djdk.http.auth.tunneling.disabledSchemes=",
        "-Dhttp.nonProxyHosts=localhost|*.localhost|inner.example|*.inner.example",
    ]


def test_a_proxy_may_be_written_without_scheme_and_port(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTP_PROXY", "proxy.example")
    assert ivy.proxy_options() == ["-Dhttp.proxyHost=proxy.example", "-Dhttp.proxyPort=80"]


def test_a_password_never_stands_on_the_command_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("https_proxy", "http://user:secret@proxy.example:3128")
    command = ivy._command(_WANTED, tmp_path, Java(tmp_path, "17"), tmp_path)
    assert "secret" not in " ".join(command)
    assert "secret" in (tmp_path / "java.options").read_text()


@pytest.mark.spark
def test_ivy_itself_fetches_from_a_repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DEFAULT_ARTIFACT_REPOSITORY", (tmp_path / "repository").as_uri())
    published = tmp_path / "repository" / "io" / "example" / "one" / "1.0" / "one-1.0.jar"
    published.parent.mkdir(parents=True)
    published.write_bytes(b"jar")
    folder = tmp_path / "a, ü b" / "jars"
    folder.parent.mkdir()
    folder.mkdir()
    ivy.fetch(_WANTED[:1], folder, find_java(), lambda _: None)
    assert [(path.name, path.read_bytes()) for path in folder.iterdir()] == [("one-1.0.jar", b"jar")]
    with pytest.raises(JarsMissing, match=r"cannot fetch io\.example:two:2\.0 from .*: not found there"):
        ivy.fetch(_WANTED, folder, find_java(), lambda _: None)
