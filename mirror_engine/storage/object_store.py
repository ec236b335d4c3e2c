"""Storage in S3, GCS and Azure Blob Storage: keys without folders, by obstore."""

from __future__ import annotations

import re
import ssl
import time
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Literal

import requests
from obstore import sign
from obstore.exceptions import (
    AlreadyExistsError,
    BaseError,
    PermissionDeniedError,
    PreconditionError,
    UnauthenticatedError,
)
from urllib3.util import Retry

from mirror_engine.errors import StorageUnavailable
from mirror_engine.landing_zone.listing import Entry
from mirror_engine.storage.base import no_file_path, parts_of
from mirror_engine.storage.listing import StoreStorage, folder_entry
from mirror_engine.storage.remote import MAX_CONNECTIONS, NO_CREDENTIAL, PRECONDITION, login_failure, unavailable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from obstore import GetOptions, ObjectMeta, SignCapableStore, UpdateVersion
    from obstore.store import ObjectStore

    from mirror_engine.storage.datalake import DatalakeStorage
    from mirror_engine.storage.requests import Requests
    from mirror_engine.storage.store_url import StoreUrl

DELETED, NOT_FOUND, EMPTY, NOT_IMPLEMENTED = 204, 404, 416, 501
TIMEOUT = (10, 60)  # seconds: to connect, and for an answer
RETRIED = Retry(
    8,
    read=2,
    status_forcelist={409, 429, 500, 502, 503, 504},
    allowed_methods=None,
    backoff_factor=0.2,
    backoff_max=15,
    raise_on_status=False,
    respect_retry_after_header=False,
)
INVALID_PATH = "InvalidPath"  # one that obstore cannot send: a control character
NO_NAME = re.compile(f"{INVALID_PATH}|KeyTooLong|InvalidURI|InvalidUri|OutOfRangeInput|InvalidResourceName")
NO_CONTAINER = re.compile("ContainerNotFound|NoSuchBucket")
MAX_LEASE_BYTES = 65_536  # anybody may write there
MAX_COPIED_BYTES = 5 * 1000**3  # S3 copies no larger object by one request
_METADATA_SERVICE = re.compile(r"169\.254\.|metadata\.google")  # asked where there is no other credential
_STATUS = re.compile(r"status code: (\d{3})|\b(\d{3}) [A-Z][a-z]+")
_CODE = re.compile(r"<Code>(\w+)</Code>|\"code\":\s*\"(\w+)\"")


