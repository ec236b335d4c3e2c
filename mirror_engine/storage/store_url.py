"""URLs of folders in stores: OneLake, ADLS Gen2, Azure Blob, S3 and GCS."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeAlias, cast
from urllib.parse import quote, unquote

from mirror_engine.errors import UsageError

if TYPE_CHECKING:
    from typing_extensions import Self

Scheme = Literal["abfss", "s3", "gs", "az"]

_SCHEMES = {"abfss": "abfss", "abfs": "abfss", "s3": "s3", "s3a": "s3", "gs": "gs", "az": "az", "https": "https"}
_ONELAKE = "onelake.dfs.fabric.microsoft.com"
_FORMS = (
    f"abfss://WORKSPACE@{_ONELAKE}/ITEM, https://{_ONELAKE}/WORKSPACE/ITEM, "
    "abfss://CONTAINER@ACCOUNT.dfs.core.windows.net/FOLDER, az://CONTAINER@ACCOUNT.blob.core.windows.net/FOLDER, "
    "s3://BUCKET/FOLDER or gs://BUCKET/FOLDER"
)
_KEEP_OUT = (
    "Leave credentials out of URLs: they are found where Azure's, AWS' and Google's tools look for them, "
    "a SAS in AZURE_STORAGE_SAS_TOKEN."
)
_PORTAL = re.compile(
    r"(?:app|msit)\.(?:powerbi|fabric\.microsoft)\.com/groups/([^/]+)/mirroreddatabases/([^/?]+)", re.IGNORECASE
)
_SAFE = "/=+,;:@!$&'()*~"  # in a path; `=` is in the names of Hive folders


@dataclass(frozen=True)
class StoreUrl:
    """A folder in a store; it never holds a credential."""

    scheme: Scheme  # `abfss` for the DFS API (OneLake, ADLS Gen2), `az` for Azure Blob Storage's
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

    @classmethod
    def parse(cls, text: str) -> Self | None:
        """Parse a URL as tools and portals spell it, percent-encoded or not; None for a path of this machine.

        An `az` URL without an account takes that of `AZURE_STORAGE_ACCOUNT`.

        Raises:
            UsageError: it holds a credential, names no container, or is no URL of a store.
        """
        scheme, is_url, rest = text.strip().partition("://")
        if not is_url or not re.fullmatch(r"[A-Za-z][A-Za-z0-9+.-]*", scheme):
            return None
        shown = f"{scheme}://…"  # nothing that may hold a credential
        kind = _SCHEMES.get(scheme.lower())
        if kind is None:
            raise UsageError(f"{scheme}: is no scheme of a store that can be read", f"Write {_FORMS}.")
        if kind == "https" and (item := _PORTAL.match(rest)):
            return cls("abfss", item[1], _ONELAKE, unquote(item[2]))
        rest, _, query = rest.partition("?")
        authority, _, path = rest.partition("/")
        container, has_user, host = authority.rpartition("@")
        if query or ":" in container or (has_user and kind in {"s3", "gs", "https"}):
            what = "a SAS" if re.search(r"(^|&)sig=", query) else "a query" if query else "a user or password"
            raise UsageError(f"{shown}: the URL holds {what}", _KEEP_OUT)
        parts = [unquote(part) for part in path.split("/") if part]
        host = host.lower() if kind not in {"s3", "gs"} else host
        if not has_user:
            host, container, parts = _without_user(kind, host, parts)
        service = _service(host)
        if not container or (kind == "https" and not service) or (kind == "abfss" and not host):
            raise UsageError(f"{shown}: the URL names no container of a store", f"Write {_FORMS}.")
        if kind == "https":
            kind = "az" if service == "blob" and not host.endswith(".fabric.microsoft.com") else "abfss"
        if any(part in {".", ".."} or "\0" in part for part in parts):
            raise UsageError(f"{shown}: the URL's path has a part . or ..", "Write the folder's own path.")
        if kind == "abfss" and service == "blob":
            host = host.replace(".blob.", ".dfs.", 1)
        return cls(cast("Scheme", kind), unquote(container), host, "/".join(parts))


Place: TypeAlias = Path | StoreUrl  # what is taken as ROOT


def parse_place(text: str) -> Place:
    """Return the place that a user named: a folder of this machine, or a URL.

    Raises:
        UsageError: it is a URL that cannot be used.
    """
    return StoreUrl.parse(text) or Path(text)


def local_folder(path: str | os.PathLike[str]) -> Path:
    """Return the folder of this machine that a user named; a `Path` made of a URL has one slash less.

    Raises:
        UsageError: it is a URL.
    """
    if url := re.match(r"([A-Za-z][A-Za-z0-9+.-]*):/", os.fspath(path)):
        raise UsageError(f"{url[1]}://…: is no folder of this machine", "Give the path of a local folder.")
    return Path(path)


def _service(host: str) -> str:
    """`dfs` or `blob` by the labels of an account's host; `""` for other hosts."""
    return next((label for label in host.split(".")[1:] if label in {"dfs", "blob"}), "")


def _without_user(kind: str, host: str, parts: list[str]) -> tuple[str, str, list[str]]:
    """Return host, container and path of a URL without `CONTAINER@`."""
    if kind == "https" or (kind not in {"s3", "gs"} and _service(host)):
        return host, next(iter(parts), ""), parts[1:]
    if kind == "az":
        account = os.environ.get("AZURE_STORAGE_ACCOUNT") or os.environ.get("AZURE_STORAGE_ACCOUNT_NAME")
        if not account:
            form = "az://CONTAINER@ACCOUNT.blob.core.windows.net/FOLDER"
            raise UsageError("az://…: the URL names no account", f"Write {form}, or set AZURE_STORAGE_ACCOUNT.")
        return f"{account}.blob.core.windows.net", host, parts
    return "", host, parts
