"""Clients of stores: endpoints, and credentials from where Azure's, AWS' and Google's own tools find them."""

from __future__ import annotations

import logging
import os
import time
from datetime import datetime, timedelta, timezone
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mirror_engine.errors import SetupError, UsageError
from mirror_engine.extras import install_command
from mirror_engine.storage.local import LocalStorage
from mirror_engine.storage.remote import Requests, login_failure, unavailable
from mirror_engine.storage.store_url import StoreUrl

if TYPE_CHECKING:
    from azure.core.credentials import AccessToken, TokenCredential
    from obstore.store import AzureStore, GCSStore, S3Store

    from mirror_engine.storage.base import Storage
    from mirror_engine.storage.datalake import Credential, DatalakeStorage
    from mirror_engine.storage.store_url import Place

SCOPE = "https://storage.azure.com/.default"  # OneLake takes it, too
AZURITE, AZURITE_ACCOUNT = "http://127.0.0.1:10000", "devstoreaccount1"
KEYS = ("AZURE_STORAGE_KEY", "AZURE_STORAGE_ACCOUNT_KEY", "AZURE_STORAGE_ACCESS_KEY")
SAS_TOKENS = ("AZURE_STORAGE_SAS_TOKEN", "AZURE_STORAGE_SAS_KEY")
TIMEOUT = timedelta(seconds=60)
BACKOFF = {"init_backoff": timedelta(seconds=0.2), "max_backoff": timedelta(seconds=15), "base": 2}


def _install_help() -> str:
    return f"Install the extra: {install_command('stores')}"


def open_storage(place: Place, requests: Requests | None = None) -> Storage:
    """Return the storage of a ROOT; the clients of stores repeat failed calls.

    Args:
        place: ROOT.
        requests: counts what is asked of a store.

    Raises:
        SetupError: the libraries for stores are not installed.
    """
    if not isinstance(place, StoreUrl):
        return LocalStorage(place)
    requests = requests or Requests()

    @cache
    def azure() -> DatalakeStorage:
        from mirror_engine.storage.datalake import DatalakeStorage  # noqa: PLC0415 - half a second

        return DatalakeStorage(place, azure_endpoint(place), _sdk_credential(place), requests)

    try:  # optional libraries, which a ROOT on this machine needs not
        if place.scheme == "abfss":
            return azure()
        from mirror_engine.storage.object_store import ObjectStorage, S3Storage  # noqa: PLC0415

        if place.scheme == "s3" and not _is_set("AWS_SKIP_SIGNATURE"):
            return S3Storage(place, object_store(place), requests)
        return ObjectStorage(place, object_store(place), requests, azure if place.scheme == "az" else None)
    except ImportError:
        raise SetupError("The libraries for stores are not installed", _install_help()) from None


def object_store(url: StoreUrl) -> AzureStore | GCSStore | S3Store:
    """Return obstore's store rooted at a URL; of Azure by the Blob API.

    Raises:
        SetupError: obstore is not installed.
    """
    try:
        from obstore.exceptions import BaseError  # noqa: PLC0415 - an optional library
        from obstore.store import AzureStore, GCSStore, S3Store  # noqa: PLC0415 - an optional library
    except ImportError:
        raise SetupError("The library for stores (obstore) is not installed", _install_help()) from None
    endpoint = azure_endpoint(url) if url.scheme in {"abfss", "az"} else os.environ.get("AWS_ENDPOINT_URL", "")
    is_http = endpoint.startswith("http://")
    options: dict[str, Any] = {
        "prefix": url.path or None,
        "client_options": {"timeout": TIMEOUT, "connect_timeout": "10s", **({"allow_http": True} if is_http else {})},
        "retry_config": {"max_retries": 8, "retry_timeout": TIMEOUT, "backoff": BACKOFF},
    }
    try:
        if url.scheme == "s3":
            return S3Store(url.container, **_aws_credential(), **options)
        if url.scheme == "gs":
            return GCSStore(url.container, **options)

        def token() -> dict[str, Any]:  # asked again before it expires
            found = _token(url)
            return {"token": found.token, "expires_at": datetime.fromtimestamp(found.expires_on, timezone.utc)}

        secret = azure_secret(url) or {"credential_provider": token}
        return AzureStore(url.container, account_name=url.account, endpoint=endpoint, **secret, **options)
    except BaseError:  # its text may quote the key
        message = f"{url}: the credential in the environment has a wrong form or lacks a part"
        raise UsageError(message, "Set it again, whole.") from None


def deltalake_options(url: StoreUrl) -> dict[str, str]:
    """Return `storage_options` with which deltalake opens a table below a URL; its token lives an hour at most."""
    if url.scheme == "s3":
        return {"aws_conditional_put": "etag"}
    if url.scheme == "gs":
        return {}
    endpoint, secret = azure_endpoint(url), azure_secret(url) or {"token": _token(url).token}
    options = {"account_name": url.account, "endpoint": endpoint, **{name: str(text) for name, text in secret.items()}}
    allowed = {"allow_http": "true"} if endpoint.startswith("http://") else {}
    if _is_set("AZURE_STORAGE_USE_EMULATOR"):  # its lists begin at their beginning: without this no commit succeeds
        allowed["azure_storage_use_emulator"] = "true"
    return {
        f"azure_storage_{name}" if name != "skip_signature" else f"azure_{name}": text for name, text in options.items()
    } | allowed


