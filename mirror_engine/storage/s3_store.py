"""S3, and stores with its API."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mirror_engine.storage.store_url import StoreUrl, is_set

if TYPE_CHECKING:
    from collections.abc import Mapping

    from obstore.store import S3Store

    from mirror_engine.storage.base import Storage
    from mirror_engine.storage.requests import Requests


@dataclass(frozen=True)
class S3Url(StoreUrl):
    """A folder in a bucket of S3."""

    scheme = "s3"
    container_kind = "bucket"
    login_help = "Set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY; profiles and SSO need the Python package boto3."
    role = "s3:ListBucket, s3:GetObject, and to write s3:PutObject and s3:DeleteObject"

    @property
    def hadoop_url(self) -> str:
        return str(self).replace("s3://", "s3a://", 1)

    @property
    def endpoint(self) -> str:
        return os.environ.get("AWS_ENDPOINT_URL", "")

    def open_storage(self, requests: Requests) -> Storage:
        from mirror_engine.storage.object_store import ObjectStorage, S3Storage  # noqa: PLC0415 - an optional library

        kind = ObjectStorage if is_set("AWS_SKIP_SIGNATURE") else S3Storage
        return kind(self, self.object_store(), requests)

    def _open_object_store(self, options: Mapping[str, Any]) -> S3Store:
        from obstore.store import S3Store  # noqa: PLC0415 - an optional library

        return S3Store(self.container, **_credential(), **options)

    def deltalake_options(self) -> dict[str, str]:
        return {"aws_conditional_put": "etag"}

    def hadoop_options(self) -> dict[str, str]:
        endpoint = os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL")
        found = {"endpoint": endpoint, "path.style.access": "true"} if endpoint else {}
        found["endpoint.region"] = os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION") or "us-east-1"
        return {f"spark.hadoop.fs.s3a.{name}": text for name, text in found.items()}


def _credential() -> dict[str, Any]:
    """Return a provider that knows AWS' profiles and SSO; obstore knows environment, web identity and metadata."""
    has_other = any(os.environ.get(name) for name in ("AWS_ACCESS_KEY_ID", "AWS_WEB_IDENTITY_TOKEN_FILE"))
    if has_other or not (os.environ.get("AWS_PROFILE") or (Path.home() / ".aws").is_dir()):
        return {}
    try:
        from obstore.auth.boto3 import Boto3CredentialProvider  # noqa: PLC0415 - an optional library

        return {"credential_provider": Boto3CredentialProvider()}
    except (ImportError, ValueError):  # without boto3, or without a credential
        return {}
