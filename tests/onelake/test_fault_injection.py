"""Each fault over real sockets, with a plain client and with Microsoft's retrying one."""

from __future__ import annotations

import json
import threading
import time
from base64 import b64encode
from datetime import datetime

import pytest
from azure.storage.filedatalake import DataLakeServiceClient
from faulty_onelake import FABRIC, TABLE, faulty, refusal
from requests import ConnectionError  # noqa: A004 - as theirs

from mirror_engine.onelake.definition import PLAIN

pytestmark = pytest.mark.slow

FILE = f"{TABLE}/1.csv"
DEFINITION = {
    "parts": [{"path": "mirroring.json", "payload": b64encode(PLAIN).decode(), "payloadType": "InlineBase64"}]
}


@pytest.mark.parametrize(("status", "code"), [(429, "TooManyRequests"), (503, "ServerBusy")])
def test_throttled_requests_have_no_effect_and_a_retry_after_header(tmp_path, status, code):
    with faulty(tmp_path, f"throttle status={status} retry-after=7 method=PUT path=*/Orders/* nth=2 count=2") as client:
        answers = [client("PUT", f"{TABLE}/{number}.csv?resource=file") for number in range(4)]
        assert [answer.status_code for answer in answers] == [201, status, status, 201]
        assert (refusal(answers[1]), answers[1].headers["Retry-After"]) == ((status, code), "7")
        assert [client.length(f"{TABLE}/{number}.csv") for number in range(4)] == [0, None, None, 0]
        assert [fault[1:] for fault in client.reported] == [("PUT", f"{TABLE}/{number}.csv") for number in (1, 2)]
    with faulty(tmp_path, "throttle operation=append") as client:
        client.create(FILE)
        assert client("PATCH", f"{FILE}?action=append&position=0", b"x" * 3_000_000).status_code == 503
        assert refusal(client("PATCH", f"{FILE}?action=flush&position=3000000")) == (400, "InvalidFlushPosition")


def test_faults_of_the_rest_api(tmp_path):
    throttles = ("throttle status=429 retry-after=5 operation=rest", "throttle operation=rest nth=2")
    with faulty(tmp_path / "a", *throttles) as client:
        first = client("GET", "v1/workspaces", Host=FABRIC)
        assert (first.status_code, first.headers["Retry-After"]) == (429, "5")
        assert first.json()["errorCode"] == first.headers["x-ms-public-api-error-code"] == "TooManyRequests"
        assert client("HEAD", TABLE).status_code == 200
        assert [client("GET", "v1/workspaces", Host=FABRIC).status_code for _ in range(2)] == [503, 200]
    faults = ("lost_response operation=rest", "lost_request operation=rest nth=2", "token_expired method=GET path=v1/*")
    with faulty(tmp_path / "b", *faults) as client:
        for name in ("lost", "never"):
            body = json.dumps({"displayName": name}).encode()
            with pytest.raises(ConnectionError):
                client("POST", "v1/workspaces/shop/mirroredDatabases", body, Host=FABRIC)
        assert client("GET", "v1/workspaces", Host=FABRIC).json()["errorCode"] == "TokenExpired"
    assert [(tmp_path / "b/shop" / name).is_dir() for name in ("lost", "never")] == [True, False]


def test_a_new_mirrored_database_is_initializing_for_as_long_as_a_fault_says(tmp_path):
    def steps_until_started(name):
        at, body = "v1/workspaces/shop/mirroredDatabases", {"displayName": name, "definition": DEFINITION}
        client("POST", at, json.dumps(body).encode(), Host=FABRIC)
        steps = 0
        while (answer := client("POST", f"{at}/{name}/startMirroring", Host=FABRIC)).status_code != 200:
            assert answer.json()["errorCode"] == "MirroredDatabaseNotReady"
            client.lake.options.clock.advance(seconds=20)
            steps += 1
        return steps

    with faulty(tmp_path, "initializing seconds=60 path=v1/workspaces/shop/* nth=2 count=1") as client:
        assert [steps_until_started(name) for name in ("quick", "slow", "other")] == [1, 3, 1]


def test_a_lagging_sql_endpoint_shows_new_rows_late(tmp_path):
    """LZ-9.9."""
    with faulty(tmp_path, "sql_endpoint_lags seconds=60") as client:
        options = client.lake.options
        options.long_running = "never"
        [endpoint, _] = client("GET", "v1/workspaces/shop/items", Host=FABRIC).json()["value"]
        monitoring = tmp_path / "shop/orders/Files/Monitoring/tables.json"
        monitoring.parent.mkdir()
        metrics = {"lastSyncTimeUtc": "2026-11-02T08:15:29.5Z"}
        monitoring.write_text(json.dumps({"tables": [{"sourceTableName": "T", "metrics": metrics}]}))
        begun = client("POST", f"v1/workspaces/shop/sqlEndpoints/{endpoint['id']}/refreshMetadata", Host=FABRIC)
        assert begun.status_code == 202
        operation = f"v1/operations/{begun.headers['x-ms-operation-id']}"
        for seconds, status in ((0, "Running"), (59, "Running"), (1, "Succeeded")):
            options.clock.advance(seconds=seconds)
            assert client("GET", operation, Host=FABRIC).json()["status"] == status
        [table] = client("GET", f"{operation}/result", Host=FABRIC).json()["value"]
        assert table["status"] == "Success"
        begin, end = (datetime.fromisoformat(table[f"{name}DateTime"][:26]) for name in ("start", "end"))
        assert 59 < (end - begin).total_seconds() < 61
        assert table["lastSuccessfulSyncDateTime"] == table["endDateTime"]


