"""Azure's stores, OneLake among them, with credentials from where Azure's own tools find them."""

from __future__ import annotations

import logging
import os
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from typing import TYPE_CHECKING, Any

from mirror_engine.errors import SetupError, UsageError
from mirror_engine.extras import install_command
from mirror_engine.storage.remote import login_failure, unavailable
from mirror_engine.storage.store_url import StoreUrl, is_set

if TYPE_CHECKING:
    from collections.abc import Mapping

    from azure.core.credentials import AccessToken, TokenCredential
    from obstore.store import AzureStore

    from mirror_engine.storage.base import Storage
    from mirror_engine.storage.datalake import Credential, DatalakeStorage
    from mirror_engine.storage.requests import Requests

SCOPE = "https://storage.azure.com/.default"  # OneLake takes it, too
AZURITE, AZURITE_ACCOUNT = "http://127.0.0.1:10000", "devstoreaccount1"
KEYS = ("AZURE_STORAGE_KEY", "AZURE_STORAGE_ACCOUNT_KEY", "AZURE_STORAGE_ACCESS_KEY")
SAS_TOKENS = ("AZURE_STORAGE_SAS_TOKEN", "AZURE_STORAGE_SAS_KEY")


@dataclass(frozen=True)
class AzureUrl(StoreUrl):
    """A folder in a store of Azure, or of OneLake."""

    login_help = "Run az login, or set AZURE_TENANT_ID, AZURE_CLIENT_ID and AZURE_CLIENT_SECRET, or a SAS or key."
    role = "the role Storage Blob Data Contributor (Reader to read)"

    @property
    def endpoint(self) -> str:
        """Return the address of an account's Blob API, that of an emulator where the environment names one.

        Raises:
            UsageError: a token would be sent there without TLS.
        """
        named = os.environ.get("AZURE_STORAGE_ENDPOINT") or os.environ.get("AZURE_ENDPOINT")
        if not named and is_set("AZURE_STORAGE_USE_EMULATOR"):
            named = f"{os.environ.get('AZURITE_BLOB_STORAGE_URL', AZURITE)}/{AZURITE_ACCOUNT}"
        if named and named.startswith("http://") and not self.secret().keys() - {"token"}:
            raise UsageError(
                f"{named} has no TLS, so no token is sent there", "Name an https:// address, or set a key or SAS."
            )
        return (named or f"https://{self.host.replace('.dfs.', '.blob.', 1)}").rstrip("/")

    def secret(self) -> dict[str, Any]:
        """Return an account key, a SAS, a token or no signature from the environment; empty: ask `azure_credential`.

        What is set for another account (`AZURE_STORAGE_ACCOUNT`) is left alone; OneLake has no account keys.
        """
        account = os.environ.get("AZURE_STORAGE_ACCOUNT") or os.environ.get("AZURE_STORAGE_ACCOUNT_NAME")
        if account not in {None, self.account}:
            return {}
        if (key := _first(KEYS)) and (account or not self.is_onelake):
            return {"account_key": key}
        if sas := _first(SAS_TOKENS):
            return {"sas_token": sas.lstrip("?")}
        if token := os.environ.get("AZURE_STORAGE_TOKEN"):
            return {"token": token}
        return {"skip_signature": True} if is_set("AZURE_SKIP_SIGNATURE") else {}

    def _open_object_store(self, options: Mapping[str, Any]) -> AzureStore:
        from obstore.store import AzureStore  # noqa: PLC0415 - an optional library

        def token() -> dict[str, Any]:  # asked again before it expires
            found = self._token()
            return {"token": found.token, "expires_at": datetime.fromtimestamp(found.expires_on, UTC)}

        secret = self.secret() or {"credential_provider": token}
        return AzureStore(self.container, account_name=self.account, endpoint=self.endpoint, **secret, **options)

    def deltalake_options(self) -> dict[str, str]:
        endpoint, secret = self.endpoint, self.secret() or {"token": self._token().token}
        facts = {"account_name": self.account, "endpoint": endpoint, **secret}
        options = {name: str(text) for name, text in facts.items()}
        allowed = {"allow_http": "true"} if endpoint.startswith("http://") else {}
        if is_set("AZURE_STORAGE_USE_EMULATOR"):  # its lists begin at their beginning: without this no commit succeeds
            allowed["azure_storage_use_emulator"] = "true"
        return {
            f"azure_storage_{name}" if name != "skip_signature" else f"azure_{name}": text
            for name, text in options.items()
        } | allowed

    def hadoop_options(self) -> dict[str, str]:
        prefix, secret = "spark.hadoop.fs.azure.account", self.secret()
        if key := secret.get("account_key"):
            return {f"{prefix}.auth.type.{self.host}": "SharedKey", f"{prefix}.key.{self.host}": str(key)}
        if sas := secret.get("sas_token"):
            of_sas = f"spark.hadoop.fs.azure.sas.fixed.token.{self.host}"
            return {f"{prefix}.auth.type.{self.host}": "SAS", of_sas: str(sas)}
        return {f"{prefix}.{name}.{self.host}": text for name, text in _hadoop_oauth().items()}

    def _datalake(self, requests: Requests) -> DatalakeStorage:
        from mirror_engine.storage.datalake import DatalakeStorage  # noqa: PLC0415 - half a second

        return DatalakeStorage(self, self.endpoint, self._sdk_credential(), requests)

    def _token(self) -> AccessToken:
        """Return a token for Azure's storage.

        Raises:
            StorageUnavailable: there is no credential, or the login fails.
        """
        from azure.core.exceptions import ClientAuthenticationError  # noqa: PLC0415 - an optional library

        try:
            return azure_credential().get_token(SCOPE)
        except ClientAuthenticationError as error:
            raise unavailable(self, "", "open", 0, login_failure(str(error))) from None

    def bearer_token(self) -> str:
        """Return a token for requests of other APIs that take the same one; errors as `_token`."""
        return str(self.secret().get("token") or self._token().token)

    def _sdk_credential(self) -> Credential:
        """Return a credential as Azure's libraries take it: a key, a token, a SAS, or nothing for unsigned requests."""
        from azure.core.credentials import (  # noqa: PLC0415 - an optional library
            AccessToken,
            AzureNamedKeyCredential,
            AzureSasCredential,
        )

        secret = self.secret()
        if key := secret.get("account_key"):
            return AzureNamedKeyCredential(self.account, key)
        if token := secret.get("token"):

            class Fixed:  # it is not renewed
                def get_token(self, *_: str, **__: Any) -> AccessToken:  # noqa: ANN401 - as the protocol has it
                    return AccessToken(str(token), int(time.time()) + 3600)

            return Fixed()
        if secret.get("skip_signature"):
            return AzureSasCredential("")  # with None, the library cannot rename
        return secret.get("sas_token") or azure_credential()


