"""Many writers at once: nobody sees a torn file, and nothing is lost that the real service would keep."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest
from lakes import ABSENT_ONLY, Shore, matching, refused, storage_called

from mirror_engine.onelake.errors import StorageApiError, StorageErrorCode

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

pytestmark = pytest.mark.slow

WRITERS = 8


@pytest.fixture(params=["memory", "local"])
def shore(request: pytest.FixtureRequest, tmp_path: Path) -> Shore:
    return Shore(storage_called(request.param, tmp_path))


def at_once(attempt: Callable[[int], Any]) -> list[Any]:
    """What each of eight writers got; the fault, where it was refused."""
    start = threading.Barrier(WRITERS)

    def one(number: int) -> Any:
        start.wait()
        try:
            return attempt(number)
        except StorageApiError as problem:
            return problem.fault

    with ThreadPoolExecutor(WRITERS) as pool:
        return list(pool.map(one, range(WRITERS)))


def slowly() -> int:
    time.sleep(0.005)
    return time.time_ns()


@pytest.mark.parametrize("way", ["create", "put", "blocks", "copy", "rename", "folder"])
def test_of_eight_writers_racing_for_a_name_one_wins(shore: Shore, way: str) -> None:
    shore = Shore(shore.storage, clock=slowly)  # between a condition and what it guards the others have time

    def attempt(number: int) -> object:
        own = f"T/_{number}"
        if way == "create":
            return shore.create("T/1.csv", ABSENT_ONLY)
        if way == "put":
            return shore.put("T/1.csv", bytes([number]), ABSENT_ONLY)
        if way == "folder":
            return shore.lake.create_folder(shore.at("T/1.csv"), ABSENT_ONLY)
        if way == "blocks":
            shore.put_block("T/1.csv", f"{number}", bytes([number]))
            return shore.lake.put_block_list(shore.at("T/1.csv"), [f"{number}"], ABSENT_ONLY)
        shore.put(own, bytes([number]))
        if way == "copy":
            return shore.lake.copy(shore.at(own), shore.at("T/1.csv"), ABSENT_ONLY)
        return shore.rename(own, "T/1.csv", ABSENT_ONLY)

    shore.lake.create_folder(shore.at("T"))
    outcomes = at_once(attempt)
    assert sum(not isinstance(outcome, StorageErrorCode) for outcome in outcomes) == 1
    assert outcomes.count(StorageErrorCode.PATH_ALREADY_EXISTS) == WRITERS - 1


def test_of_eight_writers_that_change_what_they_know_one_wins(shore: Shore) -> None:
    known = matching(shore.put("T/f", b""))
    outcomes = at_once(lambda number: shore.put("T/f", bytes([number]), known))
    (winner,) = (number for number, outcome in enumerate(outcomes) if not isinstance(outcome, StorageErrorCode))
    assert outcomes.count(StorageErrorCode.CONDITION_NOT_MET) == WRITERS - 1
    assert shore.read("T/f") == bytes([winner])


def test_eight_unconditional_renames_onto_one_name_all_succeed(shore: Shore) -> None:
    """Rule 7.5."""
    for number in range(WRITERS):
        shore.put(f"T/_{number}", bytes([number]))
    outcomes = at_once(lambda number: shore.rename(f"T/_{number}", "T/1.csv"))
    assert not any(isinstance(outcome, StorageErrorCode) for outcome in outcomes)
    assert len(shore.told) == WRITERS - 1


def test_eight_appends_side_by_side_all_count(shore: Shore) -> None:
    shore.create("T/f")
    at_once(lambda number: shore.append("T/f", number * 1000, bytes([number]) * 1000))
    shore.flush("T/f", WRITERS * 1000)
    assert shore.read("T/f") == b"".join(bytes([number]) * 1000 for number in range(WRITERS))


def test_a_commit_asked_for_again_while_it_is_still_made_succeeds_as_the_first_one(shore: Shore) -> None:
    for _ in range(5):
        shore.create("T/f")
        shore.append("T/f", 0, b"abc")
        shore.append("T/f", 3, b"def")
        assert set(at_once(lambda _: shore.flush("T/f", 6))) == {shore.properties("T/f")}
        assert shore.read("T/f") == b"abcdef"
        shore.put_block("T/g", "a", b"abc")
        shore.put_block("T/g", "b", b"def")
        blocks = at_once(lambda _: shore.lake.put_block_list(shore.at("T/g"), ["a", "b"]))
        assert set(blocks) == {shore.properties("T/g")}
        assert shore.read("T/g") == b"abcdef"
    assert shore.lake._uploads.taken_bytes == 0


def test_no_reader_ever_sees_a_torn_file(shore: Shore) -> None:
    """Rule 7.3."""
    shore.put("T/f", b"0" * 5000)
    torn: list[bytes] = []
    done = threading.Event()

    def read() -> None:
        while not done.is_set():
            properties, reader = shore.lake.read(shore.at("T/f"))
            with reader:
                content = reader.read()
            if len(content) != properties.size or len(set(content)) != 1:
                torn.append(content)

    def write(number: int) -> None:
        content = bytes([65 + number])
        for turn in range(5):
            shore.put("T/f", content * (5000 + number))
            shore.put(f"T/_{number}", content * (6000 + turn))
            shore.rename(f"T/_{number}", "T/f")

    readers = [threading.Thread(target=read) for _ in range(2)]
    for reader in readers:
        reader.start()
    at_once(write)
    done.set()
    for reader in readers:
        reader.join()
    assert torn == []


def test_a_slow_body_holds_up_nobody(shore: Shore) -> None:
    with shore.lake.receive() as slow:
        slow.write(b"x")
        with ThreadPoolExecutor(1) as pool:
            pool.submit(shore.put, "T/f", b"abc").result(timeout=30)
    assert shore.read("T/f") == b"abc"


def test_a_file_replaced_while_its_pieces_are_put_together_keeps_the_newer_content(
    shore: Shore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rule 7.3."""
    shore.put("T/f", b"abc")
    shore.append("T/f", 3, b"def")
    stage = shore.storage.stage

    def raced() -> object:
        monkeypatch.setattr(shore.storage, "stage", stage)
        shore.put("T/f", b"newer")
        return stage()

    monkeypatch.setattr(shore.storage, "stage", raced)
    with refused(StorageErrorCode.PATH_NOT_FOUND):
        shore.flush("T/f", 6)
    assert shore.read("T/f") == b"newer"


