"""Faults switched while the emulator runs: with this run's token, on http only."""

from __future__ import annotations

import contextlib
from functools import partial
from types import SimpleNamespace
from urllib.parse import urlsplit

import pytest
from faulty import Client
from starlette.responses import Response
from starlette.testclient import TestClient

from mirror_engine.onelake.connection import Listening
from mirror_engine.onelake.faults import FAULT_API_HEADER, FAULT_API_PATH, FaultApi, hold, parse_fault
from mirror_engine.onelake.options import EmulatorOptions, ServerPlan
from mirror_engine.onelake.serving import Server

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
        assert client("GET", FAULT_API_PATH[1:]).status == 404


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
        assert client("GET", FAULT_API_PATH[1:], **known).status == 401
        assert client("GET", FAULT_API_PATH[1:], Authorization="Bearer 0123456789abcdef", **known).status == 200
