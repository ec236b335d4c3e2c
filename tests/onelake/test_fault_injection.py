"""Each fault over real sockets, with a plain client and with Microsoft's retrying one."""

from __future__ import annotations

import http.client
import json
import threading
import time

import pytest
from azure.core.exceptions import HttpResponseError
from azure.storage.filedatalake import DataLakeServiceClient
from faulty import FABRIC, TABLE, ZONE, faulty

from mirror_engine.onelake.replication import NullReplication

pytestmark = pytest.mark.slow

FILE = f"{TABLE}/1.csv"
CUT = (http.client.RemoteDisconnected, ConnectionError)
PROMPT = {"initial_backoff": 0, "increment_base": 0, "random_jitter_range": 0, "retry_total": 2}


def sdk(client):
    """Microsoft's own client, which does not wait long between its tries."""
    key = {"account_name": "onelake", "account_key": "a2V5"}
    service = DataLakeServiceClient(f"http://127.0.0.1:{client.port}/onelake", key, **PROMPT)
    return service.get_file_system_client("shop").get_file_client(FILE.removeprefix("shop/"))


@pytest.mark.parametrize(("status", "code"), [(429, "TooManyRequests"), (503, "ServerBusy")])
def test_throttled_requests_have_no_effect_and_a_retry_after_header(tmp_path, status, code) -> None:
    with faulty(tmp_path, f"throttle status={status} retry-after=7 method=PUT path=*/Orders/* nth=2 count=2") as client:
        answers = [client("PUT", f"{TABLE}/{number}.csv?resource=file") for number in range(4)]
        assert [answer.status for answer in answers] == [201, status, status, 201]
        assert (answers[1].code, answers[1].headers["Retry-After"]) == (code, "7")
        assert [client.length(f"{TABLE}/{number}.csv") for number in range(4)] == [0, None, None, 0]
        assert len(client.reported) == 2
        assert client.reported[0][1:] == ("PUT", f"{TABLE}/1.csv")


def test_a_throttled_body_is_not_kept(tmp_path) -> None:
    with faulty(tmp_path, "throttle operation=append") as client:
        client.create(FILE)
        assert client("PATCH", f"{FILE}?action=append&position=0", b"x" * 3_000_000).status == 503
        assert client("PATCH", f"{FILE}?action=flush&position=3000000").code == "InvalidFlushPosition"


def test_the_rest_api_is_throttled_too(tmp_path) -> None:
    with faulty(
        tmp_path, "throttle status=429 retry-after=5 operation=rest", "throttle operation=rest nth=2"
    ) as client:
        first = client("GET", "v1/workspaces", Host=FABRIC)
        assert (first.status, first.headers["Retry-After"]) == (429, "5")
        assert json.loads(first.body)["errorCode"] == first.headers["x-ms-public-api-error-code"] == "TooManyRequests"
        assert client("HEAD", TABLE).status == 200
        assert [client("GET", "v1/workspaces", Host=FABRIC).status for _ in range(2)] == [503, 200]


def test_the_rest_api_loses_answers_and_requests_and_tokens_expire_there(tmp_path) -> None:
    faults = [f"{fault} operation=rest nth={nth}" for nth, fault in enumerate(("lost_response", "lost_request"), 1)]
    with faulty(tmp_path, *faults, "token_expired method=GET path=v1/*") as client:
        with pytest.raises(CUT):
            client("POST", "v1/workspaces/shop/mirroredDatabases", _item("lost"), Host=FABRIC)
        with pytest.raises(CUT):
            client("POST", "v1/workspaces/shop/mirroredDatabases", _item("never"), Host=FABRIC)
        assert json.loads(client("GET", "v1/workspaces", Host=FABRIC).body)["errorCode"] == "TokenExpired"
    assert (tmp_path / "shop/lost").is_dir()
    assert not (tmp_path / "shop/never").exists()


def _item(name):
    return json.dumps({"displayName": name}).encode()


@pytest.mark.parametrize(
    ("operation", "method", "target", "length"),
    [
        ("rename", "PUT", FILE, 3),
        ("flush", "PATCH", f"{FILE}?action=append&position=0&flush=true", 3),
        ("create", "PUT", f"{FILE}?resource=file", 0),
        ("put", "PUT", FILE, 0),
    ],
)
def test_an_answer_is_lost_but_what_was_asked_for_is_done(tmp_path, operation, method, target, length) -> None:
    reported = {"rename": {"x_ms_rename_source": f"/{TABLE}/_1.csv"}, "put": {"x_ms_blob_type": "BlockBlob"}}
    nth = 2 if operation in {"flush", "create"} else 1
    with faulty(tmp_path, f"lost_response operation={operation} nth={nth}") as client:
        client.upload(f"{TABLE}/_1.csv", b"new")
        if operation == "flush":
            (tmp_path / FILE).touch()
        with pytest.raises(CUT):
            client(method, target, b"new" if operation == "flush" else b"", **reported.get(operation, {}))
        assert client.length(FILE) == length
        assert client.length(f"{TABLE}/_1.csv") == (None if operation == "rename" else 3)


