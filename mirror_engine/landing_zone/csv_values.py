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
from datetime import date, datetime, timedelta, timezone
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

SPACES = " \t\n\v\f\r"  # what .NET takes around a number
_INTEGER = re.compile(r"([+-]?)0*([0-9]+)", re.ASCII)
_LONGEST = 19  # digits of the greatest long
_NUMBER = re.compile(r"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?", re.ASCII)
_NO_NUMBER = {"nan", "infinity", "+infinity", "-infinity"}
_DAY = r"([0-9]{4})-([0-9]{2})-([0-9]{2})"
_CLOCK = r"([0-9]{2}):([0-9]{2})(?::([0-9]{2})(?:\.([0-9]+))?)?"
_DATETIME = re.compile(rf"{_DAY}(?:[Tt ]{_CLOCK} ?(?:([Zz])|([+-])([0-9]{{2}}):?([0-9]{{2}})?)?)?", re.ASCII)
_DATE = re.compile(rf"{_DAY}(?:[Tt ]00:00(?::00(?:\.0+)?)?[Zz]?)?", re.ASCII)
_TIME = re.compile(r"(?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](?:\.[0-9]{1,9})?", re.ASCII)
_BASE64_BLOCK = 4
_FARTHEST = timedelta(hours=14)


class CellFault(ValueError):
    """A cell that is no value of its type.

    Attributes:
        fault: `format`, or `out of range` of a number, as E6 distinguishes them.
    """

    def __init__(self, fault: str) -> None:
        super().__init__(fault)
        self.fault = fault


def integer(text: str, bits: int) -> int:
    """A signed integer, with outer spaces and a sign.

    Raises:
        CellFault: `format`; `out of range` where it needs more bits.
    """
    match = _INTEGER.fullmatch(text.strip(SPACES))
    if match is None:
        raise CellFault("format")
    if len(match[2]) > _LONGEST:
        raise CellFault("out of range")
    value = int(match[1] + match[2])
    if not -(1 << bits - 1) <= value < 1 << bits - 1:
        raise CellFault("out of range")
    return value


def double(text: str) -> float:
    """A number with point and exponent, or NaN or an infinity by name.

    Raises:
        CellFault: `format`; `out of range` where it is greater than any double.
    """
    trimmed = text.strip(SPACES)
    if trimmed.lower() in _NO_NUMBER:
        return float(trimmed)
    if _NUMBER.fullmatch(trimmed) is None:
        raise CellFault("format")
    value = float(trimmed)
    if math.isinf(value):
        raise CellFault("out of range")
    return value


def single(text: str) -> float:
    """The single-precision number nearest to the double that is written.

    Raises:
        CellFault: `format`; `out of range` where it is greater than any single.
    """
    value = double(text)
    try:
        rounded: float = struct.unpack("<f", struct.pack("<f", value))[0]
    except OverflowError:
        raise CellFault("out of range") from None
    return rounded


def boolean(text: str) -> bool:
    """`true` or `false` in any case.

    Raises:
        CellFault: `format`.
    """
    if (word := text.lower()) in {"true", "false"}:
        return word == "true"
    raise CellFault("format")


def timestamp(text: str) -> datetime:
    """An ISO 8601 instant in UTC, cut to microseconds; without an offset it is UTC.

    Raises:
        CellFault: `format`.
    """
    match = _DATETIME.fullmatch(text)
    if match is None:
        raise CellFault("format")
    year, month, day, hour, minute, second, fraction, _, sign, hours, minutes = match.groups()
    offset = timedelta(hours=int(hours or 0), minutes=int(minutes or 0))
    if offset > _FARTHEST or int(minutes or 0) > 59:  # noqa: PLR2004 - minutes of an hour
        raise CellFault("format")
    try:
        local = datetime(
            int(year),
            int(month),
            int(day),
            int(hour or 0),
            int(minute or 0),
            int(second or 0),
            int((fraction or "")[:6].ljust(6, "0")),
            tzinfo=timezone.utc,
        )
        return local + offset if sign == "-" else local - offset
    except (ValueError, OverflowError):
        raise CellFault("format") from None


def day(text: str) -> date:
    """An ISO 8601 date; a time behind it must be midnight.

    Raises:
        CellFault: `format`.
    """
    match = _DATE.fullmatch(text)
    if match is None:
        raise CellFault("format")
    try:
        return date(int(match[1]), int(match[2]), int(match[3]))
    except ValueError:
        raise CellFault("format") from None


def time_of_day(text: str) -> str:
    """`HH:mm:ss`, with a fraction or without, as written.

    Raises:
        CellFault: `format`.
    """
    if _TIME.fullmatch(text) is None:
        raise CellFault("format")
    return text


def binary(text: str) -> bytes:
    """Base64 with its padding and nothing else.

    Raises:
        CellFault: `format`.
    """
    try:
        if len(text) % _BASE64_BLOCK == 0:
            return base64.b64decode(text, validate=True)
    except ValueError:
        pass
    raise CellFault("format")


def parser(delta_type: str) -> Callable[[str], object]:
    """The rule of a declared type, in Delta's words; `time` means `ITime`.

    Raises:
        KeyError: delimited text knows no such type.
    """
    return _PARSERS[delta_type]


_PARSERS: dict[str, Callable[[str], object]] = {
    "string": str,
    "short": lambda text: integer(text, 16),
    "integer": lambda text: integer(text, 32),
    "long": lambda text: integer(text, 64),
    "float": single,
    "double": double,
    "boolean": boolean,
    "timestamp": timestamp,
    "date": day,
    "time": time_of_day,
    "binary": binary,
}
