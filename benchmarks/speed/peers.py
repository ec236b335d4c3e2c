"""The engines that are compared, each in a process of its own that stays up and warm."""

from __future__ import annotations

import os
from concurrent.futures import ProcessPoolExecutor
from functools import cache
from importlib import import_module
from multiprocessing import get_context
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from pathlib import Path


ENGINES = {
    "spark-engine": ("speed.engines", "SparkEngine"),
    "arrow-engine": ("speed.engines", "ArrowEngine"),
    "delta-rs": ("speed.engines", "DeltaRs"),
    "notebook": ("speed.notebook", "Notebook"),
    "floor": ("speed.floor", "Floor"),
    "collapse": ("speed.works.collapse", "Collapsing"),
    "lake": ("speed.lake", "Lake"),
}


class Peers:
    """Start each engine at its first command. A context manager that ends them; `logs` gets what they print."""

    def __init__(self, logs: Path) -> None:
        self._logs = logs
        self._running: dict[str, ProcessPoolExecutor] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def ask(self, peer: str, command: str, **given: Any) -> Any:  # noqa: ANN401 - each method has a result of its own
        """Call a method of an engine; raises what the method raises."""
        if peer not in self._running:
            log = self._logs / f"{peer}.log"
            self._running[peer] = ProcessPoolExecutor(1, get_context("spawn"), _print_to, (log,))
        return self._running[peer].submit(_call, peer, command, given).result()

    def end(self) -> None:
        """End all engines."""
        while self._running:
            peer, process = self._running.popitem()
            process.submit(_end, peer).result()
            process.shutdown()


def _print_to(log: Path) -> None:
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("ab") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)


@cache
def _engine(peer: str) -> Any:  # noqa: ANN401 - the engine of this process
    module, kind = ENGINES[peer]
    return getattr(import_module(module), kind)()


def _call(peer: str, command: str, given: dict[str, Any]) -> Any:  # noqa: ANN401 - as above
    return getattr(_engine(peer), command)(**given)


def _end(peer: str) -> None:
    if hasattr(_engine(peer), "end"):
        _call(peer, "end", {})
