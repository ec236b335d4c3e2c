"""Faults switched while the emulator runs: with this run's token, on http only."""

from __future__ import annotations

import contextlib
import json
import ssl
from urllib.parse import urlsplit

import pytest
from faulty import Client
from wire import connected, exchange, request, rest_of, status_of

from mirror_engine.onelake.connection import Listening
from mirror_engine.onelake.fault_injection import FAULT_API_PATH
from mirror_engine.onelake.serving import Server, ServerPlan

pytestmark = pytest.mark.slow


@contextlib.contextmanager
def controlled(store, *, has_fault_api=True, token=None):
    plan = ServerPlan(store, has_engines=False, has_fault_api=has_fault_api, listening=Listening(token=token))
    with Server(plan, on_error=pytest.fail) as server:
        yield server.connection, Client(urlsplit(server.connection.http).port, [])


def test_faults_are_added_shown_counted_and_cleared(tmp_path):
    with controlled(tmp_path) as (info, client):
        reported = info.environment
        assert reported["MIRROR_ENGINE_FAULT_API"] == f"{info.http}{FAULT_API_PATH}"
        known = {"X_Mirror_Engine_Fault_Token": reported["MIRROR_ENGINE_FAULT_API_TOKEN"]}
        assert json.loads(client("GET", FAULT_API_PATH[1:], **known).body) == []
        added = client(
            "POST", FAULT_API_PATH[1:], b"throttle nth=2 path=Workspace/*\nlost_request method=PUT\n", **known
        )
        assert [each["fault"] for each in json.loads(added.body)] == [
            "throttle nth=2 path=Workspace/*",
            "lost_request method=PUT",
        ]
        assert [client("HEAD", "Workspace/Mirror").status for _ in range(3)] == [200, 503, 200]
        assert json.loads(client("GET", FAULT_API_PATH[1:], **known).body)[0]["matched"] == 3
        assert json.loads(client("DELETE", FAULT_API_PATH[1:], **known).body) == []
        assert client("PUT", "Workspace/Mirror/Files/x?resource=file").status == 201


def test_one_bad_line_and_nothing_is_added(tmp_path):
    with controlled(tmp_path) as (info, client):
        known = {"X_Mirror_Engine_Fault_Token": info.environment["MIRROR_ENGINE_FAULT_API_TOKEN"]}
        refused = client("POST", FAULT_API_PATH[1:], b"throttle\nthrotle\n", **known)
        assert refused.status == 400
        assert "unknown fault 'throtle'" in json.loads(refused.body)["error"]["message"]
        assert client("POST", FAULT_API_PATH[1:], b"\xff", **known).status == 400
        assert client("POST", FAULT_API_PATH[1:], b"\n" * 70_000, **known).status == 413
        assert client("PUT", FAULT_API_PATH[1:], b"throttle", **known).status == 405
        assert json.loads(client("GET", FAULT_API_PATH[1:], **known).body) == []


def test_the_fault_api_requires_this_run_s_token(tmp_path):
    with controlled(tmp_path) as (first, _):
        yesterday = first.environment["MIRROR_ENGINE_FAULT_API_TOKEN"]
    with controlled(tmp_path) as (info, client):
        assert info.environment["MIRROR_ENGINE_FAULT_API_TOKEN"] != yesterday
        for wrong in ({}, {"X_Mirror_Engine_Fault_Token": ""}, {"X_Mirror_Engine_Fault_Token": yesterday}):
            answers = [client(method, FAULT_API_PATH[1:], b"throttle", **wrong) for method in ("GET", "POST", "DELETE")]
            assert [answer.status for answer in answers] == [403] * 3
        assert client("HEAD", "Workspace/Mirror").status == 200


def test_the_fault_api_is_off_by_default_and_never_on_https(tmp_path):
    with controlled(tmp_path, has_fault_api=False) as (info, client):
        assert "MIRROR_ENGINE_FAULT_API" not in info.environment
        assert client("GET", FAULT_API_PATH[1:]).status == 404
    with controlled(tmp_path) as (info, client):
        token = f"X-Mirror-Engine-Fault-Token: {info.environment['MIRROR_ENGINE_FAULT_API_TOKEN']}"
        real_name = exchange(client.port, request("GET", FAULT_API_PATH, "onelake.dfs.fabric.microsoft.com", token))
        assert status_of(real_name) == 404
        assert status_of(exchange(client.port, request("GET", FAULT_API_PATH, "localhost", token))) == 200
        unchecked = ssl.create_default_context(cafile=info.environment["SSL_CERT_FILE"])
        with unchecked.wrap_socket(connected(urlsplit(info.https).port), server_hostname="localhost") as safe:
            safe.sendall(request("GET", FAULT_API_PATH, "localhost", token))
            assert status_of(rest_of(safe)) == 404


def test_the_fault_api_requires_the_emulator_token_too(tmp_path):
    with controlled(tmp_path, token="0123456789abcdef") as (info, client):  # noqa: S106 - a test's own
        known = {"X_Mirror_Engine_Fault_Token": info.environment["MIRROR_ENGINE_FAULT_API_TOKEN"]}
        assert client("GET", FAULT_API_PATH[1:], **known).status == 401
        assert client("GET", FAULT_API_PATH[1:], Authorization="Bearer 0123456789abcdef", **known).status == 200
