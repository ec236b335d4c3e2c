"""What a request may ask: floods, endless heads, bodies beyond the bound, silence, too many at once."""

from __future__ import annotations

import asyncio
import contextlib
import select
import time
from types import SimpleNamespace

import pytest
from raw_http import connected, exchange, request, rest_of, running, status_of, trusting, until
from starlette.requests import Request
from starlette.responses import Response

from mirror_engine.errors import UsageError
from mirror_engine.onelake import http_protocol, listeners, middleware
from mirror_engine.onelake.connection import Listening
from mirror_engine.onelake.listeners import Listeners

pytestmark = pytest.mark.slow


async def counting(scope, receive, send):
    """Answers with how many bytes of a body came."""
    count = sum([len(piece) async for piece in Request(scope, receive).stream()])
    await send({"type": "http.response.start", "status": 200, "headers": [(b"connection", b"close")]})
    await send({"type": "http.response.body", "body": b"%d" % count})


@pytest.fixture(scope="module")
def limited_server():
    with running(counting) as started:
        yield started


@pytest.fixture
def small(monkeypatch):
    """Takes bodies of 1000 bytes, and waits a moment for their next piece."""
    monkeypatch.setattr(middleware, "MAX_BODY_BYTES", 1000)
    monkeypatch.setattr(middleware, "BODY_SECONDS", 0.3)
    with running(counting, pytest.fail) as started:
        yield started


def body_of(answer):
    return answer.partition(b"\r\n\r\n")[2]


def test_a_head_of_sixteen_kibibytes_passes_and_one_byte_more_does_not(limited_server):
    others = (("host", "localhost"), ("connection", "close"), ("x", ""))
    room = http_protocol.MAX_HEAD_BYTES - len("/") - sum(len(name) + len(value) + 4 for name, value in others)
    for length, statuses in ((room, {200}), (room + 1, {0, 400})):
        answer = exchange(limited_server.http_port, request("GET", "/", "localhost", f"X: {'a' * length}"))
        assert status_of(answer) in statuses


@pytest.mark.parametrize("count", [90, 101])
def test_headers_are_counted(limited_server, count):
    many = request("GET", "/", "localhost", *[f"X-{number}: a" for number in range(count)])
    assert status_of(exchange(limited_server.http_port, many)) == (200 if count < 100 else 400)


@pytest.mark.parametrize(
    "flood",
    [
        b"GET / HTTP/1.1\r\nHost: localhost\r\n" + b"X-A: b\r\n" * 100_000,
        b"GET / HTTP/1.1\r\nHost: localhost\r\nX: " + b"b" * 1_000_000,
        b"GET /" + b"a" * 1_000_000,
    ],
)
def test_a_head_without_an_end_is_cut(limited_server, flood):
    started = time.monotonic()
    answer = exchange(limited_server.http_port, flood)
    assert time.monotonic() - started < http_protocol.HEAD_SECONDS / 2  # for its length, not for its slowness
    assert status_of(answer) in {0, 400}  # 0: the answer was lost with what was still on its way
    assert len(answer) < 1000


def test_a_head_that_dribbles_is_cut(limited_server, monkeypatch):
    monkeypatch.setattr(http_protocol, "HEAD_SECONDS", 0.2)
    started = time.monotonic()
    with connected(limited_server.http_port) as silent, connected(limited_server.http_port) as slow:
        slow.sendall(b"GET / HTTP/1.1\r\nHo")
        assert rest_of(slow) == rest_of(silent) == b""
    assert time.monotonic() - started < 5


def test_a_second_request_s_head_may_not_dribble_either(monkeypatch):
    monkeypatch.setattr(http_protocol, "HEAD_SECONDS", 0.3)
    with running(Response()) as emulator, connected(emulator.http_port) as connection:
        for pause in (0.5, 0.0):  # idle between two requests: no head is on its way
            connection.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert status_of(connection.recv(65536)) == 200
            time.sleep(pause)
        connection.sendall(b"GET / HT")
        assert rest_of(connection) == b""