@pytest.mark.parametrize("step", ["publish", "rename", "touch", "take_away", "open"])
def test_what_goes_away_between_two_steps_is_met_as_absent(
    shore: Shore, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    """The engine moves processed files away without asking."""
    shore.put("T/f", b"abc")
    shore.append("T/f", 3, b"def")
    call = getattr(shore.storage, step)

    def raced(*arguments: Any) -> Any:
        monkeypatch.setattr(shore.storage, step, call)
        shore.storage.delete(shore.at("T").path)
        return call(*arguments)

    attempts: dict[str, tuple[Callable[[], object], StorageErrorCode]] = {
        "publish": (lambda: shore.flush("T/f", 6), StorageErrorCode.PATH_NOT_FOUND),
        "rename": (lambda: shore.rename("T/f", "g"), StorageErrorCode.SOURCE_PATH_NOT_FOUND),
        "touch": (lambda: shore.lake.set_metadata(shore.at("T/f")), StorageErrorCode.PATH_NOT_FOUND),
        "take_away": (lambda: shore.lake.delete(shore.at("T/f")), StorageErrorCode.PATH_NOT_FOUND),
        "open": (lambda: shore.lake.copy(shore.at("T/f"), shore.at("g")), StorageErrorCode.SOURCE_PATH_NOT_FOUND),
    }
    attempt, fault = attempts[step]
    monkeypatch.setattr(shore.storage, step, raced)
    with refused(fault):
        attempt()
    assert shore.names() == []
