"""Which states last until a person acts: the results of fixtures hold all but what takes 14 days."""

from __future__ import annotations

import pytest

from mirror_engine.landing_zone.states import Empty, needs_attention


@pytest.mark.parametrize("expired", [False, True])
def test_empty_table_needs_attention_once_it_has_expired(expired):
    """LZ-7.1."""
    assert needs_attention(Empty(expired=expired)) is expired
