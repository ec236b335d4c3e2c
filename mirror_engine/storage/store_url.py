"""A folder in a store, by its URL: the port that each kind of store implements."""

from __future__ import annotations

import os
import re
from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self, TypeAlias
from urllib.parse import quote

from mirror_engine.errors import SetupError, UsageError
from mirror_engine.extras import install_command
from mirror_engine.storage.base import PAGE

if TYPE_CHECKING:
    from collections.abc import Mapping

    from obstore.store import AzureStore, GCSStore, S3Store

    from mirror_engine.storage.base import Storage
    from mirror_engine.storage.requests import Requests

TIMEOUT = timedelta(seconds=60)
BACKOFF = {"init_backoff": timedelta(seconds=0.2), "max_backoff": timedelta(seconds=15), "base": 2}
_SAFE = "/=+,;:@!$&'()*~"  # in a path; `=` is in the names of Hive folders


@dataclass(frozen=True)
class StoreUrl(ABC):
    """A folder in a store; it never holds a credential. A kind of store is one subclass."""

    scheme: ClassVar[str]
    container_kind: ClassVar[str] = "container"
    login_help: ClassVar[str]  # what to do without a credential
    role: ClassVar[str]  # that reads and writes there
    has_folders: ClassVar[bool] = False  # whether a folder exists without a file in it, and is deleted at once
    has_hadoop: ClassVar[bool] = True  # whether Hadoop, and so Spark, has a file system for it
    page_entries: ClassVar[int] = PAGE  # of one answer to a list

    container: str  # OneLake workspace, file system, bucket or container
    host: str  # host of the account, such as `onelake.dfs.fabric.microsoft.com`; `""` for S3 and GCS
    path: str = ""  # below the container, decoded, without a slash at its ends

    def __str__(self) -> str:
        authority = f"{quote(self.container)}@{self.host}" if self.host else quote(self.container)
        return f"{self.scheme}://{authority}/{quote(self.path, safe=_SAFE)}".rstrip("/")

    def __truediv__(self, path: str) -> Self:
        return replace(self, path=f"{self.path}/{path}".strip("/"))

    @property
    def name(self) -> str:
        """The last part."""
        return self.path.rpartition("/")[2] or self.container

    @property
    def account(self) -> str:
        """Name of the account; `""` for S3 and GCS."""
        return self.host.partition(".")[0]

    @property
    def is_onelake(self) -> bool:
        """Whether it is in OneLake: its container is a workspace."""
        return self.host.endswith(".fabric.microsoft.com")

    @property
    def deltalake_url(self) -> str:
        """The URL as deltalake reads it."""
        return str(replace(self, host=""))

    @property
    def hadoop_url(self) -> str:
        """The URL as Hadoop's file systems spell it."""
        return str(self)

    @property
    def endpoint(self) -> str:
        """The address that obstore is given; `""` for its default."""
        return ""

    @abstractmethod
    def open_storage(self, requests: Requests) -> Storage:
        """Open the folder as ROOT; ImportError without the libraries of stores."""

    def object_store(self) -> AzureStore | GCSStore | S3Store:
        """Return obstore's store rooted here; of Azure by the Blob API.

        Raises:
            SetupError: obstore is not installed.
        """
        try:
            from obstore.exceptions import BaseError  # noqa: PLC0415 - an optional library
        except ImportError:
            help_text = f"Install the extra: {install_command('stores')}"
            raise SetupError("The library for stores (obstore) is not installed", help_text) from None
        is_http = self.endpoint.startswith("http://")
        options: dict[str, Any] = {
            "prefix": self.path or None,
            "client_options": {
                "timeout": TIMEOUT,
                "connect_timeout": "10s",
                **({"allow_http": True} if is_http else {}),
            },
            "retry_config": {"max_retries": 8, "retry_timeout": TIMEOUT, "backoff": BACKOFF},
        }
        try:
            return self._open_object_store(options)
        except BaseError:  # its text may quote the key
            message = f"{self}: the credential in the environment has a wrong form or lacks a part"
            raise UsageError(message, "Set it again, in full.") from None

    @abstractmethod
    def _open_object_store(self, options: Mapping[str, Any]) -> AzureStore | GCSStore | S3Store:
        """Open obstore's store with these options; ImportError without it."""

    @abstractmethod
    def deltalake_options(self) -> dict[str, str]:
        """Return `storage_options` with which deltalake opens a table below it; a token lives an hour at most."""

    @abstractmethod
    def hadoop_options(self) -> dict[str, str]:
        """Return Spark's options with which Hadoop's file systems reach it (`hadoop-azure`, `hadoop-aws`)."""


Place: TypeAlias = Path | StoreUrl  # what is taken as ROOT


def local_folder(path: str | os.PathLike[str]) -> Path:
    """Return the folder of this machine that a user named; a `Path` made of a URL has one slash less.

    Raises:
        UsageError: it is a URL.
    """
    if url := re.match(r"([A-Za-z][A-Za-z0-9+.-]*):/", os.fspath(path)):
        raise UsageError(f"{url[1]}://…: is not a folder of this machine", "Give the path of a local folder.")
    return Path(path)


def is_set(name: str) -> bool:
    """Whether a variable of the environment is true."""
    return os.environ.get(name, "").lower() in {"1", "true", "on", "yes", "y"}  # as obstore reads it
