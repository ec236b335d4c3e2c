"""Which requests meet a fault switch (endpoint chapter 10)."""

from __future__ import annotations

import time

from mirror_engine.onelake.faults import EmulatorOptions, FaultSwitch


def test_a_fault_is_met_from_the_nth_matching_request_on_as_often_as_it_is_told() -> None:
    fault = FaultSwitch("throttle", "PUT", "ws/db/*/T/*", nth=2, count=2)
    switches = EmulatorOptions(faults=[fault])
    assert switches.at("GET", "ws/db/Files/T/f") == []
    assert switches.at("PUT", "ws/db/Files/U/f") == []
    met = [switches.at("PUT", "ws/db/Files/T/f") for _ in range(5)]
    assert met == [[], [fault], [fault], [], []]


def test_without_a_method_and_path_every_request_counts_and_case_does() -> None:
    every, upper = FaultSwitch("slow_flush", count=9), FaultSwitch("lost_response", path="WS/*", count=9)
    switches = EmulatorOptions(faults=[every, upper])
    assert switches.at("DELETE", "ws/x") == [every]
    assert switches.at("GET", "WS/x") == [every, upper]


def test_a_fault_that_lasts_is_met_until_so_long_after_the_first_that_met_it(monkeypatch) -> None:
    fault = FaultSwitch("folder_in_use", nth=2, lasts_seconds=5.0)
    switches, met = EmulatorOptions(faults=[fault]), []
    for now in (0.0, 100.0, 103.0, 104.9, 105.0, 106.0):
        monkeypatch.setattr(time, "monotonic", lambda now=now: now)
        met.append(bool(switches.at("DELETE", "ws/db/Files/T")))
    assert met == [False, True, True, True, False, False]