def test_a_rename_whose_answer_was_lost_is_not_found_when_it_is_repeated(tmp_path) -> None:
    with faulty(tmp_path, "lost_response operation=rename") as client:
        client.upload(f"{TABLE}/_1.csv", b"new")
        with pytest.raises(CUT):
            client("PUT", FILE, x_ms_rename_source=f"/{TABLE}/_1.csv")
        again = client("PUT", FILE, x_ms_rename_source=f"/{TABLE}/_1.csv")
        assert (again.status, again.code) == (404, "SourcePathNotFound")


def test_a_lost_request_has_no_effect(tmp_path) -> None:
    with faulty(tmp_path, "lost_request method=PUT") as client:
        with pytest.raises(CUT):
            client.create(FILE)
        assert client.length(FILE) is None
        client.create(FILE)


@pytest.mark.parametrize("size", [10, 5_000_000])
@pytest.mark.parametrize("cut_after", [0, 100_000])
def test_a_body_is_cut_before_it_has_an_effect(tmp_path, size, cut_after) -> None:
    with faulty(tmp_path, f"cut_body bytes={cut_after} method=PUT") as client:
        with pytest.raises(CUT):
            client("PUT", FILE, b"x" * size, x_ms_blob_type="BlockBlob")
        assert client.length(FILE) is None
        assert client("PUT", FILE, b"x" * size, x_ms_blob_type="BlockBlob").status == 201
    assert not any((tmp_path / ".mirror-engine/staging").iterdir())


def test_during_a_slow_flush_the_old_length_is_seen(tmp_path) -> None:
    with faulty(tmp_path, "slow_flush seconds=0.6 nth=2") as client:
        client.upload(FILE, b"one")
        client("PATCH", f"{FILE}?action=append&position=3", b"two")
        flushing = threading.Thread(target=client, args=("PATCH", f"{FILE}?action=flush&position=6"))
        flushing.start()
        time.sleep(0.2)
        assert client.length(FILE) == 3
        flushing.join()
        assert client.length(FILE) == 6


def test_a_flush_that_comes_with_its_append_and_a_block_list_are_slow_too(tmp_path) -> None:
    with faulty(tmp_path, "slow_flush seconds=0.3 count=2") as client:
        client.create(FILE)
        begun = time.monotonic()
        client("PATCH", f"{FILE}?action=append&position=0&flush=true", b"one")
        assert time.monotonic() - begun >= 0.3
        client("PUT", f"{FILE}?comp=block&blockid=AA", b"two")
        begun = time.monotonic()
        client("PUT", f"{FILE}?comp=blocklist", b"<BlockList><Latest>AA</Latest></BlockList>")
        assert time.monotonic() - begun >= 0.3


def test_a_folder_is_in_use_for_a_while(tmp_path) -> None:
    with faulty(tmp_path, "folder_in_use path=*/Orders for=0.5") as client:
        client.create(FILE)
        assert client("DELETE", FILE).status == 200  # a file is not what is in use
        refused = [client("DELETE", f"{TABLE}?recursive=true") for _ in range(3)]
        assert [(answer.status, answer.code) for answer in refused] == [(409, "PathIsInUse")] * 3
        time.sleep(0.5)
        assert client("DELETE", f"{TABLE}?recursive=true").status == 200


def test_token_expired_answers_401_with_a_challenge(tmp_path) -> None:
    with faulty(tmp_path, "token_expired nth=2") as client:
        assert client("HEAD", TABLE).status == 200
        refused = client("GET", f"{TABLE}?resource=filesystem")
        assert refused.status == 401
        assert "invalid_token" in refused.headers["WWW-Authenticate"]
        assert client("HEAD", TABLE).status == 200


def listed(client, folder=TABLE):
    found = json.loads(client("GET", f"shop?resource=filesystem&recursive=false&directory={folder[5:]}").body)
    return [each["name"].rpartition("/")[2] for each in found["paths"]]


