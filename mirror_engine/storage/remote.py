"""What all stores share: a reader of ranges, a count of requests, and the words for what a store refuses."""

from __future__ import annotations

import io
import logging
import os
import re
from typing import TYPE_CHECKING, BinaryIO, cast

from mirror_engine.errors import NoAccess, StorageUnavailable
from mirror_engine.landing_zone.text import printable

if TYPE_CHECKING:
    from collections.abc import Callable

    from typing_extensions import Buffer

    from mirror_engine.storage.store_url import StoreUrl

FIRST_BYTES = 1024 * 1024  # read when a file is opened: most change files are whole then
MAX_AHEAD_BYTES = 16 * 1024 * 1024  # read ahead at most, of a file that is read from one end to the other
TAIL_BYTES = 64 * 1024  # read together at a file's end: a Parquet footer
MAX_CONNECTIONS = 64  # kept to one host: `REQUESTS` of each of four workers

UNAUTHENTICATED, FORBIDDEN = 401, 403
PRECONDITION = 412  # the status of a request whose condition does not hold
NO_CREDENTIAL = "NoCredential"  # our own code: none was found, so that nothing was asked
UNREACHABLE_LOGIN = "UnreachableLogin"  # our own code, too
_AUTHORITY_CODE = re.compile(r"AADSTS\d+")
_NO_CONNECTION = re.compile("connect|proxy|certificate_verify|ssl|timed out|resolve|cannot be reached", re.IGNORECASE)
_REFUSED_CREDENTIAL = "AuthenticationFailed|InvalidAuthentication|SignatureDoesNotMatch|InvalidAccessKeyId|Expired"
_BUSY_AUTHORITY = r"AADSTS(50033|900(06|12|24|33|55))\b"  # codes that Entra documents as temporary
_SIGNATURE = re.compile("[?&](X-Amz-Signature|sig)=")
# kind, status (None: any, 0: no answer), pattern of the code, finding, help; the first that fits
_ABOUT_ROOT = (
    (NoAccess, None, NO_CREDENTIAL, "no credential was found", "{login}"),
    (
        StorageUnavailable,
        None,
        UNREACHABLE_LOGIN,
        "{authority} cannot be reached",
        "Check the network and its proxy (HTTPS_PROXY); name the file of a proxy's own CA in SSL_CERT_FILE.",
    ),
    (StorageUnavailable, None, _BUSY_AUTHORITY, "{authority} cannot log in now ({code})", "Try again."),
    (
        NoAccess,
        None,
        _AUTHORITY_CODE.pattern,
        "the credential of the environment is refused ({code})",
        "Renew it. {login}",
    ),
    (NoAccess, None, _REFUSED_CREDENTIAL, "the credential is not accepted", "Renew it. {login}"),
    (NoAccess, UNAUTHENTICATED, "", "the credential is not accepted", "Renew it. {login}"),
    (
        StorageUnavailable,
        None,
        "Capacity",
        "its capacity is paused or missing",
        "Resume the workspace's capacity, or assign another.",
    ),
    (
        StorageUnavailable,
        None,
        "RequestTimeTooSkewed",
        "the clocks of this machine and the store differ",
        "Set this machine's clock.",
    ),
    (
        StorageUnavailable,
        None,
        "ContainerNotFound|FilesystemNotFound|NoSuchBucket|WorkspaceNotFound",
        "there is no such {kind}: {container}",
        "Check the name or GUID in the URL, and access to it.",
    ),
    (
        StorageUnavailable,
        None,
        "ArtifactNotFound|ItemNotFound|FriendlyNameSupportDisabled",
        "there is no such item: {item}",
        "Write its GUID, or its name with its type: NAME.MountedRelationalDatabase.",
    ),
    (
        NoAccess,
        FORBIDDEN,
        "AuthorizationFailure|IpAuthorization|Inbound|Firewall|Network",
        "a network rule refuses this machine, or the key or SAS does not allow this",
        "Allow this machine's address in the network settings of the account or workspace; check the key or SAS.",
    ),
    (StorageUnavailable, 301, "", "the bucket is in another region", "Set AWS_REGION to the bucket's region."),
    (
        StorageUnavailable,
        0,
        "",
        "the store cannot be reached",
        "Check the URL, the network, its proxy and the firewall.",
    ),
)
_ABOUT_A_PATH = (
    (NoAccess, FORBIDDEN, "", "this identity has no permission", "Give it {role}."),
    (StorageUnavailable, 409, "", "something of another kind is at that path", "Remove the file or folder there."),
    (StorageUnavailable, PRECONDITION, "", "it was replaced meanwhile", "Its new content is read next time."),
    (
        StorageUnavailable,
        429,
        "",
        "the store asks for fewer requests",
        "The engine retries; a longer --poll-interval sends fewer requests.",
    ),
    (
        StorageUnavailable,
        503,
        "",
        "the store is busy",
        "The engine retries; a longer --poll-interval sends fewer requests.",
    ),
)


