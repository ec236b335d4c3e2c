"""Delimited text for the oracle, one character at a time, in the default dialect (chapter 6)."""

from __future__ import annotations

import base64
import re
from datetime import UTC, date, datetime
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

RANGES = {"Int16": 2**15, "Int32": 2**31, "Int64": 2**63}


def read_text(content: bytes, declared: list[dict[str, Any]]) -> tuple[list[str], list[dict[str, Any]]]:
    """Header names in lower case, and rows by them; undeclared columns are left out.

    Raises:
        ValueError: the text is refused.
    """
    lines = split(content.decode("utf-8").removeprefix("\ufeff"))
    header = [text.casefold() for text, _ in lines[0]]
    kinds = {each["Name"].casefold(): each for each in declared}
    if not {*header} & (kinds.keys() - {"__rowmarker__"}):
        raise ValueError("no declared column")
    rows = []
    for line in lines[1:]:
        if len(line) != len(header):
            raise ValueError("field count")
        row = {}
        for name, (text, is_quoted) in zip(header, line, strict=True):
            if name == "__rowmarker__":
                row[name] = text
            elif name in kinds:
                row[name] = cell(text, is_quoted, kinds[name])
        rows.append(row)
    return header, rows


def split(text: str) -> list[list[tuple[str, bool]]]:
    """Lines of fields, each with whether it was quoted (LZ-6.3, LZ-6.4)."""
    lines: list[list[tuple[str, bool]]] = [[]]
    at = 0
    while at < len(text):
        field, at = quoted(text, at + 1) if text[at] == '"' else bare(text, at)
        lines[-1].append(field)
        if text[at : at + 1] == ",":
            at += 1
            if text[at : at + 1] in ("", "\r", "\n"):
                lines[-1].append(("", False))
        if text[at : at + 1] in ("\r", "\n"):
            at += 2 if text[at : at + 2] == "\r\n" else 1
            lines.append([])
    return [line for line in lines if line not in ([], [("", False)])]


def bare(text: str, at: int) -> tuple[tuple[str, bool], int]:
    """A field outside quotes, and where it ends."""
    found = re.compile(r"[^,\r\n]*").match(text, at)
    assert found
    return (found.group(), False), found.end()


def quoted(text: str, at: int) -> tuple[tuple[str, bool], int]:
    """A field whose opening quote has been read, and where it ends."""
    field = ""
    while True:
        if text[at : at + 2] in ('\\"', "\\\\", '""'):
            field, at = field + text[at + 1], at + 2
        elif text[at : at + 1] == '"':
            break
        elif at >= len(text):
            raise ValueError("open quote")
        else:
            field, at = field + text[at], at + 1
    if text[at + 1 : at + 2] not in ("", ",", "\r", "\n"):
        raise ValueError("text after a quote")
    return (field, True), at + 1


def cell(text: str, is_quoted: bool, column: dict[str, Any]) -> Any:  # noqa: FBT001 - a fact of the field
    """A typed value (LZ-6.8, LZ-6.9)."""
    kind = column["DataType"]
    if text == "" and not (is_quoted and kind == "String"):
        if not column.get("IsNullable", False):
            raise ValueError("NULL")
        return None
    return parsed(text, kind)


def parsed(text: str, kind: str) -> Any:
    """A value of a declared type."""
    if kind in RANGES:
        return integer(text, RANGES[kind])
    parsers: dict[str, Callable[[str], Any]] = {
        "String": str,
        "ITime": str,
        "Single": float,
        "Double": float,
        "Boolean": lambda word: [False, True][["false", "true"].index(word.lower())],
        "IDate": date.fromisoformat,
        "DateTime": instant,
        "ByteArray": lambda word: base64.b64decode(word, validate=True),
    }
    return parsers[kind](text)


def integer(text: str, bound: int) -> int:
    """A whole number in range."""
    if not re.fullmatch(r" *[+-]?[0-9]+ *", text) or not -bound <= int(text) < bound:
        raise ValueError("no integer in range")
    return int(text)


def instant(text: str) -> datetime:
    """A time, UTC where it has no offset, cut to microseconds; an hour alone is a time cut off."""
    if re.search(r"[T ]\d\d$", text):
        raise ValueError("no minutes")
    value = datetime.fromisoformat(re.sub(r"(\.\d{1,6})\d*", _six_digits, text.replace("Z", "+00:00")))
    return value if value.tzinfo else value.replace(tzinfo=UTC)


def _six_digits(found: re.Match[str]) -> str:
    return found.group(1).ljust(7, "0")
