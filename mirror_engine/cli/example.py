"""`explain --try`: land the example of a diagnostic, for a person to play with."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mirror_engine.cli.setup import writing
from mirror_engine.config import Config, flag_of
from mirror_engine.errors import UsageError
from mirror_engine.explain.examples import examples
from mirror_engine.landing_zone.diagnostics import printable
from mirror_engine.storage.roots import check_place, pasted

if TYPE_CHECKING:
    from pathlib import Path

    from mirror_engine.testing.cases import Case


def land_example(code: str, root: Path) -> tuple[dict[str, Any], list[str]]:
    """Land the case of a code in a new ROOT; the engine runs after each of its stages but the last.

    Returns: what landed, as JSON and as text.

    Raises:
        UsageError: the code has no case, or there is something in the folder.
    """
    from mirror_engine.mirror import Mirror
    from mirror_engine.testing.cases import load

    if (name := examples().get(code)) is None:
        raise UsageError(f"{code} has no example to land", f"to read about it: mirror-engine explain {code}")
    case = load(name)
    with writing():
        check_place(root)
        if root.exists() and any(root.iterdir()):
            raise UsageError(f"{root} is not empty; nothing was written", "choose a new folder")
        for stage in case.stages[:-1]:
            stage.land(root)
            with Mirror(root, Config(**case.options)) as mirror:
                mirror.sync()
        case.stages[-1].land(root)
    stages = [
        {"title": stage.title, "removed": list(stage.removed), "files": [file.path for file in stage.files]}
        for stage in case.stages
    ]
    return {"case": name, "root": str(root), "stages": stages}, _text(case, root)


def _text(case: Case, root: Path) -> list[str]:
    lines = [f"{case.title}.", ""]
    for number, stage in enumerate(case.stages):
        lines += [f"The engine has run. Then {stage.title}:"] if number else [f"Landed in {root}:"]
        lines += [f"  deleted {printable(path)}" for path in stage.removed]
        lines += [f"  {printable(file.path)}" for file in stage.files]
    flags = [flag_of(name) if value is True else f"{flag_of(name)} {value}" for name, value in case.options.items()]
    at = " ".join([pasted(root), *flags])
    commands = ("sync",) if len(case.stages) > 1 else ("validate", "sync")  # `validate` sees the last stage alone
    return [*lines, "", "Next:", *(f"  mirror-engine {command} {at}" for command in commands)]
