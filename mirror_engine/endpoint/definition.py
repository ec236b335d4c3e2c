"""An item's definition, `mirroring.json`, as the REST API carries it (LZ-9.5)."""

from __future__ import annotations

import base64
import binascii
import json
from dataclasses import dataclass
from typing import Any

from mirror_engine.config import Config
from mirror_engine.errors import ConfigError

MIRRORING = "mirroring.json"
_INLINE = "InlineBase64"
_SOURCE, _TARGET, _FORMAT = "GenericMirror", "MountedRelationalDatabase", "Delta"
_MOST_DAYS = 30


PLAIN = json.dumps(
    {
        "properties": {
            "source": {"type": _SOURCE, "typeProperties": {}},
            "target": {"type": _TARGET, "typeProperties": {"format": _FORMAT}},
        }
    }
).encode()  # of items that nobody gave one: made by a command, or found


class CorruptedPayload(Exception):
    """A definition that is none; its words say where."""


@dataclass(frozen=True)
class Definition:
    """What a definition asks for.

    Attributes:
        default_schema: of tables outside a schema folder; None where it says none.
        retention_days: of the Delta tables; None where it says none.
    """

    default_schema: str | None = None
    retention_days: int | None = None


def payload_of(definition: object) -> bytes:
    """`mirroring.json` from the REST API's `definition`, checked.

    Raises:
        CorruptedPayload: there is none, or it is no definition.
    """
    parts = definition.get("parts") if isinstance(definition, dict) else None
    if not isinstance(parts, list) or not all(isinstance(part, dict) for part in parts):
        raise CorruptedPayload("definition.parts is no list of parts.")
    found = [part for part in parts if part.get("path") == MIRRORING]
    if len(found) != 1:
        raise CorruptedPayload(f"definition.parts holds {len(found)} parts with the path {MIRRORING}.")
    if found[0].get("payloadType") != _INLINE:
        raise CorruptedPayload(f"The payloadType of {MIRRORING} is not {_INLINE}.")
    try:
        payload = base64.b64decode(found[0].get("payload"), validate=True)
    except (TypeError, ValueError, binascii.Error):
        raise CorruptedPayload(f"The payload of {MIRRORING} is no base64.") from None
    read_definition(payload)
    return payload


def parts_of(payload: bytes) -> dict[str, Any]:
    """The same, as the REST API gives it back."""
    encoded = base64.b64encode(payload).decode()
    return {"parts": [{"path": MIRRORING, "payload": encoded, "payloadType": _INLINE}]}


def read_definition(payload: bytes) -> Definition:
    """What a `mirroring.json` asks for; what it holds beyond that is passed over.

    Raises:
        CorruptedPayload: it is no JSON, or not of an open mirrored database.
    """
    try:
        content = json.loads(payload)
    except (ValueError, RecursionError):
        raise CorruptedPayload(f"{MIRRORING} is no JSON.") from None
    properties = _object(content, "properties")
    source, target = _object(properties, "source"), _object(properties, "target")
    if source.get("type") != _SOURCE:
        raise CorruptedPayload(f"properties.source.type is not {_SOURCE}.")
    if target.get("type") != _TARGET:
        raise CorruptedPayload(f"properties.target.type is not {_TARGET}.")
    options = target.get("typeProperties")
    return _options({} if options is None else _object(target, "typeProperties"))


def _object(holder: object, name: str) -> dict[str, Any]:
    found = holder.get(name) if isinstance(holder, dict) else None
    if not isinstance(found, dict):
        raise CorruptedPayload(f"{name} is missing, or no object.")
    return found


def _options(given: dict[str, Any]) -> Definition:
    kind, schema, days = given.get("format"), given.get("defaultSchema"), given.get("retentionInDays")
    if kind is not None and kind != _FORMAT:
        raise CorruptedPayload(f"properties.target.typeProperties.format is not {_FORMAT}.")
    if schema is not None and not _is_schema(schema):
        raise CorruptedPayload("properties.target.typeProperties.defaultSchema is no name of a schema.")
    is_number = isinstance(days, int) and not isinstance(days, bool)
    if days is not None and not (is_number and 1 <= days <= _MOST_DAYS):
        raise CorruptedPayload(f"properties.target.typeProperties.retentionInDays is not from 1 to {_MOST_DAYS}.")
    return Definition(schema, days)


def _is_schema(name: object) -> bool:
    try:
        return isinstance(name, str) and Config(default_schema=name).default_schema == name
    except ConfigError:
        return False
