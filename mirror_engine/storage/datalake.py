"""Storage in OneLake and ADLS Gen2: lists, folders and renames by the DFS API, contents by the Blob API."""

from __future__ import annotations

from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, TypeAlias
from urllib.parse import quote

import requests as http
from azure.core import MatchConditions
from azure.core.exceptions import AzureError, ClientAuthenticationError, HttpResponseError, ResourceExistsError
from azure.core.pipeline.policies import RetryPolicy
from azure.core.pipeline.transport import RequestsTransport
from azure.storage.blob import BlobServiceClient, LocationMode
from azure.storage.filedatalake import DataLakeServiceClient

from mirror_engine.errors import StorageUnavailable
from mirror_engine.landing_zone.listing import Entry, Kind
from mirror_engine.storage.base import joined, no_file_path, parts_of
from mirror_engine.storage.listing import StoreStorage
from mirror_engine.storage.remote import MAX_CONNECTIONS, login_failure, unavailable

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from datetime import datetime

    from azure.core.credentials import AzureNamedKeyCredential, AzureSasCredential, TokenCredential
    from azure.core.pipeline import PipelineRequest, PipelineResponse
    from azure.storage.filedatalake import PathProperties

    from mirror_engine.storage.requests import Requests
    from mirror_engine.storage.store_url import StoreUrl

Credential: TypeAlias = "AzureNamedKeyCredential | AzureSasCredential | TokenCredential | str"  # text: a SAS
NOT_FOUND, EMPTY = 404, 416
NO_PLACE = frozenset(
    {"WorkspaceNotFound", "ArtifactNotFound", "ItemNotFound", "ContainerNotFound", "FilesystemNotFound"}
)
NO_NAME = frozenset({"InvalidUri", "InvalidResourceName", "OutOfRangeInput"})  # no path can be spelled so
NO_PARENT, NOT_EMPTY = "RenameDestinationParentPathNotFound", "DirectoryNotEmpty"
SINGLE_REQUEST_BYTES = 64 * 1024 * 1024
RETRY_SECONDS = 120


