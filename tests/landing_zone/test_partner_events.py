"""Who says to publish (LZ-1.8)."""

from __future__ import annotations

import pytest

from mirror_engine.landing_zone.metadata import MAX_BYTES, PartnerEvents, parse_partner_events


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (
            b'{"partnerName": "Acme", "sourceInfo": {"sourceType": "PostgreSQL", "sourceVersion": "17"}}',
            PartnerEvents("Acme", "PostgreSQL", "17"),
        ),
        (b'\xef\xbb\xbf{"PARTNERNAME": "Acme", "sourceInfo": "none"}', PartnerEvents("Acme")),
        (b'{"partnerName": 3}', PartnerEvents()),
        (b"{}", PartnerEvents()),
    ],
)
def test_free_text_is_kept(content, expected):
    assert parse_partner_events(content) == expected


@pytest.mark.parametrize("content", [b"", b"[]", b"{", b'"\xff"', b"[" * 100_000, b"{}" + b" " * MAX_BYTES])
def test_anything_else_is_unreadable(content):
    assert parse_partner_events(content) is None
