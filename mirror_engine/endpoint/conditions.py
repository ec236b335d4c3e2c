"""If-Match and its kin: what a request demands of the thing it is about (endpoint chapters 3 and 4)."""

from __future__ import annotations

from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING

from mirror_engine.endpoint.faults import EndpointFault, Fault

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mirror_engine.endpoint.properties import Properties

NANOSECONDS = 1_000_000_000
ANY = frozenset("*")


@dataclass(frozen=True)
class Conditions:
    """What is demanded; None where nothing is.

    Attributes:
        if_match: entity tags without quotes, or `{"*"}`.
        if_none_match: the same.
        if_modified_since: seconds since 1970.
        if_unmodified_since: seconds since 1970.
        failed: the fault that a condition not met is answered with.
    """

    if_match: frozenset[str] | None = None
    if_none_match: frozenset[str] | None = None
    if_modified_since: int | None = None
    if_unmodified_since: int | None = None
    failed: Fault = Fault.CONDITION_NOT_MET

    @staticmethod
    def of(headers: Mapping[str, str]) -> Conditions:
        """What `If-Match`, `If-None-Match`, `If-Modified-Since` and `If-Unmodified-Since` demand.

        Args:
            headers: by name in lower case.

        Raises:
            EndpointFault: INVALID_HEADER_VALUE, a date is none.
        """
        return _read(headers, "", Fault.CONDITION_NOT_MET)

    @staticmethod
    def of_source(headers: Mapping[str, str]) -> Conditions:
        """What the `x-ms-source-if-…` headers demand of the source of a rename or copy; else as `of`."""
        return _read(headers, "x-ms-source-", Fault.SOURCE_CONDITION_NOT_MET)

    def check_write(self, found: Properties | None) -> None:
        """Whether something may be changed.

        Args:
            found: what stands there; None where nothing does.

        Raises:
            EndpointFault: PATH_ALREADY_EXISTS for `If-None-Match: *`, else what `failed` says.
        """
        if found and self.if_none_match == ANY:
            raise EndpointFault(Fault.PATH_ALREADY_EXISTS)
        self.check_source(found)

    def check_source(self, found: Properties | None) -> None:
        """Whether something may be renamed or copied.

        Raises:
            EndpointFault: what `failed` says.
        """
        if not (self._is_as_expected(found) and self._is_other(found)):
            raise EndpointFault(self.failed)

    def check_read(self, found: Properties) -> None:
        """Whether something is to be sent.

        Raises:
            EndpointFault: NOT_MODIFIED if it is not newer than the client's, else what `failed` says.
        """
        if not self._is_as_expected(found):
            raise EndpointFault(self.failed)
        if not self._is_other(found):
            raise EndpointFault(Fault.NOT_MODIFIED)

    def _is_as_expected(self, found: Properties | None) -> bool:
        if self.if_match is not None and not _names(self.if_match, found):
            return False
        since = self.if_unmodified_since
        return since is None or found is None or found.modified_ns // NANOSECONDS <= since

    def _is_other(self, found: Properties | None) -> bool:
        if self.if_none_match is not None:
            return not _names(self.if_none_match, found)
        since = self.if_modified_since
        return since is None or found is None or found.modified_ns // NANOSECONDS > since


NONE = Conditions()


def _names(tags: frozenset[str], found: Properties | None) -> bool:
    return found is not None and ("*" in tags or found.etag.strip('"') in tags)


def _read(headers: Mapping[str, str], prefix: str, failed: Fault) -> Conditions:
    return Conditions(
        _tags(headers.get(f"{prefix}if-match")),
        _tags(headers.get(f"{prefix}if-none-match")),
        _seconds(headers.get(f"{prefix}if-modified-since")),
        _seconds(headers.get(f"{prefix}if-unmodified-since")),
        failed,
    )


def _tags(text: str | None) -> frozenset[str] | None:
    """Entity tags as clients write them: in quotes or without, weak or not."""
    if text is None:
        return None
    return frozenset(tag.strip().removeprefix("W/").strip('"') for tag in text.split(","))


def _seconds(text: str | None) -> int | None:
    if text is None:
        return None
    try:
        return int(parsedate_to_datetime(text).timestamp())
    except (ValueError, OverflowError) as problem:
        raise EndpointFault(Fault.INVALID_HEADER_VALUE, "A condition's date cannot be read.") from problem
