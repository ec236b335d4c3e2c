"""What a publisher must be able to see fail here as it does in production; the switches are in `test_played`."""

from __future__ import annotations

import pytest
from faulty import ITEM, TABLE, ZONE, faulty

from mirror_engine.onelake.lake import LostFile

pytestmark = pytest.mark.slow

FILE = f"{TABLE}/1.parquet"
STAGED = f"{TABLE}/_1.parquet"


@pytest.fixture
def client(tmp_path):
    with faulty(tmp_path) as client:
        yield client


def rename(client, source, target, **headers):
    return client("PUT", target, x_ms_rename_source=f"/{source}", **headers)


def refusal(answer):
    return answer.status, answer.code


def test_a_created_file_shows_with_0_bytes_until_its_flush(client, tmp_path) -> None:
    client.create(FILE)
    assert client.length(FILE) == 0
    assert (tmp_path / FILE).read_bytes() == b""
    assert b'"contentLength":"0"' in client("GET", f"{TABLE}?resource=filesystem").body


def test_an_overwriting_create_drops_what_was_there_at_once(client, tmp_path) -> None:
    client.upload(FILE, b"old")
    client.create(FILE)
    assert (tmp_path / FILE).read_bytes() == b""


def test_an_append_that_is_never_flushed_is_never_seen(client, tmp_path) -> None:
    client.create(FILE)
    assert client("PATCH", f"{FILE}?action=append&position=0", b"rows").status == 202
    assert client.length(FILE) == 0
    assert (tmp_path / FILE).read_bytes() == client("GET", FILE).body == b""


def test_appending_needs_a_file_that_was_created(client) -> None:
    assert refusal(client("PATCH", f"{FILE}?action=append&position=0", b"rows")) == (404, "PathNotFound")


def test_a_flush_past_what_was_appended_is_refused(client) -> None:
    client.create(FILE)
    client("PATCH", f"{FILE}?action=append&position=0", b"rows")
    assert refusal(client("PATCH", f"{FILE}?action=flush&position=9")) == (400, "InvalidFlushPosition")
    assert client.length(FILE) == 0


def test_a_rename_replaces_a_file_and_the_lost_one_is_reported(client) -> None:
    client.upload(FILE, b"first")
    client.upload(STAGED, b"second")
    assert rename(client, STAGED, FILE).status == 201
    assert client("GET", FILE).body == b"second"
    assert client.told == [LostFile(FILE)]


def test_a_rename_that_must_not_replace_is_refused(client) -> None:
    client.upload(FILE, b"first")
    client.upload(STAGED, b"second")
    assert refusal(rename(client, STAGED, FILE, If_None_Match="*")) == (409, "PathAlreadyExists")
    assert client("GET", FILE).body == b"first"
    assert client.told == []


def test_a_rename_into_a_folder_that_is_missing_is_refused(client) -> None:
    client.upload(STAGED, b"rows")
    refused = rename(client, STAGED, f"{ZONE}/Missing/1.parquet")
    assert refusal(refused) == (404, "RenameDestinationParentPathNotFound")
    assert client.length(STAGED) == 4


def test_a_rename_of_what_is_missing_is_refused(client) -> None:
    assert refusal(rename(client, STAGED, FILE)) == (404, "SourcePathNotFound")


@pytest.mark.parametrize(
    ("method", "target", "headers", "told"),
    [
        ("PUT", f"{FILE}?resource=file", {"If_None_Match": "*"}, (409, "PathAlreadyExists")),
        ("PUT", f"{TABLE}?resource=directory", {"If_None_Match": "*"}, (409, "PathAlreadyExists")),
        ("PUT", FILE, {"If_None_Match": "*", "x_ms_blob_type": "BlockBlob"}, (409, "BlobAlreadyExists")),
        ("PUT", FILE, {"If_Match": '"0x8D0"', "x_ms_blob_type": "BlockBlob"}, (412, "ConditionNotMet")),
        ("PATCH", f"{FILE}?action=flush&position=3", {"If_Match": '"0x8D0"'}, (412, "ConditionNotMet")),
        (
            "PUT",
            f"{TABLE}/2",
            {"x_ms_rename_source": f"/{FILE}", "x_ms_source_if_match": '"0"'},
            (412, "SourceConditionNotMet"),
        ),
        ("DELETE", FILE, {"If_Match": '"0x8D0"'}, (412, "ConditionNotMet")),
        ("DELETE", TABLE, {}, (409, "DirectoryNotEmpty")),
        ("PUT", f"{FILE}/below?resource=file", {}, (409, "PathConflict")),
    ],
)
def test_conditions_that_are_not_met_change_nothing(client, method, target, headers, told) -> None:
    client.upload(FILE, b"old")
    assert refusal(client(method, target, **headers)) == told
    assert client("GET", FILE).body == b"old"


def test_a_writer_in_between_is_noticed_by_the_flush_s_condition(client) -> None:
    tag = client.create(FILE).headers["ETag"]
    client("PATCH", f"{FILE}?action=append&position=0", b"mine")
    client("PUT", FILE, b"theirs", x_ms_blob_type="BlockBlob")
    assert refusal(client("PATCH", f"{FILE}?action=flush&position=4", If_Match=tag)) == (412, "ConditionNotMet")
    assert client("GET", FILE).body == b"theirs"


@pytest.mark.parametrize("folder", ["shop", ITEM, f"{ITEM}/Files", f"{ITEM}/Tables", f"{ITEM}/Else"])
@pytest.mark.parametrize(("method", "words"), [("PUT", "?resource=directory"), ("DELETE", "?recursive=true")])
def test_managed_folders_are_not_the_publisher_s(client, folder, method, words) -> None:
    refused = client(method, f"{folder}{words}")
    assert refusal(refused) == (403, "ManagedFolderOperationNotAllowed")
    assert client("HEAD", f"{ITEM}/Files").status == 200


def test_a_managed_folder_cannot_be_renamed_nor_replaced(client) -> None:
    for source, target in (
        (f"{ITEM}/Files", f"{ITEM}/Old"),
        (TABLE, f"{ITEM}/Tables"),
        (f"{ITEM}/Files", f"{TABLE}/x"),
    ):
        assert refusal(rename(client, source, target)) == (403, "ManagedFolderOperationNotAllowed")
    assert client("HEAD", TABLE).status == 200


@pytest.mark.parametrize(
    ("path", "code"),
    [
        ("nowhere/orders/Files/x", "WorkspaceNotFound"),
        ("shop/none/Files/x", "ArtifactNotFound"),
        ("shop/Files/LandingZone/x", "ArtifactNotFound"),
    ],
)
def test_a_path_without_workspace_or_item_is_not_found(client, path, code) -> None:
    assert refusal(client("PUT", f"{path}?resource=file")) == (404, code)
