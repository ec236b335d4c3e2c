"""What a log says of refused requests: which and how, and nothing that a client keeps secret."""

from __future__ import annotations

import pytest
from lakes import ITEM, LANDING, onelake
from wire import ONELAKE, exchange, request, running

from mirror_engine.onelake.middleware import RejectedRequest

pytestmark = pytest.mark.slow

HUSH = "hush"
ALLOWING = "--allow-managed-folder-changes"
TOKEN = "let-me-in"  # noqa: S105 - a test's own


@pytest.fixture(scope="module")
def reported():
    return []


@pytest.fixture(scope="module")
def emulator(reported, tmp_path_factory):
    with running(onelake(tmp_path_factory.mktemp("store")).app, on_rejected=reported.append) as started:
        yield started


@pytest.fixture(autouse=True)
def _silence_before(reported):
    reported.clear()


def test_a_rejected_request_is_reported_with_path_and_code(emulator, reported):
    exchange(emulator.http_port, request("GET", f"/{LANDING}/T/%C3%BC.csv?sv=1&sig={HUSH}", ONELAKE))
    exchange(emulator.http_port, request("DELETE", f"/shop/{ITEM}/Files", "localhost:80"))
    assert reported == [
        RejectedRequest("GET", ONELAKE, f"/{LANDING}/T/%C3%BC.csv", 404, "PathNotFound"),
        RejectedRequest("DELETE", "localhost", f"/shop/{ITEM}/Files", 400, "OperationNotAllowedOnThePath", ALLOWING),
    ]
    assert [each.record()[2].get("allowed_by") for each in reported] == [None, ALLOWING]


def test_requests_rejected_by_guard_and_proxy_are_reported(emulator, reported):
    exchange(emulator.http_port, request("GET", "/x", "evil.example"))
    exchange(emulator.proxy_port, request("CONNECT", "account.dfs.core.windows.net:443", "x"))
    assert reported == [
        RejectedRequest("GET", "evil.example", "/x", 421, "InvalidUri"),
        RejectedRequest("CONNECT", "account.dfs.core.windows.net:443", "", 403, "", "--pass-through"),
    ]


def test_a_write_without_a_length_is_reported_as_tolerated(emulator, reported):
    url = f"/{LANDING}/T/1.csv?resource=file"
    for header in ("Content-Length: 0", "X: none"):
        exchange(emulator.http_port, request("PUT", url, ONELAKE, header))
    [one] = reported
    assert one == RejectedRequest(
        "PUT", ONELAKE, f"/{LANDING}/T/1.csv", 411, "MissingContentLengthHeader", is_tolerated=True
    )
    assert one.record()[1] == "request_tolerated"


def test_answered_requests_and_head_404_are_not_reported(emulator, reported):
    for asked in (request("GET", f"/{LANDING}?resource=filesystem"), request("HEAD", f"/{LANDING}/T/x.csv")):
        exchange(emulator.http_port, asked)
    assert reported == []


def test_rejected_requests_are_reported_without_secrets(reported, tmp_path):
    secrets = (
        f"Authorization: Bearer {HUSH}",
        f"x-ms-rename-source: /shop/x?sig={HUSH}",
        f"x-ms-copy-source: https://a/?sig={HUSH}",
        f"x-ms-client-request-id: {HUSH}",
    )
    authority = f"http://{HUSH}:{HUSH}@localhost/shop/x?{HUSH}"
    targets = (f"/shop/x?sig={HUSH}", authority, f"/shop/x?a=b&sig={HUSH}%00#{HUSH}")
    with running(onelake(tmp_path).app, token=TOKEN, on_rejected=reported.append) as locked:
        for target in targets:
            for header in secrets:
                for token in ("X: none", f"Authorization: Bearer {TOKEN}"):
                    headers = (header, f"Content-Length: {len(HUSH)}", token)
                    exchange(locked.http_port, request("PUT", target, "localhost", *headers, body=HUSH.encode()))
            exchange(locked.proxy_port, request("GET", target, "localhost", *secrets))
        to_others = request("CONNECT", f"{HUSH}:{HUSH}@a:443", "a", f"Proxy-Authorization: Basic {HUSH}")
        exchange(locked.proxy_port, to_others)
        exchange(locked.proxy_port, f"{HUSH} {HUSH}\r\n\r\n".encode())
    assert len(reported) > len(targets) * len(secrets)
    assert HUSH not in repr(reported)
