from __future__ import annotations

import threading

import pyarrow as pa
import pytest
from careless_publishers import CARELESS, Careful

from mirror_engine.errors import UsageError
from mirror_engine.publisher.scenarios import (
    EXERCISES,
    RAISING,
    FaultKind,
    InterruptedFiles,
    Interruption,
    SimulatedCrash,
    row_faults,
)
from mirror_engine.publisher.testing import ScenarioOutcome, Source, ZoneFiles, check_publisher

pytestmark = pytest.mark.slow  # whole programs: no part of the quick look

FAULTS = {
    "write during the initial load": "1 row (id 0) is missing",
    "key change": "under an old key",
    "rapid changes to one key": "missing",
    "failed temporary upload": "[ME024]",
    "lost rename answer": "in an older state",
    "crash after publish": "in an older state",
    "second file fails": "are missing",
    "lost state": "are there more than once",
    "schema change": "1 row (id 5) is wrong",
    "two publishers at once": "in an older state",
}


@pytest.mark.parametrize("exercise", [exercise.name for exercise in EXERCISES])
def test_whoever_is_careless_in_one_thing_fails_there(exercise: str) -> None:
    report = check_publisher(CARELESS[exercise].publish, only=[exercise])
    assert [result.outcome for result in report.results] == [ScenarioOutcome.FAILED]
    assert FAULTS[exercise] in "; ".join(report.results[0].faults)


@pytest.mark.slow
@pytest.mark.parametrize("exercise", [exercise.name for exercise in EXERCISES])
def test_and_nowhere_else(exercise: str) -> None:
    report = check_publisher(CARELESS[exercise].publish)
    assert [result.name for result in report.results if not result.survived] == [exercise]


