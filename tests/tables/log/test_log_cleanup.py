"""Log cleanup: a log holds the commits of its retention, and never loses the newest record."""

from __future__ import annotations

from dataclasses import replace

import pytest
from delta_scenario import SIMPLE, Scenario, add_rows, aged, known_log
from deltalake import DeltaTable

from mirror_engine.landing_zone.progress import Segment
from mirror_engine.tables.log import commit as evolution
from mirror_engine.tables.log.cleanup import LOG_RETENTION, clean_up_log


class Covered(Scenario):
    """A table of whose older commits a segment says what they applied; `until` the version before, or another."""

    until = None

    def record(self, *files):
        made = super().record(*files)
        until = self.version if self.until is None else self.until
        segment = Segment(until, 1, 0.0, "applied.json")
        return replace(made, progress=replace(made.progress, segments=(segment,)))


@pytest.fixture
def covered_table(local, monkeypatch):
    """One with a checkpoint at each fifth commit, whose records need their own commits alone."""
    monkeypatch.setitem(evolution._PROPERTIES, "delta.checkpointInterval", "5")
    table = Covered(local, SIMPLE, ["Id"])
    table.log = local.path("dbo/T") / "_delta_log"
    return table


def grow(table, commits):
    for number in range(commits):
        table.change((4, number, "Linz"))


def age(table, days):
    """Let the files of a log be older."""
    aged(table.log.iterdir(), days)


def versions(table):
    return sorted({int(file.name[:20]) for file in table.log.glob("0*.json")})


def test_new_table_keeps_its_log_as_long_as_vacuum_its_files(local, covered_table):
    covered_table.change((0, 1, "Linz"))
    assert known_log(local.path("dbo/T")).configuration[LOG_RETENTION] == "interval 7 days"


@pytest.mark.slow
def test_checkpoint_of_a_batch_cleans_the_log_up(local, covered_table):
    grow(covered_table, 7)
    assert versions(covered_table)[0] == 0
    age(covered_table, 8)
    grow(covered_table, 5)
    assert versions(covered_table)[0] == 4  # the checkpoint that is older than the retention
    assert len(covered_table.found()) == 7
    assert DeltaTable(str(local.path("dbo/T"))).version() == versions(covered_table)[-1]
    assert covered_table.found(4)


@pytest.mark.slow
def test_maintenance_cleans_the_log_up_and_keeps_the_record(local, covered_table):
    grow(covered_table, 7)
    record = local.snapshot("dbo/T").record
    age(covered_table, 8)
    local.maintain("dbo/T", 7 * 24.0)
    assert versions(covered_table)[0] == 4
    for _ in range(3):
        DeltaTable(str(local.path("dbo/T"))).create_checkpoint()
        age(covered_table, 8)
        local.maintain("dbo/T", 7 * 24.0)
        assert local.snapshot("dbo/T").record == record


@pytest.mark.slow
def test_commits_that_no_segment_covers_stay(local, covered_table):
    covered_table.until = 1
    grow(covered_table, 7)
    age(covered_table, 8)
    local.maintain("dbo/T", 7 * 24.0)
    assert versions(covered_table)[0] == 2
    grow(covered_table, 5)
    assert versions(covered_table)[0] == 2


@pytest.mark.slow
def test_retention_of_the_table_decides(local, covered_table):
    grow(covered_table, 7)
    DeltaTable(str(local.path("dbo/T"))).alter.set_table_properties({LOG_RETENTION: "interval 2 weeks"})
    age(covered_table, 8)
    clean_up_log(known_log(local.path("dbo/T")), 100)
    assert versions(covered_table)[0] == 0


@pytest.mark.slow
def test_checkpoints_and_commits_of_other_programs_clean_up_nothing(local, covered_table):
    """They do not know which commits the newest record needs (LZ-4.18)."""
    grow(covered_table, 3)
    record, folder = local.snapshot("dbo/T").record, str(local.path("dbo/T"))
    for _ in range(7):
        add_rows(local.path("dbo/T"), SIMPLE, [(1, "x")])
        DeltaTable(folder).create_checkpoint()
        age(covered_table, 8)
    DeltaTable(folder).optimize.compact()
    assert local.snapshot("dbo/T").record == record


def test_no_checkpoint_old_enough_keeps_all(local, covered_table):
    grow(covered_table, 3)
    age(covered_table, 8)
    clean_up_log(known_log(local.path("dbo/T")), 100)
    assert versions(covered_table) == list(range(4))


@pytest.mark.slow
def test_no_commit_of_deltalake_looks_through_the_log(covered_table):
    grow(covered_table, 7)
    old = covered_table.log / f"{0:020}.json"
    age(covered_table, 8)
    grow(covered_table, 1)  # no checkpoint
    assert old.exists()
