"""Many writers at once: no torn files, no lost writes."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from zone_client import ABSENT_ONLY, ZoneClient, matching, refused

from mirror_engine.onelake.errors import StorageApiError, StorageErrorCode
from mirror_engine.onelake.store import assemble

pytestmark = pytest.mark.slow

WRITERS = 8
NAME = "T/1.csv"


def at_once(attempt):
    """What each of eight writers got; the fault, where it was refused."""
    start = threading.Barrier(WRITERS)

    def one(number):
        start.wait()
        try:
            return attempt(number)
        except StorageApiError as problem:
            return problem.code

    with ThreadPoolExecutor(WRITERS) as pool:
        return list(pool.map(one, range(WRITERS)))


def slowly():
    time.sleep(0.005)
    return time.time_ns()


def put_blocks(zone, number):
    zone.put_block(NAME, f"{number}", bytes([number]))
    return zone.lake.put_block_list(zone.at(NAME), [f"{number}"], ABSENT_ONLY)


def put_then(finish):
    return lambda zone, number: zone.put(f"T/_{number}", bytes([number])) and finish(zone, f"T/_{number}")


WAYS = {
    "create": lambda zone, _: zone.create(NAME, ABSENT_ONLY),
    "put": lambda zone, number: zone.put(NAME, bytes([number]), ABSENT_ONLY),
    "folder": lambda zone, _: zone.lake.create_folder(zone.at(NAME), ABSENT_ONLY),
    "blocks": put_blocks,
    "copy": put_then(lambda zone, own: zone.lake.copy(zone.at(own), zone.at(NAME), ABSENT_ONLY)),
    "rename": put_then(lambda zone, own: zone.rename(own, NAME, ABSENT_ONLY)),
}


@pytest.mark.parametrize("way", WAYS)
def test_of_eight_writers_racing_for_a_name_one_wins(zone, way):
    zone = ZoneClient(zone.storage, clock=slowly)  # between a condition and what it guards the others have time
    zone.lake.create_folder(zone.at("T"))
    outcomes = at_once(lambda number: WAYS[way](zone, number))
    assert sum(not isinstance(outcome, StorageErrorCode) for outcome in outcomes) == 1
    assert outcomes.count(StorageErrorCode.PathAlreadyExists) == WRITERS - 1


def test_of_eight_writers_that_change_what_they_know_one_wins(zone):
    known = matching(zone.put("T/f", b""))
    outcomes = at_once(lambda number: zone.put("T/f", bytes([number]), known))
    (winner,) = (number for number, outcome in enumerate(outcomes) if not isinstance(outcome, StorageErrorCode))
    assert outcomes.count(StorageErrorCode.ConditionNotMet) == WRITERS - 1
    assert zone.read("T/f") == bytes([winner])


def test_eight_unconditional_renames_onto_one_name_all_succeed(zone):
    for number in range(WRITERS):
        zone.put(f"T/_{number}", bytes([number]))
    outcomes = at_once(lambda number: zone.rename(f"T/_{number}", "T/1.csv"))
    assert not any(isinstance(outcome, StorageErrorCode) for outcome in outcomes)
    assert len(zone.lost_files) == WRITERS - 1


def test_eight_appends_side_by_side_all_count(zone):
    zone.create("T/f")
    at_once(lambda number: zone.append("T/f", number * 1000, bytes([number]) * 1000))
    zone.flush("T/f", WRITERS * 1000)
    assert zone.read("T/f") == b"".join(bytes([number]) * 1000 for number in range(WRITERS))


def test_retried_flush_during_the_first_succeeds(zone, monkeypatch):
    def slow(*arguments):
        time.sleep(0.02)
        return assemble(*arguments)

    monkeypatch.setattr("mirror_engine.onelake.lake.assemble", slow)
    zone.create("T/f")
    zone.append("T/f", 0, b"abc")
    zone.append("T/f", 3, b"def")
    assert set(at_once(lambda _: zone.flush("T/f", 6))) == {zone.properties("T/f")}
    zone.put_block("T/g", "a", b"abc")
    zone.put_block("T/g", "b", b"def")
    assert set(at_once(lambda _: zone.lake.put_block_list(zone.at("T/g"), ["a", "b"]))) == {zone.properties("T/g")}
    assert zone.read("T/f") == zone.read("T/g") == b"abcdef"
    assert zone.lake._uploads.used_bytes == 0


def test_a_slow_body_blocks_no_other_request(zone):
    with zone.lake.receive() as slow:
        slow.write(b"x")
        with ThreadPoolExecutor(1) as pool:
            pool.submit(zone.put, "T/f", b"abc").result(timeout=30)
    assert zone.read("T/f") == b"abc"


def test_a_file_replaced_while_its_pieces_are_put_together_keeps_the_newer_content(zone, monkeypatch):
    zone.put("T/f", b"abc")
    zone.append("T/f", 3, b"def")

    def raced(*arguments):
        zone.put("T/f", b"newer")
        return assemble(*arguments)

    monkeypatch.setattr("mirror_engine.onelake.lake.assemble", raced)
    with refused(StorageErrorCode.PathNotFound):
        zone.flush("T/f", 6)
    assert zone.read("T/f") == b"newer"
