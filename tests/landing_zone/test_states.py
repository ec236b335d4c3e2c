"""Which states last until a person acts."""

from __future__ import annotations

import pytest

from mirror_engine.landing_zone.diagnostics import diagnose
from mirror_engine.landing_zone.states import (
    Behind,
    Blocked,
    CaughtUp,
    Empty,
    Halted,
    Loading,
    Unconfigured,
    needs_attention,
)

REFUSED = diagnose("ME009", "Items")
MISSING = diagnose("ME008", "Items", count=1, help="")


@pytest.mark.parametrize(
    ("state", "expected"),
    [
        (CaughtUp(), False),
        (Loading(1), False),
        (Behind(1), False),
        (Blocked("00000000000000000002.parquet", 1), True),
        (Halted(REFUSED, 1), True),
        (Unconfigured(REFUSED, 0), True),
        (Unconfigured(MISSING, 1), False),
        (Empty(expired=False), False),
        (Empty(expired=True), True),
    ],
)
def test_only_what_no_engine_can_mend_needs_attention(state, expected):
    assert needs_attention(state) is expected