@dataclass(frozen=True)
class DatalakeUrl(AzureUrl):
    """A folder in OneLake or ADLS Gen2, by the DFS API."""

    scheme = "abfss"
    has_folders = True

    @property
    def deltalake_url(self) -> str:
        return str(self)

    def open_storage(self, requests: Requests) -> Storage:
        return self._datalake(requests)


@dataclass(frozen=True)
class BlobUrl(AzureUrl):
    """A folder in Azure Blob Storage, in an account without folders."""

    scheme = "az"
    has_hadoop = False
    page_entries = 5000

    def open_storage(self, requests: Requests) -> Storage:
        from mirror_engine.storage.object_store import ObjectStorage  # noqa: PLC0415 - an optional library

        return ObjectStorage(self, self.object_store(), requests, cache(lambda: self._datalake(requests)))


@cache
def azure_credential() -> TokenCredential:
    """Return the credential of az login, environment, managed or workload identity; it renews its tokens.

    Raises:
        SetupError: azure-identity is not installed.
    """
    try:
        from azure.identity import DefaultAzureCredential  # noqa: PLC0415 - an optional library
    except ImportError:
        raise SetupError(
            "The library for Azure's credentials (azure-identity) is not installed",
            f"Install the extra: {install_command('stores')}",
        ) from None
    logging.getLogger("azure.identity").setLevel(logging.ERROR)  # it would list each credential that it tried
    return DefaultAzureCredential()


def _first(names: tuple[str, ...]) -> str:
    return next((text for name in names if (text := os.environ.get(name))), "")


def _hadoop_oauth() -> dict[str, str]:
    """Return the token provider that Hadoop has for the credential of the environment, by option below `account.`."""
    tenant, client = os.environ.get("AZURE_TENANT_ID", ""), os.environ.get("AZURE_CLIENT_ID", "")
    host = os.environ.get("AZURE_AUTHORITY_HOST", "https://login.microsoftonline.com").rstrip("/")
    if secret := os.environ.get("AZURE_CLIENT_SECRET"):
        provider = "ClientCredsTokenProvider"
        more = {"client.endpoint": f"{host}/{tenant}/oauth2/token", "client.id": client, "client.secret": secret}
    elif file := os.environ.get("AZURE_FEDERATED_TOKEN_FILE"):
        provider = "WorkloadIdentityTokenProvider"
        more = {"msi.authority": f"{host}/", "msi.tenant": tenant, "client.id": client, "token.file": file}
    else:
        provider, more = "MsiTokenProvider", {"client.id": client} if client else {}
    options = {"provider.type": f"org.apache.hadoop.fs.azurebfs.oauth2.{provider}"}
    return (
        {"auth.type": "OAuth"}
        | {f"oauth.{name}": text for name, text in options.items()}
        | {f"oauth2.{name}": text for name, text in more.items()}
    )