def test_silence_instead_of_tls_is_cut(monkeypatch):
    monkeypatch.setattr(listeners, "HANDSHAKE_SECONDS", 0.2)
    with running(counting) as emulator, connected(emulator.https_port) as connection:
        assert rest_of(connection) == b""


@pytest.mark.parametrize("size", [4 * 1024**3 + 1, 10**30])
def test_an_announced_length_over_the_limit_is_rejected_before_the_body(limited_server, size):
    answer = exchange(limited_server.http_port, request("PUT", "/", "localhost", f"Content-Length: {size}"))
    assert status_of(answer) in {400, 413}
    assert size > 2**64 or b"x-ms-error-code: RequestBodyTooLarge\r\n" in answer


@pytest.mark.parametrize(
    ("host", "form", "header"),
    [
        ("onelake.blob.fabric.microsoft.com", b"<Error><Code>RequestBodyTooLarge</Code>", b"x-ms-error-code"),
        ("onelake.dfs.fabric.microsoft.com", b'{"error":{"code":"RequestBodyTooLarge"', b"x-ms-error-code"),
        ("api.fabric.microsoft.com", b'"errorCode":"RequestBodyTooLarge"', b"x-ms-public-api-error-code"),
    ],
)
def test_a_body_that_is_too_large_is_refused_in_the_form_of_who_was_asked(small, host, form, header):
    announced = request("PUT", "/", host, "Content-Length: 1001", "x-ms-blob-type: BlockBlob")
    answer = exchange(small.http_port, announced)
    assert status_of(answer) == 413
    assert form in body_of(answer)
    assert header + b": RequestBodyTooLarge\r\n" in answer


def test_a_body_of_unknown_length_is_cut_where_it_gets_too_large(small):
    chunk = b"64\r\n" + b"a" * 100 + b"\r\n"
    head = request("PUT", "/", "localhost", "Transfer-Encoding: chunked")
    assert body_of(exchange(small.http_port, head + chunk * 10 + b"0\r\n\r\n")) == b"4\r\n1000\r\n0\r\n\r\n"
    assert status_of(exchange(small.http_port, head + chunk * 11)) == 413


def test_a_body_that_does_not_go_on_is_given_up(small):
    head = request("PUT", "/", "localhost", "Content-Length: 100")
    assert status_of(exchange(small.http_port, head + b"a" * 50)) == 408


def test_a_body_that_goes_on_slowly_is_waited_for(small, monkeypatch):
    monkeypatch.setattr(middleware, "LEAST_BYTES_PER_SECOND", 100)
    with connected(small.http_port) as connection:
        connection.sendall(request("PUT", "/", "localhost", "Content-Length: 100"))
        for _ in range(10):
            connection.sendall(b"a" * 10)
            time.sleep(0.06)
        assert body_of(rest_of(connection)) == b"3\r\n100\r\n0\r\n\r\n"


def test_body_slower_than_the_least_rate_is_given_up(small):
    with connected(small.http_port) as connection:
        connection.sendall(request("PUT", "/", "localhost", "Content-Length: 1000"))
        started = time.monotonic()
        while not select.select([connection], [], [], 0)[0]:
            connection.sendall(b"a")
            time.sleep(0.02)
        assert time.monotonic() - started < 10  # all of it would take 20 s
        assert status_of(rest_of(connection)) == 408
    with connected(small.http_port) as connection:
        connection.sendall(request("PUT", "/", "localhost", "Content-Length: 100") + b"a" * 10)
        assert status_of(rest_of(connection)) == 408


def test_upload_of_days_above_the_least_rate_is_waited_for(monkeypatch):
    now = [0.0]
    monkeypatch.setattr(middleware, "time", SimpleNamespace(monotonic=lambda: now[0]))

    async def slow():
        now[0] += 59
        return {"type": "http.request", "body": b"x" * 70_000, "more_body": True}

    async def upload():
        body = middleware._Body(slow)
        for _ in range(5_000):
            await body()

    asyncio.run(upload())
    assert now[0] > 3 * 86_400