def hadoop_options(url: StoreUrl) -> dict[str, str]:
    """Return Spark's options with which Hadoop's file systems reach a URL (`hadoop-azure`, `hadoop-aws`)."""
    if url.scheme == "s3":
        endpoint = os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL")
        found = {"endpoint": endpoint, "path.style.access": "true"} if endpoint else {}
        found["endpoint.region"] = os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION") or "us-east-1"
        return {f"spark.hadoop.fs.s3a.{name}": text for name, text in found.items()}
    if url.scheme == "gs":
        return {}
    prefix, secret = "spark.hadoop.fs.azure", azure_secret(url)
    if key := secret.get("account_key"):
        return {f"{prefix}.account.auth.type.{url.host}": "SharedKey", f"{prefix}.account.key.{url.host}": str(key)}
    if sas := secret.get("sas_token"):
        return {f"{prefix}.account.auth.type.{url.host}": "SAS", f"{prefix}.sas.fixed.token.{url.host}": str(sas)}
    return {f"{prefix}.account.{name}.{url.host}": text for name, text in _hadoop_oauth().items()}


def hadoop_url(url: StoreUrl) -> str:
    """Return a URL as Hadoop's file systems spell it."""
    return str(url).replace("s3://", "s3a://", 1)


def azure_endpoint(url: StoreUrl) -> str:
    """Return the address of an account's Blob API, that of an emulator where the environment names one.

    Raises:
        UsageError: a token would be sent there without TLS.
    """
    named = os.environ.get("AZURE_STORAGE_ENDPOINT") or os.environ.get("AZURE_ENDPOINT")
    if not named and _is_set("AZURE_STORAGE_USE_EMULATOR"):
        named = f"{os.environ.get('AZURITE_BLOB_STORAGE_URL', AZURITE)}/{AZURITE_ACCOUNT}"
    if named and named.startswith("http://") and not azure_secret(url).keys() - {"token"}:
        raise UsageError(
            f"{named} has no TLS, so no token is sent there", "Name an https:// address, or set a key or SAS."
        )
    return (named or f"https://{url.host.replace('.dfs.', '.blob.', 1)}").rstrip("/")


def azure_secret(url: StoreUrl) -> dict[str, Any]:
    """Return an account key, a SAS, a token or no signature from the environment; empty: ask `azure_credential`.

    What is set for another account (`AZURE_STORAGE_ACCOUNT`) is left alone; OneLake has no account keys.
    """
    account = os.environ.get("AZURE_STORAGE_ACCOUNT") or os.environ.get("AZURE_STORAGE_ACCOUNT_NAME")
    if account not in {None, url.account}:
        return {}
    if (key := _first(KEYS)) and (account or not url.is_onelake):
        return {"account_key": key}
    if sas := _first(SAS_TOKENS):
        return {"sas_token": sas.lstrip("?")}
    if token := os.environ.get("AZURE_STORAGE_TOKEN"):
        return {"token": token}
    return {"skip_signature": True} if _is_set("AZURE_SKIP_SIGNATURE") else {}


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
            _install_help(),
        ) from None
    logging.getLogger("azure.identity").setLevel(logging.ERROR)  # it would list each credential that it tried
    return DefaultAzureCredential()


def _token(url: StoreUrl) -> AccessToken:
    """Return a token for Azure's storage.

    Raises:
        StorageUnavailable: there is no credential, or the login fails.
    """
    from azure.core.exceptions import ClientAuthenticationError  # noqa: PLC0415 - an optional library

    try:
        return azure_credential().get_token(SCOPE)
    except ClientAuthenticationError as error:
        raise unavailable(url, "", "open", 0, login_failure(str(error))) from None


def _sdk_credential(url: StoreUrl) -> Credential:
    """Return a credential as Azure's libraries take it: a key, a token, a SAS, or nothing for unsigned requests."""
    from azure.core.credentials import (  # noqa: PLC0415 - an optional library
        AccessToken,
        AzureNamedKeyCredential,
        AzureSasCredential,
    )

    secret = azure_secret(url)
    if key := secret.get("account_key"):
        return AzureNamedKeyCredential(url.account, key)
    if token := secret.get("token"):

        class Fixed:  # it is not renewed
            def get_token(self, *_: str, **__: Any) -> AccessToken:  # noqa: ANN401 - as the protocol has it
                return AccessToken(str(token), int(time.time()) + 3600)

        return Fixed()
    if secret.get("skip_signature"):
        return AzureSasCredential("")  # with None, the library cannot rename
    return secret.get("sas_token") or azure_credential()


def _aws_credential() -> dict[str, Any]:
    """Return a provider that knows AWS' profiles and SSO; obstore knows environment, web identity and metadata."""
    has_other = any(os.environ.get(name) for name in ("AWS_ACCESS_KEY_ID", "AWS_WEB_IDENTITY_TOKEN_FILE"))
    if has_other or not (os.environ.get("AWS_PROFILE") or (Path.home() / ".aws").is_dir()):
        return {}
    try:
        from obstore.auth.boto3 import Boto3CredentialProvider  # noqa: PLC0415 - an optional library

        return {"credential_provider": Boto3CredentialProvider()}
    except (ImportError, ValueError):  # without boto3, or without a credential
        return {}


def _is_set(name: str) -> bool:
    return os.environ.get(name, "").lower() in {"1", "true", "on", "yes", "y"}  # as obstore reads it


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
