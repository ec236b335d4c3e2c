"""What the commands say of Delta tables that were damaged, or changed by someone else."""

from __future__ import annotations

import json

import pyarrow as pa
import pytest
from deltalake import write_deltalake
from json_shapes import documented, shape
from lake import Lake

from mirror_engine.tables.spark import doctor as machine

pytestmark = pytest.mark.slow  # with tables on the disk: no part of the quick look


@pytest.fixture
def lake(tmp_path, monkeypatch) -> Lake:
    monkeypatch.setattr(machine, "checks", lambda *_: [])
    return Lake(tmp_path / "lake", files=2)


def test_all_is_well_where_nobody_else_was(lake, say) -> None:
    said = say("doctor", lake.root)
    assert (said.code, said.err) == (0, "")
    assert "Delta tables" in said.out
    assert "1 table, as the engine left them" in said.out


def test_a_change_by_someone_else_is_told_with_its_version(lake, say) -> None:
    write_deltalake(str(lake.folder), pa.table({"id": [1], "city": ["x"]}), mode="append")
    assert say("once", lake.root).code == 0
    status = say("status", lake.root)
    assert "warning: Orders: another program changed the Delta table at version 3 [ME080]" in status.out
    (found,) = json.loads(say("status", lake.root, "--json").out)["tables"][0]["diagnostics"]
    assert (found["code"], found["severity"], found["details"]) == ("ME080", "warning", {"version": "3"})
    doctor = say("doctor", lake.root)
    assert doctor.code == 3
    assert "changed by someone else at version 3" in doctor.out


def test_a_damaged_table_needs_attention_and_everything_says_so(lake, say) -> None:
    lake.commit(2).write_bytes(b"")
    once = say("once", lake.root)
    assert once.code == 3
    assert once.out.startswith("Orders is halted: Orders: Delta table is damaged: commit 2 of its Delta log is cut off")
    status = say("status", lake.root)
    assert status.code == 0
    assert "-> Restore the table's folder from a backup, or delete _delta_log/00000000000000000002.json" in " ".join(
        status.out.split()
    )
    (table,) = json.loads(say("status", lake.root, "--json").out)["tables"]
    assert (table["state"], table["diagnostics"][0]["code"]) == ("halted", "ME081")
    doctor = say("doctor", lake.root, "--json")
    assert doctor.code == 3
    assert shape(json.loads(doctor.out)) == documented("doctor")
    show = say("show", lake.root, "Orders")
    assert show.code == 3
    assert "commit 2 of its Delta log is cut off" in show.err


def test_a_root_that_is_not_there_yet_has_no_tables(tmp_path, say, monkeypatch) -> None:
    monkeypatch.setattr(machine, "checks", lambda *_: [])
    assert say("doctor", tmp_path / "new").code == 0
