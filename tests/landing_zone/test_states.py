"""Which states last until a person acts."""

from __future__ import annotations

import pytest

from mirror_engine.landing_zone.diagnostics import diagnose
from mirror_engine.landing_zone.states import Behind, Blocked, Latched, Level, Loading, Unarmed, Waiting, needs_a_person

REFUSED = diagnose("ME009", "Items")
MISSING = diagnose("ME008", "Items", count=1)


@pytest.mark.parametrize(
    ("state", "expected"),
    [
        (Level(), False),
        (Loading(1), False),
        (Behind(1), False),
        (Blocked("00000000000000000002.parquet", 1), True),
        (Latched(REFUSED, 1), True),
        (Unarmed(REFUSED, 0), True),
        (Unarmed(MISSING, 1), False),
        (Waiting(expired=False), False),
        (Waiting(expired=True), True),
    ],
)
def test_only_what_no_engine_can_mend_needs_a_person(state, expected) -> None:
    assert needs_a_person(state) is expected
