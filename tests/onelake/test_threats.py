"""Attacks by raw bytes on a server that runs: what is refused, what is not reported, and that it goes on."""

from __future__ import annotations

import logging
import os
import socket
import threading
from urllib.parse import urlsplit

import pytest
from faulty import Client
from wire import connected, exchange, request, rest_of, status_of

from mirror_engine.onelake.options import EmulatorOptions, ServerPlan
from mirror_engine.onelake.serving import Server

pytestmark = pytest.mark.slow

SECRET = b"outside of STORE"
ZONE = "Workspace/Mirror/Files/LandingZone"


class Attacked:
    """A running emulator next to a secret file, and its reported errors."""

    def __init__(self, store, port, reported):
        self.store, self.port, self.reported = store, port, reported
        self.client = Client(port, reported)
        self.before = self.files()

    def files(self):
        files = [path for path in self.store.parent.rglob("*") if path.is_file() and ".mirror-engine" not in path.parts]
        return {str(path): path.lstat().st_size for path in files}

    def says(self, method, target, *headers, body=b""):
        return exchange(self.port, request(method, target, "localhost", *headers, body=body))

    def is_well(self):
        return self.client("HEAD", ZONE).status == 200


@pytest.fixture(scope="module")
def attacked(tmp_path_factory):
    folder, reported = tmp_path_factory.mktemp("attacked"), []
    (folder / "secret").write_bytes(SECRET)
    plan = ServerPlan(folder / "store", has_engines=False, options=EmulatorOptions(allow_bare_names=True))
    with Server(plan, on_error=reported.append) as server:
        yield Attacked(folder / "store", urlsplit(server.connection.http).port, reported)


ENCODED_WAYS = ("%2e%2e", ".%2E", "%2e", "%00", "x%00.parquet", "a%5cb", "%ff%fe", "%c0%ae%c0%ae")
SEPARATED_WAYS = ("..%2f..%2f..%2f..%2fsecret", "a%2f%2e%2e%2F%2e%2e", "%2fetc", "a%2f%2fb", "a%2f", "a%2f.%2fb")
WAYS_OUT = ("..", ".", "..%5c..%5csecret", "..\\..\\secret", "a" * 256, *ENCODED_WAYS, *SEPARATED_WAYS)


@pytest.mark.parametrize("way", WAYS_OUT)
@pytest.mark.parametrize(
    ("method", "query", "headers"),
    [
        ("PUT", "?resource=file", ("Content-Length: 0",)),
        ("GET", "", ()),
        ("DELETE", "?recursive=true", ()),
        ("PUT", "", ("x-ms-blob-type: BlockBlob", "Content-Length: 0")),
    ],
)
def test_no_spelling_of_a_way_out_leads_anywhere(attacked, way, method, query, headers):
    for target in (f"/{ZONE}/{way}/secret{query}", f"/{ZONE}/{way}{query}"):
        answer = attacked.says(method, target, *headers)
        assert status_of(answer) == 400
        assert SECRET not in answer
    assert attacked.files() == attacked.before


@pytest.mark.parametrize(
    "source",
    [
        *(f"/{ZONE}/{way}" for way in ("../../../../secret", "..%2f..%2f..%2f..%2fsecret", "x%00")),
        f"http://localhost/{ZONE}//../../../../secret",
        "/Workspace/Mirror/../../secret",
        "/Workspace%2FMirror%2F..%2F..%2Fsecret",
        "/Workspace/.mirror-engine/tls/emulator.pem",
        "/Workspace%2F.mirror-engine%2Ftls%2Femulator.pem",
        "/.mirror-engine/emulator.json",
        "/Workspace/Mirror/.mirror-engine/ledger.sqlite",
        "file:///etc/passwd",
        "http://169.254.169.254/latest/meta-data",
        "//elsewhere.example/Workspace/Mirror/Files/x",
        "https://onelake.dfs.fabric.microsoft.com.elsewhere.example/Workspace/Mirror/Files/x",
        "https://onelake.dfs.fabric.microsoft.com@elsewhere.example/Workspace/Mirror/Files/x",
    ],
)
@pytest.mark.parametrize("header", ["x-ms-rename-source", "x-ms-copy-source"])
def test_ways_out_keys_and_other_hosts_are_no_source(attacked, source, header):
    answer = attacked.says("PUT", f"/{ZONE}/stolen", f"{header}: {source}", "Content-Length: 0")
    assert status_of(answer) in {400, 403, 404}
    assert attacked.files() == attacked.before


@pytest.mark.parametrize("name", ["CON", "nul.parquet", "a:b", "a*b?", "trailing.", "~", "$x", "a|b", "é"])
def test_names_that_only_windows_minds_are_names_here_and_stay_inside(attacked, name):
    quoted = name.replace("?", "%3F").replace("é", "%C3%A9")
    assert attacked.client("PUT", f"{ZONE}/{quoted}?resource=file").status == 201
    assert (attacked.store / ZONE / name).is_file()
    assert attacked.client("DELETE", f"{ZONE}/{quoted}").status == 200


