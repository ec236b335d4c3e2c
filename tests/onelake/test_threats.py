"""Attacks on a server that runs, by raw bytes, and by a Delta log: what is refused, and that it goes on."""

from __future__ import annotations

import json
import logging
import os
import socket
from urllib.parse import urlsplit

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from faulty_onelake import Client
from raw_http import ONELAKE, connected, exchange, request, rest_of, status_of
from starlette.testclient import TestClient

from mirror_engine import Config, Mirror
from mirror_engine.errors import TableDamaged
from mirror_engine.onelake.engine_pool import DatabaseStatus, ShownItem
from mirror_engine.onelake.hosts import FABRIC
from mirror_engine.onelake.middleware import RejectedRequest
from mirror_engine.onelake.options import EmulatorOptions, ServerPlan
from mirror_engine.onelake.page.web import Web
from mirror_engine.onelake.serving import Server
from mirror_engine.tables.log.log_reader import LogReader
from mirror_engine.tables.log.snapshot import open_log
from mirror_engine.testing.landing_zone_writer import LandingZoneWriter
from mirror_engine.tools.compare.fabric_tables import StorageTables

pytestmark = pytest.mark.slow

SECRET = b"outside of STORE"
FILES = "Workspace/Mirror/Files"
ZONE = f"{FILES}/LandingZone"
ALLOWING = "--allow-managed-folder-changes"


class Attacked:
    """A running emulator next to a secret file, and its reported errors."""

    def __init__(self, store, port, proxy, reported, rejected):
        self.store, self.port, self.proxy, self.reported, self.rejected = store, port, proxy, reported, rejected
        self.client = Client(port, reported)
        assert self.says("PUT", f"/{ZONE}/U/empty?resource=file", "Content-Length: 0").startswith(b"HTTP/1.1 201")
        self.before = self.files()

    def files(self):
        files = [path for path in self.store.parent.rglob("*") if path.is_file() and ".mirror-engine" not in path.parts]
        return {str(path): path.lstat().st_size for path in files}

    def says(self, method, target, *headers, body=b""):
        return exchange(self.port, request(method, target, "localhost", *headers, body=body))

    def reports(self, asked):
        """What the emulator reports of a request."""
        self.rejected.clear()
        exchange(self.proxy if asked.startswith(b"CONNECT") else self.port, asked)
        return self.rejected

    def is_well(self):
        return self.client("HEAD", ZONE).status_code == 200


@pytest.fixture(scope="module")
def attacked(tmp_path_factory):
    folder, reported, rejected = tmp_path_factory.mktemp("attacked"), [], []
    (folder / "secret").write_bytes(SECRET)
    plan = ServerPlan(folder / "store", has_engines=False, options=EmulatorOptions(allow_bare_names=True))
    with Server(plan, reported.append, on_rejected=rejected.append) as server:
        ports = [urlsplit(url).port for url in (server.connection.http, server.connection.environment["HTTPS_PROXY"])]
        yield Attacked(folder / "store", *ports, reported, rejected)


@pytest.mark.parametrize(
    "way", ["..", ".", "..%5c..%5csecret", "%2e%2e", "%2e", "..%2f..%2f..%2f..%2fsecret", "a%2f%2f"]
)
def test_no_spelling_of_a_way_out_leads_anywhere(attacked, way):
    for method, query in (("PUT", "?resource=file"), ("GET", ""), ("DELETE", "?recursive=true"), ("PUT", "")):
        for target in (f"/{ZONE}/{way}/secret{query}", f"/{ZONE}/{way}{query}"):
            answer = attacked.says(method, target, "x-ms-blob-type: BlockBlob", "Content-Length: 0")
            assert status_of(answer) == 400
            assert SECRET not in answer
    assert attacked.files() == attacked.before


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
    assert attacked.client("HEAD", f"{ZONE}/garbage").status_code == 404


EMPTY, TAGGED = "Content-Length: 0", 'If-Match: "0x8D1"'
RENAMING = (f"x-ms-rename-source: /{ZONE}/U/empty", EMPTY)
NO_PARENT = "RenameDestinationParentPathNotFound"
ANSWER, TOLERATED = {"is_answer": True}, {"is_tolerated": True}


