"""Points in time as people, JSON and .NET write them; all UTC, all from seconds since 1970."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone

NEVER = "0001-01-01T00:00:00"  # .NET's DateTime.MinValue, which Fabric shows for a time that has not been
_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)


def iso(seconds: float | None) -> str | None:
    """`2026-11-02T08:15:29.500Z`; None stays None."""
    return None if seconds is None else f"{_at(seconds).isoformat(timespec='milliseconds')[:-6]}Z"


def dotnet(seconds: float) -> str:
    """`2026-11-02T08:15:29.5000000`, without a zone: ticks of 100 ns, always seven digits (LZ-9.1)."""
    ticks = round(seconds * 10_000_000)
    whole, fraction = divmod(ticks, 10_000_000)
    return f"{_at(whole).isoformat(timespec='seconds')[:-6]}.{fraction:07d}"


def _at(seconds: float) -> datetime:
    return _EPOCH + timedelta(seconds=seconds)


def span(seconds: float) -> str:
    """A length of time as a person says it: `9 s`, `4 min`, `3 h`, `12 days`; rounded down."""
    for unit, length in (("days", 86_400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * length or (unit != "days" and seconds >= length):
            return f"{int(seconds // length)} {unit}"
    return f"{int(seconds)} s"
