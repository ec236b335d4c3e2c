"""Google Cloud Storage."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from mirror_engine.storage.store_url import StoreUrl

if TYPE_CHECKING:
    from collections.abc import Mapping

    from obstore.store import GCSStore

    from mirror_engine.storage.base import Storage
    from mirror_engine.storage.requests import Requests


@dataclass(frozen=True)
class GcsUrl(StoreUrl):
    """A folder in a bucket of Google Cloud Storage."""

    scheme = "gs"
    container_kind = "bucket"
    login_help = "Run gcloud auth application-default login, or set GOOGLE_APPLICATION_CREDENTIALS."
    role = "the role Storage Object User (Viewer to read)"

    def open_storage(self, requests: Requests) -> Storage:
        from mirror_engine.storage.object_store import ObjectStorage  # noqa: PLC0415 - an optional library

        return ObjectStorage(self, self.object_store(), requests)

    def _open_object_store(self, options: Mapping[str, Any]) -> GCSStore:
        from obstore.store import GCSStore  # noqa: PLC0415 - an optional library

        return GCSStore(self.container, **options)

    def deltalake_options(self) -> dict[str, str]:
        return {}

    def hadoop_options(self) -> dict[str, str]:
        return {}