class DatalakeStorage(StoreStorage):
    """A `Storage` in an item of a workspace, or in a file system.

    A folder's identity is its creation time where lists have that, else its ETag. A write is one Put Blob, which is
    seen whole or not at all. Azure's retry policy repeats failed requests, after `Retry-After` where the store sends
    it. A container of Blob Storage has what is done by the Blob API alone.

    Args:
        url: of ROOT.
        endpoint: address of the account's Blob API.
        credential: a key, a SAS, or what gives tokens.
        requests: counts what is sent.
    """

    def __init__(self, url: StoreUrl, endpoint: str, credential: Credential, requests: Requests) -> None:
        super().__init__(url, requests)
        options: dict[str, Any] = {
            "retry_policy": _Retries(
                retry_total=5, retry_backoff_factor=0.4, retry_backoff_max=30, timeout=RETRY_SECONDS
            ),
            "transport": _transport(),
            "raw_request_hook": lambda request: requests.add(_kind(request)),
            "max_single_put_size": SINGLE_REQUEST_BYTES,
            "max_single_get_size": SINGLE_REQUEST_BYTES,
        }
        dfs = DataLakeServiceClient(endpoint.replace(".blob.", ".dfs.", 1), credential, **options)
        self._files = dfs.get_file_system_client(url.container)
        self._blobs = BlobServiceClient(endpoint, credential, **options).get_container_client(url.container)

    def list(self, folder: str) -> Sequence[Entry] | None:
        if parts_of(folder) is None:
            return None
        try:
            listed = [found for page in self._listed("list", folder, recursive=False) for found in page]
        except FileNotFoundError:
            return None
        if any(path == folder for path, _ in listed):  # a file lists itself
            return None
        return sorted((entry for _, entry in listed), key=lambda entry: entry.name)

    def pages(self, folder: str, after: str) -> Iterator[Sequence[tuple[str, Entry]]]:
        """List all below a folder, page by page."""
        is_listed = False
        try:
            for page in self._listed(
                "list", folder, recursive=True, start_from=after.removeprefix(f"{folder}/") or None
            ):
                is_listed = True
                yield page
        except FileNotFoundError:
            if is_listed:  # nothing follows from what was listed
                raise StorageUnavailable(f"{folder}: disappeared while it was listed", "It is listed again.") from None

    def stat(self, path: str) -> Entry | None:
        """Look up an entry: a file by one request, a folder by one more, as its parent lists it."""
        parts = parts_of(path)
        if parts is None:
            return None
        try:
            with self._errors("check", path):
                found = self._blobs.get_blob_client(self._full(path) or "/").get_blob_properties()
                etag = _plain(found.etag)
        except FileNotFoundError:
            return None
        name, modified_ns = path.rpartition("/")[2], _nanoseconds(found.last_modified)
        if not _is_folder(found.metadata):
            return Entry(name, found.size, modified_ns, etag)
        if not parts:
            return Entry("", 0, modified_ns, etag, kind=Kind.FOLDER)
        parent = "/".join(parts[:-1])
        try:
            pages = self._listed("check", parent, recursive=False, start_from=name)
            return next((entry for page in pages for _, entry in page if entry.name == name), None)
        except FileNotFoundError:
            return None

    def _read(self, operation: str, path: str, start: int, end: int, etag: str) -> tuple[bytes, int, str]:
        blob, condition = self._blobs.get_blob_client(self._full(path)), _only(etag)
        try:
            with self._errors(operation, path):
                try:
                    stream = blob.download_blob(start, end - start, **condition)
                except HttpResponseError as error:
                    if error.status_code != EMPTY:
                        raise
                    stream = blob.download_blob(**condition)
                content, found = bytes(stream.readall()), stream.properties
                etag = _plain(found.etag)
        except StorageUnavailable as error:
            if not error.is_replaced:
                raise
            raise FileNotFoundError(path) from None
        if _is_folder(found.metadata):
            raise FileNotFoundError(path)
        return content, int(found.content_range.rpartition("/")[2]) if found.content_range else len(content), etag

    def write(self, path: str, content: bytes) -> None:
        if not parts_of(path):
            raise no_file_path(path)
        with self._errors("write", path):
            self._blobs.get_blob_client(self._full(path)).upload_blob(content, overwrite=True)

    def move(self, source: str, target: str, only: Entry | None = None) -> bool:
        if not parts_of(target):
            raise no_file_path(target)
        present = only or self.stat(source)
        if not parts_of(source) or present is None or present.kind is not Kind.FILE:
            return only is None
        options = {f"source_{name}": value for name, value in _only(present.identity).items()}
        # the source's path is unquoted by this method alone
        file = self._files.get_file_client(quote(self._full(source)))
        try:
            with self._errors("move", source):
                try:
                    file.rename_file(f"{self._url.container}/{self._full(target)}", **options)
                except HttpResponseError as error:
                    if _code(error) != NO_PARENT:
                        raise
                    above = target.rpartition("/")[0]
                    folder = self._files.get_directory_client(self._full(above))
                    try:
                        folder.create_directory(match_condition=MatchConditions.IfMissing)
                    except ResourceExistsError:
                        made = self.stat(above)
                        if made is None or made.kind is not Kind.FOLDER:  # not by another move meanwhile
                            raise
                    file.rename_file(f"{self._url.container}/{self._full(target)}", **options)
        except FileNotFoundError:  # moved by a request whose answer was lost, or removed
            found = only and self.stat(target)
            return only is None or (found is not None and found.is_same(only))
        except StorageUnavailable as error:
            if only is None or not error.is_replaced:
                raise
            return False
        return True

    def delete(self, path: str) -> None:
        if parts_of(path) and not self.remove(path):
            with suppress(FileNotFoundError), self._errors("delete", path):
                self._files.get_directory_client(self._full(path)).delete_directory()

    def remove(self, path: str, etag: str = "") -> bool:
        """Remove a file, or a folder that is empty; absent is no error. False: it is a folder with something in it.

        Raises:
            StorageUnavailable: the file has another ETag than the one that is given; it stays.
        """
        with suppress(FileNotFoundError), self._errors("delete", path):
            try:
                if self._url.has_folders:
                    self._files.get_file_client(self._full(path)).delete_file(**_only(etag))
                else:
                    self._blobs.get_blob_client(self._full(path)).delete_blob(**_only(etag))
            except HttpResponseError as error:
                if _code(error) != NOT_EMPTY:
                    raise
                return False
        return True

    def _full(self, path: str) -> str:
        return joined(self._url.path, path)

    def _listed(
        self, operation: str, folder: str, *, recursive: bool, start_from: str | None = None
    ) -> Iterator[Sequence[tuple[str, Entry]]]:
        """Pages of what is below a folder; FileNotFoundError."""
        above = len(parts_of(self._url.path) or ())  # parts of listed names, whatever way the item is named in them
        with self._errors(operation, folder):
            paths = self._files.get_paths(self._full(folder) or None, recursive=recursive, start_from=start_from)
            for page in paths.by_page():
                found = [("/".join(each.name.split("/")[above:]), each) for each in page]
                self._requests.listed(len(found))
                if found:
                    yield [(path, _entry(path.rpartition("/")[2], each)) for path, each in found]

    @contextmanager
    def _errors(self, operation: str, path: str) -> Iterator[None]:
        """Raise FileNotFoundError for what is absent, else `StorageUnavailable`."""
        try:
            yield
        except HttpResponseError as error:
            status, code = error.status_code or 0, _code(error)
            is_absent = status == NOT_FOUND and code not in NO_PLACE
            if is_absent or (code in NO_NAME and operation not in {"write", "move"}):
                raise FileNotFoundError(path) from None
            if isinstance(error, ClientAuthenticationError) and not status:
                code = login_failure(str(error))
            raise unavailable(self._url, path, operation, status, code) from None
        except (AzureError, ValueError):  # of an answer without a store's headers
            raise unavailable(self._url, path, operation, 0) from None


