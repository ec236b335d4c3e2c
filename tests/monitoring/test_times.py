"""Points in time as people, JSON and .NET write them."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mirror_engine.monitoring.words import dotnet, iso, span


def test_json_times_are_utc_with_milliseconds() -> None:
    assert iso(1_793_607_330.5) == "2026-11-02T08:15:30.500Z"
    assert iso(None) is None


def test_dotnet_times_have_seven_digits() -> None:
    assert dotnet(1_793_607_330.5) == "2026-11-02T08:15:30.5000000"
    assert dotnet(1_793_607_330.0) == "2026-11-02T08:15:30.0000000"


@given(st.floats(0, 4e9))
def test_a_dotnet_time_is_always_of_one_shape(seconds: float) -> None:
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{7}", dotnet(seconds))


@pytest.mark.parametrize(
    ("seconds", "said"),
    [
        (0.9, "0 s"),
        (59, "59 s"),
        (60, "1 min"),
        (3599, "59 min"),
        (3600, "1 h"),
        (47 * 3600, "47 h"),
        (48 * 3600, "2 days"),
    ],
)
def test_spans_are_said_in_the_largest_unit_that_is_not_too_coarse(seconds: float, said: str) -> None:
    assert span(seconds) == said
