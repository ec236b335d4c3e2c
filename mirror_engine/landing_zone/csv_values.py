"""What one cell of delimited text means in each declared type: strict and free of any culture (LZ-6.7, LZ-6.9).

Decisions where LZ-6.9 is silent: a `Double` or `Single` may be `NaN`, `Infinity` or `-Infinity` in any case, as .NET
writes them, and a number beyond the type's range overflows instead of becoming infinite; a `DateTime` may lack its
time (midnight) or its seconds, and its offset is `Z` or at most 14 hours; an `IDate` may carry midnight as its time;
an `ITime` stays as it is written.
"""

from __future__ import annotations

import base64
import math
import re
import struct
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

SPACES = " \t\n\v\f\r"  # what .NET takes around a number
_INTEGER = re.compile(r"([+-]?)0*([0-9]+)", re.ASCII)
_LONGEST = 19  # digits of the greatest long
_NUMBER = re.compile(r"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?", re.ASCII)
_NO_NUMBER = {"nan", "infinity", "+infinity", "-infinity"}
_DAY = r"([0-9]{4})-([0-9]{2})-([0-9]{2})"
_CLOCK = r"([01][0-9]|2[0-3]):([0-5][0-9])(?::([0-5][0-9])(?:\.([0-9]+))?)?"
_DATETIME = re.compile(rf"{_DAY}(?:[Tt ]{_CLOCK} ?(?:([Zz])|([+-])([0-9]{{2}}):?([0-5][0-9])?)?)?", re.ASCII)
_DATE = re.compile(rf"{_DAY}(?:[Tt ]00:00(?::00(?:\.0+)?)?[Zz]?)?", re.ASCII)
_TIME = re.compile(r"(?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](?:\.[0-9]{1,9})?", re.ASCII)
_BASE64_BLOCK = 4
_FARTHEST = timedelta(hours=14)


class CellFault(ValueError):
    """A cell that is not a value of its type.

    Attributes:
        fault: `format`, or `out of range` of a number, as E6 distinguishes them.
        position: of the cell in its column, from 0, where a column is read.
    """

    def __init__(self, fault: str, position: int = 0) -> None:
        super().__init__(fault)
        self.fault = fault
        self.position = position


def integer(text: str, bits: int) -> int:
    """A signed integer, outer spaces and a sign allowed; CellFault also if it needs more bits."""
    match = _matched(_INTEGER, text.strip(SPACES))
    value = int(match[1] + match[2]) if len(match[2]) <= _LONGEST else 1 << bits
    if not -(1 << bits - 1) <= value < 1 << bits - 1:
        raise CellFault("out of range")
    return value


def timestamp(text: str) -> datetime:
    """An ISO 8601 instant in UTC, cut to microseconds; without an offset it is UTC. CellFault where it is none."""
    year, month, day, hour, minute, second, fraction, _, sign, hours, minutes = _matched(_DATETIME, text).groups()
    clock = timedelta(
        hours=int(hour or 0),
        minutes=int(minute or 0),
        seconds=int(second or 0),
        microseconds=int((fraction or "")[:6].ljust(6, "0")),
    )
    offset = timedelta(hours=int(hours or 0), minutes=int(minutes or 0))
    if offset > _FARTHEST:
        raise CellFault("format")
    try:
        local = datetime(int(year), int(month), int(day), tzinfo=UTC) + clock
        return local + offset if sign == "-" else local - offset
    except (ValueError, OverflowError):
        raise CellFault("format") from None


def _matched(form: re.Pattern[str], text: str) -> re.Match[str]:
    if (match := form.fullmatch(text)) is None:
        raise CellFault("format")
    return match


def _double(text: str) -> float:
    trimmed = text.strip(SPACES)
    if trimmed.lower() in _NO_NUMBER:
        return float(trimmed)
    value = float(_matched(_NUMBER, trimmed)[0])
    if math.isinf(value):
        raise CellFault("out of range")
    return value


def _single(text: str) -> float:
    """The nearest single-precision number: an inexact double is rounded to odd first, then rounding again is exact."""
    value = _double(text)
    is_even = struct.pack("<d", value)[0] % 2 == 0
    if value and math.isfinite(value) and is_even and (exact := Decimal(text.strip(SPACES))) != value:
        value = math.nextafter(value, math.inf if exact > value else -math.inf)
    try:
        rounded: float = struct.unpack("<f", struct.pack("<f", value))[0]
    except OverflowError:
        raise CellFault("out of range") from None
    return rounded


def _boolean(text: str) -> bool:
    if (word := text.lower()) in {"true", "false"}:
        return word == "true"
    raise CellFault("format")


def _date(text: str) -> date:
    match = _matched(_DATE, text)
    try:
        return date(int(match[1]), int(match[2]), int(match[3]))
    except ValueError:
        raise CellFault("format") from None


def _binary(text: str) -> bytes:
    """Base64 with its padding and nothing else."""
    try:
        if len(text) % _BASE64_BLOCK == 0:
            return base64.b64decode(text, validate=True)
    except ValueError:
        pass
    raise CellFault("format")


# by declared type, in Delta's words; each raises CellFault. `time` means `ITime`
PARSERS: dict[str, Callable[[str], object]] = {
    "string": str,
    "byte": lambda text: integer(text, 8),
    "short": lambda text: integer(text, 16),
    "integer": lambda text: integer(text, 32),
    "long": lambda text: integer(text, 64),
    "float": _single,
    "double": _double,
    "boolean": _boolean,
    "timestamp": timestamp,
    "timestamp_ntz": lambda text: timestamp(text).replace(tzinfo=None),
    "date": _date,
    "time": lambda text: _matched(_TIME, text)[0],
    "binary": _binary,
}
_WHOLE_NUMBER = "a whole number without grouping"
_ANY_NUMBER = "a number with a point and without grouping, such as 1204.5"
_INSTANT = "2026-11-02T08:15:29Z, with a year from 0001 to 9999"
# the same types as messages name them, and the form that their cells have
FORMS: dict[str, tuple[str, str]] = {
    "byte": ("a valid SByte", _WHOLE_NUMBER),
    "short": ("a valid Int16", _WHOLE_NUMBER),
    "integer": ("a valid Int32", _WHOLE_NUMBER),
    "long": ("a valid Int64", _WHOLE_NUMBER),
    "float": ("a valid Single", _ANY_NUMBER),
    "double": ("a valid Double", _ANY_NUMBER),
    "boolean": ("a valid Boolean", "true or false"),
    "timestamp": ("a valid DateTime", _INSTANT),
    "timestamp_ntz": ("a valid DateTime", _INSTANT),
    "date": ("a valid IDate", "2026-11-02, with a year from 0001 to 9999"),
    "time": ("a valid ITime", "08:15:29"),
    "binary": ("valid ByteArray text", "Base64 with its padding"),
}