async def refusing(scope, receive, send):
    await Response(b"no", 403)(scope, receive, send)


@pytest.fixture(scope="module")
def refused_early():
    """An emulator that answers 403 without reading a body."""
    with running(refusing) as started:
        yield started


@pytest.mark.parametrize(
    ("is_secure", "form", "close"),
    [
        (True, "Content-Length: 40000000", True),
        (True, "Transfer-Encoding: chunked", False),
        (False, "Content-Length: 40000000", False),
        (False, "Transfer-Encoding: chunked", True),
    ],
)
def test_early_answer_reaches_a_client_that_sends_its_body(refused_early, is_secure, form, close):
    head = request("PUT", "/", "localhost", form)
    head = head if close else head.replace(b"Connection: close\r\n", b"")
    piece = b"x" * 400_000
    piece = b"%x\r\n%s\r\n" % (len(piece), piece) if "chunked" in form else piece
    with contextlib.ExitStack() as stack:
        connection = stack.enter_context(connected(refused_early.https_port if is_secure else refused_early.http_port))
        if is_secure:
            connection = stack.enter_context(trusting().wrap_socket(connection, server_hostname="localhost"))
        connection.sendall(head)
        for _ in range(100):
            connection.sendall(piece)
            time.sleep(0.001)  # the answer is there before the body's end
        if "chunked" in form:
            connection.sendall(b"0\r\n\r\n")
        if not close:  # the connection goes on
            connection.sendall(request())
        assert rest_of(connection).count(b"HTTP/1.1 403") == (1 if close else 2)


@pytest.mark.parametrize(
    ("host", "length", "status"), [("evil.example", 20_000_000, 421), ("localhost", 4 * 1024**3 + 1, 413)]
)
def test_early_refusal_reaches_a_client_that_sends_its_body(limited_server, host, length, status):
    with connected(limited_server.http_port) as connection:
        connection.sendall(request("PUT", "/", host, f"Content-Length: {length}"))
        for _ in range(20):
            connection.sendall(b"x" * 1_000_000)
            time.sleep(0.001)
        assert status_of(rest_of(connection)) == status


def test_rest_of_a_body_that_nobody_reads_is_bounded(refused_early, monkeypatch):
    monkeypatch.setattr(http_protocol, "UNREAD_BYTES", 5_000_000)
    sent = 0
    with connected(refused_early.http_port) as connection, contextlib.suppress(ConnectionError):
        connection.sendall(request("PUT", "/", "localhost", "Content-Length: 1000000000"))
        while sent < 100_000_000:
            connection.sendall(b"x" * 100_000)
            sent += 100_000
    assert 4_000_000 < sent < 50_000_000


def test_nothing_is_served_behind_a_body_that_ends_the_connection(refused_early):
    second = request("DELETE", "/x")
    head = request("PUT", "/", "evil.example", "Content-Length: 3").replace(b"Connection: close\r\n", b"")
    with connected(refused_early.http_port) as connection:
        connection.sendall(head)
        assert status_of(connection.recv(65536)) == 421
        connection.sendall(b"abc" + second)
        assert b"HTTP/1.1" not in rest_of(connection)


def test_answer_instead_of_100_continue_ends_the_connection(refused_early):
    head = request("PUT", "/", "localhost", "Content-Length: 9", "Expect: 100-continue")
    with connected(refused_early.http_port) as connection:
        connection.sendall(head.replace(b"Connection: close\r\n", b""))
        answer = rest_of(connection)
    assert b"connection: close" in answer.lower()
    assert b"100 Continue" not in answer


def test_malformed_request_is_answered_though_more_comes(limited_server):
    with connected(limited_server.http_port) as connection:
        connection.sendall(request("PUT", "/", "localhost", *[f"X-{number}: a" for number in range(101)]))
        for _ in range(50):
            connection.sendall(b"x" * 100_000)
            time.sleep(0.001)
        assert status_of(rest_of(connection)) == 400


