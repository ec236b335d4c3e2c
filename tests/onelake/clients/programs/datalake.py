"""azure-storage-file-datalake and azure-identity as publishers use them."""

from __future__ import annotations

import asyncio
import io
import random

import pytest
from azure.core.credentials import AzureNamedKeyCredential
from azure.core.exceptions import HttpResponseError, ResourceExistsError, ResourceModifiedError, ResourceNotFoundError
from azure.identity import AzureCliCredential, ClientSecretCredential, DefaultAzureCredential, EnvironmentCredential
from azure.identity.aio import DefaultAzureCredential as AsyncCredential
from azure.storage.filedatalake import DataLakeFileClient, DataLakeServiceClient
from azure.storage.filedatalake.aio import DataLakeServiceClient as AsyncServiceClient
from places import DFS, FOLDER, HTTP, HTTPS, ITEM, KEY, LANDING_ZONE, MIB, SAS, SECRETS, WORKSPACE, new_table

NAMED_KEY = AzureNamedKeyCredential("onelake", KEY)
PLAIN = {"named key": NAMED_KEY, "dict": {"account_name": "onelake", "account_key": KEY}, "SAS": SAS, "none": None}
SERVICE = DataLakeServiceClient(DFS, credential=DefaultAzureCredential())


def folder(table, service=SERVICE):
    return service.get_file_system_client(WORKSPACE).get_directory_client(f"{LANDING_ZONE}/{table}")


@pytest.fixture
def place(table):
    return folder(table)


def by_secret(**options):
    return ClientSecretCredential(**SECRETS, **options)


def round_trip(address, credential):
    """Create, append, flush, look, read, delete."""
    place = folder(new_table(), DataLakeServiceClient(address, credential=credential))
    place.create_directory()
    file = place.create_file("a b=ü.bin")
    assert file.get_file_properties().size == 0
    file.append_data(b"456789", 4)
    file.append_data(b"0123", 0)
    assert file.get_file_properties().size == 0
    file.flush_data(10)
    assert file.get_file_properties().size == 10
    assert file.download_file().readall() == b"0123456789"
    assert file.download_file(offset=3, length=4).readall() == b"3456"
    assert [place.exists(), file.exists(), place.get_file_client("none").exists()] == [True, True, False]
    file.delete_file()
    assert [place.exists(), file.exists()] == [True, False]
    place.delete_directory()
    assert not place.exists()


@pytest.mark.parametrize("credential", [by_secret, DefaultAzureCredential, EnvironmentCredential, AzureCliCredential])
def test_credentials_of_azure_identity(credential):
    round_trip(DFS, credential())


@pytest.mark.parametrize("authority", ["login.microsoft.com", HTTPS])
def test_other_hosts_for_tokens(authority):
    round_trip(DFS, by_secret(authority=authority))


def test_straight_to_the_https_address_with_the_token_alone_by_the_proxy():
    round_trip(HTTPS, DefaultAzureCredential())


@pytest.mark.parametrize("kind", PLAIN)
@pytest.mark.parametrize("prefix", ["", "/onelake"])
def test_the_same_over_http_with_a_key_a_sas_or_nothing(kind, prefix):
    round_trip(HTTP + prefix, PLAIN[kind])


def test_get_paths_in_pages_deep_in_the_path_and_whole_trees(table, place):
    names = [f"{LANDING_ZONE}/{table}/{number:04}" for number in range(25)]
    for number in range(25):
        place.create_file(f"{number:04}")
    place.create_sub_directory("deep").create_sub_directory("deeper").create_file("leaf")
    workspace, deep = SERVICE.get_file_system_client(WORKSPACE), f"{LANDING_ZONE}/{table}/deep"
    pages = workspace.get_paths(f"{LANDING_ZONE}/{table}", recursive=False, max_results=10).by_page()
    assert [[path.name for path in page] for page in pages] == [names[:10], names[10:20], [*names[20:], deep]]
    tree = [(path.name, path.is_directory, path.content_length) for path in place.get_paths(recursive=True)]
    folders = [(deep, True, 0), (f"{deep}/deeper", True, 0)]
    assert tree == [*((name, False, 0) for name in names), *folders, (f"{deep}/deeper/leaf", False, 0)]
    assert [path.name for path in workspace.get_paths(ITEM, recursive=False)] == [f"{ITEM}/Files", f"{ITEM}/Tables"]


