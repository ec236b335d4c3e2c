"""Text for people: a sentence and help for every state, times and spans."""

from __future__ import annotations

from typing import get_args

import pytest

from mirror_engine.display import span
from mirror_engine.landing_zone.diagnostics import Diagnostic, diagnose
from mirror_engine.landing_zone.listing import unlisted
from mirror_engine.landing_zone.names import TableName
from mirror_engine.landing_zone.states import (
    Behind,
    Blocked,
    CaughtUp,
    Deleted,
    Empty,
    Halted,
    Loading,
    TableState,
    Unconfigured,
    Unlisted,
    needs_attention,
)
from mirror_engine.monitoring.state_text import KINDS, URGENCY, TableCounts, describe, help_for, kind_of
from mirror_engine.results import iso_text, utc

ORDERS = TableName("Sales", "Orders")
NAME = "00000000000000000002.parquet"
INVALID_MARKER = diagnose("ME037", f"{ORDERS.folder}/{NAME}", row=7, value="3", meant="")
BROKEN = diagnose("ME010", f"{ORDERS.folder}/_metadata.json", line=1, char=2, fault="a comma", help="remove it")
STATES: list[tuple[TableState, str, str]] = [
    (
        Unconfigured(diagnose("ME008", ORDERS.folder, count=2, help="add it"), 2),
        "has no `_metadata.json`; 2 files pending [ME008]",
        "idle",
    ),
    (
        Unconfigured(BROKEN, 1),
        "has no usable `_metadata.json`: invalid JSON at line 1, column 2: a comma [ME010]; 1 file pending",
        "idle",
    ),
    (Empty(expired=True), "has metadata but no change files for 14 days", "idle"),
    (Loading(1), ": 1 file pending, first commit not made yet", "busy"),
    (CaughtUp(), "has caught up", "well"),
    (Behind(2), "is behind by 2 files", "busy"),
    (Blocked(NAME, 3), f"is blocked: {NAME} is missing; 3 later files pending", "stuck"),
    (
        Halted(INVALID_MARKER, 1),
        f"is halted: {NAME}, row 7: {INVALID_MARKER.coded_message}; 1 file pending",
        "stuck",
    ),
    (
        Deleted(diagnose("ME065", ORDERS.folder, effect="its Delta table will be dropped")),
        ": its folder was deleted; its Delta table will be dropped [ME065]",
        "busy",
    ),
    (
        Unlisted(unlisted(ORDERS.folder)),
        ": its folder cannot be listed or read; no table is dropped [ME070]",
        "stuck",
    ),
]


def test_every_state_has_a_sentence_and_one_that_needs_attention_help() -> None:
    assert {type(state) for state, _, _ in STATES} == set(get_args(TableState))
    for state, sentence, expected in STATES:
        assert describe(ORDERS, state).removeprefix("Sales.Orders").strip() == sentence
        assert URGENCY[type(state)] == expected
        has_help = expected in {"stuck", "idle"} or isinstance(state, Deleted)
        assert bool(help_for(state, engine_running=True)) == has_help
    assert [needs_attention(Empty(expired=expired)) for expired in (False, True)] == [False, True]  # LZ-7.1


def test_every_state_is_counted_as_one_kind() -> None:
    kinds = {type(state): kind_of(state.code, is_stuck=URGENCY[type(state)] == "stuck") for state, _, _ in STATES}
    assert {*kinds.values()} == {*KINDS} == {*TableCounts.__struct_fields__}
    assert [kinds[state] for state in (CaughtUp, Loading, Behind, Deleted)] == ["caught_up", *["pending"] * 3]
    assert [kinds[state] for state in (Halted, Blocked, Unlisted)] == ["need_attention"] * 3
    assert {kind_of(state.code, is_stuck=True) for state, _, _ in STATES} == {"need_attention"}


def test_a_name_with_control_characters_stays_on_its_line() -> None:
    assert "\x1b" not in describe(TableName("", "\x1b[2J"), Blocked("day=\x1b[2J/1.parquet", 1))
    assert "\n" not in describe(ORDERS, Halted(Diagnostic("ME023", "a\nb/1\n.parquet"), 1))


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.9, "0s"), (59, "59s"), (60, "1m"), (3599, "59m"), (3600, "1h"), (47 * 3600, "47h"), (48 * 3600, "2d")],
)
def test_a_span_uses_the_largest_unit_that_is_not_too_coarse(seconds: float, text: str) -> None:
    assert span(seconds) == text


def test_json_times_are_utc_with_milliseconds() -> None:
    assert iso_text(utc(1_793_607_330.5)) == "2026-11-02T08:15:30.500Z"
