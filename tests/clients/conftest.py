"""A OneLake that is served, and clients in processes of their own, in just the environment that `serve` prints."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from mirror_engine.endpoint.switches import Switches
from mirror_engine.serving.server import Plan, Server

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

HERE = Path(__file__).parent
PROGRAMS = HERE / "programs"


class Refused(Exception):
    """A client raised: status, code, class and message of it."""


class Client:
    """A program of a client's; each attribute is a function of it."""

    def __init__(self, command: Sequence[str], environment: Mapping[str, str]) -> None:
        self._process = subprocess.Popen(
            command, env=environment, cwd=PROGRAMS, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )

    def __getattr__(self, name: str) -> Callable[..., Any]:
        return lambda *arguments: self._ask([name, *arguments])

    def _ask(self, asked: list[Any]) -> Any:
        assert self._process.stdin
        assert self._process.stdout
        print(json.dumps(asked), file=self._process.stdin, flush=True)
        answer = json.loads(self._process.stdout.readline() or '{"refused": "the program has ended"}')
        if "refused" in answer:
            raise Refused(answer["refused"])
        return answer["gave"]

    def end(self) -> None:
        self._process.communicate()


@pytest.fixture(scope="session")
def switches() -> Switches:
    return Switches()


@pytest.fixture(scope="session")
def store(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("clients") / "store"


@pytest.fixture(scope="session")
def served(store, switches) -> Iterator[Server]:
    told: list[str] = []
    with Server(Plan(store, has_engines=False, switches=switches), tell=told.append) as server:
        yield server
    assert told == []


@pytest.fixture(scope="session")
def environment(served, tmp_path_factory) -> dict[str, str]:
    """What `serve` prints, and what any process has."""
    home = tmp_path_factory.mktemp("home")
    return served.card.around({"PATH": os.environ["PATH"], "HOME": str(home)})


@pytest.fixture(scope="session")
def client(environment) -> Iterator[Callable[[str], Client]]:
    """Starts a program, once."""
    started: dict[str, Client] = {}

    def start(program: str) -> Client:
        if program not in started:
            started[program] = Client([sys.executable, "answering.py", program], environment)
        return started[program]

    yield start
    for each in started.values():
        each.end()


@pytest.fixture(scope="session")
def refused() -> Callable[[str], Any]:
    """Expects that a client raises, with these words."""
    return lambda words: pytest.raises(Refused, match=re.escape(words))


_numbers = count(1)


@pytest.fixture
def table() -> str:
    """A table folder's name that nobody else uses."""
    return f"T{next(_numbers)}"


@pytest.fixture
def landing_zone(served) -> Path:
    card = served.card
    return Path(card.store) / card.workspace / card.item / "Files" / "LandingZone"


@pytest.fixture
def accepts_batches(switches) -> Iterator[None]:
    switches.blob_batch = "accept"
    yield
    switches.blob_batch = "refuse"