@pytest.mark.parametrize("size", [1, 9 * MIB, 120 * MIB])
def test_upload_data_with_overwrite(table, place, size):
    content = random.Random(size).randbytes(size)
    for each in (b"x" * (size + 1), content):
        place.get_file_client("a.bin").upload_data(each, overwrite=True)
    path = FOLDER / table / "a.bin"
    assert path.read_bytes() == content
    path.unlink()


def test_upload_data_without_overwrite_sends_no_create(table, place):
    file = place.get_file_client("a.bin")
    assert file.upload_data(b"") == {}
    with pytest.raises(ResourceNotFoundError, match="PathNotFound"):
        file.upload_data(b"new")
    assert not file.exists()
    file.upload_data(b"first", overwrite=True)
    with pytest.raises(ResourceExistsError, match="PathAlreadyExists"):
        file.upload_data(b"new")
    assert (FOLDER / table / "a.bin").read_bytes() == b"first"


class Interrupted(io.BytesIO):
    """A stream during whose reading another client writes the same file."""

    def __init__(self, content, file):
        super().__init__(content)
        self._file = file

    def read(self, size=-1):
        if self._file:
            self._file.upload_data(b"other", overwrite=True)
            self._file = None
        return super().read(size)


def test_a_writer_between_its_create_and_its_flush_makes_an_upload_fail(table, place):
    file = place.get_file_client("a.bin")
    with pytest.raises(ResourceModifiedError, match="ConditionNotMet"):
        file.upload_data(Interrupted(b"mine", file), length=4, overwrite=True)
    assert (FOLDER / table / "a.bin").read_bytes() == b"other"


def test_rename_file_passes_with_a_bare_account_url_alone(table, place):
    file = place.get_file_client("_a.bin")
    file.upload_data(b"abc", overwrite=True)
    with pytest.raises(ResourceNotFoundError, match="RenameDestinationParentPathNotFound"):
        file.rename_file(f"{WORKSPACE}/{LANDING_ZONE}/{table}-none/a.bin")
    url = f"{DFS}/{WORKSPACE}/{ITEM}/Files"
    with_path = DataLakeFileClient(url, "LandingZone", f"{table}/_a.bin", credential=DefaultAzureCredential())
    with pytest.raises(ResourceNotFoundError, match="SourcePathNotFound"):
        with_path.rename_file(f"LandingZone/{table}/a.bin")
    assert file.rename_file(f"{WORKSPACE}/{LANDING_ZONE}/{table}/a.bin").path_name.endswith(f"{table}/a.bin")
    assert [(path.name, path.read_bytes()) for path in (FOLDER / table).iterdir()] == [("a.bin", b"abc")]


def test_leases_metadata_access_control_and_renamed_folders(table, place):
    place.create_directory(permissions="rwxr-x---", umask="0027", metadata={"made": "by"})
    file = place.create_file("a", metadata={"made": "by"})
    lease = file.acquire_lease(lease_duration=15)
    file.upload_data(b"abc", overwrite=True, lease=lease)
    lease.renew()
    lease.release()
    file.set_metadata({"made": "again"})
    renamed = place.rename_directory(f"{WORKSPACE}/{LANDING_ZONE}/{table}-renamed")
    moved = renamed.get_file_client("a")
    assert moved.get_access_control()["owner"] == "$superuser"
    assert moved.download_file().readall() == b"abc"
    assert [place.exists(), renamed.exists()] == [False, True]
    assert moved.get_file_properties().lease.state == "available"
    assert [SERVICE.get_file_system_client(name).exists() for name in (WORKSPACE, "none")] == [True, False]
    with pytest.raises(HttpResponseError, match="UnsupportedQueryParameter"):
        renamed.set_access_control(permissions="rwxrwxrwx")


def test_the_asynchronous_library_lands_many_files_at_once(table):
    async def land_all():
        async with AsyncCredential() as credential, AsyncServiceClient(DFS, credential=credential) as service:
            place = service.get_file_system_client(WORKSPACE).get_directory_client(f"{LANDING_ZONE}/{table}")
            await place.create_directory()

            async def land(number):
                file = place.get_file_client(f"_{number}")
                await file.upload_data(b"x" * number, overwrite=True)
                await file.rename_file(f"{WORKSPACE}/{LANDING_ZONE}/{table}/{number:020}")

            await asyncio.gather(*map(land, range(1, 21)))
            return [path.content_length async for path in place.get_paths()]

    assert asyncio.run(land_all()) == list(range(1, 21))
