"""`validate` says what the engine says, of every golden fixture and every real publisher's zone."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from golden import diagnostic_differences, load
from quick_folder import quick_folder
from test_fixtures import FIXTURES, NAMES, Told
from test_real_zones import NAMES as REAL
from test_real_zones import REAL_ZONES

from mirror_engine.config import Config
from mirror_engine.landing_zone.diagnostics import Severity
from mirror_engine.mirror import Mirror
from mirror_engine.publisher.dry_run import DryRun
from mirror_engine.publisher.landing_zone_writer import LandingZoneWriter
from mirror_engine.publisher.target import place_of
from mirror_engine.publisher.validate import judge
from mirror_engine.storage.local import LocalStorage
from mirror_engine.tables.merge.keys_only import KeyWriter, keys_only
from mirror_engine.tables.merge.memory import MemoryDeltaWriter

if TYPE_CHECKING:
    from golden import Golden

ONLY_OF_VALIDATE = {"ME077", "ME078", "ME079"}
AT_ONCE = [name for name in NAMES if sum(map(len, load(FIXTURES / name).stages)) == 1]
CLEANED_UP = {"ME073"}  # whoever only looks moves nothing away


def lenient(golden: Golden) -> Golden:
    return replace(golden, not_compared=golden.not_compared | ONLY_OF_VALIDATE | CLEANED_UP)


KEYS_COME_LATER = pytest.param(
    "keys-may-be-added-later",
    marks=pytest.mark.xfail(reason="rows that came before keys were declared are counted without one"),
)


@pytest.mark.slow
@pytest.mark.parametrize("name", [KEYS_COME_LATER if name == KEYS_COME_LATER.values[0] else name for name in NAMES])
def test_a_rehearsal_says_of_a_fixture_what_the_engine_says(name: str) -> None:
    """All stages, one after the other, as `validate --watch` meets them."""
    golden = lenient(load(FIXTURES / name))
    told = Told()
    with quick_folder() as folder:
        reading = keys_only(None)
        storage = LocalStorage(Path(folder))
        with DryRun(storage, Config(**golden.config), KeyWriter(), reading, tell=told) as rehearsal:
            for stage in golden.stages:
                for landing in stage:
                    landing.land(Path(folder))
                status = rehearsal.play()
                end = [*status.diagnostics, *(said for table in status.tables for said, _ in table.diagnostics)]
                told.diagnostics.update(end)
    assert diagnostic_differences(golden, end, told.diagnostics) == []


@pytest.mark.slow
@pytest.mark.parametrize("name", AT_ONCE)
def test_judging_a_fixture_finds_what_stands_in_the_end(name: str) -> None:
    golden = lenient(load(FIXTURES / name))
    with quick_folder() as folder:
        golden.stages[0][0].land(Path(folder))
        verdict = judge(place_of(Path(folder), Config(**golden.config)))
    said = [found for found, _ in verdict.all()]
    assert diagnostic_differences(golden, said, said) == []
    assert verdict.is_failing == (golden.verdict == "needs_attention")


@pytest.mark.parametrize("name", REAL)
def test_no_error_is_found_in_a_real_publishers_zone(name: str) -> None:
    if not (REAL_ZONES / name).is_dir():
        pytest.skip("set MIRROR_TEST_REAL_ZONES to the folder of real landing zones")
    verdict = judge(place_of(REAL_ZONES / name, Config()))
    assert verdict.count(Severity.ERROR) == 0
    assert {table.state for table in verdict.tables} == {"caught_up"}


def test_a_name_that_was_used_again_is_told_and_what_was_processed_counts(tmp_path: Path) -> None:
    orders = LandingZoneWriter(tmp_path).table("Orders", keys=["Id"])
    first, second = orders.insert({"Id": 1}), orders.insert({"Id": 2})
    Mirror(tmp_path, writer=MemoryDeltaWriter()).sync()
    orders.insert({"Id": 3}, {"Id": 4}, name=first.rpartition("/")[2])
    verdict = judge(place_of(tmp_path, Config()))
    assert [(found.code, found.path.rpartition("/")[2]) for found, _ in verdict.all()] == [
        ("ME026", first.rpartition("/")[2])
    ]
    assert verdict.tables[0].rows == 2
    assert len(verdict.tables[0].files) == len({first, second})
