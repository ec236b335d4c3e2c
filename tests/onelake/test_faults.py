"""Fault rules: their syntax, which requests match, and how they are switched while the emulator runs."""

from __future__ import annotations

import contextlib
import re
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from urllib.parse import urlsplit

import pytest
from faulty_onelake import Client
from starlette.responses import Response
from starlette.testclient import TestClient

from mirror_engine.clock import Clock
from mirror_engine.errors import UsageError
from mirror_engine.onelake.connection import Listening
from mirror_engine.onelake.faults import (
    FAULT_API_HEADER,
    FAULT_API_PATH,
    NAMES,
    OPERATIONS,
    FaultApi,
    hold,
    parse_fault,
)
from mirror_engine.onelake.options import EmulatorOptions, FaultRule, ServerPlan
from mirror_engine.onelake.serving import Server


def test_all_words_of_a_fault_are_read():
    fault = parse_fault("throttle status=429 retry-after=2 method=put path=/*/Orders/* operation=create nth=3 count=2")
    assert (fault.fault, fault.method, fault.path, fault.operations) == ("throttle", "PUT", "*/Orders/*", ("create",))
    assert (fault.nth, fault.count, fault.duration_seconds) == (3, 2, None)
    assert fault.options == {"status": "429", "retry-after": 2}


def test_words_left_out_have_their_usual_meaning():
    fault = parse_fault("throttle")
    assert (fault.method, fault.path, fault.nth, fault.count, fault.operations) == ("*", "*", 1, 1, None)
    assert fault.options == {"status": "503", "retry-after": 1}
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
        ("cut_body bytes=-1", "bytes is '-1'"),
        ("advance days=-1", "days is '-1'"),
        ("advance days=7 path=*", "unknown option path"),
        *((f"advance{unit}", "amount of time is missing") for unit in ("", " days=0")),
        *((f"throttle {word}={'9' * 5000}", f"{word} is") for word in ("nth", "count", "retry-after", "for")),
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


TOKEN = {FAULT_API_HEADER: "this-run"}


@pytest.fixture
def api():
    """A client of the API alone; `.options` are what it switches."""
    options = EmulatorOptions()
    options.hold = partial(hold, SimpleNamespace(clock=options.clock))
    client = TestClient(FaultApi(Response(status_code=404), options, "this-run"), "http://localhost:1")
    client.options = options
    return client


def test_faults_are_added_shown_counted_and_cleared(api):
    rules = ["throttle nth=2 path=Workspace/*", "lost_request method=PUT"]
    assert api.get(FAULT_API_PATH, headers=TOKEN).json() == []
    added = api.post(FAULT_API_PATH, content="\n".join([*rules, ""]), headers=TOKEN).json()
    assert added == [{"fault": rule, "matched": 0} for rule in rules]
    injected = [bool(api.options.faults_of("HEAD", "Workspace/Mirror")) for _ in range(3)]
    assert injected == [False, True, False]
    assert api.get(FAULT_API_PATH, headers=TOKEN).json()[0]["matched"] == 3
    assert api.delete(FAULT_API_PATH, headers=TOKEN).json() == api.options.faults == []


def test_time_moves_at_once(api):
    before, reported = api.options.clock(), []
    api.options.on_fault = lambda *fault: reported.append(fault)
    api.post(FAULT_API_PATH, content="throttle\nadvance days=7 hours=1\n", headers=TOKEN)
    assert [bool(api.options.faults_of("GET", "Workspace/Mirror")) for _ in range(2)] == [True, False]
    assert 7 * 86_400 + 3600 <= api.options.clock() - before < 8 * 86_400
    assert reported == [("advance days=7 hours=1", "", ""), ("throttle", "GET", "Workspace/Mirror")]


@pytest.mark.parametrize(
    ("method", "content", "status", "message"),
    [
        ("POST", b"throttle\nthrotle\n", 400, "unknown fault 'throtle'"),
        ("POST", b"throttle\nadvance days=99999\n", 400, "at most 100 years"),
        ("POST", b"\xff", 400, "not UTF-8"),
        ("POST", b"\n" * 70_000, 413, "too large"),
        ("PUT", b"throttle", 405, "Use one of"),
    ],
)
def test_one_bad_line_and_nothing_is_added(api, method, content, status, message):
    refused = api.request(method, FAULT_API_PATH, content=content, headers=TOKEN)
    assert refused.status_code == status
    assert message in refused.json()["error"]["message"]
    assert api.options.faults == []


@pytest.mark.parametrize("method", ["GET", "POST", "DELETE"])
@pytest.mark.parametrize("sent", [{}, {FAULT_API_HEADER: ""}, {FAULT_API_HEADER: "of-yesterday"}])
def test_the_fault_api_requires_this_run_s_token(api, method, sent):
    assert api.request(method, FAULT_API_PATH, content=b"throttle", headers=sent).status_code == 403
    assert api.options.faults == []
    assert FaultApi(api.app.app, api.options).token != FaultApi(api.app.app, api.options).token


@contextlib.contextmanager
def running(store, *, has_fault_api=True, token=None):
    plan = ServerPlan(store, has_engines=False, has_fault_api=has_fault_api, listening=Listening(token=token))
    with Server(plan, on_error=pytest.fail) as server:
        yield server.connection, Client(urlsplit(server.connection.http).port, [])


@pytest.mark.slow
def test_the_fault_api_is_off_by_default_and_never_on_https(api, tmp_path):
    for url in ("https://localhost", "http://onelake.dfs.fabric.microsoft.com"):
        assert api.get(f"{url}{FAULT_API_PATH}", headers=TOKEN).status_code == 404
    with running(tmp_path, has_fault_api=False) as (info, client):
        assert "MIRROR_ENGINE_FAULT_API" not in info.environment
        assert client("GET", FAULT_API_PATH[1:]).status_code == 404


@pytest.mark.slow
def test_an_emulator_may_start_ahead_of_its_time_and_be_moved_on(tmp_path):
    options = EmulatorOptions(faults=[parse_fault("advance days=7")])
    before = options.clock()
    with Server(ServerPlan(tmp_path, has_engines=False, options=options), on_error=pytest.fail) as server:
        assert 7 * 86_400 <= options.clock() - before < 8 * 86_400
        server.advance(days=1)
        assert 8 * 86_400 <= server._engines.clock() - before < 9 * 86_400


@pytest.mark.slow
def test_the_fault_api_requires_the_emulator_token_too(tmp_path):
    with running(tmp_path, token="0123456789abcdef") as (info, client):  # noqa: S106 - a test's own
        assert info.environment["MIRROR_ENGINE_FAULT_API"] == f"{info.http}{FAULT_API_PATH}"
        known = {"X_Mirror_Engine_Fault_Token": info.environment["MIRROR_ENGINE_FAULT_API_TOKEN"]}
        assert client("GET", FAULT_API_PATH[1:], **known).status_code == 401
        assert client("GET", FAULT_API_PATH[1:], Authorization="Bearer 0123456789abcdef", **known).status_code == 200
