from __future__ import annotations

import base64
import math
import struct
from datetime import UTC, date, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mirror_engine.landing_zone.csv_values import PARSERS, CellFault

KINDS = ["short", "integer", "long", "float", "double", "boolean", "timestamp", "date", "time", "binary", "string"]


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        ("short", "-32768", -32768),
        ("short", " +7 ", 7),
        ("integer", "0" * 40 + "1", 1),
        ("integer", "-0", 0),
        ("long", "9223372036854775807", 2**63 - 1),
        ("double", " -.5 ", -0.5),
        ("double", "5.", 5.0),
        ("double", "1E-400", 0.0),
        ("double", "-Infinity", -math.inf),
        ("float", "0.1", struct.unpack("<f", struct.pack("<f", 0.1))[0]),
        ("float", "1.0000000596046447753906250000000000000001", 1 + 2**-23),  # as a double it is a tie
        ("float", "1.0000000596046447753906249999999999999999", 1.0),
        ("float", "-3.4028235677973366e38", -(2.0**128 - 2**104)),  # below the tie, beyond the greatest
        ("float", "1e-400", 0.0),
        ("float", "1e-99999999999999999999", 0.0),
        ("boolean", "TRUE", True),
        ("timestamp", "2024-02-29T08:00:00.1234567Z", datetime(2024, 2, 29, 8, 0, 0, 123456, UTC)),
        ("timestamp", "2024-02-29 08:00:00", datetime(2024, 2, 29, 8, tzinfo=UTC)),
        ("timestamp", "2024-02-29T08:00", datetime(2024, 2, 29, 8, tzinfo=UTC)),
        ("timestamp", "2024-02-29", datetime(2024, 2, 29, tzinfo=UTC)),
        ("timestamp", "2024-02-29T08:00:00.9999999", datetime(2024, 2, 29, 8, 0, 0, 999999, UTC)),
        ("timestamp", "2024-02-29T08:00:00+05:30", datetime(2024, 2, 29, 2, 30, tzinfo=UTC)),
        ("timestamp", "2024-02-29T08:00:00 -08", datetime(2024, 2, 29, 16, tzinfo=UTC)),
        ("timestamp", "0001-01-01T00:00:00Z", datetime(1, 1, 1, tzinfo=UTC)),
        ("date", "2024-02-29T00:00:00.000Z", date(2024, 2, 29)),
        ("time", "23:59:59.1234567", "23:59:59.1234567"),
        ("string", " as it is ", " as it is "),
    ],
)
def test_a_cell_means_its_value(kind, text, value):
    assert PARSERS[kind](text) == value
    assert type(PARSERS[kind](text)) is type(value)


INVALID = {
    ("short", "out of range"): ["32768"],
    ("integer", "out of range"): ["-2147483649"],
    ("long", "out of range"): ["9223372036854775808", "9" * 10_000],
    ("double", "out of range"): ["1e309"],
    ("float", "out of range"): ["3.5e38", "3.4028235677973367e38", "1e309"],
    ("integer", "format"): ["1.0", "1e3", "1_000", "1,000", "0x1F", "\u0663", "\u00a01", "- 1", "  "],
    ("double", "format"): ["1,5", "inf", "1e", "0x1p3"],
    ("boolean", "format"): ["1", "yes", " true"],
    ("timestamp", "format"): [
        "2024-02-30T00:00:00Z",
        "2024-01-01T24:00:00Z",
        "2024-01-01T00:00:00+15:00",
        "2024-01-01T00:00:00+05:75",
        "0001-01-01T00:00:00+01:00",
        "0000-01-01T00:00:00Z",
        "01/02/2024",
        "20240101T000000Z",
        "2024-1-1",
    ],
    ("date", "format"): ["2024-02-29T08:00:00", "2023-02-29", "29.02.2024"],
    ("time", "format"): ["8:00:00", "24:00:00"],
    ("binary", "format"): ["AAE", "AA EC", "A-_=", "===="],
}


@pytest.mark.parametrize(("kind", "fault", "text"), [(*key, text) for key, texts in INVALID.items() for text in texts])
def test_a_cell_of_another_form_is_rejected(kind, fault, text):
    with pytest.raises(CellFault) as caught:
        PARSERS[kind](text)
    assert caught.value.fault == fault


@given(st.sampled_from(KINDS), st.text("0123456789+-.eE:TZ aftrulsNInAB=/\u0663\u00a0\n", max_size=30))
def test_any_text_is_a_value_or_a_fault(kind, text):
    try:
        value = PARSERS[kind](text)
    except CellFault:
        value = None
    assert value is None or isinstance(value, int | float | bool | datetime | date | str | bytes)


@given(st.datetimes(), st.integers(-14 * 60, 14 * 60))
def test_an_instant_is_the_same_under_every_offset(local, minutes):
    stamped = local.replace(tzinfo=timezone(timedelta(minutes=minutes)))
    try:
        meant = stamped.astimezone(UTC)
    except OverflowError:
        return
    assert PARSERS["timestamp"](stamped.isoformat()) == meant


@given(st.integers(), st.floats(allow_nan=False, allow_infinity=False), st.binary(max_size=20))
def test_what_is_written_is_what_is_meant(number, real, content):
    assert PARSERS["double"](repr(real)) == real
    assert PARSERS["binary"](base64.b64encode(content).decode()) == content
    if -(2**63) <= number < 2**63:
        assert PARSERS["long"](str(number)) == number