@pytest.mark.parametrize("channel", ["lists", "head"])
def test_a_new_name_is_delayed_for_one_channel_only(tmp_path, channel) -> None:
    with faulty(tmp_path, f"delay_visibility seconds=0.5 from={channel} path=*.csv") as client:
        client.upload(FILE, b"one")
        assert client.length(FILE) == (3 if channel == "lists" else None)
        assert listed(client) == (["1.csv"] if channel == "head" else [])
        assert client("GET", FILE).body == b"one"
        time.sleep(0.5)
        assert client.length(FILE) == 3
        assert listed(client) == ["1.csv"]


def test_a_name_that_was_known_stays_known_and_a_refused_one_is_not_hidden(tmp_path) -> None:
    with faulty(tmp_path, "delay_visibility seconds=60 count=all path=*.csv nth=2") as client:
        client.create(FILE)
        client.create(FILE)
        assert client.length(FILE) == 0
        assert client("PUT", f"{TABLE}/2.csv?resource=file", b"body").status == 400
        (tmp_path / TABLE / "2.csv").write_bytes(b"x")
        assert client.length(f"{TABLE}/2.csv") == 1


def test_the_engine_looks_in_the_middle_of_an_upload(tmp_path) -> None:
    seen = []

    class Looking(NullReplication):
        def poll(self, item) -> None:
            seen.append((item.path, (tmp_path / FILE).stat().st_size))

    faults = [
        "poll_mid_upload operation=create",
        "poll_mid_upload operation=append nth=2",
        "poll_mid_upload operation=flush",
    ]
    with faulty(tmp_path, *faults, databases=Looking()) as client:
        client.create(FILE)
        assert seen == [("shop/orders", 0)]
        client("PATCH", f"{FILE}?action=append&position=0", b"one")
        assert len(seen) == 1
        client("PATCH", f"{FILE}?action=append&position=3", b"two")
        assert seen[1:] == [("shop/orders", 0)]
        client("PATCH", f"{FILE}?action=flush&position=6")
        assert seen[2:] == [("shop/orders", 6)]


def test_files_get_one_time_with_same_mtime_and_an_order_by_chance_with_shuffled_ties(tmp_path) -> None:
    names = [f"{number}.csv" for number in range(6)]

    def times(*faults):
        with faulty(tmp_path, *faults) as client:
            for name in names:
                client.upload(f"{TABLE}/{name}", b"x")
            tags = [client("HEAD", f"{TABLE}/{name}").headers["ETag"] for name in names]
            assert len(set(tags)) == len(names)
        return [(tmp_path / TABLE / name).stat().st_mtime_ns for name in names]

    true = times()
    assert true == sorted(set(true))
    assert len(set(times("same_mtime path=*/Orders/*"))) == 1
    drawn = [time_ns % 10**9 for time_ns in times("shuffle_ties seed=1")]
    assert drawn != sorted(drawn)
    assert drawn == [time_ns % 10**9 for time_ns in times("shuffle_ties seed=1")]
    assert drawn != [time_ns % 10**9 for time_ns in times("shuffle_ties seed=2")]


def test_the_datalake_sdk_survives_throttling_and_lost_requests(tmp_path) -> None:
    faults = ["throttle operation=append", "lost_request operation=flush", "cut_body bytes=1000 operation=append nth=2"]
    with faulty(tmp_path, *faults) as client:
        sdk(client).upload_data(b"x" * 5000, overwrite=True)
        assert client.length(FILE) == 5000
        assert len(client.reported) == 3


def test_microsoft_s_client_gives_up_where_it_is_throttled_too_often(tmp_path) -> None:
    with faulty(tmp_path, "throttle status=503 operation=create count=all") as client:
        with pytest.raises(HttpResponseError) as refused:
            sdk(client).create_file()
        assert (refused.value.status_code, refused.value.error_code) == (503, "ServerBusy")
        assert len(client.reported) == 1 + PROMPT["retry_total"]


def test_microsoft_s_client_sees_a_rename_fail_that_was_done(tmp_path) -> None:
    with faulty(tmp_path, "lost_response operation=rename") as client:
        client.upload(f"{ZONE}/_tmp", b"new")
        with pytest.raises(HttpResponseError) as refused:
            _renamed(client)
        assert refused.value.status_code == 404
        assert client.length(FILE) == 3


def _renamed(client):
    service = DataLakeServiceClient(
        f"http://127.0.0.1:{client.port}", {"account_name": "onelake", "account_key": "a2V5"}, **PROMPT
    )
    file = service.get_file_system_client("shop").get_file_client(f"{ZONE.removeprefix('shop/')}/_tmp")
    return file.rename_file(FILE)
