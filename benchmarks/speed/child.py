"""One peer as a process: reads commands from stdin until it is closed; only answers go to the stdout it was given."""

from __future__ import annotations

import json
import os
import sys
import traceback
from importlib import import_module
from typing import Any

ENGINES = {
    "spark-engine": ("speed.engines", "SparkEngine"),
    "arrow-engine": ("speed.engines", "ArrowEngine"),
    "waiting": ("speed.waiting", "Empty"),
    "aging": ("speed.aging", "Aging"),
    "lake": ("speed.aging", "Lake"),
    "collapse": ("speed.collapsing", "Collapsing"),
    "delta-rs": ("speed.engines", "DeltaRs"),
    "notebook": ("speed.notebook", "Notebook"),
    "floor": ("speed.floor", "Floor"),
}


def main(name: str) -> None:
    """Serve one engine."""
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # what libraries print is no answer
    module, kind = ENGINES[name]
    engine = getattr(import_module(module), kind)()
    for line in sys.stdin:
        answers.write(json.dumps(_answer(engine, json.loads(line))) + "\n")
        answers.flush()
    if hasattr(engine, "end"):
        engine.end()


def _answer(engine: Any, asked: dict[str, Any]) -> dict[str, Any]:  # noqa: ANN401 - any engine
    try:
        told: dict[str, Any] = getattr(engine, asked["command"])(**asked["given"])
    except Exception as error:  # noqa: BLE001 - it goes on to whoever asked
        traceback.print_exc()
        return {"error": f"{type(error).__name__}: {str(error)[:500]}"}
    return told


if __name__ == "__main__":
    main(sys.argv[1])
