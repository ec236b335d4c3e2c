"""Files that other processes read ahead come out as if they had been read here, whatever befalls those processes."""

from __future__ import annotations

import itertools
import os
import signal
import subprocess
import sys
import time
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from quick_folder import quick_folder

from mirror_engine.config import Config
from mirror_engine.landing_zone.listing import LandedFile
from mirror_engine.landing_zone.metadata import Metadata
from mirror_engine.landing_zone.names import TableName
from mirror_engine.publisher import validate as judging
from mirror_engine.publisher.landing_zone_writer import Publisher
from mirror_engine.publisher.target import place_of
from mirror_engine.tables.reading import reading_ahead, reading_helper
from mirror_engine.tables.reading.reader import ChangeFileReader, ReadRequest, TableContext, WaitingFiles
from mirror_engine.tables.reading.reading_ahead import HelpedReader, helpers_for

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mirror_engine.tables.reading.reader import ReadFile

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="only on Linux files are read ahead"),
    # pytest's own threads hold nothing that a helper needs
    pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning"),
]


CORES = len(os.sched_getaffinity(0)) if sys.platform == "linux" else 1


@pytest.fixture(autouse=True)
def few_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading_ahead, "ASKED_TOGETHER", 2)
    monkeypatch.setattr(reading_ahead, "WINDOW_FILES", 8)


@pytest.fixture
def quick() -> Iterator[Path]:
    with quick_folder() as folder:
        yield Path(folder)


