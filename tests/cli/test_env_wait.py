"""`env --wait`: the command's program is over, and what it landed is in the tables, or why not is told."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from mirror_engine.tables.merge.memory import MemoryDeltaWriter

PUBLISHER = Path(__file__).parents[2] / "docs/examples/publisher.py"


pytestmark = pytest.mark.slow


@pytest.fixture
def writers(monkeypatch):
    """Engines that write to memory, by the name of their ROOT."""
    made = {}
    monkeypatch.setattr(
        "mirror_engine.mirror.Mirror._own_writer",
        lambda mirror: made.setdefault(mirror.root.name, MemoryDeltaWriter()),
    )
    return made


def leaving_out_a_number(tmp_path):
    program = tmp_path / "publisher.py"
    program.write_text(PUBLISHER.read_text().replace("00002.csv", "00003.csv"))
    return program


def test_what_the_command_landed_is_in_the_tables(say, tmp_path, writers) -> None:
    said = say("env", tmp_path / "store", "--wait", "60", "--", sys.executable, PUBLISHER)
    assert said.code == 0, said.err
    assert writers["Mirror"].rows("Sales/Stores").to_pylist() == [{"id": 2, "city": "Wien"}]


@pytest.mark.usefixtures("writers")
def test_a_table_that_waits_for_a_file_that_nobody_will_land_is_not_waited_for(say, tmp_path) -> None:
    said = say("env", tmp_path / "store", "--wait", "600", "--", sys.executable, leaving_out_a_number(tmp_path))
    assert said.code == 3
    assert "Workspace/Mirror: Sales.Stores is blocked: 00000000000000000002.csv is missing" in said.err


@pytest.mark.usefixtures("writers")
def test_without_it_tables_that_are_behind_are_told_and_the_code_is_the_command_s(say, tmp_path) -> None:
    said = say("env", tmp_path / "store", "--", sys.executable, leaving_out_a_number(tmp_path))
    assert said.code == 0
    assert "Sales.schema/Stores" in said.err
    assert "env --wait SECONDS" in said.err


@pytest.mark.usefixtures("writers")
def test_a_command_that_failed_is_not_waited_for(say, tmp_path) -> None:
    script = f"exec(open({str(leaving_out_a_number(tmp_path))!r}).read()); raise SystemExit(7)"
    said = say("env", tmp_path / "store", "--wait", "600", "--", sys.executable, "-c", script)
    assert said.code == 7
