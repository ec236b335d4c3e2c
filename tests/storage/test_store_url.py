"""URLs of folders in stores."""

from __future__ import annotations

from pathlib import Path

import pytest
from store_servers import alone

from mirror_engine.errors import UsageError
from mirror_engine.mirror import Mirror
from mirror_engine.storage.azure_stores import BlobUrl, DatalakeUrl
from mirror_engine.storage.gcs_store import GcsUrl
from mirror_engine.storage.roots import check_place, state_folder
from mirror_engine.storage.s3_store import S3Url
from mirror_engine.storage.store_url import local_folder
from mirror_engine.storage.stores import parse_place, parse_url

ONELAKE = "onelake.dfs.fabric.microsoft.com"
GUID = "0f8fad5b-d9cb-469f-a165-70867728950e"
SHOP = DatalakeUrl("Sales", ONELAKE, "Shop.MountedRelationalDatabase/Files/LandingZone")


@pytest.mark.parametrize(
    ("text", "url"),
    [
        (f"abfss://Sales@{ONELAKE}/Shop.MountedRelationalDatabase/Files/LandingZone", SHOP),
        (f"ABFSS://Sales@OneLake.dfs.fabric.microsoft.com//{SHOP.path}//", SHOP),
        (f"abfs://Sales@{ONELAKE}/{SHOP.path}/", SHOP),
        (f"https://{ONELAKE}/Sales/{SHOP.path}", SHOP),
        (f"https://onelake.blob.fabric.microsoft.com/Sales/{SHOP.path}", SHOP),
        (f"https://{ONELAKE}/{GUID}/{GUID}/Files", DatalakeUrl(GUID, ONELAKE, f"{GUID}/Files")),
        (f"https://app.fabric.microsoft.com/groups/{GUID}/mirroreddatabases/{GUID}?experience=fabric-developer",
         DatalakeUrl(GUID, ONELAKE, GUID)),
        (f"abfss://My%20Team@{ONELAKE}/A B.Lakehouse", DatalakeUrl("My Team", ONELAKE, "A B.Lakehouse")),
        ("https://westus-onelake.dfs.fabric.microsoft.com/W/I",
         DatalakeUrl("W", "westus-onelake.dfs.fabric.microsoft.com", "I")),
        ("abfss://zone@acme.dfs.core.windows.net", DatalakeUrl("zone", "acme.dfs.core.windows.net")),
        ("https://acme.dfs.core.windows.net/zone/a", DatalakeUrl("zone", "acme.dfs.core.windows.net", "a")),
        ("abfss://zone@acme.blob.core.windows.net/a", DatalakeUrl("zone", "acme.dfs.core.windows.net", "a")),
        ("https://acme.blob.core.windows.net/zone/a/b", BlobUrl("zone", "acme.blob.core.windows.net", "a/b")),
        ("az://zone@acme.blob.core.windows.net/a", BlobUrl("zone", "acme.blob.core.windows.net", "a")),
        ("az://zone/a", BlobUrl("zone", "fallback.blob.core.windows.net", "a")),
        ("s3://Bucket/a/k=v/100%25", S3Url("Bucket", "", "a/k=v/100%")),
        ("s3a://bucket", S3Url("bucket", "")),
        ("gs://bucket/a", GcsUrl("bucket", "", "a")),
    ],
)  # fmt: skip
def test_the_spellings_of_a_url(text, url, monkeypatch):
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT", "fallback")
    assert parse_url(text) == parse_place(text) == url
    assert parse_url(str(url)) == url


