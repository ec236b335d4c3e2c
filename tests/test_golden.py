"""The fixtures' own comparisons: a wrong table, cell or diagnostic does not pass."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from golden import diagnostic_differences, normalised, table_differences

from mirror_engine.landing_zone.diagnostics import diagnose
from mirror_engine.landing_zone.schema import Column
from mirror_engine.testing.cases import ExpectedDiagnostic, ExpectedTable

COLUMNS = (Column("Id", "integer"), Column("City", "string"))
EXPECTED = ExpectedTable(COLUMNS, ({"Id": 1, "City": "Linz"}, {"Id": 1, "City": "Linz"}))


def rows(*pairs):
    return [{"Id": key, "City": name} for key, name in pairs]


@pytest.mark.parametrize(
    ("columns", "actual", "are_equal"),
    [
        pytest.param(COLUMNS, rows((1, "Linz"), (1, "Linz")), True, id="equal"),
        pytest.param(COLUMNS, rows((1, "Linz")), False, id="a copy too few"),
        pytest.param(COLUMNS, rows((1, "Linz"), (1, "Linz"), (1, "Linz")), False, id="a copy too many"),
        pytest.param(COLUMNS, rows((1, "Linz"), (1, "Graz")), False, id="a value"),
        pytest.param(COLUMNS[::-1], rows((1, "Linz"), (1, "Linz")), False, id="the order"),
        pytest.param((Column("Id", "long"), COLUMNS[1]), rows((1, "Linz"), (1, "Linz")), False, id="a type"),
        pytest.param(
            (Column("Id", "integer", nullable=False), COLUMNS[1]),
            rows((1, "Linz"), (1, "Linz")),
            False,
            id="a nullability",
        ),
    ],
)
def test_tables_are_compared_by_columns_and_rows(columns, actual, are_equal):
    assert (table_differences(EXPECTED, columns, actual) == []) is are_equal


@pytest.mark.parametrize(
    ("one", "other", "kind"),
    [("2026-01-01T12:00:00Z", "2026-01-01T12:00:00.000001Z", "timestamp"), (1, True, "integer"), ("1", 1, "string")],
)
def test_cells_are_told_apart_by_their_type(one, other, kind):
    assert normalised(one, kind) != normalised(other, kind)


def case(**expected):
    return SimpleNamespace(**{"diagnostics": (), "earlier": (), "undecided": (), **expected})


def test_a_missing_and_an_unexpected_diagnostic_are_differences():
    empty, bad = diagnose("ME023", "Orders/1"), diagnose("ME037", "Orders/1", row=2, value="3", meant="")
    in_the_end = case(diagnostics=(ExpectedDiagnostic("ME023", "Orders/1"),))
    on_the_way = case(earlier=(ExpectedDiagnostic("ME023", "Orders/1"),))
    assert diagnostic_differences(in_the_end, [empty], []) == []
    assert len(diagnostic_differences(in_the_end, [], [empty])) == 1
    assert len(diagnostic_differences(in_the_end, [empty, bad], [])) == 1
    assert diagnostic_differences(case(undecided=("ME037",)), [bad], []) == []
    assert diagnostic_differences(on_the_way, [], [empty]) == []
    assert len(diagnostic_differences(on_the_way, [], [])) == 1


def test_row_of_a_diagnostic_counts_where_it_is_named():
    bad = diagnose("ME037", "Orders/1", row=2, value="3", meant="")
    assert ExpectedDiagnostic("ME023|ME037", "Orders/1").matches(bad)
    assert not ExpectedDiagnostic("ME037", "Orders/1", 1).matches(bad)
