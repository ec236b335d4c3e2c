"""The text dialect: its options and cell rules (protocol chapter 6)."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class TextDialect:
    """How a publisher writes delimited text (LZ-6.2); every value is one the protocol knows."""

    row_separator: str = "\r\n"
    column_separator: str = ","
    quote: str = '"'
    escape: str = "\\"
    null_value: str = ""
    encoding: str = "utf-8"
