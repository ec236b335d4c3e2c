"""What all stores share: a reader of ranges, a count of requests, and the words for what a store refuses."""

from __future__ import annotations

import io
import logging
import os
import re
from typing import TYPE_CHECKING, BinaryIO, NamedTuple, cast

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


class _Reason(NamedTuple):
    """Why a request failed: the first of these that fits."""

    finding: str
    help: str
    code: str = ""  # a pattern
    status: int | None = None  # None: any; 0: no answer
    kind: type[StorageUnavailable] = StorageUnavailable


_RENEW, _FEWER = "Renew it. {login}", "The engine retries; a longer --poll-interval sends fewer requests."
_CHECK_PROXY = "Check the network and its proxy (HTTPS_PROXY); name the file of a proxy's own CA in SSL_CERT_FILE."
_NETWORK_RULE = "a network rule refuses this machine, or the key or SAS does not allow this"
_ALLOW = "Allow this machine's address in the network settings of the account or workspace; check the key or SAS."
_ABOUT_ROOT = (
    _Reason("no credential was found", "{login}", NO_CREDENTIAL, kind=NoAccess),
    _Reason("{authority} cannot be reached", _CHECK_PROXY, UNREACHABLE_LOGIN),
    _Reason("{authority} cannot log in now ({code})", "Try again.", _BUSY_AUTHORITY),
    _Reason("the credential of the environment is refused ({code})", _RENEW, _AUTHORITY_CODE.pattern, kind=NoAccess),
    _Reason("the credential is not accepted", _RENEW, _REFUSED_CREDENTIAL, kind=NoAccess),
    _Reason("the credential is not accepted", _RENEW, status=UNAUTHENTICATED, kind=NoAccess),
    _Reason("its capacity is paused or missing", "Resume the workspace's capacity, or assign another.", "Capacity"),
    _Reason("the clocks of this machine and the store differ", "Set this machine's clock.", "RequestTimeTooSkewed"),
    _Reason(
        "there is no such {kind}: {container}",
        "Check the name or GUID in the URL, and access to it.",
        "ContainerNotFound|FilesystemNotFound|NoSuchBucket|WorkspaceNotFound",
    ),
    _Reason(
        "there is no such item: {item}",
        "Write its GUID, or its name with its type: NAME.MountedRelationalDatabase.",
        "ArtifactNotFound|ItemNotFound|FriendlyNameSupportDisabled",
    ),
    _Reason(
        _NETWORK_RULE, _ALLOW, "AuthorizationFailure|IpAuthorization|Inbound|Firewall|Network", FORBIDDEN, NoAccess
    ),
    _Reason("the bucket is in another region", "Set AWS_REGION to the bucket's region.", status=301),
    _Reason("the store cannot be reached", "Check the URL, the network, its proxy and the firewall.", status=0),
)
_ABOUT_A_PATH = (
    _Reason("this identity has no permission", "Give it {role}.", status=FORBIDDEN, kind=NoAccess),
    _Reason("something of another kind is at that path", "Remove the file or folder there.", status=409),
    _Reason("it was replaced meanwhile", "Its new content is read next time.", status=PRECONDITION),
    _Reason("the store asks for fewer requests", _FEWER, status=429),
    _Reason("the store is busy", _FEWER, status=503),
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
        for reason in reasons:
            if reason.status in {None, status} and re.search(reason.code, code):
                error = reason.kind(prefix + reason.finding.format(**words), reason.help.format(**words))
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