@pytest.mark.parametrize("text", ["shop", "./a:b", "/data/shop", "a/b://c", ""])
def test_a_path_of_this_machine_is_no_url(text):
    assert parse_url(text) is None
    assert parse_place(text) == Path(text)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (f"https://{ONELAKE}/W/I?sv=2024&sig=SECRET", "holds a SAS"),
        ("abfss://zone@acme.dfs.core.windows.net/a?sig=SECRET", "holds a SAS"),
        ("s3://bucket/a?x=SECRET", "holds a query"),
        ("s3://AKIA:SECRET@bucket/a", "holds a user or password"),
        ("s3://SECRET@bucket/a", "holds a user or password"),
        (f"https://user:SECRET@{ONELAKE}/W/I", "holds a user or password"),
        ("abfss://zone:SECRET@acme.dfs.core.windows.net/a", "holds a user or password"),
        ("wasbs://zone@acme.blob.core.windows.net/a", "unknown scheme of a store"),
        ("file:///data", "unknown scheme of a store"),
        ("https://example.com/SECRET", "has no container"),
        (f"https://{ONELAKE}/", "has no container"),
        ("abfss://zone/a", "has no container"),
        ("s3:///a", "has no container"),
        ("s3://bucket/a/../b", "has a part"),
        ("az://zone/a", "has no account"),
    ],
)
def test_a_url_that_cannot_be_used_is_refused_without_its_secret(text, message, monkeypatch):
    monkeypatch.delenv("AZURE_STORAGE_ACCOUNT", raising=False)
    monkeypatch.delenv("AZURE_STORAGE_ACCOUNT_NAME", raising=False)
    with pytest.raises(UsageError, match=message) as problem:
        parse_url(text)
    assert problem.value.help
    assert "SECRET" not in str(problem.value)


@pytest.mark.parametrize(
    "url", [str(SHOP), "s3://b/c", "az://c", "file:///tmp/shop", "https://a.blob.core.windows.net/c?sig=SECRET"]
)
def test_url_is_no_local_folder(url):
    """Nor is a `Path` made of one, which has one slash less."""
    for call, path in ((local_folder, url), (local_folder, Path(url)), (check_place, Path(url))):
        with pytest.raises(UsageError, match=r"^[a-z0-9]+://…: is not a folder of this machine") as problem:
            call(path)
        assert "SECRET" not in str(problem.value)


def test_zone_of_the_older_layout_is_no_root(tmp_path):
    """LZ-1.1; of all other folders: tests/cli/sessions/replicate.txt."""
    (tmp_path / "LandingZone/Items").mkdir(parents=True)
    check_place(tmp_path)
    with pytest.raises(UsageError, match="is a landing zone, not a ROOT") as problem:
        check_place(tmp_path / "LandingZone")
    assert problem.value.help == f"its ROOT is {tmp_path}"


def test_url_within_a_landing_zone_is_no_root(monkeypatch):
    alone(monkeypatch, AWS_ACCESS_KEY_ID="key", AWS_SECRET_ACCESS_KEY="secret", AWS_REGION="us-east-1")  # noqa: S106 - none
    with pytest.raises(UsageError, match="is a part of a landing zone, not a ROOT") as problem:
        Mirror("s3://bucket/shop/Files/LandingZone/Orders").sync()
    assert problem.value.help == "its ROOT is s3://bucket/shop"


@pytest.mark.parametrize("path", ["shop", "a/b:/c", "./s3:/b", "a b:/c", "/s3:/b", ":/b", "c:"])
def test_path_with_a_colon_is_a_local_folder(path):
    assert local_folder(path) == Path(path)
    assert local_folder(Path("/x") / path) == Path("/x") / path


def test_parts_of_a_url():
    assert str(SHOP) == f"abfss://Sales@{ONELAKE}/Shop.MountedRelationalDatabase/Files/LandingZone"
    assert str(S3Url("b", "") / "a b/k=ü") == "s3://b/a%20b/k=%C3%BC"
    assert (SHOP.name, S3Url("b", "").name) == ("LandingZone", "b")
    assert (SHOP / "T").path == f"{SHOP.path}/T"
    assert (SHOP.is_onelake, SHOP.account) == (True, "onelake")
    assert not BlobUrl("c", "acme.blob.core.windows.net").is_onelake


def test_the_state_of_a_store_is_in_a_folder_of_this_machine(monkeypatch, tmp_path):
    monkeypatch.setenv("MIRROR_ENGINE_STATE", str(tmp_path))
    folder = state_folder(SHOP)
    assert folder.parent == tmp_path
    assert folder.name.startswith("Sales-Shop.MountedRelationalDatabase-")
    assert state_folder(parse_url(str(SHOP))) == folder != state_folder(SHOP / "T")
    assert state_folder(Path("shop")) == Path("shop")
    monkeypatch.delenv("MIRROR_ENGINE_STATE")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "x"))
    monkeypatch.setattr("sys.platform", "linux")
    assert state_folder(SHOP).parent == tmp_path / "x" / "mirror-engine"