@pytest.mark.parametrize(
    ("operation", "request_line", "headers", "length"),
    [
        ("rename", ("PUT", FILE), {"x_ms_rename_source": f"/{TABLE}/_1.csv"}, 3),
        ("flush nth=2", ("PATCH", f"{FILE}?action=append&position=0&flush=true"), {}, 3),
        ("create nth=2", ("PUT", f"{FILE}?resource=file"), {}, 0),
        ("put", ("PUT", FILE), {"x_ms_blob_type": "BlockBlob"}, 0),
    ],
)
def test_a_request_whose_response_is_lost_has_its_effect(tmp_path, operation, request_line, headers, length):
    method, target = request_line
    with faulty(tmp_path, f"lost_response operation={operation}") as client:
        client.upload(f"{TABLE}/_1.csv", b"new")
        if "action" in target:
            (tmp_path / FILE).touch()
        with pytest.raises(ConnectionError):
            client(method, target, b"new" if "action" in target else b"", **headers)
        assert client.length(FILE) == length
        assert client.length(f"{TABLE}/_1.csv") == (None if operation == "rename" else 3)
        if operation == "rename":
            retried = client(method, target, **headers)
            assert refusal(retried) == (404, "SourcePathNotFound")


@pytest.mark.parametrize("size", [10, 5_000_000])
@pytest.mark.parametrize("fault", ["lost_request", "cut_body bytes=0", "cut_body bytes=100000"])
def test_a_lost_request_and_a_cut_body_have_no_effect(tmp_path, size, fault):
    with faulty(tmp_path, f"{fault} method=PUT") as client:
        with pytest.raises(ConnectionError):
            client("PUT", FILE, b"x" * size, x_ms_blob_type="BlockBlob")
        assert client.length(FILE) is None
        assert client("PUT", FILE, b"x" * size, x_ms_blob_type="BlockBlob").status_code == 201
    assert not any((tmp_path / ".mirror-engine/staging").iterdir())


def test_the_datalake_sdk_survives_throttling_and_lost_requests(tmp_path):
    faults = ["throttle operation=append", "lost_request operation=flush", "cut_body bytes=1000 operation=append nth=2"]
    at_once = {"initial_backoff": 0, "increment_base": 0, "random_jitter_range": 0, "retry_total": 2}
    key = {"account_name": "onelake", "account_key": "a2V5"}
    with faulty(tmp_path, *faults) as client:
        service = DataLakeServiceClient(f"http://127.0.0.1:{client.port}/onelake", key, **at_once)
        file = service.get_file_system_client("shop").get_file_client(FILE.removeprefix("shop/"))
        file.upload_data(b"x" * 5000, overwrite=True)
        assert (client.length(FILE), len(client.reported)) == (5000, 3)


def test_a_slow_flush_shows_the_old_length_until_it_ends(tmp_path):
    with faulty(tmp_path, "slow_flush seconds=0.6 nth=2 count=3") as client:
        client.upload(FILE, b"one")
        client("PATCH", f"{FILE}?action=append&position=3", b"two")
        flushing = threading.Thread(target=client, args=("PATCH", f"{FILE}?action=flush&position=6"))
        flushing.start()
        time.sleep(0.2)
        assert client.length(FILE) == 3
        flushing.join()
        assert client.length(FILE) == 6
        client("PUT", f"{FILE}?comp=block&blockid=AA", b"two")
        for method, target, body in (
            ("PATCH", f"{FILE}?action=append&position=6&flush=true", b"one"),
            ("PUT", f"{FILE}?comp=blocklist", b"<BlockList><Latest>AA</Latest></BlockList>"),
        ):
            started = time.monotonic()
            client(method, target, body)
            assert time.monotonic() - started >= 0.6


def test_a_folder_in_use_cannot_be_deleted_for_a_while(tmp_path):
    """LZ-7.5."""
    with faulty(tmp_path, "folder_in_use path=*/Orders for=60") as client:
        client.create(FILE)
        assert client("DELETE", FILE).status_code == 200  # a file is never in use
        rejected = [client("DELETE", f"{TABLE}?recursive=true") for _ in range(3)]
        assert [refusal(answer) for answer in rejected] == [(409, "PathIsInUse")] * 3
        client.lake.options.clock.advance(seconds=60)
        assert client("DELETE", f"{TABLE}?recursive=true").status_code == 200


def test_token_expired_answers_401_with_a_challenge(tmp_path):
    with faulty(tmp_path, "token_expired nth=2") as client:
        assert client("HEAD", TABLE).status_code == 200
        rejected = client("GET", f"{TABLE}?resource=filesystem")
        assert rejected.status_code == 401
        assert "invalid_token" in rejected.headers["WWW-Authenticate"]
        assert client("HEAD", TABLE).status_code == 200


def test_poll_mid_upload_scans_after_the_request(tmp_path):
    scans = []

    faults = [f"poll_mid_upload operation={operation}" for operation in ("create", "append nth=2", "flush")]
    with faulty(tmp_path, *faults) as client:
        client.lake.options.poll = lambda item: scans.append((item.path, (tmp_path / FILE).stat().st_size))
        client.create(FILE)
        assert scans == [("shop/orders", 0)]
        client("PATCH", f"{FILE}?action=append&position=0", b"one")
        assert len(scans) == 1
        client("PATCH", f"{FILE}?action=append&position=3", b"two")
        assert scans[1:] == [("shop/orders", 0)]
        client("PATCH", f"{FILE}?action=flush&position=6")
        assert scans[2:] == [("shop/orders", 6)]