def _transport() -> RequestsTransport:
    """Return a transport that keeps as many connections as there may be requests; Azure's own keeps ten."""
    session = http.Session()
    for scheme in ("http://", "https://"):
        session.mount(scheme, http.adapters.HTTPAdapter(pool_maxsize=MAX_CONNECTIONS))
    return RequestsTransport(session=session, connection_timeout=10, read_timeout=60)


class _Retries(RetryPolicy[Any, Any]):
    """Azure's retry policy, which waits for `Retry-After`; that of its storage libraries does not."""

    def configure_retries(self, options: dict[str, Any]) -> dict[str, Any]:
        for name in ("hosts", "location_mode", "retry_to_secondary", "retry_hook"):  # options of the other policy
            options.pop(name, None)
        return super().configure_retries(options)

    def send(self, request: PipelineRequest[Any]) -> PipelineResponse[Any, Any]:
        response = super().send(request)
        response.http_response.location_mode = LocationMode.PRIMARY  # as the other policy notes it for downloads
        return response


def _only(identity: str) -> dict[str, Any]:
    """Options by which a request is about one version of a file; none for `""`."""
    return {"etag": f'"{identity}"', "match_condition": MatchConditions.IfNotModified} if identity else {}


def _entry(name: str, found: PathProperties) -> Entry:
    modified_ns, etag = _nanoseconds(found.last_modified), _plain(found.etag)
    if not found.is_directory:
        return Entry(name, found.content_length, modified_ns, etag)
    born = found.creation_time  # with fractions of a second, which HEAD does not have
    return Entry(name, 0, modified_ns, f"{born.timestamp():.7f}" if born else etag, kind=Kind.FOLDER)


def _is_folder(metadata: Mapping[str, str] | None) -> bool:
    return (metadata or {}).get("hdi_isfolder", "").lower() == "true"


def _plain(etag: str | None) -> str:
    if not etag:
        raise ValueError(
            "the answer has no ETag, so it is not from a store: it may be from a proxy, or a network's login page"
        )
    return etag.strip('"')


def _nanoseconds(time: datetime) -> int:
    return int(time.timestamp()) * 1_000_000_000


def _code(error: HttpResponseError) -> str:
    code = getattr(error, "error_code", None)
    return str(getattr(code, "value", code) or "")


def _kind(request: PipelineRequest[Any]) -> str:
    """The kind of a request, as `Requests` counts it."""
    sent = request.http_request
    if sent.method == "GET":
        return "list" if "resource=filesystem" in sent.url else "read"
    if "x-ms-rename-source" in sent.headers:
        return "move"
    return {"HEAD": "head", "DELETE": "delete"}.get(sent.method, "write")
