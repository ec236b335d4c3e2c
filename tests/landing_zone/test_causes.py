"""Lists of findings: a cause before its effects, and none told twice."""

from __future__ import annotations

import itertools

import pytest

from mirror_engine.landing_zone.causes import findings
from mirror_engine.landing_zone.diagnostics import diagnose

METADATA, FIRST, SECOND = "T/_metadata.json", "T/1", "T/2"


def misspelled(name, meant):
    return diagnose("ME012", METADATA, property=name, meant=meant, help="")


DELIMITER = misspelled("Delimiter", "ColumnSeparator")
LINE_ENDS = diagnose("ME062", FIRST, found="\\n", declared="\\r\\n")
NO_KEY = diagnose("ME016", METADATA)
TYPES = {"found": "string", "expected": "int32", "reason": "", "hint": ""}
CASES = {
    "a column of NULLs comes before the type that it does not have": (
        [found := diagnose("ME044", SECOND, column="c", **TYPES), nulls := diagnose("ME045", FIRST, column="c")],
        [nulls, found],
    ),
    "another column of NULLs stays behind": (
        [found, other := diagnose("ME045", FIRST, column="d")],
        [found, other],
    ),
    "a misspelled row separator tells of line ends": (
        [LINE_ENDS, rows := misspelled("newline", "RowSeparator")],
        [rows],
    ),
    "a misspelled separator does not": ([LINE_ENDS, DELIMITER], [LINE_ENDS, DELIMITER]),
    "a file sent twice tells of its inserts": (
        [sent := diagnose("ME064", SECOND, file="1"), diagnose("ME039", SECOND, count=2)],
        [sent],
    ),
    "and not of those of another file": (
        [sent, inserts := diagnose("ME039", FIRST, count=2)],
        [sent, inserts],
    ),
    "a table folder in a folder tells that this is no table": (
        [
            nested := diagnose("ME003", "HR/People", kind="table folder", help=""),
            diagnose("ME008", "HR", count=0, help=""),
        ],
        [nested],
    ),
    "but not where files are pending": (
        [nested, pending := diagnose("ME008", "HR", count=2, help="")],
        [nested, pending],
    ),
    "the most serious come first": ([NO_KEY, LINE_ENDS, found], [found, LINE_ENDS, NO_KEY]),
}


@pytest.mark.parametrize("case", CASES)
def test_cause_comes_before_effect_and_is_told_once(case):
    found, expected = CASES[case]
    for order in itertools.permutations(found):
        listed = findings(order, lambda each: each)
        assert set(listed) == set(expected)
        if len({each.severity for each in found}) > 1 or len(expected) == 1:
            assert list(listed) == expected
