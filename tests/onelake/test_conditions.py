"""What `If-Match` and its kin demand."""

from __future__ import annotations

import pytest
from lakes import SECOND, refused

from mirror_engine.onelake.errors import StorageErrorCode
from mirror_engine.onelake.requests import NONE, SOURCE, Conditions, Properties

NOON = "Sun, 06 Nov 1994 12:00:00 GMT"
NOON_SECONDS = 784123200
THERE = Properties(is_folder=False, size=1, modified_ns=NOON_SECONDS * SECOND + 999_999_999, identity="1")
TAG = THERE.etag.strip('"')

FULFILLED = [
    {},
    {"if-match": f'"{TAG}"'},
    {"if-match": TAG},
    {"if-match": f'"x", "{TAG}"'},
    {"if-match": f'W/"{TAG}"'},
    {"if-match": "*"},
    {"if-none-match": '"other"'},
    {"if-unmodified-since": NOON},
    {"if-modified-since": "Sun, 06 Nov 1994 11:59:59 GMT"},
    {"if-modified-since": NOON, "if-none-match": '"other"'},
]
UNFULFILLED = [
    {"if-match": '"other"'},
    {"if-match": f'"{TAG}2"'},
    {"if-none-match": f'"{TAG}"'},
    {"if-none-match": TAG},
    {"if-unmodified-since": "Sun, 06 Nov 1994 11:59:59 GMT"},
    {"if-modified-since": NOON},
]


@pytest.mark.parametrize("headers", FULFILLED, ids=str)
def test_fulfilled_conditions_pass(headers):
    Conditions.of(headers).check_write(THERE)
    Conditions.of(headers).check_read(THERE)
    Conditions.of({f"{SOURCE}{name}": value for name, value in headers.items()}, SOURCE).check_source(THERE)


@pytest.mark.parametrize("headers", UNFULFILLED, ids=str)
def test_unfulfilled_conditions_reject_a_change_and_a_current_copy_is_not_modified(headers):
    with refused(StorageErrorCode.ConditionNotMet):
        Conditions.of(headers).check_write(THERE)
    source = Conditions.of({f"{SOURCE}{name}": value for name, value in headers.items()}, SOURCE)
    with refused(StorageErrorCode.SourceConditionNotMet):
        source.check_source(THERE)
    is_known = "if-none-match" in headers or "if-modified-since" in headers
    with refused(StorageErrorCode.NotModified if is_known else StorageErrorCode.ConditionNotMet):
        Conditions.of(headers).check_read(THERE)


def test_create_only_is_rejected_for_an_existing_path():
    create_only = Conditions.of({"if-none-match": "*"})
    with refused(StorageErrorCode.PathAlreadyExists):
        create_only.check_write(THERE)
    create_only.check_write(None)
    with refused(StorageErrorCode.NotModified):
        create_only.check_read(THERE)


def test_an_entity_tag_never_matches_an_absent_path():
    for tag in ("*", f'"{TAG}"'):
        with refused(StorageErrorCode.ConditionNotMet):
            Conditions.of({"if-match": tag}).check_write(None)
    Conditions.of({"if-none-match": f'"{TAG}"', "if-unmodified-since": NOON}).check_write(None)


def test_the_headers_of_the_source_are_not_those_of_the_target():
    assert Conditions.of({"x-ms-source-if-match": '"a"', "content-type": "x"}) == NONE
    assert Conditions.of({"if-match": '"a"'}, SOURCE).if_match is None


@pytest.mark.parametrize("text", ["", "yesterday", "Sun, 99 Nov 1994 12:00:00 GMT", "Sun, 06 Nov 99999 12:00:00 GMT"])
@pytest.mark.parametrize("name", ["if-modified-since", "if-unmodified-since"])
def test_a_date_that_is_none_is_refused(name, text):
    with refused(StorageErrorCode.InvalidHeaderValue):
        Conditions.of({name: text})