CHUNKED = request("PUT", "/", "localhost", "Transfer-Encoding: chunked")


def test_trailers_are_read_and_forgotten(limited_server):
    assert status_of(exchange(limited_server.http_port, CHUNKED, b"3\r\nabc\r\n0\r\nExpires: never\r\n\r\n")) == 200


@pytest.mark.parametrize(
    "flood",
    [
        b"0\r\n" + b"a:b\r\n" * 200,
        b"0\r\n" + b"a:b\r\n" * 500_000,
        b"0\r\nx: " + b"a" * 2_000_000,
        b"0\r\n" + b"x" * 2_000_000,
        b"3;" + b"x" * 2_000_000,
        b"0" * 2_000_000,
        b"1\r\na\r\n0\r\n" + (b"x: " + b"a" * 4000 + b"\r\n") * 500,
    ],
)
@pytest.mark.parametrize("method", ["PUT", "GET"])
def test_trailers_and_framing_are_bounded(limited_server, method, flood):
    started = time.monotonic()
    answer = exchange(limited_server.http_port, CHUNKED.replace(b"PUT", method.encode()), flood)
    assert time.monotonic() - started < http_protocol.HEAD_SECONDS / 2
    assert status_of(answer) in {0, 400}


def test_small_chunks_without_number_are_a_body(limited_server):
    answer = exchange(limited_server.http_port, CHUNKED, b"1\r\na\r\n" * 50_000, b"0\r\n\r\n")
    assert body_of(answer) == b"5\r\n50000\r\n0\r\n\r\n"


def test_rest_of_a_body_that_nobody_reads_is_cut(monkeypatch):
    monkeypatch.setattr(http_protocol, "UNREAD_SECONDS", 0.3)
    head = b"GET / HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"
    with running(Response()) as emulator, connected(emulator.http_port) as connection:
        connection.sendall(head)
        assert status_of(connection.recv(65536)) == 200
        started = time.monotonic()
        with contextlib.suppress(ConnectionError):
            while time.monotonic() - started < 10:
                connection.sendall(b"1\r\na\r\n")
                time.sleep(0.05)
        assert time.monotonic() - started < 5


