"""Stores: which kind a URL names, and their clients."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote

from mirror_engine.errors import SetupError, UsageError
from mirror_engine.extras import install_command
from mirror_engine.storage.azure_stores import BlobUrl, DatalakeUrl
from mirror_engine.storage.gcs_store import GcsUrl
from mirror_engine.storage.local import LocalStorage
from mirror_engine.storage.requests import Requests
from mirror_engine.storage.s3_store import S3Url
from mirror_engine.storage.store_url import StoreUrl

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mirror_engine.storage.base import Storage
    from mirror_engine.storage.store_url import Place

STORES: Mapping[str, type[StoreUrl]] = {kind.scheme: kind for kind in (DatalakeUrl, BlobUrl, S3Url, GcsUrl)}
_SCHEMES = {**{scheme: scheme for scheme in STORES}, "abfs": "abfss", "s3a": "s3", "https": "https"}
_ONELAKE = "onelake.dfs.fabric.microsoft.com"
_FORMS = (
    f"abfss://WORKSPACE@{_ONELAKE}/ITEM, https://{_ONELAKE}/WORKSPACE/ITEM, "
    "abfss://CONTAINER@ACCOUNT.dfs.core.windows.net/FOLDER, az://CONTAINER@ACCOUNT.blob.core.windows.net/FOLDER, "
    "s3://BUCKET/FOLDER or gs://BUCKET/FOLDER"
)
_KEEP_OUT = (
    "Leave credentials out of URLs: use the environment, profiles or sign-in of Azure's, AWS' and Google's tools, and "
    "AZURE_STORAGE_SAS_TOKEN for a SAS."
)
_PORTAL = re.compile(
    r"(?:app|msit)\.(?:powerbi|fabric\.microsoft)\.com/groups/([^/]+)/mirroreddatabases/([^/?]+)", re.IGNORECASE
)


def parse_url(text: str) -> StoreUrl | None:
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
        raise UsageError(f"{scheme}: unknown scheme of a store", f"Write {_FORMS}.")
    if kind == "https" and (item := _PORTAL.match(rest)):
        return DatalakeUrl(item[1], _ONELAKE, unquote(item[2]))
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
        raise UsageError(f"{shown}: the URL has no container", f"Write {_FORMS}.")
    if kind == "https":
        kind = "az" if service == "blob" and not host.endswith(".fabric.microsoft.com") else "abfss"
    if any(part in {".", ".."} or "\0" in part for part in parts):
        raise UsageError(f"{shown}: the URL's path has a part . or ..", "Write the folder's own path.")
    if kind == "abfss" and service == "blob":
        host = host.replace(".blob.", ".dfs.", 1)
    return STORES[kind](unquote(container), host, "/".join(parts))


def parse_place(text: str) -> Place:
    """Return the place that a user named: a folder of this machine, or a URL.

    Raises:
        UsageError: it is a URL that cannot be used.
    """
    return parse_url(text) or Path(text)


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
            raise UsageError("az://…: the URL has no account", f"Write {form}, or set AZURE_STORAGE_ACCOUNT.")
        return f"{account}.blob.core.windows.net", host, parts
    return "", host, parts


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
    try:  # optional libraries, which a ROOT on this machine needs not
        return place.open_storage(requests or Requests())
    except ImportError:
        help_text = f"Install the extra: {install_command('stores')}"
        raise SetupError("The libraries for stores are not installed", help_text) from None
