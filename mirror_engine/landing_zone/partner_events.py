"""`_partnerEvents.json`: who says to publish, for display only (LZ-1.8)."""

from __future__ import annotations

from dataclasses import dataclass

from mirror_engine.landing_zone.json_faults import JsonFault, JsonObject, read_json

MAX_BYTES = 1024 * 1024


@dataclass(frozen=True)
class PartnerEvents:
    """What the file says of the publisher; free text, `""` where it says nothing."""

    partner_name: str = ""
    source_type: str = ""
    source_version: str = ""

    def to_json(self) -> dict[str, str]:
        """The same as plain values."""
        return {"name": self.partner_name, "source_type": self.source_type, "source_version": self.source_version}


def parse_partner_events(content: bytes) -> PartnerEvents | None:
    """The file's content; None where it is no JSON object (ME006)."""
    if len(content) > MAX_BYTES:
        return None
    try:
        value = read_json(content)
    except JsonFault:
        return None
    if not isinstance(value, JsonObject):
        return None
    source = next((found for found in value.values("sourceInfo") if isinstance(found, JsonObject)), JsonObject())
    return PartnerEvents(_text(value, "partnerName"), _text(source, "sourceType"), _text(source, "sourceVersion"))


def _text(given: JsonObject, name: str) -> str:
    return next((found for found in given.values(name) if isinstance(found, str)), "")
