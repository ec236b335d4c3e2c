"""Text for people: a sentence and help for every state, times and spans."""

from __future__ import annotations

from typing import get_args

import pytest

from mirror_engine.landing_zone.diagnostics import Diagnostic, diagnose
from mirror_engine.landing_zone.names import TableName
from mirror_engine.landing_zone.states import (
    Behind,
    Blocked,
    CaughtUp,
    Empty,
    Halted,
    Loading,
    TableState,
    Unconfigured,
)
from mirror_engine.monitoring.words import describe, help_for, iso, span, urgency

ORDERS = TableName("Sales", "Orders")
NAME = "00000000000000000002.parquet"
INVALID_MARKER = diagnose("ME037", f"{ORDERS.folder}/{NAME}", row=7, value="3")
STATES: dict[type, TableState] = {
    Unconfigured: Unconfigured(diagnose("ME008", ORDERS.folder, count=2), 2),
    Empty: Empty(expired=True),
    Loading: Loading(1),
    CaughtUp: CaughtUp(),
    Behind: Behind(2),
    Blocked: Blocked(NAME, 3),
    Halted: Halted(INVALID_MARKER, 1),
}


def test_every_state_has_a_sentence() -> None:
    assert set(STATES) == set(get_args(TableState))
    assert {state.code: describe(ORDERS, state) for state in STATES.values()} == {
        "unconfigured": "Sales.Orders has no usable `_metadata.json`: no `_metadata.json`; 2 files pending [ME008]",
        "empty": "Sales.Orders has metadata but no change files for 14 days",
        "loading": "Sales.Orders: 1 file pending, first commit not made yet",
        "caught_up": "Sales.Orders has caught up",
        "behind": "Sales.Orders is behind by 2 files",
        "blocked": f"Sales.Orders is blocked: {NAME} is missing; 3 later files pending",
        "halted": f"Sales.Orders is halted: {NAME}, row 7: {INVALID_MARKER.coded_message}; 1 file pending",
    }


def test_unusable_metadata_is_described_with_the_number_of_pending_files() -> None:
    broken = diagnose("ME010", "Items/_metadata.json", line=1, char=2, fault="a comma", help="remove it")
    assert describe(TableName("", "Items"), Unconfigured(broken, 1)) == (
        "Items has no usable `_metadata.json`: invalid JSON at line 1, column 2: a comma [ME010]; 1 file pending"
    )


@pytest.mark.parametrize("state", [Unconfigured, Empty, Blocked, Halted])
def test_a_state_that_needs_attention_has_help(state: type) -> None:
    assert help_for(STATES[state], engine_running=True)
    assert urgency(STATES[state]) in {"stuck", "idle"}


def test_a_table_that_only_lacks_an_engine_says_so() -> None:
    assert "mirror-engine run" in help_for(Behind(1), engine_running=False)
    assert help_for(Behind(1), engine_running=True) == ""
    assert help_for(CaughtUp(), engine_running=False) == ""


def test_a_name_with_control_characters_stays_on_its_line() -> None:
    assert "\x1b" not in describe(TableName("", "\x1b[2J"), Blocked("day=\x1b[2J/1.parquet", 1))
    assert "\n" not in describe(ORDERS, Halted(Diagnostic("ME023", "a\nb/1\n.parquet"), 1))


def test_json_times_are_utc_with_milliseconds() -> None:
    assert iso(1_793_607_330.5) == "2026-11-02T08:15:30.500Z"
    assert iso(None) is None


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.9, "0s"), (59, "59s"), (60, "1m"), (3599, "59m"), (3600, "1h"), (47 * 3600, "47h"), (48 * 3600, "2d")],
)
def test_a_span_uses_the_largest_unit_that_is_not_too_coarse(seconds: float, text: str) -> None:
    assert span(seconds) == text
