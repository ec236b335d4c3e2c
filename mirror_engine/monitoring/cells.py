"""One value of a row, for people and for programs."""

from __future__ import annotations

import base64
import math
from datetime import date, datetime, time
from decimal import Decimal
from typing import Any

from mirror_engine.landing_zone.diagnostics import printable


def cell(value: object) -> str:
    """One value of a row, on one line."""
    return "NULL" if value is None else printable(str(plain(value)))


def plain(value: object) -> Any:  # noqa: ANN401 - any JSON value
    """A value as JSON can say it exactly: decimals as text, bytes in Base64, times in ISO 8601, NaN as text."""
    match value:
        case bytes():
            return base64.b64encode(value).decode("ascii")
        case datetime() | date() | time():
            return value.isoformat()
        case Decimal():
            return str(value)
        case float() if not math.isfinite(value):
            return {math.inf: "Infinity", -math.inf: "-Infinity"}.get(value, "NaN")
        case _:
            return value
