"""Status: what a table is, where it stands, and what every file waits for (LZ-9.7)."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import get_args

import pytest

from mirror_engine.config import Config
from mirror_engine.engine.planner import Circumstances, plan
from mirror_engine.landing_zone.diagnostics import Diagnostic, diagnose
from mirror_engine.landing_zone.listing import LandedFile, MetadataAbsent, MetadataUsable, TableListing
from mirror_engine.landing_zone.metadata import Metadata
from mirror_engine.landing_zone.names import TableName
from mirror_engine.landing_zone.progress import AppliedFile, Progress, Rejection
from mirror_engine.landing_zone.states import (
    Behind,
    Blocked,
    CaughtUp,
    Empty,
    Halted,
    Loading,
    TableState,
    Unconfigured,
)
from mirror_engine.monitoring.status import MirrorStatus, TableStatus, table_status
from mirror_engine.monitoring.words import advice, in_words, word

NOW = 1_000_000.0
ORDERS = TableName("Sales", "Orders")
KEYED = MetadataUsable("m", Metadata(key_columns=("Id",)))
REFUSED = diagnose("ME037", f"{ORDERS.folder}/00000000000000000002.parquet", row=7, value="3")


def file(number: int, age_seconds: float = 10) -> LandedFile:
    return LandedFile(f"{number:020d}.parquet", 10, int((NOW - age_seconds) * 1e9), f"f{number}")


def known(*applied: LandedFile, **changes) -> Progress:
    files = {each.path: AppliedFile(each.etag, "d", 3, 5, each.modified_ns) for each in applied}
    progress = Progress("g", "folder", 1, 3, {"": len(applied)}, files, ("Id",), synced_at=NOW - 60, armed_at=1.0)
    return replace(progress, rows_processed=9, bytes_processed=99, **changes)


def status(*files: LandedFile, progress: Progress | None = None, metadata=KEYED, identity="folder") -> TableStatus:
    planned = plan(TableListing(ORDERS, identity, metadata, files), progress, Circumstances(Config(), NOW))
    return table_status(planned, progress, files, rows_live=4, default_schema="dbo", now=NOW)


def told(found: TableStatus) -> list[tuple[str, str]]:
    return [(each.path[18:20].lstrip("0"), each.state) for each in found.files]


def test_a_level_table_has_no_lag_and_says_where_its_files_went() -> None:
    found = status(file(1), progress=known(file(1)))
    assert (found.state, found.lag_seconds, found.waiting, found.first_blocker) == (CaughtUp(), 0.0, (), None)
    assert (found.delta_version, found.committed_at, found.rows_live) == (3, NOW - 60, 4)
    assert [(each.state, each.version, each.rows) for each in found.files] == [("applied", 3, 5)]
    assert found.next_expected == {"": "00000000000000000002.parquet"}


def test_lag_is_the_age_of_the_oldest_file_that_is_not_in_the_table() -> None:
    found = status(file(1, 500), file(2, 30), file(3, 40), progress=known(file(1, 500)))
    assert (found.lag_seconds, len(found.waiting)) == (40, 2)


def test_a_clock_behind_the_files_makes_no_negative_lag() -> None:
    assert status(file(1, -30)).lag_seconds == 0.0


def test_files_behind_a_gap_name_the_missing_one() -> None:
    found = status(file(1), file(3), progress=known(file(1)))
    assert found.state == Blocked("00000000000000000002.parquet", 1)
    assert found.first_blocker == "Sales.schema/Orders/00000000000000000002.parquet"
    assert found.waiting[0].why == "comes after 00000000000000000002.parquet, not there"


def test_a_gap_behind_ready_files_is_told_as_well() -> None:
    found = status(file(1), file(2), file(4), progress=known(file(1)))
    assert isinstance(found.state, Behind)
    assert found.first_blocker == "Sales.schema/Orders/00000000000000000003.parquet"
    assert [each.why.partition(",")[0] for each in found.waiting] == [
        "ready",
        "comes after 00000000000000000003.parquet",
    ]


def test_in_a_latched_table_one_file_is_refused_and_the_others_wait_for_it() -> None:
    latch = Rejection(REFUSED, file(2).path, file(2).identity, file(2).etag)
    found = status(file(1), file(2), file(3), progress=known(file(1), latch=latch))
    assert told(found) == [("2", "refused"), ("3", "waiting"), ("1", "applied")]
    assert found.first_blocker == REFUSED.path
    assert found.waiting[1].why == f"the table is latched at {REFUSED.path}"


def test_files_of_an_unarmed_folder_wait_for_metadata() -> None:
    found = status(file(1), metadata=MetadataAbsent())
    assert isinstance(found.state, Unconfigured)
    assert (found.waiting[0].why, found.first_blocker) == (
        "the folder has no usable _metadata.json",
        "Sales.schema/Orders",
    )


def test_a_recreated_folder_shows_nothing_of_its_earlier_life() -> None:
    found = status(file(1), progress=known(file(1), file(2)), identity="another")
    assert (found.watermarks, found.rows_processed, found.delta_version) == ({}, 0, None)
    assert told(found) == [("1", "waiting")]


def test_ignored_paths_keep_their_reason_and_are_not_waiting() -> None:
    stray = LandedFile("0001.parquet", 1, 1, "s")
    found = status(stray, progress=known())
    assert [each.code for each in found.ignored] == ["ME020"]
    assert found.waiting == ()


def test_diagnostics_of_applied_files_are_counted() -> None:
    said = diagnose("ME043", "Sales.schema/Orders/x.parquet", count=2)
    found = status(file(1), progress=known(file(1), diagnostics={said: 3}))
    assert (said, 3) in found.diagnostics


def test_everything_is_plain_json() -> None:
    mirror = MirrorStatus("/r", "Files/LandingZone", (status(file(1)),), (diagnose("ME001", ""),), heartbeat=NOW)
    assert json.loads(json.dumps(mirror.to_json(), allow_nan=False))["tables"][0]["state"] == "loading"


STATES: dict[type, TableState] = {
    Unconfigured: Unconfigured(diagnose("ME008", "New", count=2), 2),
    Empty: Empty(expired=True),
    Loading: Loading(1),
    CaughtUp: CaughtUp(),
    Behind: Behind(2),
    Blocked: Blocked("00000000000000000002.parquet", 3),
    Halted: Halted(REFUSED, 1),
}


def test_every_state_has_a_sentence() -> None:
    assert set(STATES) == set(get_args(TableState))
    assert {word(state): in_words(state) for state in STATES.values()} == {
        "unconfigured": "not a table yet: no `_metadata.json`; 2 files pending [ME008]",
        "empty": "failed: no change file came within 14 days",
        "loading": "loading: 1 file ready, nothing committed yet",
        "caught_up": "level: everything landed is in the table",
        "behind": "behind: 2 files ready",
        "blocked": "blocked: waits for 00000000000000000002.parquet, 3 files unread",
        "halted": "latched: 00000000000000000002.parquet, row 7: row marker is 3, expected 0, 1, 2 or 4 "
        "[ME037], 1 file unread",
    }


@pytest.mark.parametrize("state", [Unconfigured, Empty, Blocked, Halted])
def test_a_table_that_stands_still_comes_with_advice(state: type) -> None:
    assert advice(STATES[state], engine_running=True).endswith(".")


def test_a_table_that_only_lacks_an_engine_says_so() -> None:
    assert "mirror-engine run" in advice(Behind(1), engine_running=False)
    assert advice(Behind(1), engine_running=True) == ""
    assert advice(CaughtUp(), engine_running=False) == ""


def test_a_name_with_control_characters_stays_on_its_line() -> None:
    assert "\x1b" not in in_words(Blocked("day=\x1b[2J/1.parquet", 1))
    assert "\n" not in in_words(Halted(Diagnostic("ME023", "a\nb/1\n.parquet"), 1))
