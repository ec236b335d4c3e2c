"""What a log says of refused requests: which and how, and nothing that a client keeps secret."""

from __future__ import annotations

import pytest
from lakes import LANDING, onelake
from wire import ONELAKE, exchange, request, running

from mirror_engine.onelake.middleware import RejectedRequest

pytestmark = pytest.mark.slow

HUSH = "hush"
TOKEN = "let me in"  # noqa: S105 - a test's own


@pytest.fixture(scope="module")
def told():
    return []


@pytest.fixture(scope="module")
def endpoint(told, tmp_path_factory):
    with running(onelake(tmp_path_factory.mktemp("store")).app, on_rejected=told.append) as started:
        yield started


@pytest.fixture(autouse=True)
def _silence_before(told):
    told.clear()


def test_a_refusal_is_told_with_its_path_and_code(endpoint, told) -> None:
    exchange(endpoint.http_port, request("GET", f"/{LANDING}/T/%C3%BC.csv?sv=1&sig={HUSH}", ONELAKE))
    exchange(endpoint.http_port, request("PUT", "/shop/orders/Files?resource=directory", "localhost:80"))
    assert told == [
        RejectedRequest("GET", ONELAKE, f"/{LANDING}/T/%C3%BC.csv", 404, "PathNotFound"),
        RejectedRequest("PUT", "localhost", "/shop/orders/Files", 403, "ManagedFolderOperationNotAllowed"),
    ]


def test_what_the_guard_and_the_proxy_refuse_is_told_too(endpoint, told) -> None:
    exchange(endpoint.http_port, request("GET", "/x", "evil.example"))
    exchange(endpoint.proxy_port, request("CONNECT", "account.dfs.core.windows.net:443", "x"))
    assert told == [
        RejectedRequest("GET", "evil.example", "/x", 421, "InvalidUri"),
        RejectedRequest("CONNECT", "account.dfs.core.windows.net:443", "", 403, ""),
    ]


def test_a_write_that_does_not_tell_its_length_is_told_as_the_real_service_refuses_it(endpoint, told) -> None:
    url = f"/{LANDING}/T/1.csv?resource=file"
    for header in ("Content-Length: 0", "X: none"):
        exchange(endpoint.http_port, request("PUT", url, ONELAKE, header))
    [one] = told
    assert one == RejectedRequest(
        "PUT", ONELAKE, f"/{LANDING}/T/1.csv", 411, "MissingContentLengthHeader", is_tolerated=True
    )
    assert one.to_json()[0] == "request_tolerated"


def test_what_is_answered_is_not_told_nor_that_head_found_nothing(endpoint, told) -> None:
    for asked in (request("GET", f"/{LANDING}?resource=filesystem"), request("HEAD", f"/{LANDING}/T/x.csv")):
        exchange(endpoint.http_port, asked)
    assert told == []


def test_nothing_that_a_client_keeps_secret_is_told(told, tmp_path) -> None:
    secrets = (
        f"Authorization: Bearer {HUSH}",
        f"x-ms-rename-source: /shop/x?sig={HUSH}",
        f"x-ms-copy-source: https://a/?sig={HUSH}",
        f"x-ms-client-request-id: {HUSH}",
    )
    targets = (
        f"/shop/x?sig={HUSH}",
        f"http://{HUSH}:{HUSH}@localhost/shop/x?{HUSH}",
        f"/shop/x?a=b&sig={HUSH}%00#{HUSH}",
    )
    bodies = [f"Content-Length: {len(HUSH)}"]
    with running(onelake(tmp_path).app, secret=TOKEN, on_rejected=told.append) as locked:
        for target in targets:
            for header in secrets:
                asked = request("PUT", target, "localhost", header, *bodies, body=HUSH.encode())
                exchange(locked.http_port, asked)
                exchange(
                    locked.http_port, asked.replace(b"\r\n\r\n", f"\r\nAuthorization: Bearer {TOKEN}\r\n\r\n".encode())
                )
            exchange(locked.proxy_port, request("GET", target, "localhost", *secrets))
        exchange(
            locked.proxy_port, request("CONNECT", f"{HUSH}:{HUSH}@a:443", "a", f"Proxy-Authorization: Basic {HUSH}")
        )
        exchange(locked.proxy_port, f"{HUSH} {HUSH}\r\n\r\n".encode())
    assert len(told) > len(targets) * len(secrets)
    assert HUSH not in repr(told)
