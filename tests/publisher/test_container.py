"""`OneLakeContainer` where a container is a process of this machine that runs the image's command.

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

import pytest
import requests
from azure.identity import DefaultAzureCredential
from azure.storage.filedatalake import DataLakeServiceClient
from docker.errors import APIError
from testcontainers.core import container as core

from mirror_engine.errors import SetupError
from mirror_engine.extras import install_command
from mirror_engine.publisher.testing.container import PORT, START_SECONDS, OneLakeContainer

pytestmark = pytest.mark.slow

DOCKERFILE = (Path(__file__).parents[2] / "Dockerfile").read_text(encoding="utf-8")
COMMAND = json.loads(re.findall(r"^CMD (\[.*\])$", DOCKERFILE, re.MULTILINE)[0])


@pytest.fixture
def docker(tmp_path, monkeypatch):
    """Containers are processes; its `port` is theirs."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        docker = SimpleNamespace(port=free.getsockname()[1])

    def start(container):
        assert (container.image, [str(port) for port in container.ports]) == ("mirror-engine:latest", [str(PORT)])
        words = [{"/store": str(tmp_path / "store"), str(PORT): str(docker.port)}.get(word, word) for word in COMMAND]
        environment = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), **container.env}
        with (tmp_path / "log").open("wb") as log:
            docker.process = subprocess.Popen(
                [sys.executable, "-m", "mirror_engine", *words], env=environment, stdout=log, stderr=subprocess.STDOUT
            )

    def stop(*_):
        docker.process.terminate()
        docker.process.wait(60)

    def has_ended(_):
        return docker.process.poll() is not None

    def execute(container, command):
        if has_ended(container):
            raise APIError("409 Conflict: container is not running")
        program, path = command
        assert program == "cat"
        file = tmp_path / Path(path).relative_to("/")
        return (0, file.read_bytes()) if file.exists() else (1, b"cat: no such file")

    for name, answer in {
        "start": start,
        "stop": stop,
        "exec": execute,
        "reload": lambda _: None,
        "status": property(lambda container: "exited" if has_ended(container) else "running"),
        "get_logs": lambda _: ((tmp_path / "log").read_bytes(), b""),
        "get_container_host_ip": lambda _: "localhost",
        "get_exposed_port": lambda _, port: docker.port if port == PORT else None,
    }.items():
        monkeypatch.setattr(core.DockerContainer, name, answer)
    monkeypatch.setattr(core, "DockerClient", SimpleNamespace)
    return docker


def test_a_publisher_of_this_machine_reaches_the_emulator_in_the_container(docker):
    with OneLakeContainer() as lake:
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
        assert f"-Dhttps.proxyHost=localhost -Dhttps.proxyPort={docker.port} " in java
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
    assert install_command("testcontainers") in done.stderr
