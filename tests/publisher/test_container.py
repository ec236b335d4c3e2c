"""`OneLakeContainer` with a Docker client that runs the image's command as a process of this machine.

No Docker is asked: `make image-check` builds the image and runs it.
"""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import NamedTuple

import pytest
import requests
from azure.identity import DefaultAzureCredential
from azure.storage.filedatalake import DataLakeServiceClient
from docker.errors import APIError
from testcontainers.core import container as core
from testcontainers.core.config import ConnectionMode

from mirror_engine.errors import SetupError
from mirror_engine.publisher.testing.container import PORT, START_SECONDS, OneLakeContainer

pytestmark = pytest.mark.slow

DOCKERFILE = (Path(__file__).parents[2] / "Dockerfile").read_text(encoding="utf-8")
COMMAND = json.loads(re.findall(r"^CMD (\[.*\])$", DOCKERFILE, re.MULTILINE)[0])


class Result(NamedTuple):
    """What a command in a container gives."""

    exit_code: int
    output: bytes


class Process:
    """A container of the image, as a process."""

    id = short_id = "c0ffee"

    def __init__(self, folder, environment):
        self.store, self._folder, self._environment, self._process = folder / "store", folder, environment, None
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port = free.getsockname()[1]

    def start(self):
        words = [{"/store": str(self.store), str(PORT): str(self.port)}.get(word, word) for word in COMMAND]
        environment = {"PATH": os.environ["PATH"], "HOME": str(self._folder), **self._environment}
        with (self._folder / "log").open("wb") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "mirror_engine", *words], env=environment, stdout=log, stderr=subprocess.STDOUT
            )

    def exec_run(self, cmd, **_):
        if self._process.poll() is not None:
            raise APIError("409 Conflict: container is not running")
        program, path = cmd
        assert program == "cat"
        try:
            return Result(0, self._at(path).read_bytes())
        except FileNotFoundError:
            return Result(1, b"cat: no such file")

    def reload(self):
        self.status = "running" if self._process.poll() is None else "exited"

    def logs(self, *, stdout=True, **_):
        return (self._folder / "log").read_bytes() if stdout else b""

    def remove(self, **_):
        self._process.terminate()
        self._process.wait(60)

    def _at(self, path):
        return self.store / Path(path).relative_to("/store")


class FakeDocker:
    """What a container asks of Docker."""

    def __init__(self, folder):
        self.folder, self.created = folder, []
        self.client = SimpleNamespace(close=lambda: None)

    def create(self, image, *, environment, ports, **_):
        self.created.append((image, ports))
        return Process(self.folder, environment)

    def start(self, process):
        process.start()
        self.process = process

    def port(self, _, port):
        assert int(str(port).partition("/")[0]) == PORT
        return self.process.port

    def get_connection_mode(self):
        return ConnectionMode.docker_host

    def host(self):
        return "localhost"


@pytest.fixture
def docker(tmp_path, monkeypatch):
    fake = FakeDocker(tmp_path)
    monkeypatch.setattr(core, "DockerClient", lambda **_: fake)
    monkeypatch.setattr(core.c, "ryuk_disabled", True)
    return fake


def test_a_publisher_of_this_machine_reaches_the_emulator_in_the_container(docker):
    with OneLakeContainer() as lake:
        assert docker.created[0][0] == "mirror-engine:latest"
        assert list(docker.created[0][1]) == [str(PORT)]
        before = dict(os.environ)
        with lake.led_here():
            service = DataLakeServiceClient(
                "https://onelake.dfs.fabric.microsoft.com", credential=DefaultAzureCredential()
            )
            workspace = service.get_file_system_client(os.environ["FABRIC_WORKSPACE_ID"])
            folder = f"{os.environ['FABRIC_MIRRORED_DATABASE_ID']}/Files/LandingZone/Orders"
            workspace.get_file_client(f"{folder}/_metadata.json").upload_data(b'{"keyColumns": ["id"]}', overwrite=True)
            assert (
                workspace.get_file_client(f"{folder}/_metadata.json").download_file().readall()
                == b'{"keyColumns": ["id"]}'
            )
        assert dict(os.environ) == before
        java = lake.environment["MIRROR_ENGINE_JAVA_OPTIONS"]
        assert f"-Dhttps.proxyHost=localhost -Dhttps.proxyPort={docker.process.port} " in java
        stores = [Path(lake.environment["SSL_CERT_FILE"]), Path(java.rpartition("=")[2])]
        assert all(path.stat().st_size for path in stores)
        assert "PATH" not in lake.environment
        ends = time.monotonic() + 30
        while "Orders" not in (page := requests.get(lake.page, auth=("any", lake.token), timeout=10).text):
            assert time.monotonic() < ends, page
        assert requests.get(lake.page, timeout=10).status_code == 401
    assert not any(path.exists() for path in stores)


@pytest.mark.usefixtures("docker")
def test_a_container_that_ends_is_not_waited_for_and_says_why():
    container = OneLakeContainer()
    container.with_env("MIRROR_ENGINE_TOKEN", "short")
    begun = time.monotonic()
    with pytest.raises(SetupError, match="has ended") as raised:
        container.start()
    assert "MIRROR_ENGINE_TOKEN" in raised.value.help
    assert time.monotonic() - begun < START_SECONDS / 2


def test_what_is_missing_is_said_with_the_extra_that_brings_it():
    code = "import sys; sys.modules['testcontainers'] = None; import mirror_engine.publisher.testing.container"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "OneLakeContainer needs testcontainers" in done.stderr
    assert "pip install 'mirror-engine[testcontainers]'" in done.stderr
