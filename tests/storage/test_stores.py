"""Clients of stores: endpoints and credentials from the environment, and what is read where a login at Azure fails."""

from __future__ import annotations

import subprocess
import sys

import pytest
from azure.core.exceptions import ClientAuthenticationError
from store_servers import alone

from mirror_engine.errors import MirrorError
from mirror_engine.storage import azure_stores
from mirror_engine.storage.azure_stores import BlobUrl, DatalakeUrl
from mirror_engine.storage.object_store import ObjectStorage
from mirror_engine.storage.requests import Requests
from mirror_engine.storage.s3_store import S3Url
from mirror_engine.storage.stores import open_storage

ADLS = DatalakeUrl("zone", "acme.dfs.core.windows.net", "a/b")
ONELAKE = DatalakeUrl("My Team", "onelake.dfs.fabric.microsoft.com", "Shop.Lakehouse")
BLOB = BlobUrl("zone", "acme.blob.core.windows.net", "a")
S3 = S3Url("bucket", "", "a")
KEY = "c2VjcmV0"


@pytest.fixture(autouse=True)
def no_credentials(monkeypatch):
    alone(monkeypatch)
    yield
    azure_stores.azure_credential.cache_clear()


@pytest.mark.parametrize(
    ("environment", "url", "secret"),
    [
        ({"AZURE_STORAGE_KEY": KEY}, ADLS, {"account_key": KEY}),
        ({"AZURE_STORAGE_ACCOUNT": "acme", "AZURE_STORAGE_ACCOUNT_KEY": KEY}, BLOB, {"account_key": KEY}),
        ({"AZURE_STORAGE_ACCOUNT": "other", "AZURE_STORAGE_KEY": KEY}, ADLS, {}),
        ({"AZURE_STORAGE_KEY": KEY}, ONELAKE, {}),
        ({"AZURE_STORAGE_SAS_TOKEN": "?sv=1&sig=x"}, ONELAKE, {"sas_token": "sv=1&sig=x"}),
        ({"AZURE_STORAGE_TOKEN": "t"}, ONELAKE, {"token": "t"}),
        ({"AZURE_SKIP_SIGNATURE": "true"}, BLOB, {"skip_signature": True}),
        ({}, ADLS, {}),
    ],
)
def test_an_azure_secret_is_taken_for_its_own_account(environment, url, secret, monkeypatch):
    for name, text in environment.items():
        monkeypatch.setenv(name, text)
    assert url.secret() == secret


def test_the_endpoint_is_the_blob_api_of_the_account_or_an_emulator(monkeypatch):
    assert ADLS.endpoint == "https://acme.blob.core.windows.net"
    assert ONELAKE.endpoint == "https://onelake.blob.fabric.microsoft.com"
    monkeypatch.setenv("AZURE_STORAGE_USE_EMULATOR", "true")
    monkeypatch.setenv("AZURE_STORAGE_KEY", KEY)
    assert BLOB.endpoint == f"{azure_stores.AZURITE}/{azure_stores.AZURITE_ACCOUNT}"
    monkeypatch.setenv("AZURE_STORAGE_ENDPOINT", "http://127.0.0.1:8080/")
    assert ADLS.endpoint == "http://127.0.0.1:8080"


@pytest.mark.slow
@pytest.mark.parametrize("url", [ADLS, BLOB, ONELAKE, S3, S3Url("bucket", "")])
def test_a_store_of_obstore_is_rooted_at_the_url(url, monkeypatch):
    monkeypatch.setenv("AZURE_STORAGE_SAS_TOKEN", "sv=1&sig=c2VjcmV0")
    assert (url.object_store().prefix or "") == url.path


