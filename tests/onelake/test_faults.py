"""Fault rules: their syntax, and which requests match."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from mirror_engine.clock import Clock
from mirror_engine.errors import UsageError
from mirror_engine.onelake.faults import NAMES, OPERATIONS, parse_fault
from mirror_engine.onelake.options import EmulatorOptions, FaultRule


def test_all_words_of_a_fault_are_read():
    fault = parse_fault("throttle status=429 retry-after=2 method=put path=/*/Orders/* operation=create nth=3 count=2")
    assert (fault.fault, fault.method, fault.path, fault.operations) == ("throttle", "PUT", "*/Orders/*", ("create",))
    assert (fault.nth, fault.count, fault.duration_seconds) == (3, 2, None)
    assert fault.options == {"status": "429", "retry-after": 2}


def test_words_left_out_have_their_usual_meaning():
    fault = parse_fault("throttle")
    assert (fault.method, fault.path, fault.nth, fault.count, fault.operations) == ("*", "*", 1, 1, None)
    assert fault.options == {"status": "503", "retry-after": 1}
    assert parse_fault("same_mtime").count is None
    assert parse_fault("throttle count=all").count is None
    assert parse_fault("folder_in_use for=1.5").duration_seconds == 1.5


def test_a_path_with_spaces_is_quoted_as_in_a_shell():
    assert parse_fault("lost_request 'path=*/My Orders/*'").path == "*/My Orders/*"


@pytest.mark.parametrize(
    ("text", "reported"),
    [
        ("", "no name, or an open quote"),
        ("throttle 'path=x", "no name, or an open quote"),
        ("slow", "unknown fault 'slow'"),
        ("throttle nth", "'nth' is not name=value"),
        ("throttle path=", "'path=' is not name=value"),
        ("throttle stat=429", "unknown option stat"),
        ("throttle bytes=4", "unknown option bytes"),
        ("throttle status=500", "status is '500'"),
        ("throttle retry-after=soon", "retry-after is 'soon'"),
        ("throttle nth=0", "nth is '0'"),
        ("throttle count=²", "count is"),
        ("throttle method=PULL", "method is 'PULL'"),
        ("throttle operation=upload", "operation is 'upload'"),
        ("slow_flush", "seconds is missing"),
        ("slow_flush seconds=-1", "seconds is '-1'"),
        ("slow_flush seconds=inf", "seconds is 'inf'"),
        ("slow_flush seconds=1 operation=list", "operation is 'list'"),
        ("delay_visibility seconds=1 from=lists,me", "from is 'lists,me'"),
        ("cut_body bytes=-1", "bytes is '-1'"),
        ("advance days=-1", "days is '-1'"),
        ("advance days=7 path=*", "unknown option path"),
        *((f"advance{unit}", "by how much is missing") for unit in ("", " days=0")),
        *((f"throttle {word}={'9' * 5000}", f"{word} is") for word in ("nth", "count", "retry-after", "for")),
        (f"shuffle_ties seed={'9' * 5000}", "seed is"),
        ("paused nth=2", "unknown option nth"),
        ("replicator_throttled", "either for= or until="),
        ("replicator_throttled for=1 until=2026-11-02T08:15:30", "either for= or until="),
        *(
            (f"replicator_throttled until={time}", f"until is '{time}'")
            for time in ("2026-13-02T08:15:30", "2026-11-02")
        ),
        (f"replicator_throttled for={'9' * 12}", "for is '999999999999'"),
    ],
)
def test_what_cannot_be_meant_is_refused_with_what_can(text, reported):
    with pytest.raises(UsageError) as refused:
        parse_fault(text)
    assert reported in str(refused.value)
    assert refused.value.help


def test_every_fault_is_documented_with_an_example_that_can_be_given():
    page = (Path(__file__).parents[2] / "docs/emulator.md").read_text(encoding="utf-8")
    examples = re.findall(r"^\| `(\w+)` \|.*\| `([^`]+)` \|$", page, re.MULTILINE)
    assert {name for name, _ in examples} == set(NAMES)
    assert [parse_fault(text).fault for _, text in examples] == [name for name, _ in examples]
    assert [word for word in OPERATIONS if f"`{word}`" not in page] == []


def test_a_fault_begins_with_the_nth_matching_request_and_ends_after_count():
    fault = FaultRule("throttle", "PUT", "ws/db/*/T/*", nth=2, count=2)
    options = EmulatorOptions(faults=[fault])
    assert options.faults_of("GET", "ws/db/Files/T/f") == []
    assert options.faults_of("PUT", "ws/db/Files/U/f") == []
    matched = [options.faults_of("PUT", "ws/db/Files/T/f") for _ in range(5)]
    assert matched == [[], [fault], [fault], [], []]


def test_without_a_method_and_path_every_request_counts_and_case_does():
    every, upper = FaultRule("slow_flush", count=9), FaultRule("lost_response", path="WS/*", count=9)
    options = EmulatorOptions(faults=[every, upper])
    assert options.faults_of("DELETE", "ws/x") == [every]
    assert options.faults_of("GET", "WS/x") == [every, upper]


def test_a_duration_begins_with_the_first_matching_request():
    fault = FaultRule("folder_in_use", nth=2, duration_seconds=5.0)
    options, matched = EmulatorOptions(faults=[fault], clock=Clock(monotonic=lambda: 0.0)), []
    for seconds in (0, 100, 3, 1.9, 0.1, 1):
        options.clock.advance(seconds=seconds)
        matched.append(bool(options.faults_of("DELETE", "ws/db/Files/T")))
    assert matched == [False, True, True, True, False, False]
