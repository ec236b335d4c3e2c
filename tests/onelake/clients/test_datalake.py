"""azure-storage-file-datalake, unmodified, by production's URLs."""

from __future__ import annotations

import hashlib

import pytest

pytestmark = pytest.mark.slow

MIB = 1 << 20
ROUND = {
    "created": 0,
    "appended": 0,
    "flushed": 10,
    "content": "0123456789",
    "range": "3456",
    "exists": [True, True, False],
    "deleted": [True, False],
    "gone": True,
}


@pytest.fixture
def datalake(client):
    return client("datalake")


def test_create_append_flush_exists_ranged_download_delete(datalake, table):
    assert datalake.round_trip(table) == ROUND


def test_get_paths_in_pages_deep_in_the_path_and_whole_trees(datalake, table, served):
    found = datalake.listings(table, 25)
    above = f"{served.connection.item_id}/Files/LandingZone/{table}"
    names = [f"{above}/{number:04}" for number in range(25)]
    assert found["pages"] == [names[:10], names[10:20], [*names[20:], f"{above}/deep"]]
    leaves = [[name, False, 0] for name in names]
    folders = [[f"{above}/deep", True, 0], [f"{above}/deep/deeper", True, 0]]
    assert found["tree"] == [*leaves, *folders, [f"{above}/deep/deeper/leaf", False, 0]]
    assert found["item"] == [f"{served.connection.item_id}/{name}" for name in ("Files", "Tables")]


@pytest.mark.parametrize("size", [1, 9 * MIB, 120 * MIB])
def test_upload_data_with_overwrite(datalake, table, landing_zone, size):
    digest = datalake.upload(table, "a.bin", size)
    path = landing_zone / table / "a.bin"
    assert hashlib.sha256(path.read_bytes()).hexdigest() == digest
    path.unlink()


def test_the_asynchronous_library_lands_many_files_at_once(datalake, table):
    assert datalake.asynchronously(table, 20) == list(range(1, 21))


def test_leases_metadata_access_control_and_renamed_folders(datalake, refused, table):
    assert datalake.what_else_there_is(table) == {
        "owner": "$superuser",
        "content": "abc",
        "exists": [False, True],
        "workspace": True,
        "no workspace": False,
        "status": "available",
    }
    with refused("400 UnsupportedQueryParameter"):
        datalake.set_access_control(f"{table}-renamed")


def test_upload_data_with_overwrite_replaces_longer_content(datalake, table, landing_zone):
    datalake.upload(table, "a.bin", 1000)
    datalake.upload(table, "a.bin", 10)
    assert (landing_zone / table / "a.bin").stat().st_size == 10


def test_a_writer_between_its_create_and_its_flush_makes_an_upload_fail(datalake, refused, table, landing_zone):
    with refused("412 ConditionNotMet ResourceModifiedError"):
        datalake.upload_interrupted(table, "a.bin")
    assert (landing_zone / table / "a.bin").read_bytes() == b"other"


def test_upload_data_without_overwrite_sends_no_create_and_fails_on_a_new_path(datalake, refused, table):
    with refused("404 PathNotFound ResourceNotFoundError"):
        datalake.upload_new(table, "a.bin", 3)
    assert not datalake.exists(table, "a.bin")


def test_upload_data_without_overwrite_is_refused_on_an_existing_file(datalake, refused, table, landing_zone):
    datalake.upload(table, "a.bin", 5)
    before = (landing_zone / table / "a.bin").read_bytes()
    with refused("409 PathAlreadyExists ResourceExistsError"):
        datalake.upload_new(table, "a.bin", 3)
    assert (landing_zone / table / "a.bin").read_bytes() == before


def test_upload_data_of_nothing_sends_nothing(datalake, table):
    assert datalake.upload_new(table, "a.bin", 0) == {}
    assert not datalake.exists(table, "a.bin")


def test_upload_data_in_pieces_that_come_in_any_order(datalake, table, landing_zone):
    digest = datalake.upload_in_pieces(table, "a.bin", 20 * MIB + 1)
    assert hashlib.sha256((landing_zone / table / "a.bin").read_bytes()).hexdigest() == digest


def test_rename_file_passes_with_a_bare_account_url(datalake, table, landing_zone):
    assert datalake.upload_and_rename(table, "a.bin", "abc").endswith(f"{table}/a.bin")
    assert [path.name for path in (landing_zone / table).iterdir()] == ["a.bin"]
    assert (landing_zone / table / "a.bin").read_bytes() == b"abc"


def test_rename_file_is_not_found_with_a_path_in_the_account_url(datalake, refused, table, landing_zone):
    with refused("404 SourcePathNotFound ResourceNotFoundError"):
        datalake.rename_with_a_path_in_the_url(table, "a.bin")
    assert [path.name for path in (landing_zone / table).iterdir()] == ["_a.bin"]


def test_rename_file_into_a_folder_that_is_missing_is_not_found(datalake, refused, table):
    datalake.upload(table, "_a.bin", 1)
    with refused("404 RenameDestinationParentPathNotFound"):
        datalake.rename_to(table, "_a.bin", f"{table}-none/a.bin")


@pytest.mark.parametrize("kind", ["named key", "dict", "SAS", "none"])
@pytest.mark.parametrize("prefix", ["", "/onelake"])
def test_the_same_over_http_with_a_key_a_SAS_or_nothing(datalake, table, served, kind, prefix):  # noqa: N802 - its name
    assert datalake.by_http(served.connection.http + prefix, kind, table) == ROUND


def test_a_bare_key_and_a_token_are_refused_over_http_by_the_library(datalake, refused, table, served):
    with refused("ValueError: Unable to determine account name for shared key credential"):
        datalake.by_http(served.connection.http, "bare key", table)
    with refused("ValueError: Token credential is only supported with HTTPS"):
        datalake.token_by_http(served.connection.http)


@pytest.mark.parametrize("kind", ["secret", "default", "environment", "az"])
def test_credentials_of_azure_identity(datalake, table, kind):
    assert datalake.with_credential(kind, table) == ROUND


@pytest.mark.parametrize("authority", ["login.microsoft.com", "https://localhost:{port}"])
def test_other_hosts_for_tokens(datalake, table, served, authority):
    port = served.connection.https.rpartition(":")[2]
    assert datalake.by_authority(authority.format(port=port), table) == ROUND


def test_straight_to_the_https_address_with_the_token_alone_by_the_proxy(datalake, table, served):
    port = served.connection.https.rpartition(":")[2]
    assert datalake.direct(f"https://localhost:{port}", table) == ROUND


def test_a_recreated_folder_has_a_new_etag(datalake, table):
    datalake.upload(table, "a.bin", 1)
    first = datalake.etags(table)
    datalake.upload(table, "b.bin", 1)
    assert datalake.etags(table)[""] == first[""]
    datalake.drop(table)
    datalake.upload(table, "a.bin", 1)
    assert datalake.etags(table)[""] != first[""]