def test_options_of_deltalake_and_hadoop(monkeypatch):
    monkeypatch.setenv("AZURE_STORAGE_KEY", KEY)
    monkeypatch.setenv("AZURE_STORAGE_ENDPOINT", "http://127.0.0.1:8080")
    assert ADLS.deltalake_options() == {
        "azure_storage_account_name": "acme",
        "azure_storage_account_key": KEY,
        "azure_storage_endpoint": "http://127.0.0.1:8080",
        "allow_http": "true",
    }
    assert ADLS.hadoop_options() == {
        "spark.hadoop.fs.azure.account.auth.type.acme.dfs.core.windows.net": "SharedKey",
        "spark.hadoop.fs.azure.account.key.acme.dfs.core.windows.net": KEY,
    }
    monkeypatch.delenv("AZURE_STORAGE_KEY")
    for name in ("AZURE_TENANT_ID", "AZURE_CLIENT_ID", "AZURE_CLIENT_SECRET"):
        monkeypatch.setenv(name, name.rpartition("_")[2].lower())
    options = ONELAKE.hadoop_options()
    assert options["spark.hadoop.fs.azure.account.auth.type.onelake.dfs.fabric.microsoft.com"] == "OAuth"
    assert options["spark.hadoop.fs.azure.account.oauth2.client.id.onelake.dfs.fabric.microsoft.com"] == "id"
    assert S3.deltalake_options() == {"aws_conditional_put": "etag"}
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:7070")
    assert S3.hadoop_options()["spark.hadoop.fs.s3a.endpoint"] == "http://127.0.0.1:7070"
    assert (S3.hadoop_url, ADLS.hadoop_url) == ("s3a://bucket/a", str(ADLS))


@pytest.mark.slow
def test_a_local_root_loads_no_library_of_stores():
    program = (
        "import sys, pathlib; from mirror_engine.storage.stores import open_storage; open_storage(pathlib.Path('.'))\n"
        "print(sorted(name for name in ('azure', 'obstore', 'urllib.request') if name in sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


URL = DatalakeUrl("Sales", "onelake.dfs.fabric.microsoft.com", "Shop.MountedRelationalDatabase")
CALLS = {
    "datalake": lambda: open_storage(URL).list(""),
    "deltalake": URL.deltalake_options,
    "obstore": lambda: ObjectStorage(URL, URL.object_store(), Requests()).list(""),
}
HEAD = "DefaultAzureCredential failed to retrieve a token from the included credentials.\nAttempted credentials:\n\t"
NO_ENVIRONMENT = (
    "EnvironmentCredential: EnvironmentCredential authentication unavailable. Environment variables are not\n\t"
)
IDENTITY = "ManagedIdentityCredential: authentication unavailable, connection to the IMDS endpoint timed out.\n\t"
CLI = "AzureCliCredential: "
FAILED = "EnvironmentCredential: Authentication failed: "
UNREACHABLE = "login.microsoftonline.com cannot be reached\n  -> .*HTTPS_PROXY.*SSL_CERT_FILE"
TEXTS = {
    "none": (NO_ENVIRONMENT + IDENTITY + CLI + "Azure CLI not found on path", "no credential was found\n  -> Run az"),
    "wrong": (FAILED + "AADSTS7000215: Invalid client secret planted", r"is refused \(AADSTS7000215\)\n  -> Renew"),
    "expired login": (
        NO_ENVIRONMENT + IDENTITY + CLI + "ERROR: AADSTS700082: The refresh token planted has expired",
        r"the credential of the environment is refused \(AADSTS700082\)",
    ),
    "proxy": (FAILED + "('Unable to connect to proxy', NewConnectionError(\"planted\"))", UNREACHABLE),
    "authority of the proxy": (FAILED + "[SSL: CERTIFICATE_VERIFY_FAILED] self-signed planted", UNREACHABLE),
    "name": (FAILED + "Failed to resolve 'login.microsoftonline.com' planted", UNREACHABLE),
    "no code": (FAILED + "planted is odd", "the credential is not accepted"),
}


def check(message, call):
    with pytest.raises(MirrorError, match=f"^{URL}: .*{message}") as problem:
        call()
    assert "planted" not in str(problem.value)
    assert "\n" not in problem.value.message


@pytest.mark.slow
@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("text", TEXTS)
def test_each_reason_has_its_words(text, call, monkeypatch):
    class Stub:
        cache_clear = staticmethod(lambda: None)

        def get_token(self, *_, **__):
            raise ClientAuthenticationError(HEAD + TEXTS[text][0])

    monkeypatch.setattr(azure_stores, "azure_credential", Stub)
    check(TEXTS[text][1], CALLS[call])


@pytest.mark.slow
def test_a_dead_proxy(monkeypatch):
    for name in ("AZURE_TENANT_ID", "AZURE_CLIENT_ID"):
        monkeypatch.setenv(name, "11111111-1111-1111-1111-111111111111")
    monkeypatch.setenv("AZURE_CLIENT_SECRET", "planted")
    monkeypatch.setenv("HTTPS_PROXY", "http://127.0.0.1:9")
    check(UNREACHABLE, CALLS["deltalake"])
