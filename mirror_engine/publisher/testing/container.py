"""The emulator's image in tests, by `testcontainers`: for tests that run elsewhere than the emulator."""

from __future__ import annotations

import json
import os
import secrets
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any
from unittest.mock import patch
from urllib.parse import urlsplit

from mirror_engine.errors import SetupError
from mirror_engine.extras import install_command
from mirror_engine.landing_zone.layout import ENGINE

try:
    from docker.errors import APIError  # type: ignore[import-untyped]
    from testcontainers.core.container import DockerContainer
except ModuleNotFoundError as missing:
    help_text = f"Install the extra: {install_command('testcontainers')}"
    raise SetupError(f"OneLakeContainer needs {missing.name}", help_text) from None

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from typing_extensions import Self

PORT = 8700  # of everything, in the image
STATE = f"/store/{ENGINE}"
FILES = ("ca.pem", "bundle.pem", "java.p12")  # of its certificate authority
START_SECONDS = 60.0
POLL_SECONDS = 0.1
LOG_CHARACTERS = 1000
ENDED = ("exited", "dead")  # as Docker calls it


class OneLakeContainer(DockerContainer):
    """A container of the emulator's image (`docker build --tag mirror-engine .`), with a token of its own.

    Started or entered, it answers requests.

    Args:
        image: its name.
        settings: as `DockerContainer` takes them.

    Attributes:
        environment: variables that lead a publisher on this machine to it; known once started.
        page: the URL of its page; any user, the token as password.
        info: its names, GUIDs and addresses, as `emulator env --json` prints them inside.
    """

    def __init__(self, image: str = "mirror-engine:latest", **settings: Any) -> None:  # noqa: ANN401 - see above
        super().__init__(image, **settings)
        self.token = secrets.token_hex(16)
        self.with_env("MIRROR_ENGINE_TOKEN", self.token)
        self.with_exposed_ports(PORT)

    def start(self) -> Self:
        """Start it, and return when it answers.

        Raises:
            SetupError: it has ended, or does not within `START_SECONDS`.
        """
        super().start()
        ends = time.monotonic() + START_SECONDS
        while not (content := self._read("emulator.json")):
            self.reload()
            if (has_ended := self.status in ENDED) or time.monotonic() > ends:
                log = b"".join(self.get_logs()).decode(errors="replace").strip()
                self.stop()
                found = "has ended" if has_ended else "does not answer"
                raise SetupError(f"the emulator's container {found}", f"Its log ends so: {log[-LOG_CHARACTERS:]}")
            time.sleep(POLL_SECONDS)
        self.info = json.loads(content)
        self._folder = TemporaryDirectory(prefix="onelake-")
        for name in FILES:
            (Path(self._folder.name) / name).write_bytes(self._read(f"tls/{name}"))
        host, port = self.get_container_host_ip(), self.get_exposed_port(PORT)
        inside = urlsplit(self.info["http"])
        replaced = {
            f"{inside.hostname}:{inside.port}": f"{host}:{port}",
            f"proxyHost={inside.hostname}": f"proxyHost={host}",
            f"proxyPort={inside.port}": f"proxyPort={port}",
            f"{self.info['store']}/{ENGINE}/tls": self._folder.name,
        }
        self.environment = {name: text for name, text in self.info["environment"].items() if name != "PATH"}
        for old, new in replaced.items():
            self.environment = {name: text.replace(old, new) for name, text in self.environment.items()}
        self.page = f"http://{host}:{port}/"
        return self

    def stop(self, force: bool = True, delete_volume: bool = True) -> None:  # noqa: FBT001, FBT002 - as overridden
        super().stop(force, delete_volume)
        if hasattr(self, "_folder"):
            self._folder.cleanup()

    def led_here(self) -> AbstractContextManager[Any]:
        """Lead publishers of this process to it, within a `with`."""
        return patch.dict(os.environ, self.environment)

    def _read(self, path: str) -> bytes:
        """A file of its state; empty where there is none yet."""
        try:
            code, output = self.exec(["cat", f"{STATE}/{path}"])
        except APIError:  # where it does not run
            return b""
        return output if code == 0 else b""
