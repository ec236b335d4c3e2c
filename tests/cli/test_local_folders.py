"""Commands and functions that need a folder of this machine: a URL is refused, and makes no folder `s3:`."""

from __future__ import annotations

from pathlib import Path

import pytest

from mirror_engine.errors import UsageError
from mirror_engine.testing.landing_zone_writer import LandingZoneWriter
from mirror_engine.testing.onelake import onelake

URL = "s3://bucket/shop"


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize(
    "words",
    [
        ["init", URL],
        ["init", str(Path(URL))],
        ["pull", ".", URL],
        ["emulator", "start", URL],
        ["emulator", "start", URL, "--detach"],
        ["emulator", "stop", URL],
        ["emulator", "env", URL],
        ["emulator", "exec", URL, "--", "true"],
    ],
    ids=" ".join,
)
def test_command_refuses_url_as_local_folder(cli, words):
    printed = cli(*words)
    assert printed.code == 2
    assert "s3://…: is not a folder of this machine" in printed.err
    assert not any(Path().iterdir())


@pytest.mark.parametrize("place", [URL, Path(URL)])
@pytest.mark.parametrize("use", [LandingZoneWriter, lambda place: onelake(place).__enter__()])
def test_function_refuses_url_as_local_folder(use, place):
    with pytest.raises(UsageError, match="is not a folder of this machine"):
        use(place)
    assert not any(Path().iterdir())
