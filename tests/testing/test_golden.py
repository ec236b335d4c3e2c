from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from mirror_engine.landing_zone.diagnostics import diagnose
from mirror_engine.landing_zone.schema import Column
from mirror_engine.publisher.testing.golden import (
    ExpectedDiagnostic,
    ExpectedTable,
    Golden,
    diagnostic_differences,
    normalised,
    table_differences,
)

if TYPE_CHECKING:
    from typing import Any

COLUMNS = (Column("Id", "integer"), Column("City", "string"))
EXPECTED = ExpectedTable(COLUMNS, ({"Id": 1, "City": "Linz"}, {"Id": 1, "City": "Linz"}))


def rows(*pairs: tuple[int | None, str]) -> list[dict[str, object]]:
    return [{"Id": key, "City": name} for key, name in pairs]


def test_equal_tables_do_not_differ() -> None:
    assert table_differences(EXPECTED, COLUMNS, rows((1, "Linz"), (1, "Linz"))) == []


@pytest.mark.parametrize(
    ("columns", "found"),
    [
        (COLUMNS, rows((1, "Linz"))),
        (COLUMNS, rows((1, "Linz"), (1, "Linz"), (1, "Linz"))),
        (COLUMNS, rows((1, "Linz"), (1, "Graz"))),
        (COLUMNS, rows((1, "Linz"), (None, "Linz"))),
        ((COLUMNS[1], COLUMNS[0]), rows((1, "Linz"), (1, "Linz"))),
        ((Column("Id", "long"), COLUMNS[1]), rows((1, "Linz"), (1, "Linz"))),
        ((Column("Id", "integer", nullable=False), COLUMNS[1]), rows((1, "Linz"), (1, "Linz"))),
    ],
    ids=["a copy too few", "a copy too many", "a value", "a NULL", "the order", "a type", "a nullability"],
)
def test_every_difference_is_told(columns: tuple[Column, ...], found: list[dict[str, object]]) -> None:
    assert table_differences(EXPECTED, columns, found) != []


@pytest.mark.parametrize(
    ("one", "other", "kind", "are_equal"),
    [
        ("1.50", "1.50", "decimal(9,2)", True),
        ("NaN", float("nan"), "double", True),
        (-0.0, 0.0, "double", True),
        ("2026-01-01T12:00:00Z", "2026-01-01T13:00:00+01:00", "timestamp", True),
        ("2026-01-01T12:00:00Z", "2026-01-01T12:00:00.000001Z", "timestamp", False),
        ("00ff", b"\x00\xff", "binary", True),
        ("", b"", "binary", True),
        (1, True, "integer", False),
        ("1", 1, "string", False),
    ],
)
def test_cells_compare_by_their_type(one: Any, other: Any, kind: str, are_equal: bool) -> None:  # noqa: FBT001 - a case
    assert (normalised(one, kind) == normalised(other, kind)) is are_equal


def golden(**expected: Any) -> Golden:
    facts: dict[str, Any] = {"in_the_end": (), "on_the_way": (), "not_compared": frozenset(), **expected}
    return Golden("x", {}, (), {}, verdict="caught_up", files=None, **facts)


def test_diagnostics_must_be_said_and_no_other_may() -> None:
    empty, bad = diagnose("ME023", "Orders/1"), diagnose("ME037", "Orders/1", row=2, value="3")
    wanted = golden(in_the_end=(ExpectedDiagnostic("ME023", "Orders/1"),))
    assert diagnostic_differences(wanted, [empty], []) == []
    assert len(diagnostic_differences(wanted, [], [empty])) == 1
    assert len(diagnostic_differences(wanted, [empty, bad], [])) == 1
    assert diagnostic_differences(golden(not_compared=frozenset({"ME037"})), [bad], []) == []


def test_a_row_counts_where_it_is_given() -> None:
    bad = diagnose("ME037", "Orders/1", row=2, value="3")
    assert ExpectedDiagnostic("ME023|ME037", "Orders/1").matches(bad)
    assert ExpectedDiagnostic("ME037", "Orders/1", 2).matches(bad)
    assert not ExpectedDiagnostic("ME037", "Orders/1", 1).matches(bad)
    assert not ExpectedDiagnostic("ME037", "Orders/2").matches(bad)


def test_what_is_told_on_the_way_need_not_stand() -> None:
    gone = diagnose("ME065", "Orders")
    wanted = golden(on_the_way=(ExpectedDiagnostic("ME065", "Orders"),))
    assert diagnostic_differences(wanted, [], [gone]) == []
    assert len(diagnostic_differences(wanted, [], [])) == 1
