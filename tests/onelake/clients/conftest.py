"""A OneLake that is served, and clients in processes of their own, in just the environment that `serve` prints.

Two servers stand for the whole run: one without engines, where a client's files stay as they are, and one whose
engines mirror into memory what publishers land.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import time
import zlib
from collections import defaultdict
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from mirror_engine.config import Config
from mirror_engine.onelake.faults import EmulatorOptions
from mirror_engine.onelake.serving import Server, ServerPlan
from mirror_engine.tables.merge.memory import MemoryDeltaWriter

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

HERE = Path(__file__).parent
PROGRAMS = HERE / "programs"
PATIENCE_SECONDS = 30


class ClientError(Exception):
    """A client raised: status, code, class and message of it."""


class Client:
    """A program of a client's; each attribute is a function of it."""

    def __init__(self, command: Sequence[str], environment: Mapping[str, str]) -> None:
        self._process = subprocess.Popen(
            command, env=environment, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )

    def __getattr__(self, name: str) -> Callable[..., Any]:
        return lambda *arguments: self._ask([name, *arguments])

    def _ask(self, asked: list[Any]) -> Any:
        assert self._process.stdin
        assert self._process.stdout
        print(json.dumps(asked), file=self._process.stdin, flush=True)
        answer = json.loads(self._process.stdout.readline() or '{"refused": "the program has ended"}')
        if "refused" in answer:
            raise ClientError(answer["refused"])
        return answer["gave"]

    def end(self) -> None:
        self._process.communicate()


class Ground:
    """A server, and the processes around it: clients that are asked, and publishers that run to their end."""

    def __init__(self, server: Server, home: Path) -> None:
        self.connection = server.connection
        self.environment = self.connection.around({"PATH": os.environ["PATH"], "HOME": str(home)})
        self.landing_zone = Path(
            self.connection.store, self.connection.workspace, self.connection.item, "Files", "LandingZone"
        )
        self._started: dict[tuple[str, ...], Client] = {}

    def client(self, *command: str) -> Client:
        """The one process of a program; `datalake` for a module in Python."""
        if command not in self._started:
            whole = command if len(command) > 1 else (sys.executable, str(PROGRAMS / "answering.py"), *command)
            self._started[command] = Client(whole, self.environment)
        return self._started[command]

    def publish(self, *command: str) -> None:
        subprocess.run(command, env=self.environment, check=True, timeout=120)

    def end(self) -> None:
        for each in self._started.values():
            each.end()


class MirroredGround(Ground):
    """Its engines write to memory."""

    def __init__(self, server: Server, home: Path, writers: Mapping[str, MemoryDeltaWriter]) -> None:
        super().__init__(server, home)
        self._writers = writers

    def rows(self, table: str, item: str = "") -> list[dict[str, Any]] | None:
        """A table's rows as they are now, in no order that counts; None where there is no table."""
        writer = self._writers.get(item or self.connection.item_id)
        found = writer.rows(table) if writer else None
        return None if found is None else sorted(found.to_pylist(), key=lambda row: list(map(str, row.values())))

    def until_rows(self, table: str, rows: Sequence[Mapping[str, Any]], item: str = "") -> None:
        self.until(lambda: self.rows(table, item) == rows, lambda: self.rows(table, item))

    def until(self, holds: Callable[[], Any], reported: Callable[[], Any] = lambda: None) -> None:
        ends = time.monotonic() + PATIENCE_SECONDS
        while not holds():
            assert time.monotonic() < ends, reported()
            time.sleep(0.05)


@contextmanager
def standing(ground: Ground) -> Iterator[Any]:
    yield ground
    ground.end()


@pytest.fixture(scope="module")
def options() -> EmulatorOptions:
    return EmulatorOptions()


@pytest.fixture(scope="module")
def ground(tmp_path_factory, options) -> Iterator[Ground]:
    """A server without engines."""
    reported: list[str] = []
    plan = ServerPlan(tmp_path_factory.mktemp("served") / "store", has_engines=False, options=options)
    with (
        Server(plan, on_error=reported.append) as server,
        standing(Ground(server, tmp_path_factory.mktemp("home"))) as made,
    ):
        yield made
    assert reported == []


@pytest.fixture(scope="module")
def mirrored(tmp_path_factory) -> Iterator[MirroredGround]:
    """A server with engines."""
    writers: defaultdict[str, MemoryDeltaWriter] = defaultdict(MemoryDeltaWriter)
    plan = ServerPlan(
        tmp_path_factory.mktemp("mirrored") / "store",
        config=Config(poll_interval_seconds=0.1),
        new_writer=lambda item: writers[item.id],
    )
    home = tmp_path_factory.mktemp("home")
    with Server(plan, on_error=pytest.fail) as server, standing(MirroredGround(server, home, writers)) as made:
        yield made


@pytest.fixture(scope="session")
def node(pytestconfig, tmp_path_factory) -> Callable[[Path], str]:
    """Puts a program into the folder of the Node libraries, which are installed once; gives its path."""
    if not (shutil.which("node") and shutil.which("npm")):
        pytest.skip("node or npm is missing")
    wanted = (HERE / "node/package.json").read_text()
    cache = getattr(pytestconfig, "cache", None)  # absent with -p no:cacheprovider
    folder = cache.mkdir(f"node-{zlib.crc32(wanted.encode()):08x}") if cache else tmp_path_factory.mktemp("node")
    if not (folder / "installed").exists():
        (folder / "package.json").write_text(wanted)
        done = subprocess.run(
            ["npm", "install", "--no-audit", "--no-fund", "--no-package-lock", "--ignore-scripts"],
            cwd=folder,
            capture_output=True,
            text=True,
            timeout=200,
            check=False,
        )
        if done.returncode:
            pytest.skip(f"npm could not install the libraries: {done.stderr[-500:]}")
        (folder / "installed").touch()
    return lambda program: str(shutil.copy(program, folder))


@pytest.fixture
def client(ground) -> Callable[..., Client]:
    return ground.client


@pytest.fixture
def served(ground) -> Ground:
    return ground


@pytest.fixture
def landing_zone(ground) -> Path:
    return ground.landing_zone


@pytest.fixture(scope="session")
def refused() -> Callable[[str], Any]:
    """Expects that a client raises, with these words."""
    return lambda words: pytest.raises(ClientError, match=re.escape(words))


_numbers = count(1)


@pytest.fixture
def table() -> str:
    """A table folder's name of this test alone."""
    return f"T{next(_numbers)}"


@pytest.fixture
def accepts_batches(options) -> Iterator[None]:
    options.blob_batch = "accept"
    yield
    options.blob_batch = "reject"
