"""Properties of a path, and the conditions that a request sets on them."""

from __future__ import annotations

from dataclasses import dataclass
from email.utils import formatdate, parsedate_to_datetime
from hashlib import blake2b
from typing import TYPE_CHECKING

from mirror_engine.landing_zone.listing import Kind
from mirror_engine.onelake.errors import StorageApiError, StorageErrorCode

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mirror_engine.landing_zone.listing import Entry

NANOSECONDS = 1_000_000_000
ANY = frozenset("*")
SOURCE = "x-ms-source-"


@dataclass(frozen=True)
class Properties:
    """Properties of a file or folder."""

    is_folder: bool  # else it is a file
    size: int  # in bytes; 0 for a folder
    modified_ns: int  # Last-Modified in nanoseconds since 1970; clients get whole seconds
    identity: str  # kept by a rename, new after deleting and creating again

    @staticmethod
    def of(entry: Entry) -> Properties:
        return Properties(entry.kind is Kind.FOLDER, entry.size, entry.modified_ns, entry.identity)

    @property
    def etag(self) -> str:
        """In quotes: a digest of a folder's identity; of a file's identity, time and size."""
        version = self.identity if self.is_folder else f"{self.identity} {self.modified_ns} {self.size}"
        return f'"0x8D{blake2b(version.encode(), digest_size=8).hexdigest()[:13].upper()}"'

    @property
    def last_modified(self) -> str:
        """RFC 1123, in whole seconds."""
        return formatdate(self.modified_ns // NANOSECONDS, usegmt=True)


@dataclass(frozen=True)
class Conditions:
    """Conditional headers; None where one is absent."""

    if_match: frozenset[str] | None = None  # entity tags without quotes, or `{"*"}`
    if_none_match: frozenset[str] | None = None
    if_modified_since: int | None = None  # seconds since 1970
    if_unmodified_since: int | None = None
    error: StorageErrorCode = StorageErrorCode.ConditionNotMet  # what an unfulfilled one is answered with

    @staticmethod
    def of(headers: Mapping[str, str], prefix: str = "") -> Conditions:
        """Read `If-Match` and its kin from headers by lower-case name, `SOURCE` before each; InvalidHeaderValue."""
        return Conditions(
            _tags(headers.get(f"{prefix}if-match")),
            _tags(headers.get(f"{prefix}if-none-match")),
            _seconds(headers.get(f"{prefix}if-modified-since")),
            _seconds(headers.get(f"{prefix}if-unmodified-since")),
            StorageErrorCode.SourceConditionNotMet if prefix else StorageErrorCode.ConditionNotMet,
        )

    def check_write(self, present: Properties | None) -> None:
        """Check a write; raises PathAlreadyExists for `If-None-Match: *` on an existing path, otherwise `error`."""
        if present and self.if_none_match == ANY:
            raise StorageApiError(StorageErrorCode.PathAlreadyExists)
        self.check_present(present)

    def check_present(self, present: Properties | None) -> None:
        """Check a path that is read, changed in place or deleted: `error`."""
        if not (self._matches(present) and self._is_newer(present)):
            raise StorageApiError(self.error)

    def check_read(self, present: Properties) -> None:
        """Check a read; raises NotModified if the client's copy is current, otherwise `error`."""
        if not self._matches(present):
            raise StorageApiError(self.error)
        if not self._is_newer(present):
            raise StorageApiError(StorageErrorCode.NotModified)

    def _matches(self, present: Properties | None) -> bool:
        if self.if_match is not None and not _names(self.if_match, present):
            return False
        since = self.if_unmodified_since
        return since is None or present is None or present.modified_ns // NANOSECONDS <= since

    def _is_newer(self, present: Properties | None) -> bool:
        if self.if_none_match is not None:
            return not _names(self.if_none_match, present)
        since = self.if_modified_since
        return since is None or present is None or present.modified_ns // NANOSECONDS > since


NONE = Conditions()


def _names(tags: frozenset[str], present: Properties | None) -> bool:
    return present is not None and ("*" in tags or present.etag.strip('"') in tags)


def _tags(text: str | None) -> frozenset[str] | None:
    """Entity tags with or without quotes, weak or not."""
    return None if text is None else frozenset(tag.strip().removeprefix("W/").strip('"') for tag in text.split(","))


def _seconds(text: str | None) -> int | None:
    try:
        return None if text is None else int(parsedate_to_datetime(text).timestamp())
    except (ValueError, OverflowError) as problem:
        raise StorageApiError(StorageErrorCode.InvalidHeaderValue, "A condition's date cannot be read.") from problem
