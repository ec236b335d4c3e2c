"""The Delta jars: local copies, what Spark is to fetch, and the reason where it cannot."""

from __future__ import annotations

import zipfile
from pathlib import Path

import pytest

from mirror_engine.config import Config
from mirror_engine.errors import JarsMissing
from mirror_engine.tables.spark import java

FAILURES = {
    "java.net.ConnectException: Connection refused": """
\t\t:: io.delta#delta-spark_4.2_2.13;4.4.0: not found
:::: ERRORS
\tServer access error at url https://u:secret@repo.example/x.pom (java.net.ConnectException: Connection refused)
Exception in thread "main" java.lang.RuntimeException: [unresolved dependency: io.delta#delta-spark_4.2_2.13;4.4.0]
""",
    "io.delta#delta-spark_4.2_2.13;4.4.0: not found": """
\t\t:: io.delta#delta-spark_4.2_2.13;4.4.0: not found
Exception in thread "main" java.lang.RuntimeException: [unresolved dependency: io.delta#delta-spark_4.2_2.13;4.4.0]
""",
    "Host repo.example not found": """
\tHost repo.example not found. url=https://u:secret@repo.example/x
\t\t:: io.delta#delta-spark_4.2_2.13;4.4.0: not found
RuntimeException: [unresolved dependency: io.delta#delta-spark_4.2_2.13;4.4.0: not found]
""",
    "download failed: io.delta#delta-storage;4.4.0!delta-storage.jar": """
java.lang.RuntimeException: [download failed: io.delta#delta-storage;4.4.0!delta-storage.jar]
""".replace("]", ""),
    "": "Error: no room for the heap",
}


@pytest.fixture(autouse=True)
def no_environment(monkeypatch, tmp_path):
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)
    monkeypatch.delenv("DEFAULT_ARTIFACT_REPOSITORY", raising=False)
    monkeypatch.setenv("MIRROR_ENGINE_CACHE", str(tmp_path / "cache"))


def write_jars(folder, template):
    folder.mkdir(parents=True, exist_ok=True)
    for coordinate in java.COORDINATES:
        organisation, name, version = coordinate.split(":")
        with zipfile.ZipFile(folder / template.format(organisation, name, version), "w") as jar:
            jar.writestr("content", coordinate)


@pytest.mark.parametrize("template", ["{1}-{2}.jar", "{0}_{1}-{2}.jar"], ids=["Maven's name", "Ivy's name"])
def test_local_jars_are_used_as_they_are(tmp_path, template):
    write_jars(tmp_path / "offline", template)
    (tmp_path / "offline" / "hadoop-client-api-3.4.2.jar").touch()
    with java.local_jars(Config(delta_jars_dir=str(tmp_path / "offline"))) as paths:
        assert len(paths) == len(java.COORDINATES)
    assert not (tmp_path / "cache").exists()


def test_without_local_jars_spark_fetches_them_afterwards_they_are_local(tmp_path):
    with java.local_jars(Config()) as paths:
        assert paths == []
        assert java.download_settings()["spark.jars.ivy"] == str(tmp_path / "cache" / "ivy")
        write_jars(tmp_path / "cache" / "ivy" / "jars", "{0}_{1}-{2}.jar")
    with java.local_jars(Config()) as paths:
        assert len(paths) == len(java.COORDINATES)


def test_a_download_that_was_cut_short_counts_as_missing(tmp_path):
    folder = tmp_path / "cache" / "ivy" / "jars"
    write_jars(folder, "{0}_{1}-{2}.jar")
    jar = folder / "io.delta_delta-storage-4.4.0.jar"
    jar.write_bytes(jar.read_bytes()[:-30])
    with java.local_jars(Config()) as paths:
        assert paths == []


def test_every_spark_of_the_user_shares_the_folder(monkeypatch, tmp_path):
    monkeypatch.delenv("MIRROR_ENGINE_CACHE")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert java.jars_folder(Config()) == tmp_path / ".ivy2.5.2" / "jars"


def test_a_folder_without_all_jars_is_an_error_with_their_names(tmp_path):
    write_jars(tmp_path / "offline", "{1}-{2}.jar")
    (tmp_path / "offline" / "delta-storage-4.4.0.jar").unlink()
    with pytest.raises(JarsMissing, match=r"offline lacks io\.delta:delta-storage:4\.4\.0\n"):
        java.local_jars(Config(delta_jars_dir=str(tmp_path / "offline"))).__enter__()


def test_a_cache_that_cannot_be_written_is_named(tmp_path, monkeypatch):
    (tmp_path / "file").touch()
    monkeypatch.setenv("MIRROR_ENGINE_CACHE", str(tmp_path / "file"))
    with pytest.raises(JarsMissing, match="cannot be stored in") as raised:
        java.local_jars(Config()).__enter__()
    assert "MIRROR_ENGINE_CACHE" in raised.value.help


@pytest.mark.parametrize("reason", FAILURES)
def test_a_failed_download_has_one_line_as_its_reason(reason):
    assert java.download_failure(FAILURES[reason]).startswith(reason)
    assert "secret" not in java.download_failure(FAILURES[reason])


def test_the_repository_is_named_without_its_password(monkeypatch):
    assert java.repository() == "Maven Central"
    monkeypatch.setenv("DEFAULT_ARTIFACT_REPOSITORY", "https://user:secret@mirror.example/maven")
    assert java.repository() == "mirror.example"


@pytest.mark.parametrize(
    ("variables", "options"),
    [
        ({}, []),
        ({"HTTP_PROXY": "proxy.example"}, ["-Dhttp.proxyHost=proxy.example", "-Dhttp.proxyPort=80"]),
        (
            {"https_proxy": "http://user:secret@proxy.example:3128", "no_proxy": "localhost, .inner.example"},
            [
                *("-Dhttps.proxyHost=proxy.example", "-Dhttps.proxyPort=3128"),
                "-Dhttp.nonProxyHosts=localhost|*.localhost|inner.example|*.inner.example",
            ],
        ),
    ],
)
def test_proxies_become_java_options(monkeypatch, variables, options):
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert java.proxy_options() == options


def test_the_jars_are_those_of_the_pinned_versions():
    pins = Path(__file__).parents[3].joinpath("pyproject.toml").read_text(encoding="utf-8")
    assert f'"pyspark=={java.SPARK_VERSION}"' in pins
    assert f'"delta-spark=={java.DELTA_VERSION}"' in pins
