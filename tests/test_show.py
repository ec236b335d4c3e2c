"""`Mirror.show` and `show`: the rows with the lowest keys, bounded in rows and in bytes."""

from __future__ import annotations

import json

import pytest

from mirror_engine import mirror
from mirror_engine.config import Config
from mirror_engine.display import MAX_CELL
from mirror_engine.mirror import Mirror
from mirror_engine.tables.log import data_rows
from mirror_engine.testing.landing_zone_writer import LandingZoneWriter

TYPES = {"id": "int64", "text": "string", "raw": "binary"}


@pytest.fixture
def root(tmp_path):
    """Two data files; the lowest keys are in the older one, which is read last."""
    table = LandingZoneWriter(tmp_path).table("Notes", keys=["id"], types=TYPES)
    for first in (0, 50):
        table.insert(*({"id": at, "text": "y" * 5_000, "raw": b"\0" * 600} for at in range(first, first + 50)))
        with Mirror(tmp_path, Config(merge_engine="arrow")) as opened:
            opened.sync()
    return tmp_path


@pytest.mark.slow
@pytest.mark.parametrize(
    ("limits", "are_lowest"), [({}, True), ({"MAX_SORTED_ROWS": 99}, False), ({"MAX_SORTED_BYTES": 1_000}, False)]
)
def test_show_sorts_tables_of_few_rows_and_bytes(root, monkeypatch, limits, are_lowest):
    for name, value in limits.items():
        monkeypatch.setattr(mirror, name, value)
    rows = Mirror(root).show("Notes", limit=3)
    assert (rows.are_lowest, rows.has_more) == (are_lowest, True)
    assert [row["id"] for row in rows] == ([0, 1, 2] if are_lowest else [50, 51, 52])
    assert rows[0]["text"] == "y" * 5_000  # whole in Python


@pytest.mark.slow
def test_show_sorts_an_older_version_by_its_own_size(root, monkeypatch):
    LandingZoneWriter(root).table("Notes", keys=["id"], types=TYPES).delete(*({"id": at} for at in range(95)))
    Mirror(root, Config(merge_engine="arrow")).sync()
    monkeypatch.setattr(mirror, "MAX_SORTED_ROWS", 60)
    newest, *_ = Mirror(root).history("Notes").commits
    found = {version: Mirror(root).show("Notes", version=version, limit=3) for version in range(newest.version + 1)}
    counts = [Mirror(root).read_table("Notes", version=version).num_rows for version in found]
    assert {100, 5} <= {*counts}
    assert [rows.are_lowest for rows in found.values()] == [count <= 60 for count in counts]


@pytest.mark.slow
def test_show_reads_few_large_rows_at_once(root, monkeypatch):
    monkeypatch.setattr(mirror, "MAX_SORTED_ROWS", 0)
    monkeypatch.setattr(data_rows, "_BATCH_BYTES", 1)
    sizes, scan_file = [], data_rows.scan_file

    def counted(*arguments):
        for first, batch in scan_file(*arguments):
            sizes.append(batch.num_rows)
            yield first, batch

    monkeypatch.setattr(data_rows, "scan_file", counted)
    assert len(Mirror(root).show("Notes", limit=3)) == 3
    assert sizes == [1, 1, 1, 1]


@pytest.mark.slow
def test_long_text_is_cut_with_its_length_but_not_in_json(root, cli):
    words = ("show", "Notes", "-C", root, "--limit", "1")
    assert f" {'y' * MAX_CELL}… (5,000 characters) " in cli(*words).out
    assert json.loads(cli(*words, "--json").out)["rows"][0]["text"] == "y" * 5_000
    assert "… (5,000 characters)" in Mirror(root).show("Notes", limit=1)._repr_html_()