class ObjectStorage(StoreStorage):
    """A `Storage` below a prefix of a bucket or container.

    A folder exists by the keys below it, and has no identity. A move copies, and deletes the source once the copy was
    seen: one that is repeated does the rest.

    Args:
        url: of ROOT.
        store: obstore's, rooted there.
        requests: counts what is asked for.
        azure: gives what deletes one version of a file, in Azure Blob Storage; obstore cannot.
    """

    def __init__(
        self, url: StoreUrl, store: ObjectStore, requests: Requests, azure: Callable[[], DatalakeStorage] | None = None
    ) -> None:
        super().__init__(url, requests)
        self._store, self._azure = store, azure
        self._page = url.page_entries

    def list(self, folder: str) -> Sequence[Entry] | None:
        parts = parts_of(folder)
        if parts is None:
            return None
        try:
            with store_errors("list", folder, self._url):
                found = self._store.list_with_delimiter(folder or None)
        except FileNotFoundError:
            return None
        count = len(found["objects"]) + len(found["common_prefixes"])
        self._requests.add("list", 1 + count // self._page)
        entries = {entry.name: entry for entry in map(_file, found["objects"])}
        entries |= {entry.name: entry for entry in map(folder_entry, found["common_prefixes"])}
        return None if folder and not entries else [entry for _, entry in sorted(entries.items())]

    def pages(self, folder: str, after: str) -> Iterator[Sequence[tuple[str, Entry]]]:
        """List all below a folder, page by page."""
        has_begun = False
        try:
            with store_errors("list", folder, self._url):
                for page in self._store.list(folder, offset=after or None, chunk_size=self._page):
                    self._requests.add("list")
                    self._requests.listed(len(page))
                    yield [(found["path"], _file(found)) for found in page]
                    has_begun = True
        except FileNotFoundError:
            if has_begun:
                raise unavailable(self._url, folder, "list", NOT_FOUND) from None

    def stat(self, path: str) -> Entry | None:
        """Look up an entry; a folder takes a second request."""
        parts = parts_of(path)
        if parts is None:
            return None
        found = self._head(path) if parts else None
        if found and found["size"]:  # a marker of a folder is empty
            return _file(found)
        if not parts or any(True for _ in self.pages(path, "")):
            return folder_entry(path)
        return found and _file(found)

    def write(self, path: str, content: bytes) -> None:
        if not parts_of(path):
            raise no_file_path(path)
        with store_errors("write", path, self._url):
            self._requests.add("write")
            self._store.put(path, content)

    def move(self, source: str, target: str, only: Entry | None = None) -> bool:
        if not parts_of(target):
            raise no_file_path(target)
        found = self._head(source) if parts_of(source) else None
        if found is None:
            return self._is_moved(target, only)
        if only and not _file(found).is_same(only):
            return False
        if source == target:
            return True
        try:
            with store_errors("move", source, self._url):
                self._copy(found, target)
        except FileNotFoundError:
            return self._is_moved(target, only)
        copied, still = self._head(target), self._head(source)
        try:
            if copied is None or copied["size"] != found["size"] or (still and _etag(still) != _etag(found)):
                raise unavailable(self._url, source, "move", PRECONDITION)
            self.remove(source, _etag(found))
        except StorageUnavailable as error:
            if only is None or not error.is_replaced:
                raise
            return False
        return True

    def delete(self, path: str) -> None:
        if not parts_of(path):
            return
        self._delete([path])
        for page in self.pages(path, ""):
            self._delete([below for below, _ in page])

    def remove(self, path: str, etag: str = "") -> None:
        if etag and self._azure:
            self._azure().remove(path, etag)
        else:
            self._delete([path])

    def _is_moved(self, target: str, only: Entry | None) -> bool:
        """Whether a missing source was already moved; without a listed version, it counts as moved."""
        moved = self._head(target) if only else None
        return only is None or (moved is not None and moved["size"] == only.size)

    def _head(self, path: str) -> ObjectMeta | None:
        try:
            with store_errors("check", path, self._url):
                self._requests.add("head")
                return of_store(self._store.head(path))
        except FileNotFoundError:
            return None

    def _read(self, operation: str, path: str, start: int, end: int, etag: str) -> tuple[bytes, int, str]:
        options: GetOptions = {"range": (start, end)}
        if etag:
            options["if_match"] = f'"{etag}"'
        try:
            with store_errors(operation, path, self._url, is_conditional=bool(etag)):
                self._requests.add("read")
                found = self._store.get(path, options=options)
                return bytes(found.bytes()), found.meta["size"], _etag(of_store(found.meta))
        except FileExistsError:
            raise FileNotFoundError(path) from None
        except EOFError:
            return b"", 0, ""

    def _copy(self, found: ObjectMeta, target: str) -> None:
        self._requests.add("copy")
        if found["size"] <= MAX_COPIED_BYTES:
            self._store.copy(found["path"], target)
        else:
            self._store.put(target, iter(self._store.get(found["path"], options={"if_match": f'"{_etag(found)}"'})))

    def _delete(self, paths: Sequence[str]) -> None:
        for path in paths:
            with suppress(FileNotFoundError), store_errors("delete", path, self._url):
                self._requests.add("delete")
                self._store.delete(path)


class S3Storage(ObjectStorage):
    """Storage in S3. A deletion may name an ETag: a signed request, as obstore's have no condition.

    Stores that speak S3's protocol and do not know that condition delete without it.
    """

    def __init__(self, url: StoreUrl, store: SignCapableStore, counter: Requests) -> None:
        super().__init__(url, store, counter)
        self._signing, self._session = store, requests.Session()
        self._session.auth = lambda request: request  # nothing of ~/.netrc: the URL is signed
        self._authorities = ssl.get_default_verify_paths().cafile or True  # SSL_CERT_FILE or the system's, as obstore
        for scheme in ("http://", "https://"):
            self._session.mount(
                scheme, requests.adapters.HTTPAdapter(pool_maxsize=MAX_CONNECTIONS, max_retries=RETRIED)
            )

    def remove(self, path: str, etag: str = "") -> None:
        status, code = self._delete_signed(path, {"If-Match": f'"{etag}"'} if etag else {})
        if status == NOT_IMPLEMENTED:
            status, code = self._delete_signed(path, {})
        if status not in {DELETED, NOT_FOUND} or NO_CONTAINER.search(code):
            raise unavailable(self._url, path, "delete", status, code)

    def _delete_signed(self, path: str, headers: Mapping[str, str]) -> tuple[int, str]:
        """Return status and code of the answer; 0 for none."""
        with store_errors("delete", path, self._url):
            signed = sign(self._signing, "DELETE", path, timedelta(minutes=15))
        self._requests.add("delete")
        try:
            answer = self._session.delete(
                signed, headers=headers, timeout=TIMEOUT, allow_redirects=False, verify=self._authorities
            )
        except OSError:  # of requests, too; its text quotes the signature
            return 0, ""
        return answer.status_code, _code(answer.text)


@dataclass(frozen=True)
class StoredVersion:
    """One version of a file."""

    content: bytes  # at most `MAX_LEASE_BYTES` of it
    etag: str  # of this version, as the store writes it
    modified: float  # when it was written by the store's clock, in seconds since 1970
    generation: str | None = None  # what GCS has instead of an etag; None elsewhere


class ConditionalFile:
    """A file of a store (`If-None-Match: *`, `If-Match`). Raises `StorageUnavailable` where nothing is known."""

    def __init__(self, store: ObjectStore, path: str, root: StoreUrl) -> None:
        self._store, self._path, self.root = store, path, root

    def read(self) -> StoredVersion | None:
        """Return the newest version; None where there is no file."""
        try:
            with store_errors("read", self._path, self.root):
                found = self._store.get(self._path)
                content, meta = bytes(found.bytes())[:MAX_LEASE_BYTES], of_store(found.meta)
        except FileNotFoundError:
            return None
        return StoredVersion(content, meta["e_tag"] or "", meta["last_modified"].timestamp(), meta["version"])

    def write(self, content: bytes, before: StoredVersion | None) -> StoredVersion | None:
        """Replace a version, or create the file if `before` is None; returns None if it changed since.

        After a lost answer it may be this very write that made it another one: `read` says so.
        """
        mode: UpdateVersion | Literal["create"] = "create"
        if before:
            mode = {"e_tag": before.etag}
            if before.generation:
                mode["version"] = before.generation
        try:
            with store_errors("write", self._path, self.root, is_conditional=True):
                done = self._store.put(self._path, content, mode=mode, use_multipart=False)
        except FileExistsError:
            return None
        return StoredVersion(content, done["e_tag"] or "", time.time(), done["version"])


@contextmanager
def store_errors(operation: str, path: str, url: StoreUrl, *, is_conditional: bool = False) -> Iterator[None]:
    """Raise `StorageUnavailable` for an error of obstore.

    FileExistsError where a condition of the request was lost, EOFError for a range of an empty file; FileNotFoundError
    passes, but for what is written, and a bucket or container that is absent.
    """
    try:
        yield
    except (AlreadyExistsError, PreconditionError) as error:
        if is_conditional:
            raise FileExistsError(path) from error
        raise unavailable(url, path, operation, *_words(error)) from None
    except (BaseError, OSError, ValueError) as error:
        status, code = _words(error)
        if isinstance(error, FileNotFoundError) and operation != "write" and not NO_CONTAINER.search(code):
            raise
        if status == EMPTY:
            raise EOFError(path) from None
        if NO_NAME.search(code) and operation not in {"write", "move"}:
            raise FileNotFoundError(path) from None
        raise unavailable(url, path, operation, status, code) from None


def of_store(found: ObjectMeta) -> ObjectMeta:
    """Raise ValueError for an answer without an ETag: it comes from a proxy or a login page."""
    if not found["e_tag"]:
        raise ValueError("no ETag")
    return found


def _words(error: Exception) -> tuple[int, str]:
    """Status and code of an answer, from the text of an error: obstore has nothing else."""
    text = str(error)
    status = _STATUS.search(text)
    by_kind = {PermissionDeniedError: 403, FileNotFoundError: 404}
    if "arsing Path" in text:
        return 400, INVALID_PATH
    if _METADATA_SERVICE.search(text):
        return 0, NO_CREDENTIAL
    if isinstance(error, UnauthenticatedError) and not status:
        return 0, login_failure(text)
    number = int(status[1] or status[2]) if status else by_kind.get(type(error), 0)
    return number, _code(text)


def _code(text: str) -> str:
    code = _CODE.search(text)
    return next(filter(None, code.groups()), "") if code else ""


def _file(found: ObjectMeta) -> Entry:
    modified_ns = int(found["last_modified"].timestamp()) * 1_000_000_000
    return Entry(found["path"].rpartition("/")[2], found["size"], modified_ns, _etag(found))


def _etag(found: ObjectMeta) -> str:
    return (found["e_tag"] or "").strip('"')
