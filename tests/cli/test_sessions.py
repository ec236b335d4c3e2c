"""What a person types and sees: the sessions in tests/cli/sessions (tests/sessions.py), each from a fresh shop.

Commands that only read, and wrong usage, write nothing.
"""

from __future__ import annotations

import re
import shlex
import shutil
from pathlib import Path

import pyarrow as pa
import pytest
from sessions import CODE, matches, steps_in

from mirror_engine.testing.landing_zone_writer import LandingZoneWriter

USAGE = 2
WRITING = {"sync", "init", "maintain", "rebuild"}
SESSIONS = {
    f"{path.stem}: {session.partition(chr(10))[0]}": session
    for path in sorted(Path(__file__).with_name("sessions").glob("*.txt"))
    for session in re.split(r"^# ", path.read_text(encoding="utf-8"), flags=re.MULTILINE)[1:]
}


def written(root):
    return sorted((str(path), path.stat().st_mtime_ns) for path in root.rglob("*"))


@pytest.mark.slow  # whole commands
@pytest.mark.parametrize("name", SESSIONS)
def test_a_session_is_as_it_is_written_down(sales, cli, land_broken, monkeypatch, name):
    root = sales.root
    monkeypatch.chdir(root)
    names = {
        "monkeypatch": monkeypatch,
        "shutil": shutil,
        "pa": pa,
        "Path": Path,
        "LandingZoneWriter": LandingZoneWriter,
    }
    names |= {"broken": land_broken, "shop": sales, **vars(sales)}
    for step in steps_in(SESSIONS[name]):
        if step.kind == ">":
            exec(step.text, names)  # noqa: S102 - our own steps
            continue
        before = written(root)
        printed = cli(*shlex.split(step.text.replace("ROOT", str(root))))
        found = f"{printed.out}{printed.err}\n[{printed.code}]".replace(str(root), "ROOT")
        found = found.replace(str(root.parent), "HOME")
        assert CODE.search(step.shown), step.text
        assert matches(step.shown, found), f"$ {step.text}\n{found}"
        if printed.code == USAGE or (WRITING.isdisjoint(step.text.split()) and "--write-baseline" not in step.text):
            assert written(root) == before, step.text
