"""What a person types and sees: the sessions in tests/cli/sessions, each from a fresh shop.

`$` begins a command line, `>` a step of the publisher in Python; below a command are its output and [its exit code].
Commands that only read, and wrong usage, write nothing.
"""

from __future__ import annotations

import re
import shlex
import shutil
from pathlib import Path

import pyarrow as pa
import pytest

from mirror_engine.testing.landing_zone_writer import LandingZoneWriter

VARYING = re.compile(
    r"\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d|(?<=Failed on )\d{4}-\d\d-\d\d|\b\d+(\.\d)?s\b|\b\d{5}d\b|\b\d+\.\d kB\b"
)  # among it the age of a file of 1970
USAGE = 2
WRITING = {"sync", "init", "maintain", "rebuild"}
SESSIONS = {
    f"{path.stem}: {session.partition(chr(10))[0]}": session
    for path in sorted(Path(__file__).with_name("sessions").glob("*.txt"))
    for session in re.split(r"^# ", path.read_text(encoding="utf-8"), flags=re.MULTILINE)[1:]
}


def written(root):
    return sorted((str(path), path.stat().st_mtime_ns) for path in root.rglob("*"))


def comparable(text, root):
    """Lines without what varies: times, the width of gaps, and empty lines."""
    lines = VARYING.sub("…", text.replace(str(root), "ROOT").replace(str(root.parent), "HOME")).splitlines()
    return [re.sub(r"(?<=\S)\s+", " ", line).rstrip() for line in lines if line.strip()]


@pytest.mark.slow  # whole commands
@pytest.mark.parametrize("name", SESSIONS)
def test_a_session_is_as_it_is_written_down(sales, cli, land_broken, monkeypatch, name):
    monkeypatch.chdir(sales.root)
    names = {
        "monkeypatch": monkeypatch,
        "shutil": shutil,
        "pa": pa,
        "Path": Path,
        "LandingZoneWriter": LandingZoneWriter,
    }
    names |= {"broken": land_broken, "shop": sales, **vars(sales)}
    for step in re.split(r"^(?=[$>] )", SESSIONS[name], flags=re.MULTILINE)[1:]:
        line, _, shown = step.partition("\n")
        if line.startswith("> "):
            exec(line[2:], names)  # noqa: S102 - our own steps
            continue
        before = written(sales.root)
        printed = cli(*shlex.split(line[2:].replace("ROOT", str(sales.root))))
        found = f"{printed.out}{printed.err}[{printed.code}]"
        assert comparable(found, sales.root) == comparable(shown, sales.root), line
        if printed.code == USAGE or (WRITING.isdisjoint(line.split()) and "--write-baseline" not in line):
            assert written(sales.root) == before, line