def zone(root: Path, files: int = 40) -> Path:
    """One table whose columns change on the way; each key comes three times."""
    orders = Publisher(root).table("Orders", keys=["Id"])
    for number in range(1, files + 1):
        orders.upsert({"Id": number // 3, **({"City": "Linz"} if number >= files // 2 else {})})
    return root


def judged(root: Path, helpers: int, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(judging, "helpers_for", lambda _: helpers)
    return judging.judge(place_of(root, Config()), is_alone=True).to_json()


@pytest.fixture
def read_here(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The files that this very process has read."""
    paths: list[str] = []
    read = ChangeFileReader.read

    def noted(reader: ChangeFileReader, request: ReadRequest) -> ReadFile:
        paths.append(request.file.path)
        return read(reader, request)

    monkeypatch.setattr(ChangeFileReader, "read", noted)
    return paths


@pytest.mark.parametrize("helpers", [1, 3])
def test_helpers_take_files_over_and_change_nothing(
    helpers: int, quick: Path, read_here: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    root = zone(quick)
    alone = judged(root, 0, monkeypatch)
    assert len(read_here) == 40
    read_here.clear()
    assert judged(root, helpers, monkeypatch) == alone
    assert 0 < len(read_here) < 40


def test_a_bad_file_is_refused_where_it_lies(quick: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = zone(quick)
    bad = root / "Files/LandingZone/Orders/00000000000000000030.parquet"
    bad.write_bytes(b"PAR1 and no more PAR1")
    alone = judged(root, 0, monkeypatch)
    assert alone["tables"][0]["diagnostics"][0]["path"].endswith(bad.name)
    assert judged(root, 2, monkeypatch) == alone


def test_facts_that_come_otherwise_than_expected_are_the_ones_that_count(
    quick: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Helpers see files of the second half before the parent has seen the first: each speaks of its own."""
    orders = Publisher(quick).table("Orders", keys=["Id"])
    for number in range(1, 31):
        orders.update({"Id": number, **({f"Column{number}": number} if number % 7 == 0 else {})})
    alone = judged(quick, 0, monkeypatch)
    assert len(alone["tables"][0]["diagnostics"]) > 10
    assert judged(quick, 1, monkeypatch) == alone


@pytest.mark.parametrize("_answer", [lambda *_: os._exit(9), lambda *_: lambda: "no pipe takes me"])
def test_files_of_a_helper_that_ends_are_read_here(
    quick: Path, read_here: list[str], monkeypatch: pytest.MonkeyPatch, _answer: Any
) -> None:
    root = zone(quick)
    alone = judged(root, 0, monkeypatch)
    read_here.clear()
    monkeypatch.setattr(reading_helper, "_answer", _answer)
    assert judged(root, 2, monkeypatch) == alone
    assert len(read_here) == 40


def test_what_a_helper_was_killed_over_is_not_believed_and_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading_helper, "_answer", lambda *_: bytes(10_000_000))
    asked: Any = object()
    (helper,) = reading_helper.started(asked, 1)
    helper.ask([asked_for()])
    assert any(helper.has_answered for _ in within(30))  # in the midst of its sentence: a pipe does not hold so much
    helper.end()
    assert helper.answers() == ()
    assert not helper.is_free


def asked_for() -> ReadRequest:
    return ReadRequest("LandingZone", TableName("", "Orders"), sized(1, 10)[0], Metadata(key_columns=("Id",)))


def test_the_helpers_that_the_system_has_room_for_help(
    quick: Path, read_here: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    forks, fork = itertools.count(1), os.fork

    def limited() -> int:
        if next(forks) > 1:
            raise BlockingIOError
        return fork()

    root = zone(quick)
    alone = judged(root, 0, monkeypatch)
    read_here.clear()
    monkeypatch.setattr("os.fork", limited)
    assert judged(root, 3, monkeypatch) == alone
    assert 0 < len(read_here) < 40


def test_tables_side_by_side_come_out_the_same(quick: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tables = [Publisher(quick).table(name, keys=["Id"]) for name in ("Items", "Orders", "Stores")]
    for number in range(20):
        for table in tables:
            table.upsert({"Id": number // 2, "City": "Linz"})
    alone = judged(quick, 0, monkeypatch)
    assert judged(quick, 1, monkeypatch) == alone
    assert judged(quick, 3, monkeypatch) == alone


class Listening:
    """A helper that never answers, and notes what it was asked for."""

    is_free = True
    has_answered = False

    def __init__(self) -> None:
        self.asked: list[str] = []

    def ask(self, requests: list[ReadRequest]) -> None:
        self.asked += [request.file.path for request in requests]


def test_only_what_is_well_ahead_and_in_the_batch_is_asked_for() -> None:
    idle: SimpleQueue[Any] = SimpleQueue()
    helper = Listening()
    idle.put(helper)
    files = sized(40, 10)
    waiting = WaitingFiles("LandingZone", TableName("", "Orders"), files, Metadata(key_columns=("Id",)), TableContext())
    ahead = reading_ahead._Ahead(idle, waiting, batch_files=20)
    for place, asked_for_by_then in ((0, range(4, 16)), (7, range(4, 16)), (8, range(4, 20)), (19, range(4, 20))):
        ahead.ask(place, TableContext())
        assert sorted(helper.asked) == sorted(f"{number}.parquet" for number in asked_for_by_then)
    assert idle.empty()
    ahead.close()
    assert idle.get_nowait() is helper


HELD = """import os, sys, time
from mirror_engine.tables import reading_helper

def held(reader, request):
    with open(request, "w") as file:
        file.write(str(os.getpid()))
    time.sleep(600)

reading_helper._answer = held
(helper,) = reading_helper.started(None, 1)
helper.ask([sys.argv[1]])
time.sleep(600)
"""


@contextmanager
def started(program: str, argument: str) -> Iterator[subprocess.Popen[bytes]]:
    """A Python process in a group of its own, gone at the end."""
    command = [sys.executable, "-c", program, argument]
    with subprocess.Popen(command, stderr=subprocess.PIPE, start_new_session=True) as process:
        try:
            yield process
        finally:
            process.kill()


def lives(process: int) -> bool:
    try:
        state = Path(f"/proc/{process}/stat").read_text(encoding="ascii").rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"


def within(seconds: float) -> Iterator[None]:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        yield
        time.sleep(0.02)


def test_a_helper_heeds_no_ctrl_c_and_ends_with_its_parent(quick: Path) -> None:
    note = quick / "helper"
    with started(HELD, str(note)) as parent:
        helper = next(
            int(note.read_text(encoding="ascii")) for _ in within(30) if note.exists() and note.stat().st_size
        )
        os.kill(helper, signal.SIGINT)
        time.sleep(0.2)
        assert lives(helper)
        parent.kill()
        parent.wait()
    assert any(not lives(helper) for _ in within(10))


SLOW = """import signal, sys, time
signal.signal(signal.SIGINT, signal.default_int_handler)  # what runs in the background has it ignored

from mirror_engine.cli.main import main
from mirror_engine.tables.reading.reader import ChangeFileReader

read = ChangeFileReader.read
ChangeFileReader.read = lambda *given: (time.sleep(1), read(*given))[1]
sys.exit(main(["validate", sys.argv[1]]))
"""


@pytest.mark.skipif(CORES < 2, reason="on one core nobody helps")
def test_ctrl_c_ends_validate_and_its_helpers_in_one_sentence(quick: Path) -> None:
    with started(SLOW, str(zone(quick, 200))) as running:
        children = Path(f"/proc/{running.pid}/task/{running.pid}/children")
        helpers = next(found for _ in within(30) if (found := children.read_text(encoding="ascii").split()))
        time.sleep(1.6)  # they are asked once the first file has been read
        interrupted = time.monotonic()
        os.killpg(running.pid, signal.SIGINT)
        _, said = running.communicate(timeout=30)
        seconds = time.monotonic() - interrupted
    assert (running.returncode, said) == (130, b"interrupted\n")
    assert seconds < 8.0  # a helper would go on for sixteen files
    assert not any(lives(int(helper)) for helper in helpers)


def sized(count: int, size: int) -> list[LandedFile]:
    one = LandedFile("1.parquet", size, 0, "1")
    return [replace(one, path=f"{number}.parquet") for number in range(count)]


def test_helpers_are_for_many_small_files_where_forking_is_safe(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("threading.active_count", lambda: 1)
    monkeypatch.setattr("os.sched_getaffinity", lambda _: range(8))
    assert helpers_for([10_000] * 1000) == reading_ahead.MAX_HELPERS
    assert helpers_for([10_000] * 10) == 0
    assert helpers_for([1 << 30] * 1000) == 0
    monkeypatch.setattr("threading.active_count", lambda: 2)
    assert helpers_for([10_000] * 1000) == 0
    monkeypatch.setattr("threading.active_count", lambda: 1)
    monkeypatch.setattr("os.sched_getaffinity", lambda _: range(1))
    assert helpers_for([10_000] * 1000) == 0
    monkeypatch.setattr("sys.platform", "darwin")
    assert helpers_for([10_000] * 1000) == 0


@given(st.lists(st.integers(0, 3 * reading_ahead.WINDOW_BYTES), max_size=40))
def test_windows_hold_all_files_once_in_order_and_few_bytes(sizes: list[int]) -> None:
    files = [replace(file, size=size) for file, size in zip(sized(len(sizes), 0), sizes, strict=True)]
    windows = list(reading_ahead._windows(files))
    assert list(itertools.chain.from_iterable(windows)) == list(range(len(files)))
    for window in windows:
        assert len(window) <= reading_ahead.WINDOW_FILES
        assert len(window) <= 1 or sum(files[at].size for at in window) <= reading_ahead.WINDOW_BYTES
        spans = list(reading_ahead._from_the_back(window))
        assert list(itertools.chain.from_iterable(reversed(spans))) == list(window)


def test_large_files_are_read_here(quick: Path, read_here: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    root = zone(quick)
    monkeypatch.setattr(reading_ahead, "LARGEST_BYTES", 10)
    judged(root, 1, monkeypatch)
    assert len(read_here) == 40


def test_closing_twice_does_no_harm() -> None:
    reader: Any = object()
    helped = HelpedReader(reader, 1, 1000)
    helped.close()
    helped.close()
