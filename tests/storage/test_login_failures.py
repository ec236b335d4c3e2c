"""What a user reads whose login at Azure fails: no credential, one that is refused, or no way to the authority."""

from __future__ import annotations

import pytest
from azure.core.exceptions import ClientAuthenticationError
from store_servers import alone

from mirror_engine.errors import MirrorError
from mirror_engine.storage import stores
from mirror_engine.storage.object_store import ObjectStorage
from mirror_engine.storage.remote import Requests
from mirror_engine.storage.store_url import StoreUrl
from mirror_engine.storage.stores import deltalake_options, object_store, open_storage

URL = StoreUrl("abfss", "Sales", "onelake.dfs.fabric.microsoft.com", "Shop.MountedRelationalDatabase")
CALLS = {
    "datalake": lambda: open_storage(URL).list(""),
    "deltalake": lambda: deltalake_options(URL),
    "obstore": lambda: ObjectStorage(URL, object_store(URL), Requests()).list(""),
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


@pytest.fixture(autouse=True)
def _bare(monkeypatch):
    alone(monkeypatch)
    yield
    stores.azure_credential.cache_clear()


def check(message, call):
    with pytest.raises(MirrorError, match=f"^{URL}: .*{message}") as problem:
        call()
    assert "planted" not in str(problem.value)
    assert "\n" not in problem.value.message


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("text", TEXTS)
def test_each_reason_has_its_words(text, call, monkeypatch):
    class Stub:
        cache_clear = staticmethod(lambda: None)

        def get_token(self, *_, **__):
            raise ClientAuthenticationError(HEAD + TEXTS[text][0])

    monkeypatch.setattr(stores, "azure_credential", Stub)
    check(TEXTS[text][1], CALLS[call])


@pytest.mark.slow
def test_a_dead_proxy(monkeypatch):
    for name in ("AZURE_TENANT_ID", "AZURE_CLIENT_ID"):
        monkeypatch.setenv(name, "11111111-1111-1111-1111-111111111111")
    monkeypatch.setenv("AZURE_CLIENT_SECRET", "planted")
    monkeypatch.setenv("HTTPS_PROXY", "http://127.0.0.1:9")
    check(UNREACHABLE, CALLS["deltalake"])
