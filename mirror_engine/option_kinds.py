"""What an option takes: how its value is read from a flag, a variable or TOML, and how help describes it."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_UNITS = {"": 1, "b": 1}
_UNITS |= {f"{letter}b": 1000**power for power, letter in enumerate("kmgt", 1)}
_UNITS |= {f"{letter}{tail}": 1024**power for power, letter in enumerate("kmgt", 1) for tail in ("", "ib")}
_SIZE = re.compile(r"([0-9]+(?:\.[0-9]+)?) *([a-z]*)", re.IGNORECASE)
_WORDS = {"true": True, "yes": True, "on": True, "1": True, "false": False, "no": False, "off": False, "0": False}


class _Refused(ValueError):
    """A value outside what is allowed; raised and caught in this module only."""


@dataclass(frozen=True)
class Option:
    """What one option is.

    Attributes:
        about: what it does, for help and reference.
        allowed: the values it takes, in words.
        read: from a flag's, a variable's or TOML's value; raises ValueError outside the allowed.
        unit: how its value is called in help.
        topic: the heading it stands under in help.
    """

    about: str
    allowed: str
    read: Callable[[Any], Any]
    unit: str
    topic: str


def choice(topic: str, about: str, *words: str) -> Option:
    """One of a few words."""

    def read(value: object) -> str:
        if isinstance(value, str) and value in words:
            return value
        raise _Refused

    return Option(about, " or ".join(words), read, "|".join(words), topic)


def switch(topic: str, about: str) -> Option:
    """True or false, also as yes/no, on/off, 1/0."""

    def read(value: object) -> bool:
        word = _WORDS.get(value.lower()) if isinstance(value, str) else value
        if isinstance(word, bool):
            return word
        raise _Refused

    return Option(about, "true or false", read, "true|false", topic)


def number(topic: str, about: str, unit: str, low: float, high: float = math.inf) -> Option:
    """A number within a range, both ends included."""

    def read(value: object) -> float:
        number = _float(value)
        if not low <= number <= high or math.isinf(number):  # NaN is in no range
            raise _Refused
        return number

    return Option(about, f"a number {_range(low, high)}", read, unit, topic)


def whole(topic: str, about: str, unit: str, low: int, high: float = math.inf) -> Option:
    """A whole number within a range, both ends included."""

    def read(value: object) -> int:
        if isinstance(value, float):
            raise _Refused
        number = value if isinstance(value, int) and not isinstance(value, bool) else _digits(value)
        if not low <= number <= high:
            raise _Refused
        return number

    return Option(about, f"a whole number {_range(low, high)}", read, unit, topic)


def whole_or(topic: str, about: str, unit: str, low: int, words: Sequence[str]) -> Option:
    """A whole number from `low` on, or one of some words."""
    known = whole(topic, about, unit, low)

    def read(value: object) -> int | str:
        return value if isinstance(value, str) and value in words else int(known.read(value))

    return Option(about, f"{', '.join(words)}, or {known.allowed}", read, f"{'|'.join(words)}|{unit}", topic)


def size(topic: str, about: str) -> Option:
    """Bytes, also as `256MB` (decimal) or `1GiB` (binary; so is a single letter)."""

    def read(value: object) -> int:
        if isinstance(value, int) and not isinstance(value, bool):
            size = value
        else:
            found = _SIZE.fullmatch(value.strip()) if isinstance(value, str) else None
            if not found or found[2].lower() not in _UNITS:
                raise _Refused
            size = round(float(found[1]) * _UNITS[found[2].lower()])
        if size < 1:
            raise _Refused
        return size

    return Option(about, "a size such as 1048576, 256MB or 1GiB", read, "SIZE", topic)


def size_or(topic: str, about: str, word: str) -> Option:
    """Bytes, or one word that stands for what the engine chooses."""
    known = size(topic, about)

    def read(value: object) -> int | str:
        return word if value == word else known.read(value)

    return Option(about, f"{known.allowed}, or {word}", read, known.unit, topic)


def text(topic: str, about: str, allowed: str, unit: str, pattern: str) -> Option:
    """Text that a pattern matches in full."""

    def read(value: object) -> str:
        if isinstance(value, str) and re.fullmatch(pattern, value):
            return value
        raise _Refused

    return Option(about, allowed, read, unit, topic)


def _float(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, (str, int, float)):
        raise _Refused
    return float(value)


def _digits(value: object) -> int:
    if isinstance(value, str) and re.fullmatch(r"[0-9]{1,18}", value):
        return int(value)
    raise _Refused


def _range(low: float, high: float) -> str:
    return f"of {low:g} or more" if math.isinf(high) else f"from {low:g} to {high:g}"
