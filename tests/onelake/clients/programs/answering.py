"""A client's program: does what each line asks for, and answers with what came of it.

Run with a module's name: a line is `["function", argument, …]` in JSON, an answer `{"gave": …}` or what was refused.
"""

from __future__ import annotations

import importlib
import json
import sys
from typing import Any


def answer(module: Any, asked: list[Any]) -> dict[str, Any]:
    name, *arguments = asked
    try:
        return {"gave": getattr(module, name)(*arguments)}
    except Exception as problem:  # noqa: BLE001 - whatever a client raises is what a test wants to know
        return {"refused": refusal(problem)}


def refusal(problem: Exception) -> str:
    """A client's exception in one line: status, code, class, message."""
    response = getattr(problem, "response", None)
    status = getattr(problem, "status_code", None) or getattr(response, "status_code", "")
    code = getattr(problem, "error_code", "")
    return f"{status} {getattr(code, 'value', code)} {type(problem).__name__}: {problem}"


def main() -> None:
    answers, sys.stdout = sys.stdout, sys.stderr  # libraries print, too
    module = importlib.import_module(sys.argv[1])
    for line in sys.stdin:
        print(json.dumps(answer(module, json.loads(line)), default=str), file=answers, flush=True)


if __name__ == "__main__":
    main()
