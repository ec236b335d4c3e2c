"""Failure scenarios: a careful publisher passes all, a careless one fails exactly the scenario it is careless in."""

from __future__ import annotations

import threading

import pyarrow as pa
import pytest
from careless_publishers import CARELESS, MARKER, Careful, KeepsItsNumbers, RetriesLast, TrustsAnOldPosition

from mirror_engine.errors import UsageError
from mirror_engine.testing.scenarios import RAISING, ScenarioOutcome, Source, ZoneFiles, check_publisher, row_problems

pytestmark = pytest.mark.slow  # whole programs: no part of the quick look


@pytest.mark.parametrize("name", CARELESS)
def test_a_careless_publisher_fails_its_scenario_and_not_the_next(name):
    publisher, problem = CARELESS[name]
    others = list(CARELESS)
    following = others[(others.index(name) + 1) % len(others)]
    results = {result.name: result for result in check_publisher(publisher.publish, only=[name, following]).results}
    assert results[following].passed
    assert results[name].outcome is ScenarioOutcome.FAILED
    assert problem in "; ".join(results[name].problems)


@pytest.mark.parametrize("chunk", [1, 100])
def test_the_size_of_its_files_makes_no_difference(chunk, monkeypatch):
    monkeypatch.setattr("careless_publishers.CHUNK", chunk)
    report = check_publisher(Careful.publish)
    report.assert_all_passed()
    assert [result.name for result in report.results] == list(CARELESS)
    grouped = "rapid changes to one key"
    assert check_publisher(CARELESS[grouped][0].publish, only=[grouped]).passed == (chunk == 1)


def test_locks_and_a_new_load_pass(monkeypatch):
    monkeypatch.setattr("mirror_engine.testing.scenarios.CONCURRENT_SECONDS", 0.05)
    lock = threading.Lock()

    def patient(source, files, state):
        with lock:
            Careful.publish(source, files, state)

    check_publisher(patient, only=["two publishers at once"]).assert_all_passed()

    class StartsOver(Careful):
        def newest(self):
            if not self.state.get("loaded"):
                self.files.delete(self.folder)
                return 0, 0
            return super().newest()

        def load(self, number):
            self.state["loaded"] = True
            return super().load(number)

    check_publisher(StartsOver.publish, only=["lost state"]).assert_all_passed()


def test_a_reset_may_keep_the_numbers_if_it_deletes_what_is_gone():
    class Truncates(KeepsItsNumbers):
        def reset(self):
            number, position = self.newest()
            self.land(number + 1, position, [{"id": key, "__rowMarker__": 2} for key in self.state["keys"]], MARKER)
            self.land(number + 2, *self.read_all())

    class Upserts(KeepsItsNumbers):
        def reset(self):
            self.state["keys"].clear()
            super().reset()

    name = "one table is reset"
    assert [check_publisher(way.publish, only=[name]).passed for way in (Truncates, Upserts)] == [True, False]


@pytest.mark.parametrize("careless", [RetriesLast, TrustsAnOldPosition])
def test_old_upsert_of_a_retry_or_a_restored_checkpoint_is_found(careless):
    result = check_publisher(careless.publish, only=["old upsert is sent again later"]).results[0]
    assert "in an older state" in "; ".join(result.problems)


def test_a_table_that_is_missing_or_halted_is_a_problem():
    def rejected(_source, files, _state):
        files.write("Orders/_metadata.json", b'{"keyColumns": ["id"]}')
        files.write("Orders/00000000000000000001.parquet", b"")

    missing, halted = (check_publisher(it, only=["key change"]).results[0] for it in (lambda *_: None, rejected))
    assert "there is no mirrored table Orders" in missing.problems
    assert "[ME023]" in halted.problems[0]
    with pytest.raises(UsageError, match="Did you mean key change"):
        check_publisher(rejected, only=["key chang"])


def test_the_report_has_the_problems_and_help():
    report = check_publisher(CARELESS["key change"][0].publish, only=["key change"])
    with pytest.raises(AssertionError) as raised:
        report.assert_all_passed()
    assert str(raised.value).splitlines() == [
        "The publisher passes 0 of 1 scenarios.",
        "FAILED         key change",
        "    3 rows (id 2, 3, 30) are there though deleted, or under an old key",
        "    help: publish it as 2 with the old key, then 4 or 0 with the new row (LZ-4.7)",
    ]
    assert report.to_json()[0]["outcome"] == "failed"


def test_a_publisher_that_writes_without_the_given_files_is_not_exercised():
    def direct(source, files, state):
        Careful(source, ZoneFiles(files.path), state).run()

    report = check_publisher(direct, only=["crash after publish"])
    assert [result.outcome for result in report.results] == [ScenarioOutcome.NOT_EXERCISED]
    assert "NOT EXERCISED  crash after publish" in str(report)
    assert not report.passed


def test_a_publisher_that_always_fails_is_reported_by_line_without_values():
    def broken(*_):
        pa.array(["a value of the source"]).cast(pa.int64())

    line = broken.__code__.co_firstlineno + 1
    result = check_publisher(broken, only=["key change"]).results[0]
    assert result.problems == (f"the publisher keeps failing: ArrowInvalid at {__file__}, line {line}",)
    assert result.help == RAISING
    assert "a value of the source" not in str(result)


def test_a_publisher_that_fails_after_a_good_run_gets_the_help_of_the_scenario_too():
    class Stumbles(Careful):
        def run(self):
            if any(path.endswith("2.parquet") for path in self.files.list(self.folder)):
                self.files.read("no such file")
            super().run()

    result = check_publisher(Stumbles.publish, only=["lost rename response"]).results[0]
    assert result.problems[0].startswith(f"the publisher keeps failing: FileNotFoundError at {__file__}, line ")
    assert result.help.startswith(f"{RAISING}; after a failed rename check")


def test_columns_are_compared_in_any_case():
    source = Source()
    rows = [{name.upper(): value for name, value in row.items()} for row in source.rows()]
    assert row_problems(source, rows) == []
    assert row_problems(source, rows[1:]) == ["1 row (id 1) is missing"]
