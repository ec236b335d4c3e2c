"""`_partnerEvents.json`."""

from __future__ import annotations

from fuzzing.json_mutations import mutated_json
from fuzzing.target import Target, check_plain, fixture_files

from mirror_engine.landing_zone.metadata import parse_partner_events


def run(content: bytes) -> None:
    """Plain text, or nothing."""
    found = parse_partner_events(content)
    check_plain(found.to_json() if found else "")


TARGET = Target("partner_events", lambda: fixture_files("_partnerEvents.json"), run, mutated_json)