@pytest.mark.slow
@pytest.mark.parametrize("chunk", [1, 2, 100])
def test_the_careful_one_survives_all_whatever_the_size_of_its_files(
    chunk: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("careless_publishers.CHUNK", chunk)
    check_publisher(Careful.publish).assert_all_survived()


@pytest.mark.slow
@pytest.mark.parametrize("chunk", [2, 3, 100])
def test_grouping_by_kind_is_found_whatever_the_size_of_the_files(chunk: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("careless_publishers.CHUNK", chunk)
    exercise = "rapid changes to one key"
    assert not check_publisher(CARELESS[exercise].publish, only=[exercise]).survived


def test_the_report_says_what_is_wrong_and_what_helps() -> None:
    report = check_publisher(CARELESS["key change"].publish, only=["key change"])
    with pytest.raises(AssertionError) as raised:
        report.assert_all_survived()
    assert str(raised.value).splitlines() == [
        "the publisher survives 0 of 1 exercises",
        "FAILED       key change",
        "    3 rows (id 2, 3, 30) are there though deleted, or under an old key",
        "    -> publish it as 2 with the old key, then 4 or 0 with the new row (LZ-4.7)",
    ]
    assert report.to_json()[0]["outcome"] == "failed"


def test_who_writes_past_the_kit_is_not_said_to_survive() -> None:
    def direct(source, files, state):
        Careful(source, ZoneFiles(files.path), state).run()

    report = check_publisher(direct, only=["crash after publish"])
    assert [result.outcome for result in report.results] == [ScenarioOutcome.NOT_REACHED]
    assert not report.survived


def test_who_always_fails_is_told_why() -> None:
    def broken(*_: object):
        pa.array(["a value of the source"]).cast(pa.int64())

    line = broken.__code__.co_firstlineno + 1
    result = check_publisher(broken, only=["key change"]).results[0]
    assert result.faults == (f"the publisher keeps failing: ArrowInvalid at {__file__}, line {line}",)
    assert result.remedy == RAISING
    assert "a value of the source" not in str(result)


def test_who_fails_after_a_good_run_is_told_what_helps_with_the_exercise_too() -> None:
    class Stumbles(Careful):
        def run(self):
            if any(path.endswith("2.parquet") for path in self.files.list(self.folder)):
                self.files.read("no such file")
            super().run()

    result = check_publisher(Stumbles.publish, only=["lost rename answer"]).results[0]
    assert result.faults[0].startswith(f"the publisher keeps failing: FileNotFoundError at {__file__}, line ")
    assert result.remedy.startswith(f"{RAISING}; after a failed rename look")


def test_who_publishes_nothing_is_told_so() -> None:
    report = check_publisher(lambda *_: None, only=["key change"])
    assert "there is no mirrored table Orders" in report.results[0].faults


def test_what_the_mirror_refuses_is_told() -> None:
    def refused(_source, files, _state):
        files.write("Orders/_metadata.json", b'{"keyColumns": ["id"]}')
        files.write("Orders/00000000000000000001.parquet", b"")

    faults = check_publisher(refused, only=["key change"]).results[0].faults
    assert faults[0].startswith("Orders is latched: 00000000000000000001.parquet: file is empty (0 bytes) [ME023]")


@pytest.mark.slow
def test_publishers_that_wait_for_each_other_survive(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mirror_engine.publisher.scenarios.RIVAL_SECONDS", 0.05)
    lock = threading.Lock()

    def patient(source, files, state):
        with lock:
            Careful.publish(source, files, state)

    check_publisher(patient, only=["two publishers at once"]).assert_all_survived()


def test_who_starts_all_over_after_a_lost_state_survives() -> None:
    class StartsOver(Careful):
        def newest(self):
            if not self.state.get("loaded"):
                self.files.delete(self.folder)
                return 0, 0
            return super().newest()

        def load(self, number):
            self.state["loaded"] = True
            return super().load(number)

    check_publisher(StartsOver.publish, only=["lost state"]).assert_all_survived()


def test_an_exercise_that_does_not_exist_is_refused() -> None:
    with pytest.raises(UsageError, match="Did you mean key change"):
        check_publisher(Careful.publish, only=["key chang"])


def test_rows_are_compared_by_key_in_words() -> None:
    source = Source()
    source.update(1, city="Steyr")
    truth = source.truth()
    rows = [truth[key] for key in (1, 2, 3, 4)]
    assert row_faults(source, rows) == []
    assert row_faults(source, [{name.upper(): value for name, value in row.items()} for row in rows]) == []
    wrong = [{**rows[0], "city": "Linz"}, {**rows[1], "city": "Perg"}, rows[2], rows[2], {"id": 8}]
    assert row_faults(source, wrong) == [
        "1 row (id 4) is missing",
        "1 row (id 3) is there more than once",
        "1 row (id 8) is there though deleted, or under an old key",
        "1 row (id 1) is in an older state: a later change is lost, or came first",
        "1 row (id 2) is wrong",
    ]


def test_reading_the_source_meets_what_changes_meanwhile() -> None:
    source = Source()
    source.meanwhile = lambda: (source.delete(3), source.insert(9))
    assert [row["id"] for row in source.rows()] == [1, 2, 4, 9]
    assert [change.kind for change in source.changes(after=0)] == ["delete", "insert"]


def test_a_taken_name_is_refused_by_rename_and_not_by_replace(tmp_path) -> None:
    files = ZoneFiles(tmp_path)
    files.write("T/_a", b"a")
    files.write("T/b", b"b")
    with pytest.raises(FileExistsError):
        files.rename("T/_a", "T/b")
    assert files.list("T") == ["_a", "b"]
    files.replace("T/_a", "T/b")
    assert files.read("T/b") == b"a"
    files.rename("T/b", "T/c")
    assert (files.exists("T/b"), files.exists("T/c"), files.list("none")) == (False, True, [])
    files.delete("T")
    files.delete("T")
    assert files.list() == []


FINAL = "T/00000000000000000001.parquet"


@pytest.mark.parametrize(
    ("harm", "error", "left"),
    [
        (FaultKind.UPLOAD_CUT, OSError, {"_x": b"PAR1"}),
        (FaultKind.REFUSED, OSError, {"_x": b"PAR1PAR1"}),
        (FaultKind.LOST_ANSWER, OSError, {FINAL[2:]: b"PAR1PAR1"}),
        (FaultKind.CRASH, SimulatedCrash, {FINAL[2:]: b"PAR1PAR1"}),
    ],
)
def test_each_harm_leaves_what_it_says(tmp_path, harm: FaultKind, error: type[BaseException], left) -> None:
    interruption = Interruption(harm)
    files = InterruptedFiles(tmp_path, interruption)
    files.write("T/_metadata.json", b"{}")
    files.delete("T/_metadata.json")
    with pytest.raises(error):
        land(files)
    assert interruption.has_struck
    assert {name: files.read(f"T/{name}") for name in files.list("T")} == left


def land(files: ZoneFiles) -> None:
    files.write("T/_x", b"PAR1PAR1")
    files.rename("T/_x", FINAL)


def test_harm_is_done_once_and_at_the_file_meant(tmp_path) -> None:
    rivals = []
    interruption = Interruption(FaultKind.RIVAL_BEFORE, number=2, rival=lambda: rivals.append(files.list("T")))
    files = InterruptedFiles(tmp_path, interruption)
    for number in (1, 2, 3):
        files.write("T/_x", b"PAR1")
        files.replace("T/_x", f"T/{number:020d}.parquet")
    assert rivals == [[f"{1:020d}.parquet", "_x"]]