for _name in ("urllib3.connectionpool", "urllib3.util.retry"):  # which quote URLs, where a retry begins as a warning
    logging.getLogger(_name).addFilter(lambda record: not _SIGNATURE.search(record.getMessage()))


def unavailable(url: StoreUrl, path: str, operation: str, status: int, code: str = "") -> StorageUnavailable:
    """Return the error for a request that failed; a `NoAccess` where waiting does not help.

    Args:
        url: of ROOT.
        path: from ROOT.
        operation: what was to be done: list, read, write, …
        status: of the answer; 0 for none.
        code: the store's word for it; no text of its message, which may hold a signature.
    """
    words = {
        "authority": re.sub("^https?://|/.*", "", os.environ.get("AZURE_AUTHORITY_HOST", "login.microsoftonline.com")),
        "code": code,
        "container": printable(url.container),
        "item": printable(url.path.partition("/")[0]),
        "kind": "workspace" if url.is_onelake else url.container_kind,
        "login": url.login_help,
        "role": "the role Contributor in the workspace (Viewer to read)" if url.is_onelake else url.role,
    }
    place = printable(path) or url
    for prefix, reasons in ((f"{url}: ", _ABOUT_ROOT), (f"{place}: cannot {operation} it: ", _ABOUT_A_PATH)):
        for kind, wanted, pattern, finding, help in reasons:
            if wanted in {None, status} and re.search(pattern, code):
                error = kind(prefix + finding.format(**words), help.format(**words))
                error.is_replaced = status == PRECONDITION
                return error
    answer = f"the store answers {status} {code}".rstrip()
    return StorageUnavailable(
        f"{place}: cannot {operation} it: {answer}", "The engine retries; check the store's health."
    )


def login_failure(text: str) -> str:
    """Return the code of a failed login for `unavailable`, from the error's text; nothing else of it is kept."""
    if code := _AUTHORITY_CODE.search(text):
        return code[0]
    lines = [line for line in text.splitlines() if "ManagedIdentity" not in line]  # there is none on most machines
    if any(map(_NO_CONNECTION.search, lines)):
        return UNREACHABLE_LOGIN
    is_refused = "Authentication failed" in text or "is not accepted" in text
    return "AuthenticationFailed" if is_refused else NO_CREDENTIAL


class RangedReader(io.RawIOBase):
    """A file of a store, read by ranges: more at once where it is read on and on, its last part together.

    Args:
        size: of the file in bytes.
        fetch: gives the bytes from a first to an end position; raises `StorageUnavailable`, also for a replaced file.
        first: its first bytes, which are read already.
    """

    def __init__(self, size: int, fetch: Callable[[int, int], bytes], first: bytes = b"") -> None:
        super().__init__()
        self._size, self._fetch = size, fetch
        self._at, self._chunk_at, self._chunk, self._ahead = 0, 0, first, FIRST_BYTES

    def buffered(self) -> BinaryIO:
        """Wrap the reader in a buffer, as callers of `open` expect."""
        return cast("BinaryIO", io.BufferedReader(self))

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._size}[whence]
        if base + offset < 0:
            raise ValueError("a position before the file's beginning")
        self._at = base + offset
        return self._at

    def readinto(self, buffer: Buffer) -> int:
        view = memoryview(buffer).cast("B")
        wanted = min(len(view), self._size - self._at)
        if wanted <= 0:
            return 0
        if not 0 <= self._at - self._chunk_at < len(self._chunk):
            self._load(wanted)
        offset = self._at - self._chunk_at
        part = self._chunk[offset : offset + wanted]
        view[: len(part)] = part
        self._at += len(part)
        return len(part)

    def _load(self, wanted: int) -> None:
        """Fetch a chunk that holds the position, and more the longer reading goes on without a jump."""
        if self._at == self._chunk_at + len(self._chunk):
            self._ahead = min(self._ahead * 2, MAX_AHEAD_BYTES)
        else:
            self._ahead = FIRST_BYTES
        start = min(self._at, max(self._size - TAIL_BYTES, 0))
        end = min(max(self._at + wanted, start + self._ahead), self._size)
        self._chunk_at, self._chunk = start, self._fetch(start, end)
        if len(self._chunk) < end - start:
            raise StorageUnavailable("a read was cut short", "It is read again.")
