"""Documents that commands print with `--json`, made by running them on the example of `init`."""

from __future__ import annotations

import io
import json
import tempfile
from contextlib import chdir, redirect_stderr, redirect_stdout
from functools import cache
from pathlib import Path
from typing import Any

from mirror_engine.cli.main import main
from mirror_engine.landing_zone.detection import numbered_name

ROOT, COPY = "shop", "copy"
MAX_ENTRIES = 2  # of a list that are shown
EXPECTED = "expected.csv"
ZONE = f"{ROOT}/Files/LandingZone"
ENGINE = ("--merge-engine", "arrow")  # the same on every machine
AT = ("-C", ROOT)
LINES: tuple[tuple[str, ...], ...] = (
    ("init", ROOT),
    ("sync", ROOT, *ENGINE),
    ("status", ROOT, "--table", "Sales.Orders"),
    ("show", *AT, "Items", "--limit", "2"),
    ("history", *AT, "Sales.Orders"),
    ("trace row", *AT, "Items", "A1"),
    ("trace file", *AT, "Sales.Orders", "2"),
    ("trace what-if", *AT, "Sales.Orders", "--skip", "2"),
    ("diff", *AT, "Items", EXPECTED),
    ("compare", ROOT),
    ("pull", ROOT, COPY),
    ("explain", "ME014"),
    ("rules",),
    ("generate", "made", "--tables", "1", "--for", "0s"),
    ("maintain", *AT, "Items", *ENGINE),
)
STUCK_LINES: tuple[tuple[str, ...], ...] = (
    ("plan", ROOT, "--table", "Items"),
    ("wait", ROOT, "--timeout", "0"),
    ("validate", ZONE),
    ("rebuild", ROOT, "--table", "Items", "--yes", "--lose-rows"),
    ("show", *AT, "Nothing"),
)
ERROR = "error"


@cache
def documents() -> dict[str, Any]:
    """A real document of each command by its name, lists shortened; and that of an error."""
    with tempfile.TemporaryDirectory() as folder, chdir(folder):
        Path(EXPECTED).write_text("Sku,Name,Weight\nA1,Lamp,1.2\nC3,Desk,20.5\n", encoding="utf-8")
        found = dict(map(_run, LINES))
        late = Path(ZONE) / "Items" / numbered_name(4, "csv")
        late.write_text("Sku,Name,Weight\nC3,Desk,20.5\n", encoding="utf-8")
        return found | dict(map(_run, STUCK_LINES))


def _run(line: tuple[str, ...]) -> tuple[str, Any]:
    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        main([*line[0].split(), *line[1:], "--json"])
    lines = (out.getvalue() or err.getvalue()).replace(f"{Path.cwd()}/", "/data/").splitlines()
    return (line[0] if out.getvalue() else ERROR), _shortened(json.loads(lines[-1]))


def _shortened(value: Any) -> Any:  # noqa: ANN401 - any JSON value
    """A JSON value with the first entries of its lists."""
    if isinstance(value, dict):
        return {name: _shortened(inner) for name, inner in value.items()}
    return [_shortened(inner) for inner in value[:MAX_ENTRIES]] if isinstance(value, list) else value
