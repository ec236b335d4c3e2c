"""`_metadata.json`, by itself."""

from __future__ import annotations

from fuzzing.json_mutations import mutated_json
from fuzzing.target import Target, check_plain, check_said, fixture_files

from mirror_engine.landing_zone.metadata import parse


def run(content: bytes) -> None:
    """Usable metadata, or errors: never both, never neither."""
    for strict in (False, True):
        metadata, said = parse(content, "Orders/_metadata.json", strict=strict)
        check_said(said)
        check_plain(metadata)
        assert metadata is not None or said


TARGET = Target("metadata", lambda: fixture_files("_metadata.json"), run, mutated_json)