def test_requests_that_wait_for_an_answer_are_counted(limited_server):
    ask = b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"
    with connected(limited_server.http_port) as connection:
        connection.sendall(ask * (http_protocol.MAX_PIPELINED // 2))
        connection.sendall(request())
        assert rest_of(connection).count(b"HTTP/1.1 200") == 1  # this application closes after its first answer
    assert exchange(limited_server.http_port, ask * 10_000) == b""


def size_of_rest(connection):
    size = 0
    with contextlib.suppress(ConnectionError):
        while piece := connection.recv(1 << 20):
            size += len(piece)
    return size


def test_answer_that_nobody_reads_is_cut(monkeypatch):
    monkeypatch.setattr(http_protocol, "READ_SECONDS", 0.3)

    async def long(scope, receive, send):  # noqa: ARG001 - an ASGI application
        await send({"type": "http.response.start", "status": 200, "headers": []})
        for _ in range(500):
            await send({"type": "http.response.body", "body": b"x" * 100_000, "more_body": True})
        await send({"type": "http.response.body", "body": b""})

    with running(long) as emulator, connected(emulator.http_port) as connection:
        connection.sendall(request())
        assert len(connection.recv(1000)) > 0
        time.sleep(1.0)
        assert size_of_rest(connection) < 50_000_000
    monkeypatch.undo()
    with running(long) as emulator, connected(emulator.http_port) as connection:
        connection.sendall(request())
        assert size_of_rest(connection) > 50_000_000


def test_slowest_connections_make_room_for_others(monkeypatch):
    monkeypatch.setattr(listeners, "MAX_CONNECTIONS", 4)
    monkeypatch.setattr(listeners, "SLOW_SECONDS", 0.1)
    with running(counting) as emulator, contextlib.ExitStack() as held:
        silent = [
            held.enter_context(connected(port))
            for port in (emulator.https_port, emulator.proxy_port, emulator.http_port, emulator.http_port)
        ]
        silent[2].sendall(b"GET / HT")
        silent[3].sendall(request("PUT", "/", "localhost", "Content-Length: 9") + b"a")
        time.sleep(0.3)
        for _ in range(8):
            assert status_of(exchange(emulator.http_port, request())) == 200
        ended, _, _ = select.select(silent, [], [], 0)
        assert len(ended) == 1  # each of the others made room for the next
        more = [held.enter_context(connected(emulator.http_port)) for _ in range(4)]
        time.sleep(0.3)
        assert status_of(exchange(emulator.http_port, request())) == 200
        ended, _, _ = select.select([*silent, *more], [], [], 0)
        assert len(ended) == 5


async def large(scope, receive, send):
    """Reads a body to its end; answers 300 MB to GET, else nothing."""
    async for _ in Request(scope, receive).stream():
        pass
    length = 300_000_000 if scope["method"] == "GET" else 0
    headers = [(b"content-length", b"%d" % length)]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    for _ in range(length // 100_000):
        await send({"type": "http.response.body", "body": b"x" * 100_000, "more_body": True})
    await send({"type": "http.response.body", "body": b""})


def upload_begun(connection):
    connection.sendall(request("PUT", "/", "localhost", "Content-Length: 9999999") + b"a")


def ended(connections):
    """Which of them the server has ended, after a moment."""
    time.sleep(0.1)
    readable, _, _ = select.select(connections, [], [], 0)
    return [place for place, each in enumerate(connections) if each in readable and not each.recv(65536)]


def test_idle_connections_make_room_before_stalled_uploads(monkeypatch):
    monkeypatch.setattr(listeners, "MAX_CONNECTIONS", 3)
    monkeypatch.setattr(listeners, "SLOW_SECONDS", 0.2)
    with running(large) as emulator, contextlib.ExitStack() as held:
        opened = [held.enter_context(connected(port)) for port in [emulator.http_port] * 2 + [emulator.https_port]]
        upload_begun(opened[0])
        time.sleep(0.3)
        opened[1].sendall(b"PUT / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n")
        assert b"200" in opened[1].recv(1000)
        time.sleep(0.3)
        held.enter_context(connected(emulator.http_port))
        assert ended(opened) == [1]


@pytest.mark.parametrize("transfer", ["upload", "download"])
def test_stalled_uploads_make_room_before_slow_transfers(monkeypatch, transfer):
    monkeypatch.setattr(listeners, "MAX_CONNECTIONS", 2)
    monkeypatch.setattr(listeners, "SLOW_SECONDS", 0.2)
    with running(large) as emulator, contextlib.ExitStack() as held:
        opened = [held.enter_context(connected(emulator.http_port)) for _ in range(2)]
        if transfer == "upload":
            upload_begun(opened[0])
        else:
            opened[0].sendall(request("GET", "/", "localhost"))
        for step in range(12):
            if step == 6:
                upload_begun(opened[1])
            if transfer == "upload":
                opened[0].sendall(b"a" * 5_000)  # 50 kB/s
            else:
                for _ in range(100):
                    opened[0].recv(65536)
            time.sleep(0.1)
        held.enter_context(connected(emulator.http_port))
        time.sleep(0.1)
        assert ended([opened[1]]) == [0]


def test_connection_waits_for_room(monkeypatch):
    monkeypatch.setattr(listeners, "MAX_CONNECTIONS", 2)
    monkeypatch.setattr(listeners, "SLOW_SECONDS", 0.5)
    with running(counting) as emulator, contextlib.ExitStack() as held:
        for _ in range(2):
            held.enter_context(connected(emulator.http_port))
        assert status_of(exchange(emulator.http_port, request())) == 200  # once the others have been silent for a while


def test_answers_end_their_connections_while_others_wait(monkeypatch):
    """Clients that always ask again would keep all connections."""
    monkeypatch.setattr(listeners, "MAX_CONNECTIONS", 2)
    monkeypatch.setattr(listeners, "SLOW_SECONDS", 60)
    ask = b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"
    with running(Response()) as emulator, contextlib.ExitStack() as held:
        first, second = (held.enter_context(connected(emulator.http_port)) for _ in range(2))
        time.sleep(0.1)
        first.sendall(ask)
        assert b"connection: close" in rest_of(first).lower()
        time.sleep(0.1)
        second.sendall(ask)
        answer = second.recv(65536)
        assert (status_of(answer), b"connection: close" in answer.lower()) == (200, False)


@pytest.mark.parametrize("kind", ["malformed", "answered early"])
def test_answered_connections_make_room_at_once(monkeypatch, kind):
    monkeypatch.setattr(listeners, "MAX_CONNECTIONS", 1)
    monkeypatch.setattr(listeners, "SLOW_SECONDS", 60)
    monkeypatch.setattr(http_protocol, "REFUSED_SECONDS", 60)
    begun = b"nonsense\r\n\r\n" if kind == "malformed" else request("PUT", "/", "evil.example", "Content-Length: 9999")
    with running(counting) as emulator, connected(emulator.http_port) as held:
        held.sendall(begun)
        assert status_of(held.recv(65536)) in {400, 421}
        assert status_of(exchange(emulator.http_port, request())) == 200


def test_connections_are_counted_and_one_too_many_is_closed(monkeypatch):
    monkeypatch.setattr(listeners, "MAX_CONNECTIONS", 3)
    monkeypatch.setattr(listeners, "SLOW_SECONDS", 60)
    monkeypatch.setattr(listeners, "ROOM_SECONDS", 0.1)
    with running(counting) as emulator, contextlib.ExitStack() as held:
        held.enter_context(connected(emulator.https_port))  # no handshake yet: counted all the same
        held.enter_context(connected(emulator.proxy_port))
        third = held.enter_context(connected(emulator.http_port))
        time.sleep(0.1)
        assert exchange(emulator.http_port, request()) == b""
        third.close()
        until(lambda: status_of(exchange(emulator.http_port, request())) == 200)


def test_an_internal_error_is_logged_without_request_content():
    async def broken(scope, receive, send):  # noqa: ARG001 - an ASGI application
        raise KeyError(dict(scope["headers"])[b"authorization"])

    reported: list[str] = []
    with running(broken, on_error=reported.append) as emulator:
        answer = exchange(emulator.http_port, request("GET", "/?sig=hush", "localhost", "Authorization: Bearer hush"))
    assert status_of(answer) == 500
    assert b"hush" not in answer
    assert len(reported) == 1
    assert reported[0].startswith("internal error: KeyError in broken, line ")
    assert "hush" not in reported[0]


def test_the_emulator_stops_during_an_endless_response(monkeypatch):
    async def endless(scope, receive, send):  # noqa: ARG001 - an ASGI application
        await send({"type": "http.response.start", "status": 200, "headers": []})
        while True:
            await send({"type": "http.response.body", "body": b"tick\n", "more_body": True})
            await asyncio.sleep(0.05)

    monkeypatch.setattr(listeners, "SHUTDOWN_SECONDS", 0)
    with running(large) as emulator:
        connection = connected(emulator.http_port)
        connection.sendall(request())
        assert connection.recv(65536)
        port, started = emulator.http_port, time.monotonic()
    assert time.monotonic() - started < 5
    connection.close()
    with pytest.raises(ConnectionRefusedError):
        connected(port)


def test_a_port_that_is_taken_is_wrong_usage():
    with running(counting) as emulator, pytest.raises(UsageError, match=r"port \d+: Address already in use"):
        Listeners(counting, None, Listening(port=emulator.http_port)).start()