@pytest.mark.parametrize(
    ("asked", "status", "code", "fields"),
    [
        (("GET", f"{ZONE}/T/%C3%BC.csv?sv=1&sig=hush"), 404, "PathNotFound", ANSWER),
        (("DELETE", FILES), 400, "OperationNotAllowedOnThePath", {"allowed_by": ALLOWING}),
        (("PUT", f"{ZONE}?resource=directory"), 411, "MissingContentLengthHeader", TOLERATED),
        (("GET", f"{ZONE}?Resource=Filesystem&directory=U"), 400, "MissingRequiredQueryParameter", TOLERATED),
        (("DELETE", f"{ZONE}/T/none"), 404, "PathNotFound", ANSWER),
        (("PUT", f"{ZONE}?resource=directory", EMPTY, "If-None-Match: *"), 409, "PathAlreadyExists", ANSWER),
        (("PUT", f"{FILES}?resource=directory", EMPTY), 409, "PathAlreadyExists", {**ANSWER, "allowed_by": ALLOWING}),
        (("PATCH", f"{ZONE}/T/none?action=flush&position=0", EMPTY), 404, "PathNotFound", {}),
        # what engines and libraries ask for on purpose
        (("PUT", f"{ZONE}/T/_FilesReadyToDelete/1", *RENAMING), 404, NO_PARENT, ANSWER),
        (("PUT", f"{ZONE}/T/_ProcessedFiles%2F1", *RENAMING), 404, NO_PARENT, ANSWER),
        (("PUT", f"{ZONE}/T/1", *RENAMING), 404, NO_PARENT, {}),
        (("PUT", f"{ZONE}/_FilesReadyToDelete/T/1", *RENAMING), 404, NO_PARENT, {}),
        (("PUT", f"{ZONE}/U/1?comp=lease", "x-ms-lease-action: acquire", EMPTY), 404, "BlobNotFound", ANSWER),
        (("GET", f"{ZONE}/U/empty", "Range: bytes=0-33554431"), 416, "InvalidRange", ANSWER),
        (("GET", f"{ZONE}/U/empty", TAGGED), 412, "ConditionNotMet", ANSWER),
        (("POST", f"{ZONE}/U", "X-HTTP-Method: DELETE", EMPTY), 409, "DirectoryNotEmpty", ANSWER),
        (("PATCH", f"{ZONE}/U/empty?action=flush&position=0", TAGGED, EMPTY), 412, "ConditionNotMet", {}),
    ],
)
def test_rejected_request_is_reported(attacked, asked, status, code, fields):
    method, target, *headers = asked
    path = f"/{target.partition('?')[0]}"
    expected = RejectedRequest(method, "localhost", path, status, code, **fields)
    assert attacked.reports(request(method, f"/{target}", "localhost:80", *headers)) == [expected]
    _, name, logged = expected.record()
    assert name == ("request_tolerated" if expected.is_tolerated else "request_rejected")
    assert logged.get("allowed_by", "") == expected.allowed_by


def test_rejected_request_is_reported_with_its_host(attacked):
    path, other = f"/{ZONE}/none", "account.dfs.core.windows.net:443"
    for method, target, host, *answer in (
        ("GET", path, ONELAKE, 404, "PathNotFound", "", False, True),
        ("GET", path, "evil.example", 421, "InvalidUri"),
        ("CONNECT", "", other, 403, "", "--pass-through"),
    ):
        asked = request(method, target or other, host)
        assert attacked.reports(asked) == [RejectedRequest(method, host, target, *answer)]


def test_accepted_request_is_not_reported(attacked):
    made = request("PUT", f"/{ZONE}?resource=directory", "localhost", EMPTY)
    for asked in (made, request("GET", f"/{ZONE}?resource=filesystem&Recursive=false"), request("HEAD", f"/{ZONE}/x")):
        assert attacked.reports(asked) == []


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
        attacked.says("PUT", f"http://{secret}:{secret}@localhost/shop/x?{secret}"),
        exchange(attacked.port, f"BROKEN {secret}\r\n\r\n".encode()),
        exchange(attacked.proxy, request("GET", f"/shop/x?a=b&sig={secret}%00#{secret}", "localhost")),
        exchange(attacked.proxy, request("CONNECT", f"{secret}:{secret}@a:443", "a")),
        exchange(attacked.proxy, f"{secret} {secret}\r\n\r\n".encode()),
    ]
    assert all(status_of(answer) >= 400 for answer in answers)
    said = (
        b"".join(answers)
        + "\n".join([caplog.text, *attacked.reported, repr(attacked.rejected), *capfd.readouterr()]).encode()
    )
    assert secret.encode() not in said
    kept = [path for path in (attacked.store / ".mirror-engine").rglob("*") if path.is_file()]
    assert kept
    assert not any(secret.encode() in path.read_bytes() for path in kept)


