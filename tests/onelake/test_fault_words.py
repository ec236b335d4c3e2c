"""Faults as a user writes them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from mirror_engine.errors import UsageError
from mirror_engine.onelake.faults import NAMES, OPERATIONS, parse_fault


def test_all_words_of_a_fault_are_read() -> None:
    fault = parse_fault("throttle status=429 retry-after=2 method=put path=/*/Orders/* operation=create nth=3 count=2")
    assert (fault.fault, fault.method, fault.path, fault.operations) == ("throttle", "PUT", "*/Orders/*", ("create",))
    assert (fault.nth, fault.count, fault.lasts_seconds) == (3, 2, None)
    assert fault.options == {"status": 429, "retry-after": 2}


def test_words_left_out_have_their_usual_meaning() -> None:
    fault = parse_fault("throttle")
    assert (fault.method, fault.path, fault.nth, fault.count, fault.operations) == ("*", "*", 1, 1, None)
    assert fault.options == {"status": 503, "retry-after": 1}
    assert parse_fault("same_mtime").count is None
    assert parse_fault("throttle count=all").count is None
    assert parse_fault("folder_in_use for=1.5").lasts_seconds == 1.5


def test_a_path_with_spaces_is_quoted_as_in_a_shell() -> None:
    assert parse_fault("lost_request 'path=*/My Orders/*'").path == "*/My Orders/*"


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "no fault is named"),
        ("throttle 'path=x", "a quote is open"),
        ("slow", "there is no 'slow'"),
        ("throttle nth", "'nth' is not name=value"),
        ("throttle path=", "'path=' is not name=value"),
        ("throttle stat=429", "throttle knows no stat"),
        ("throttle bytes=4", "throttle knows no bytes"),
        ("throttle status=500", "status is '500'"),
        ("throttle retry-after=soon", "retry-after is 'soon'"),
        ("throttle nth=0", "nth is '0'"),
        ("throttle count=²", "count is"),
        ("throttle method=PULL", "method is 'PULL'"),
        ("throttle operation=upload", "operation is 'upload'"),
        ("slow_flush", "seconds is missing"),
        ("slow_flush seconds=-1", "seconds is '-1'"),
        ("slow_flush seconds=inf", "seconds is 'inf'"),
        ("slow_flush seconds=1 operation=list", "no list can meet slow_flush"),
        ("delay_visibility seconds=1 from=lists,me", "from is 'lists,me'"),
        ("cut_body bytes=-1", "bytes is '-1'"),
    ],
)
def test_what_cannot_be_meant_is_refused_with_what_can(text, told) -> None:
    with pytest.raises(UsageError) as refused:
        parse_fault(text)
    assert told in str(refused.value)
    assert refused.value.help


def test_the_specification_s_faults_are_all_there() -> None:
    assert set(NAMES) == {
        "delay_visibility",
        "throttle",
        "lost_response",
        "lost_request",
        "cut_body",
        "slow_flush",
        "poll_mid_upload",
        "folder_in_use",
        "detect_delay",
        "same_mtime",
        "shuffle_ties",
        "token_expired",
    }


def test_every_fault_is_documented_with_an_example_that_can_be_given() -> None:
    page = (Path(__file__).parents[2] / "docs/serve.md").read_text(encoding="utf-8")
    examples = re.findall(r"^\| `(\w+)` \|.*\| `([^`]+)` \|$", page, re.MULTILINE)
    assert {name for name, _ in examples} == set(NAMES)
    assert [parse_fault(text).fault for _, text in examples] == [name for name, _ in examples]
    assert [word for word in OPERATIONS if f"`{word}`" not in page] == []