SMUGGLED = b"DELETE /Workspace/Mirror/Files/LandingZone?recursive=true HTTP/1.1\r\nHost: localhost\r\n\r\n"


@pytest.mark.parametrize(
    "headers",
    [
        ("Content-Length: 4", "Transfer-Encoding: chunked"),
        ("Transfer-Encoding: chunked", "Content-Length: 4"),
        ("Content-Length: 4", "Content-Length: 5"),
        ("Content-Length: +4",),
        ("Content-Length: 0x4",),
        ("Content-Length: -1",),
        ("Transfer-Encoding: xchunked",),
        ("Transfer-Encoding: chunked, identity",),
        ("Content-Length : 4",),
        ("X: y\rTransfer-Encoding: chunked",),
    ],
)
def test_a_request_does_not_hide_in_another_s_body(attacked, headers):
    body = b"0\r\n\r\n" + SMUGGLED
    first = request("PUT", f"/{ZONE}/x", "localhost", "x-ms-blob-type: BlockBlob", *headers, body=body)
    answer = exchange(attacked.port, first.replace(b"Connection: close\r\n", b""))
    assert status_of(answer) == 400
    assert answer.count(b"HTTP/1.1 ") == 1
    assert attacked.is_well()


@pytest.mark.parametrize(
    "chunks", [b"ZZ\r\n", b"-1\r\n", b"FFFFFFFFFFFFFFFFFFFF\r\n", b"5;x\r\nab", b"4\r\nabcdEF\r\n", b"\r\n\r\n"]
)
def test_garbage_instead_of_chunks_commits_nothing(attacked, chunks):
    head = request("PUT", f"/{ZONE}/garbage", "localhost", "x-ms-blob-type: BlockBlob", "Transfer-Encoding: chunked")
    with connected(attacked.port) as connection:
        connection.sendall(head + chunks)
        connection.shutdown(socket.SHUT_WR)
        rest_of(connection)
    assert attacked.client("HEAD", f"{ZONE}/garbage").status == 404


def test_logs_and_answers_hold_no_secrets(attacked, caplog, capfd):
    caplog.set_level(logging.DEBUG)
    secret = "s3cr3t-token"  # noqa: S105 - a test's own
    sas = f"sv=2024&sig={secret}"
    headers = (f"Authorization: Bearer {secret}", f"x-ms-rename-source: /{ZONE}/none?{sas}", "Content-Length: 0")
    answers = [
        attacked.says("PUT", f"/{ZONE}/x?{sas}", *headers),
        attacked.says(
            "PUT", f"/{ZONE}/x?{sas}", f"x-ms-copy-source: https://elsewhere.example/x?{sas}", "Content-Length: 0"
        ),
        attacked.says("GET", f"/{ZONE}/..?{sas}", f"Authorization: SharedKey onelake:{secret}"),
        attacked.says("PATCH", f"/{ZONE}/x?action=x&{sas}"),
        attacked.says("PUT", f"/{ZONE}/x?resource={secret}&sig={secret}", "Content-Length: 0"),
        attacked.says("GET", f"/{ZONE}?resource=filesystem&continuation={secret}"),
        attacked.says("PUT", f"/{ZONE}/x?comp=blocklist&{sas}", "Content-Length: 14", body=b"<s3cr3t-token>"),
        exchange(attacked.port, f"BROKEN {secret}\r\n\r\n".encode()),
    ]
    assert all(status_of(answer) >= 400 for answer in answers)
    said = b"".join(answers) + "\n".join([caplog.text, *attacked.reported, *capfd.readouterr()]).encode()
    assert secret.encode() not in said
    kept = [path for path in (attacked.store / ".mirror-engine").rglob("*") if path.is_file()]
    assert kept
    assert not any(secret.encode() in path.read_bytes() for path in kept)


def test_a_crowd_of_idle_and_broken_connections_does_not_keep_others_out(attacked):
    crowd = [connected(attacked.port) for _ in range(100)]
    try:
        for number, connection in enumerate(crowd):
            connection.sendall(b"PUT /x HTTP/1.1\r\nHost: local"[: number % 30] or b"\x16\x03")
        assert attacked.is_well()
    finally:
        for connection in crowd:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
            connection.close()
    assert attacked.is_well()


def test_bodies_that_end_too_soon_leave_nothing_behind(attacked):
    def give_up(number):
        with connected(attacked.port) as connection:
            head = request(
                "PUT", f"/{ZONE}/half{number}", "localhost", "x-ms-blob-type: BlockBlob", "Content-Length: 4000000"
            )
            connection.sendall(head + os.urandom(1_500_000))

    threads = [threading.Thread(target=give_up, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert attacked.is_well()
    assert [attacked.client("HEAD", f"{ZONE}/half{number}").status for number in range(8)] == [404] * 8
    assert attacked.files() == attacked.before