def test_bodies_that_end_too_soon_leave_nothing_behind(attacked):
    items = request("POST", "/v1/workspaces/Workspace/items", FABRIC, "Content-Length: 9")
    halves = [
        request("PUT", f"/{ZONE}/half{number}", "localhost", "x-ms-blob-type: BlockBlob", "Content-Length: 4000000")
        for number in range(8)
    ]
    for head in (items, *halves):
        with connected(attacked.port) as connection:
            connection.sendall(head + os.urandom(8 if head is items else 1_500_000))
    assert attacked.is_well()
    assert [attacked.client("HEAD", f"{ZONE}/half{number}").status_code for number in range(8)] == [404] * 8
    assert (attacked.files(), attacked.reported) == (attacked.before, [])


WAYS_OUT = ["{secret}", "../../../../secret/a.parquet", "x/%2e%2e/..%2F../../../secret/a.parquet", "file://{secret}"]
FORGED = {"operation": "WRITE", "engineInfo": "mirror_engine/1"}


@pytest.fixture
def planted(tmp_path):
    """Give a mirror with a row, to whose table's log a client has added a file elsewhere, as this engine would."""
    mirrors = []

    def plant(way, **information):
        root, secret = tmp_path / "root", tmp_path / "secret/a.parquet"
        orders = LandingZoneWriter(root).table("Orders", keys=["id"], types={"id": pa.int64(), "city": pa.string()})
        orders.insert({"id": 1, "city": "Linz"})
        mirrors.append(Mirror(root, Config(merge_engine="arrow")))
        mirrors[0].sync()
        secret.parent.mkdir()
        pq.write_table(pa.table({"id": [7], "city": [SECRET.decode()]}), secret)
        log = root / "Tables/dbo/Orders/_delta_log"
        add = {"path": way.format(secret=secret), "partitionValues": {}, "size": secret.stat().st_size}
        actions = {"add": {**add, "modificationTime": 0, "dataChange": True}}, {"commitInfo": information}
        commit = log / f"{len([*log.glob('*.json')]):020}.json"
        commit.write_text("\n".join(map(json.dumps, actions)), encoding="utf-8")
        return mirrors[0], orders

    yield plant
    for mirror in mirrors:
        mirror.close()


@pytest.mark.parametrize("information", [{"operation": "WRITE"}, FORGED], ids=["foreign", "forged"])
@pytest.mark.parametrize("way", WAYS_OUT)
def test_delta_log_leads_no_reader_out_of_its_table(planted, way, information):
    mirror, _ = planted(way, **information)
    tables, folder = mirror.root / "Tables", mirror.root / "Tables/dbo/Orders"
    fabrics = StorageTables(LogReader(tables, mirror.root / "scratch"))  # as `compare` reads Fabric's tables
    for read in (
        lambda: mirror.show("Orders"),
        lambda: mirror.diff("Orders", []),
        lambda: mirror.read_table("Orders"),
        fabrics.pin("dbo/Orders"),
        lambda: open_log(folder).check_places(),  # before Spark reads
    ):
        with pytest.raises(TableDamaged, match="names a file outside of the table's folder"):
            read()
    shown = ShownItem("item", "Sales", "Shop", DatabaseStatus.RUNNING, "", lambda: mirror)
    page = Web(lambda: [shown])
    answer = TestClient(page.app).get("/tables/item/Orders", headers={"Accept": "application/json"})
    page.close()
    assert answer.status_code == 200
    assert "outside of the table's folder" in answer.text
    assert SECRET.decode() not in answer.text


@pytest.mark.parametrize("information", [{"operation": "WRITE"}, FORGED], ids=["foreign", "forged"])
def test_engine_applies_nothing_to_a_table_with_files_elsewhere(planted, information, one_attempt):  # noqa: ARG001 - ends soon
    mirror, orders = planted(WAYS_OUT[0], **information)
    orders.upsert({"id": 7, "city": "Graz"})
    before = [*(mirror.root / "Tables").rglob("*")]
    (table,) = mirror.sync().tables
    said = table.last_failure or table.diagnostic
    assert "outside of the table's folder" in said.message
    assert table.state == ("behind" if table.last_failure else "halted")
    assert [*(mirror.root / "Tables").rglob("*")] == before
